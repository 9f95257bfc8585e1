"""A step that is recognised as the last one again: the same result, and no change overlooked.

Without a CUDA device the choice is made as if there were one, and Triton's interpreter runs it.
"""

import copy
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("triton", reason="the fused step is written in Triton")

from ndadam import NDAdam, param_groups
from tests.ndadam.fused.test_choice import DEVICE, kernels_run_everywhere

assert kernels_run_everywhere  # a fixture that every test here uses
# The interpreter computes what the kernel masks with numpy, which warns where a device does not.
pytestmark = [
    pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning"),
]


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Linear(5, 3)).to(DEVICE)


class Run:
    """A model and its optimizer; ``planned`` says whether a step may repeat the last one."""

    def __init__(self, planned: bool) -> None:
        self.model = make_model()
        self.optimizer = NDAdam(param_groups(self.model))
        self.repeats = 0
        repeat = self.optimizer._repeat_step

        def counted(plan: object) -> bool:
            found = planned and repeat(plan)  # type: ignore[arg-type]
            self.repeats += found
            return found

        self.optimizer._repeat_step = counted  # type: ignore[method-assign]

    def step(self, seed: int, without: int | None = None) -> None:
        generator = torch.Generator().manual_seed(seed)
        for i, p in enumerate(self.model.parameters()):
            grad = torch.randn(p.shape, generator=generator).to(DEVICE)
            p.grad = None if i == without else grad.contiguous()
        self.optimizer.step()

    def everything(self) -> list[Tensor]:
        state = [s[key] for s in self.optimizer.state.values() for key in sorted(s)]
        return [*(p.detach() for p in self.model.parameters()), *state]


def assert_equal(run: Run, other: Run) -> None:
    assert all(torch.equal(a, b) for a, b in zip(run.everything(), other.everything(), strict=True))


def rates(run: Run) -> None:
    for group in run.optimizer.param_groups:
        group |= {"lr": group["lr"] / 3, "betas": (0.8, 0.99), "eps": 1e-5, "maximize": True}


def tensor_rate(run: Run) -> None:
    run.optimizer.param_groups[0]["lr"] = torch.tensor(0.01)


def decay_of_scalars(run: Run) -> None:
    run.optimizer.param_groups[1]["weight_decay"] = 0.1


def moved_weights(run: Run) -> None:
    run.model[0].weight.data = run.model[0].weight.data.clone()


def other_strides(run: Run) -> None:
    run.model.to(memory_format=torch.channels_last)


def replaced_moment(run: Run) -> None:
    state = run.optimizer.state[run.model[2].weight]
    state["exp_avg"] = torch.ones_like(state["exp_avg"])


def moment_moved_in_place(run: Run) -> None:
    state = run.optimizer.state[run.model[2].weight]
    state["exp_avg_sq"].data = torch.ones_like(state["exp_avg_sq"])


def forgotten_state(run: Run) -> None:
    del run.optimizer.state[run.model[0].weight]


def replaced_state(run: Run) -> None:
    state = run.optimizer.state[run.model[0].weight]
    run.optimizer.state[run.model[0].weight] = {key: v.clone() for key, v in state.items()}


def loaded_state(run: Run) -> None:
    saved = copy.deepcopy(run.optimizer.state_dict())
    for state in saved["state"].values():
        state["exp_avg"].mul_(2)
    run.optimizer.load_state_dict(saved)


def loaded_weights(run: Run) -> None:
    run.model.load_state_dict({k: v.clone() for k, v in make_model().state_dict().items()})


def another_group(run: Run) -> None:
    p = nn.Parameter(torch.ones(2, 3, device=DEVICE))
    run.model.append(nn.Module())
    run.model[3].register_parameter("extra", p)
    run.optimizer.add_param_group({"params": [p], "vector_dim": 0})


def fewer_parameters(run: Run) -> None:
    run.optimizer.param_groups[0]["params"].pop()


def another_path(run: Run) -> None:
    run.optimizer.param_groups[0]["foreach"] = True


def columns(run: Run) -> None:
    group = run.optimizer.param_groups[0]
    run.optimizer.param_groups[0] = group | {"params": [run.model[0].weight], "lr": 0.1}


ONLY_NUMBERS = [rates, tensor_rate, decay_of_scalars, loaded_weights]
MORE = [
    moved_weights,
    other_strides,
    replaced_moment,
    moment_moved_in_place,
    forgotten_state,
    replaced_state,
    loaded_state,
    another_group,
    fewer_parameters,
    another_path,
    columns,
]


@pytest.mark.parametrize("change", [*ONLY_NUMBERS, *MORE], ids=lambda change: change.__name__)
def test_a_change_between_steps_is_seen(change: Callable[[Run], None]) -> None:
    planned, plain = Run(planned=True), Run(planned=False)
    for run in (plain, planned):
        for seed in range(3):
            run.step(seed)
        change(run)
        run.step(3)
        before = run.repeats
        run.step(4)

    assert_equal(planned, plain)
    assert plain.repeats == 0
    # The first step makes the plan, a change makes another.
    assert before == (3 if change in ONLY_NUMBERS else 2)
    assert planned.repeats == before + (change is not another_path)


def test_parameters_that_come_and_go_count_their_own_steps() -> None:
    planned, plain = Run(planned=True), Run(planned=False)
    for run in (planned, plain):
        for seed, without in enumerate([None, 0, 0, None, None, 2, 2]):
            run.step(seed, without)

    assert_equal(planned, plain)
    assert planned.repeats == 3
    assert planned.optimizer.state[planned.model[0].weight]["step"].item() == 5


def test_gradients_with_other_strides_are_still_copied() -> None:
    planned, plain = Run(planned=True), Run(planned=False)
    for run in (planned, plain):
        for seed in range(3):
            generator = torch.Generator().manual_seed(seed)
            for p in run.model.parameters():
                p.grad = torch.randn(p.shape, generator=generator).to(DEVICE)
            if seed == 2:
                run.model[2].weight.grad = run.model[2].weight.grad.t().contiguous().t()
            run.optimizer.step()

    assert_equal(planned, plain)
    assert planned.repeats == 2
    assert planned.optimizer.fused_step.copied_gradients == 1


def test_what_must_not_be_done_is_refused_after_steps_that_were_allowed() -> None:
    run = Run(planned=True)
    for seed in range(2):
        run.step(seed)

    run.optimizer.param_groups[0]["weight_decay"] = 0.1
    with pytest.raises(ValueError, match="weight_decay must be 0"):
        run.step(2)
    run.optimizer.param_groups[0]["weight_decay"] = 0.0
    run.model[2].weight.grad = torch.ones(3, 5, device=DEVICE).to_sparse()
    with pytest.raises(RuntimeError, match="does not support sparse gradients"):
        run.optimizer.step()


def test_gradients_are_free_as_soon_as_the_model_lets_go_of_them() -> None:
    run = Run(planned=True)
    for seed in range(3):
        run.step(seed)
    grad = weakref.ref(run.model[0].weight.grad)

    run.model.zero_grad()

    assert grad() is None


def test_a_copy_makes_a_plan_of_its_own() -> None:
    model = make_model()
    optimizer = NDAdam(param_groups(model))
    take_steps(model, optimizer)
    twin, twin_optimizer = copy.deepcopy((model, optimizer))

    take_steps(model, optimizer)
    take_steps(twin, twin_optimizer)

    pairs = zip(model.parameters(), twin.parameters(), strict=True)
    assert all(torch.equal(p, q) for p, q in pairs)
    assert twin_optimizer.state[twin[0].weight]["step"].item() == 4


def take_steps(model: nn.Module, optimizer: NDAdam) -> None:
    for value in (1.0, 2.0):
        for p in model.parameters():
            p.grad = value * torch.arange(p.numel(), device=DEVICE).view_as(p).to(p)
        optimizer.step()
