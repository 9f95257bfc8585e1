"""Every path of the step against the twin, and what every path does with a broken gradient."""

import functools
import os

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.utils._python_dispatch import TorchDispatchMode

from ndadam import NDAdam, NDAdamReference
from ndadam.optimizer import foreach_step as group_update
from ndadam.vectors.vector_numbers import new_numbers

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
SHAPES = [(6, 5, 3, 3), (4, 27), (3, 27), (8, 45)]  # two of equal length, to be stacked
# The interpreter computes what the kernel masks with numpy, which warns where a device does not.
pytestmark = [
    pytest.mark.filterwarnings("ignore:a compiled NDAdam.step does not use the fused kernel"),
    pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning"),
]
INTERPRETED_STEPS = 30  # that the interpreter is asked for
LR = 0.05  # the paper's
PATHS = ["for-loop", "foreach", "stacked", "compiled", "fused"]


def initial(dtype):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in SHAPES]


def gradients(step, dtype):
    generator = torch.Generator().manual_seed(1000 + step)
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in SHAPES]


class Path:
    """One way to take the steps of the same parameters."""

    def __init__(self, name, dtype, monkeypatch, scalars=(), **settings):
        if name == "fused":
            pytest.importorskip("triton", reason="the fused step is written in Triton")
            if INTERPRETED:
                for module in ("ndadam.optimizer.ndadam", "ndadam.fused.step"):
                    monkeypatch.setattr(f"{module}.runs_kernels", lambda p: True)
        if name == "stacked":
            monkeypatch.setattr(group_update, "_turn_together_", turn_stacked)
        device = "cpu" if name != "fused" or INTERPRETED else "cuda"
        self.device = device
        self.vectors = [nn.Parameter(w.to(device)) for w in initial(dtype)]
        self.scalars = [nn.Parameter(w.to(device)) for w in scalars]
        groups = [{"params": self.vectors, "vector_dim": 0, "lr": LR}]
        if self.scalars:
            groups.append({"params": self.scalars, "lr": LR})
        foreach = {"for-loop": False, "foreach": True, "stacked": True}.get(name)
        self.optimizer = NDAdam(groups, foreach=foreach, **settings)
        self.name = name
        self._step = self.optimizer.step
        if name == "compiled":
            torch._dynamo.reset()
            self._step = torch.compile(self._step, backend=CompileCounter())

    def step(self, grads):
        for p, grad in zip([*self.vectors, *self.scalars], grads, strict=True):
            p.grad = None if grad is None else grad.to(self.device, copy=True)
        self._step()

    def state(self, p):
        return [self.optimizer.state[p][key] for key in ("exp_avg", "exp_avg_sq")]


class DeviceNumbers:
    """Scratch as on CUDA: without what the kernel of the CPU's projection takes."""

    def like(self, exp_avg_sqs):
        return new_numbers(exp_avg_sqs)._replace(ones=[])


def turn_stacked(batch, vector_dim, rates, kept):
    """What CUDA's foreach path does."""
    largest = 250  # one is too large to stack
    return group_update._turn_stacked_(batch, vector_dim, rates, DeviceNumbers(), largest)


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
    return lambda dtype, **settings: Path(request.param, dtype, monkeypatch, **settings)


CHECKED = (1, 10, 1000)  # steps


@functools.cache
def twin_weights(dtype):
    """After 1, 10 and 1,000 steps of Algorithm 1 in float64, on gradients rounded to ``dtype``."""
    parameters = [nn.Parameter(w.double()) for w in initial(dtype)]
    twin = NDAdamReference(parameters, lr=LR, vector_dim=0)
    found = {}
    for step in range(1, max(CHECKED) + 1):
        for p, grad in zip(parameters, gradients(step, dtype), strict=True):
            p.grad = grad.double()
        twin.step()
        if step in CHECKED or step == INTERPRETED_STEPS:
            found[step] = [p.detach().clone() for p in parameters]
    return found


def train_and_check(ours, dtype, check):
    """``check(ours, twin)`` after 1, 10 and 1,000 steps; the interpreter stops early."""
    is_slow = ours.name == "fused" and INTERPRETED
    checked = (*CHECKED[:-1], INTERPRETED_STEPS) if is_slow else CHECKED
    for step in range(1, max(checked) + 1):
        ours.step(gradients(step, dtype))
        if step in checked:
            check([p.detach().cpu() for p in ours.vectors], twin_weights(dtype)[step])


def relative_error(ours, twin):
    flat = [torch.cat([w.double().flatten() for w in weights]) for weights in (ours, twin)]
    return ((flat[0] - flat[1]).norm() / flat[1].norm()).item()


def skip_float64_of_the_kernel(ours):
    """The kernel computes in float32, by design; float64 gets another path, tested here too."""
    if ours.name == "fused":
        pytest.skip("the fused step leaves float64 to the others")


def test_float64_equals_the_twin(path):
    ours = path(torch.float64)
    skip_float64_of_the_kernel(ours)

    def check(weights, twin):
        torch.testing.assert_close(weights, twin, rtol=0, atol=1e-12)
        assert worst_norm(weights) < 1e-12

    train_and_check(ours, torch.float64, check)


def test_float32_follows_the_twin(path):
    """Each step rounds the weights, and the errors walk; slower rates than this keep more of them.

    With LR = 0.01 the same 1,000 steps end 1.07e-6 away.
    """

    def check(weights, twin):
        assert relative_error(weights, twin) < 1e-6
        assert worst_norm(weights) < 1e-6

    train_and_check(path(torch.float32), torch.float32, check)


SCALARS = [(7,), (3, 5), ()]


def scalar_weights(offset):
    generator = torch.Generator().manual_seed(2000 + offset)
    return [torch.randn(s, generator=generator, dtype=torch.float64) for s in SCALARS]


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)], ids=str
)
def test_scalars_follow_the_twin(path, dtype, tolerance):
    """After 1, 10 and 1,000 steps at the paper's rate; the interpreter stops early.

    float32 ends 9e-7 away, as torch's Adam does, bit for bit.
    """
    ours = path(dtype, scalars=[w.to(dtype) for w in scalar_weights(0)])
    if dtype == torch.float64:
        skip_float64_of_the_kernel(ours)
    exact = [nn.Parameter(w.to(dtype).double()) for w in scalar_weights(0)]
    ours.optimizer.param_groups[1]["lr"] = 0.001
    twin = NDAdamReference(exact, lr=0.001)
    is_slow = ours.name == "fused" and INTERPRETED
    checked = (*CHECKED[:-1], INTERPRETED_STEPS) if is_slow else CHECKED
    for step in range(1, max(checked) + 1):
        grads = [grad.to(dtype) for grad in scalar_weights(step)]
        for p, grad in zip(exact, grads, strict=True):
            p.grad = grad.double()
        twin.step()
        ours.step([*[None] * len(SHAPES), *grads])
        if step in checked:
            found = [p.detach().cpu() for p in ours.scalars]
            assert relative_error(found, [p.detach() for p in exact]) < tolerance


def test_two_runs_are_equal_bit_for_bit(path):
    runs = [path(torch.float32), path(torch.float32)]
    for ours in runs:
        for step in range(5):
            ours.step(gradients(step, torch.float32))

    for p, q in zip(*(ours.vectors for ours in runs), strict=True):
        assert torch.equal(p, q)
        pairs = zip(runs[0].state(p), runs[1].state(q), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


def worst_norm(weights):
    norms = torch.cat([torch.linalg.vector_norm(w.double().flatten(1), dim=1) for w in weights])
    return (norms - 1).abs().max().item()


BROKEN = [float("nan"), float("inf"), -float("inf"), 1e30]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_vector_with_a_broken_gradient_is_left_as_it_was_and_counted(path, dtype):
    """It and its moments, bit for bit; every other vector takes the step that it would take."""
    clean, broken = path(dtype), path(dtype)
    clean.step(gradients(0, dtype))
    broken.step(gradients(0, dtype))
    before = [[x.clone() for x in (p.detach(), *broken.state(p))] for p in broken.vectors]
    grads = gradients(1, dtype)
    clean.step(grads)
    bad_rows = [[4], [], [1], [0, 7]]
    grads[0][4, 1, 2, 0], grads[2][1, 0], grads[3][0, 44], grads[3][7] = BROKEN
    broken.step(grads)

    for p, q, rows, old in zip(broken.vectors, clean.vectors, bad_rows, before, strict=True):
        others = [row for row in range(len(p)) if row not in rows]
        now = [p.detach(), *broken.state(p)]
        expected = [q.detach(), *clean.state(q)]
        for new, unchanged, stepped in zip(now, old, expected, strict=True):
            assert torch.equal(new[rows], unchanged[rows])
            assert torch.equal(new[others], stepped[others])
        assert broken.optimizer.state[p]["step"].item() == 2  # the count is the parameter's
    assert list(broken.optimizer.skipped_vectors().values()) == [1, 1, 2]
    assert clean.optimizer.skipped_vectors() == {}


def test_a_vector_goes_on_after_a_broken_gradient(path):
    """Three broken steps are counted, with the parameter's name, and leave no trace in the row."""
    ours = path(torch.float32)
    for step in range(6):
        grads = gradients(step, torch.float32)
        if step % 2:
            grads[1][3, 0] = float("nan")
        ours.step(grads)

    assert ours.optimizer.skipped_vectors() == {"parameter 1 of group 0 with shape (4, 27)": 3}
    for p in ours.vectors:
        norms = torch.linalg.vector_norm(p.detach().flatten(1), dim=1)
        torch.testing.assert_close(norms, torch.ones_like(norms), rtol=0, atol=1e-6)


def test_scalars_do_what_torch_does_with_a_broken_gradient(path):
    start = torch.linspace(-1, 1, 5)
    ours = path(torch.float32, scalars=[start])
    theirs = nn.Parameter(start.clone())
    adam = torch.optim.Adam([theirs], lr=LR)
    for step in range(3):
        grad = torch.linspace(1, 2, 5) * (step + 1)
        if step == 1:
            grad[1:] = torch.tensor(BROKEN)
        theirs.grad = grad.clone()
        adam.step()
        ours.step([*gradients(step, torch.float32), grad])

    found = ours.scalars[0].detach().cpu()
    torch.testing.assert_close(found, theirs.detach(), rtol=1e-5, atol=1e-6, equal_nan=True)
    assert ours.optimizer.skipped_vectors() == {}


@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_a_radial_or_a_zero_gradient_moves_no_vector(path, eps):
    ours = path(torch.float32, eps=eps)
    ours.step([torch.zeros(s) for s in SHAPES])  # creates the state, which normalises
    before = [p.detach().clone() for p in ours.vectors]

    ours.step([torch.zeros(s) for s in SHAPES])
    assert all(torch.equal(p.detach(), w) for p, w in zip(ours.vectors, before, strict=True))
    ours.step([-1e3 * w.cpu() for w in before])

    for p, w in zip(ours.vectors, before, strict=True):
        torch.testing.assert_close(p.detach(), w, rtol=0, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("factor", [3.0, -5.0])
def test_a_rounded_multiple_of_a_vector_in_half_precision_does_not_move_it(path, dtype, factor):
    """Its tangent is the rounding of the gradient, which was turned at the full rate."""
    ours = path(dtype)
    before = [p.detach().clone() for p in ours.vectors]
    for _ in range(5):
        ours.step([(factor * p.detach().cpu()) for p in ours.vectors])

    for p, w in zip(ours.vectors, before, strict=True):
        assert torch.equal(p.detach(), w)
        assert not ours.state(p)[1].any()


def test_groups_may_mix_types(path):
    ours = path(torch.float32)
    skip_float64_of_the_kernel(ours)
    double = nn.Parameter(initial(torch.float64)[1])
    ours.optimizer.add_param_group({"params": [double], "vector_dim": 0, "lr": LR})
    ours.optimizer.param_groups[0]["params"].append(double)
    ours.optimizer.param_groups.pop()
    ours.vectors.append(double)
    for step in range(2):
        ours.step([*gradients(step, torch.float32), gradients(step, torch.float32)[1].double()])

    torch.testing.assert_close(
        double.detach().float(), ours.vectors[1].detach().cpu(), rtol=0, atol=1e-6
    )
    assert ours.optimizer.state[double]["exp_avg"].dtype == torch.float64


@pytest.mark.parametrize("vector_dim", [0, 1, -2])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "cut"])
def test_stacks_of_any_layout_are_put_back_in_place(monkeypatch, layout, vector_dim):
    """Two parameters of equal length share a stack, one has its own."""
    shapes = [(3, 4, 2, 2), (4, 3, 2, 2), (3, 3, 2, 1)]
    generator = torch.Generator().manual_seed(0)

    def parameter(shape):
        w = torch.randn(*shape[:-1], 2 * shape[-1], generator=generator, dtype=torch.float64)
        if layout == "cut":
            return nn.Parameter(w[..., ::2])
        w = w[..., ::2].contiguous()
        if layout == "channels_last":
            w = w.contiguous(memory_format=torch.channels_last)
        return nn.Parameter(w)

    stacked = [parameter(s) for s in shapes]
    single = [nn.Parameter(p.detach().clone()) for p in stacked]
    together = NDAdam(stacked, vector_dim=vector_dim, foreach=True)
    alone = NDAdam(single, vector_dim=vector_dim, foreach=False)
    strides = [p.stride() for p in stacked]
    for _ in range(3):
        for p, q in zip(stacked, single, strict=True):
            p.grad = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            q.grad = p.grad.clone()
        with monkeypatch.context() as patch:
            patch.setattr(group_update, "_turn_together_", turn_stacked)
            together.step()
        alone.step()

    assert [p.stride() for p in stacked] == strides
    for p, q in zip(stacked, single, strict=True):
        torch.testing.assert_close(p.detach(), q.detach(), rtol=0, atol=1e-12)
        for key in ("exp_avg", "exp_avg_sq"):
            ours, theirs = together.state[p][key], alone.state[q][key]
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


class Calls(TorchDispatchMode):
    """Counts what would be a launch on a device: calls that do more than look at a tensor."""

    LOOKS = ("view", "permute", "split_with_sizes", "_local_scalar_dense")

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.overloadpacket.__name__ not in self.LOOKS
        return func(*args, **(kwargs or {}))


def test_more_vectors_of_a_stacked_length_take_no_more_launches(monkeypatch):
    monkeypatch.setattr(group_update, "_turn_together_", turn_stacked)

    def calls(layers):
        parameters = [nn.Parameter(torch.eye(4).view(4, 2, 2)) for _ in range(layers)]
        optimizer = NDAdam(parameters, vector_dim=0, foreach=True)
        for _ in range(2):  # counters are made in the first
            for p in parameters:
                p.grad = torch.full_like(p, float("nan"))
            with Calls() as counted:
                optimizer.step()
        assert list(optimizer.skipped_vectors().values()) == [8] * layers
        return counted.count

    assert calls(2) == calls(12)
