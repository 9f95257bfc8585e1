"""ND-Adam: Adam on the directions of weight vectors.

Zhang, Ma, Li and Wu, "Normalized Direction-preserving Adam", arXiv:1709.04546, Algorithm 1.
Shapes: V weight vectors of D elements each; D may span several dimensions (a filter's C, H, W).
"""

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.optim import Optimizer

from ndadam.cuda import runs_kernels
from ndadam.fused.choice import (
    check_fused,
    fused_group,
    new_fused_step,
    new_plan,
    prepare_capture,
    refuse_new_state_in_capture,
    wants_fused,
)
from ndadam.optimizer.compiled_step import CompiledBatch, compiled_batches, take_compiled_step_
from ndadam.optimizer.foreach_step import (
    advance_,
    batches_by_step,
    update_scalars_,
    update_vectors_,
)
from ndadam.optimizer.param_groups import ParameterNames
from ndadam.optimizer.settings import (
    SETTINGS,
    check_decay,
    check_group,
    check_loaded,
    check_parameter,
    make_plain,
    refuse_settings_of_others,
    store_numbers,
    warn_of_unknown_keys,
)
from ndadam.optimizer.skipped_vectors import SkippedVectors
from ndadam.optimizer.unit_norm import UnitNorms
from ndadam.vectors.moments import Pair, check_kinds, fitted_moments, new_moments
from ndadam.vectors.vector_numbers import KeptNumbers

if TYPE_CHECKING:
    from ndadam.fused.launch import FusedGroup
    from ndadam.fused.plan import FusedPlan
    from ndadam.fused.step import FusedStep, SumsRequest


class NDAdam(Optimizer):
    """Adam that turns each weight vector on the unit sphere and never stretches it.

    A parameter group with ``vector_dim`` set holds weight vectors: the slices of each of its
    parameters along that dimension (0 for ``nn.Linear`` and ``nn.Conv2d``). A group without it gets
    plain Adam. ``ndadam.param_groups`` builds both groups from a model.

    For each vector w with loss gradient g, t = 1, 2, …::

        g    <- g - (g . w) w                      only the tangential part turns w
        m    <- beta1 m + (1 - beta1) g            exp_avg, (V, D)
        v    <- beta2 v + (1 - beta2) ||g||^2      exp_avg_sq, one number per vector, (V, 1)
        w    <- w - lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)
        w    <- w / ||w||

    Vectors are normalised here, frozen ones at their first gradient. A step that finds another
    length, because weights have been replaced, measures from the direction u = w / ||w||, with the
    gradient ||w|| g that the loss has with respect to u. ``p.grad`` is never changed.
    State follows its parameter's device and strides and is float32 for half-precision parameters.

    What happens at the edges, in every path alike: a vector whose gradient is not finite, or too
    long for its square to be, is left as it was with its moments, and ``skipped_vectors`` counts
    it; scalars do what they do in ``torch.optim.Adam``. A zero vector draws a warning; it is turned
    to unit norm by its first step with lr > 0. A unit vector that has seen no tangential gradient,
    in the working precision, is left as it is, bit for bit, also with eps = 0; betas[1] = 0
    remembers none, so there a step without a tangential gradient leaves it. A vector of one element
    stays at +-1. No vector touches another.

    ``torch.compile`` of ``step`` makes one graph for all parameters, and new rates no other.
    A parameter may be a ``DTensor`` if each weight vector is whole on its process.

    Args:
        params: Parameters, or parameter groups; a group may have its own value of each argument.
        lr: Step length, >= 0; a number or a tensor of one element, which is read at each step.
            For weight vectors this is the paper's alpha^v, measured along the tangent of the unit
            sphere: the first step turns a vector by arctan(lr) radians. The default is the
            paper's; scalars want their own, such as 0.001.
            Other settings may be numbers of any kind, tensors and numpy's included: they are read
            once, and kept as Python's.
        betas: Decay rates of the running averages of the gradient and of its square, in [0, 1).
        eps: Added to the root of the second moment, after bias correction, >= 0.
        vector_dim: Dimension that indexes the weight vectors, or None for plain Adam.
        weight_decay: L2 coefficient, >= 0, for scalars only. The norm of weight vectors is pinned,
            so decay on them is refused.
        maximize: Ascend instead of descend.
        capturable: Allow the fused step to be captured in a CUDA graph, after one step outside of
            it. That step turns ``lr`` into a tensor on the device, so that what a scheduler writes
            into it takes effect in replays; a number assigned over it, with the next such step.
            Without effect on other devices, so that a checkpoint of a captured run loads there.
        foreach: Update many parameters per call. None uses it where it is faster: on other devices
            than the CPU, and there for small parameters.
        fused: Update all parameters in one launch, on CUDA. None uses it for every parameter that
            it can take: not for float64, and not for vectors that are not dense in memory.

    Raises:
        ValueError: A value outside its range or no number, a setting of another optimizer that is
            on (``amsgrad``), weight decay on vectors, a ``vector_dim`` that a
            parameter does not have, complex or lazy parameters, vectors cut by sharding.
        RuntimeError: Sparse gradients, in ``step``; ``fused=True`` where nothing can be fused; a
            capture that would not replay what ``step`` does.
    """

    _is_built = False
    _warns_of_compiled_step = True
    _fused: "FusedStep | None" = None
    _plan: "FusedPlan | None" = None  # of the last step, if all of it was fused
    _request: "SumsRequest | None" = None  # to the next step

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 0.05,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        vector_dim: int | None = None,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "vector_dim": vector_dim,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "foreach": foreach,
            "fused": fused,
        }
        self._skipped = SkippedVectors()
        self._numbers = KeptNumbers()
        self._names = ParameterNames()
        self._norms = UnitNorms()
        self._device_lrs: dict[int, Tensor] = {}
        self._given: list[set[str]] = []  # keys of each group before it gets the defaults
        super().__init__(params, defaults)
        # Only now, so that a refused group leaves the weights of the groups before it alone.
        for index in range(len(self.param_groups)):
            self._normalise_group(index)
        self._is_built = True
        self._norms.warn_of_trained(stacklevel=3)
        self._warn_of_no_effect()
        if all(group["vector_dim"] is None for group in self.param_groups):
            self._warn_of_plain_adam(0)
        self._given.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_names": self._names}  # a copy's messages have them too

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._is_built = True
        # Also called when a state dict is loaded, which keeps what has been counted.
        self.__dict__.setdefault("_skipped", SkippedVectors())
        self.__dict__.setdefault("_numbers", KeptNumbers())
        self.__dict__.setdefault("_names", ParameterNames())
        self.__dict__.setdefault("_norms", UnitNorms())
        self.__dict__.setdefault("_device_lrs", {})
        self.__dict__.setdefault("_given", [])
        # torch's, for optimizers whose step it can differentiate: groups would get a key from it.
        self.defaults.pop("differentiable", None)
        for group in self.param_groups:
            if group.get("differentiable") is False:  # as earlier versions have saved it
                del group["differentiable"]
            for key, value in self.defaults.items():
                group.setdefault(key, value)

    def add_param_group(self, param_group: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Add a group, refuse what cannot be updated, and normalise its weight vectors.

        A list of groups is added as a whole, or not at all: ``param_groups(layer)`` of a layer
        that is trained from now on.
        """
        first = len(self.param_groups)
        try:
            for group in param_group if isinstance(param_group, list) else [param_group]:
                self._add(group)
        except Exception:
            del self.param_groups[first:], self._given[first:]
            raise
        if self._is_built:
            for index in range(first, len(self.param_groups)):
                self._normalise_group(index)
            self._norms.warn_of_trained(stacklevel=3)
            self._warn_of_plain_adam(first)
            self._given.clear()

    def _add(self, param_group: dict[str, Any]) -> None:
        """Add a group that fits, with the defaults for what it does not say."""
        names: list[str] = []
        if isinstance(param_group, dict) and "names" in param_group:
            # Not a setting: kept out of the group, so that state dicts look like torch's.
            names = param_group["names"]
            param_group = {key: value for key, value in param_group.items() if key != "names"}
        if isinstance(param_group, dict) and isinstance(param_group.get("params"), Iterable):
            params = param_group["params"]
            if not isinstance(params, Tensor | set):  # those torch takes, and refuses, as they are
                # Looked at here and again by torch, which a generator would not survive.
                params = param_group["params"] = list(params)
                self._names.refuse_shared(self.param_groups, params, names)
        given = set(param_group) if isinstance(param_group, dict) else set()
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        self._names.learn(group["params"], names)
        index = len(self.param_groups) - 1
        refuse_settings_of_others(f"group {index}", group)
        store_numbers(group)
        check_group(group)
        check_fused(group)
        for name, p in self._named(index):
            check_parameter(name, p, group["vector_dim"])
        warn_of_unknown_keys(f"group {index}", group, stacklevel=4)
        self._given += [set()] * (index - len(self._given)) + [given]

    def _warn_of_plain_adam(self, first: int) -> None:
        """Warn if groups from ``first`` on hold matrices and do not say whether these are vectors.

        A group that has ``vector_dim``, and be it None, says so.
        """
        silent = [
            group
            for group, given in zip(self.param_groups[first:], self._given[first:], strict=True)
            if "vector_dim" not in given and group["vector_dim"] is None
        ]
        matrices = [p for group in silent for p in group["params"] if p.dim() > 1]
        if matrices:
            which = "no parameter group" if first == 0 else "the added group"
            has = "has" if first == 0 else "has no"
            warnings.warn(
                f"{which} {has} vector_dim: {len(matrices)} parameter(s) of 2 or more dimensions "
                f"get plain Adam, at lr={float(silent[0]['lr']):g}. For ND-Adam write "
                "NDAdam(param_groups(model)), or add_param_group(param_groups(layer)); a group "
                "with 'vector_dim': None says that plain Adam is meant",
                stacklevel=3,
            )

    def _warn_of_no_effect(self) -> None:
        """Warn of arguments that every group overrides."""
        usual = inspect.signature(NDAdam).parameters
        for key in SETTINGS[:5]:
            value = self.defaults[key]
            is_said = isinstance(value, Tensor) or repr(value) != repr(usual[key].default)
            if is_said and all(key in given for given in self._given):
                warnings.warn(
                    f"{key}={value!r} has no effect: every group has its own {key}. It is the "
                    "default of groups that are added without one",
                    stacklevel=3,
                )

    def state_dict(self) -> dict[str, Any]:
        """The state as torch's optimizers have it; numbers in it are Python's."""
        for group in self.param_groups:
            make_plain(group)  # a schedule may compute with numpy's
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load moments and settings; state keeps its type and follows its parameter's strides.

        torch would round the float32 moments of half-precision parameters to half precision.

        Raises:
            ValueError: Groups or shapes that do not fit, values that no step leaves, or groups of
                another optimizer; this one is then as it was.
        """
        if not isinstance(state_dict, dict):
            raise ValueError(f"the loaded state must be a dict, got {type(state_dict).__name__}")
        before = self.state, self.param_groups
        loaded: dict[str, Any] = {}
        # The last of the hooks before and the first of those after: the caller's may change what is
        # loaded, and see what has been.
        hooks = (
            self.register_load_state_dict_pre_hook(lambda _, last: self._check(last, loaded)),
            self.register_load_state_dict_post_hook(lambda _: self._fit(loaded), prepend=True),
        )
        try:
            super().load_state_dict(state_dict)
        except Exception:  # torch's own too, of a moment that is no tensor
            self.state, self.param_groups = before
            raise
        finally:
            for hook in hooks:
                hook.remove()

    def _check(self, state_dict: dict[str, Any], loaded: dict[str, Any]) -> None:
        """Refuse what torch would fail on with words of its own; put the rest into ``loaded``."""
        check_loaded(state_dict)
        groups = state_dict["param_groups"]
        saved_ids = [i for group in groups for i in group["params"]]
        named = [pair for index in range(len(self.param_groups)) for pair in self._named(index)]
        for i, (name, p) in zip(saved_ids, named, strict=False):  # torch refuses other numbers
            check_kinds(name, p, state_dict["state"].get(i, {}))
        for index, (saved, own) in enumerate(zip(groups, self.param_groups, strict=False)):
            where = f"group {index} of the loaded state"
            warn_of_unknown_keys(where, saved, own, stacklevel=4)
        loaded.update(state_dict)

    def _fit(self, loaded: dict[str, Any]) -> None:
        """Take the moments from what was loaded, in the type and strides of new ones."""
        saved_ids = [i for group in loaded["param_groups"] for i in group["params"]]
        for index, group in enumerate(self.param_groups):
            store_numbers(group)
            check_group(group)
            for name, p in self._named(index):
                check_parameter(name, p, group["vector_dim"])
                saved = loaded["state"].get(saved_ids.pop(0))
                if saved:
                    self.state[p] = fitted_moments(name, p, group["vector_dim"], saved)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient.

        Args:
            closure: Reevaluates the model, computes gradients and returns the loss.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if torch.compiler.is_compiling():
            take_compiled_step_(self._compiled_batches())
        else:
            self._take_step()
        return loss

    def skipped_vectors(self) -> dict[str, int]:
        """How many steps the vectors of each parameter have sat out for a broken gradient.

        By name, only of parameters that have any; vectors count apart. Waits for the device.
        """
        totals = {}
        for index in range(len(self.param_groups)):
            for name, p in self._named(index):
                total = self._skipped.total(p)
                if self._fused is not None:
                    total += self._fused.skipped_vectors(p)
                if total:
                    totals[name] = total
        return totals

    def request_sums(self, request: "SumsRequest") -> None:
        """Have the next step write its sums, or decline before it updates anything."""
        self._request = request

    def _decline_request(self) -> None:
        if self._request is not None:
            self._request.decline()
            self._request = None

    def _take_step(self) -> None:
        if self._plan is not None and self._repeat_step(self._plan):
            return
        self._decline_request()
        self._plan = None
        fused_groups: dict[int, FusedGroup] = {}
        is_fused = True
        for index, group in enumerate(self.param_groups):
            fused, others = self._split(index)
            is_fused = is_fused and not others
            if fused:
                fused_groups[index] = fused_group(fused, group)
            for step, batch in batches_by_step(others, group).items():
                if group["vector_dim"] is None:
                    update_scalars_(batch, group, step)
                else:
                    update_vectors_(batch, group, step, self._skipped, self._numbers)
        if fused_groups:
            self._launch(fused_groups)
            if is_fused:
                self._plan = new_plan(self.param_groups, self.state, fused_groups)

    def _repeat_step(self, plan: "FusedPlan") -> bool:
        """Take the last step with the gradients and rates of now; False where it is another one."""
        groups = plan.next_step(self.param_groups, self.state)
        if groups is None:
            return False
        for index, step in groups.items():
            self._prepare_capture(index, step.params[0], is_fused=True)
            step.take_rates(self.param_groups[index])
        request, self._request = self._request, None
        self._launch(groups, plan.addresses, request)
        return True

    @_disable_dynamo
    def _compiled_batches(self) -> list[CompiledBatch]:
        """What the compiled step updates; what is fused is updated here."""
        self._decline_request()
        # A GradScaler that leaves unscaling to the step relies on the fused one.
        compiled = getattr(self, "found_inf", None) is None
        fused_groups: dict[int, FusedGroup] = {}
        batches: list[CompiledBatch] = []
        for index, group in enumerate(self.param_groups):
            fused, others = self._split(index, compiled=compiled)
            if self._warns_of_compiled_step and compiled and self._would_be_fused(others, group):
                self._warn_of_compiled_step()
            if fused:
                fused_groups[index] = fused_group(fused, group)
            advance_(others)
            batches += compiled_batches(others, group, self._skipped)
        if fused_groups:
            self._launch(fused_groups)
        return batches

    def _warn_of_compiled_step(self) -> None:
        """Say once that the kernel that an eager step takes is the faster one."""
        self._warns_of_compiled_step = False
        warnings.warn(
            "a compiled NDAdam.step does not use the fused kernel and takes several times as long "
            "as the eager one: leave optimizer.step out of torch.compile, or make the optimizer "
            "with fused=True, which keeps the kernel",
            stacklevel=2,
        )

    def _would_be_fused(self, pairs: list[Pair], group: dict[str, Any]) -> bool:
        """Whether an eager step would take any of these with the fused kernel."""
        if not pairs or not runs_kernels(pairs[0][0]) or not wants_fused(group):
            return False
        fused_step, dim = self.fused_step, group["vector_dim"]
        return fused_step is not None and any(fused_step.takes(p, dim) for p, _ in pairs)

    def _launch(
        self,
        groups: "dict[int, FusedGroup]",
        addresses: list[int] | None = None,
        request: "SumsRequest | None" = None,
    ) -> None:
        assert self.fused_step is not None  # or nothing would have been split off for it
        self.fused_step(
            list(groups.values()),
            # torch's GradScaler sets these two for the duration of a step.
            grad_scale=getattr(self, "grad_scale", None),
            found_inf=getattr(self, "found_inf", None),
            addresses=addresses,
            request=request,
        )
        for group in groups.values():
            group.grads = ()  # ``zero_grad`` must free them

    @property
    def fused_step(self) -> "FusedStep | None":
        """The fused step with its counters and records; None where Triton is not installed."""
        if self._fused is None:
            self._fused = new_fused_step()
        return self._fused

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Whether ``step`` unscales, and skips, on the device: GradScaler then leaves it to it."""
        return all(
            runs_kernels(p)
            and wants_fused(group)
            and self.fused_step is not None
            and self.fused_step.takes(p, group["vector_dim"])
            for group in self.param_groups
            for p in group["params"]
            if p.grad is not None
        )

    def _split(self, index: int, *, compiled: bool = False) -> tuple[list[Pair], list[Pair]]:
        """What one group updates now: what the fused step takes, and the others."""
        group = self.param_groups[index]
        if group["vector_dim"] is not None:
            check_decay(group)
        pairs = self._ready(index)
        fused: list[Pair] = []
        others = pairs
        fused_step = None
        if pairs and runs_kernels(pairs[0][0]) and wants_fused(group, compiled=compiled):
            fused_step = self.fused_step  # not earlier: loading Triton takes a while
        if fused_step is not None:
            takes, vector_dim = fused_step.takes, group["vector_dim"]
            fused = [pair for pair in pairs if takes(pair[0], vector_dim)]
            if len(fused) == len(pairs):
                others = []
            elif fused:
                others = [pair for pair in pairs if not takes(pair[0], vector_dim)]
        if pairs:
            self._prepare_capture(index, pairs[0][0], is_fused=not others)
        return fused, others

    def _prepare_capture(self, index: int, p: Tensor, *, is_fused: bool) -> None:
        if p.is_cuda:
            group, kept = self.param_groups[index], self._device_lrs
            prepare_capture(group, p.device, kept, index, is_fused=is_fused)

    def _ready(self, index: int) -> list[Pair]:
        """The parameters of one group that have a gradient, with their state."""
        group = self.param_groups[index]
        pairs = []
        for position, p in enumerate(group["params"]):
            grad = p.grad
            if grad is None or p.numel() == 0:
                continue
            if grad.layout is not torch.strided:
                raise RuntimeError(
                    "NDAdam does not support sparse gradients, please consider SparseAdam instead: "
                    f"got {grad.layout} for {self._names.of(group, index, position)}"
                )
            state = self.state[p]
            if not state:
                refuse_new_state_in_capture(p)
                if group["vector_dim"] is not None:
                    name = self._names.of(group, index, position)
                    # The step measures from any length, but not from one beyond its type's range.
                    self._norms.normalise_(name, p, group["vector_dim"], only_extremes=True)
                state.update(new_moments(p, group["vector_dim"]))
            pairs.append((p, state))
        return pairs

    def _named(self, index: int) -> Iterator[tuple[str, Tensor]]:
        group = self.param_groups[index]
        for position, p in enumerate(group["params"]):
            yield self._names.of(group, index, position), p

    def _normalise_group(self, index: int) -> None:
        vector_dim = self.param_groups[index]["vector_dim"]
        for name, p in self._named(index):
            # A frozen layer keeps its function; its vectors are normalised when it is trained.
            if vector_dim is not None and p.requires_grad:
                self._norms.normalise_(name, p, vector_dim)
