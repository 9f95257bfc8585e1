"""NDAdam choosing the fused step, against itself without.

Without a CUDA device the choice is made as if there were one, and Triton's interpreter runs it.
"""

import copy
import os
from collections.abc import Callable

import pytest
import torch
from torch import nn

from ndadam import NDAdam, param_groups

pytest.importorskip("triton", reason="the fused step is written in Triton")

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"

# The interpreter computes what the kernel masks with numpy, which warns where a device does not.
pytestmark = [
    pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:a compiled NDAdam.step does not use the fused kernel"),
]


@pytest.fixture(autouse=True)
def kernels_run_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE == "cpu":
        for module in ("ndadam.optimizer.ndadam", "ndadam.fused.step"):
            monkeypatch.setattr(f"{module}.runs_kernels", lambda p: True)


def make_model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ConvTranspose2d(8, 4, 2, stride=2),  # vectors along dimension 1: not dense
        nn.Flatten(),
        nn.Linear(4 * 64, 5),
    )
    return model.to(DEVICE, dtype)


def optimizer_of(model: nn.Module, **settings: object) -> NDAdam:
    groups = param_groups(model, alpha_v=0.05, alpha_s=0.001, weight_decay=0.01)
    return NDAdam(groups, **settings)  # type: ignore[arg-type]


def backward(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    p = next(model.parameters())
    x = torch.randn(6, 3, 4, 4, generator=generator).to(p)
    model.zero_grad()
    model(x).logsumexp(1).square().mean().backward()


def train(model: nn.Module, optimizer: NDAdam, seeds: range) -> None:
    for seed in seeds:
        backward(model, seed)
        optimizer.step()


def assert_same_weights(model: nn.Module, other: nn.Module, rtol: float) -> None:
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.linalg.vector_norm(p - q) <= rtol * torch.linalg.vector_norm(q) + 1e-9


def test_it_is_chosen_by_itself_and_agrees_with_the_other_paths() -> None:
    model, other = make_model(), make_model()
    optimizer = optimizer_of(model)

    train(model, optimizer, range(10))
    train(other, optimizer_of(other, foreach=False), range(10))

    assert_same_weights(model, other, rtol=1e-4)
    assert optimizer.fused_step is not None
    fused = [p for p in model.parameters() if optimizer.state[p]["step"].item() == 10]
    assert len(fused) == len(list(model.parameters()))


@pytest.mark.parametrize("settings", [{"foreach": True}, {"foreach": False}, {"fused": False}])
def test_another_path_that_is_asked_for_is_taken(settings: dict[str, bool]) -> None:
    model = make_model()
    optimizer = optimizer_of(model, **settings)
    optimizer._fused = refuse_to_run()

    train(model, optimizer, range(1))


@pytest.mark.parametrize("other_path", ["foreach", "for-loop", "compiled"])
def test_another_path_takes_over_between_steps_and_gives_back(other_path: str) -> None:
    """Where the fused step counts on a card, the others count on the host."""
    model, other = make_model(), make_model()
    optimizer, step = optimizer_of(model), None
    for fused, seeds in ((True, range(3)), (False, range(3, 6)), (True, range(6, 8))):
        for group in optimizer.param_groups:
            group["foreach"] = (
                None if fused or other_path == "compiled" else other_path == "foreach"
            )
        if other_path == "compiled" and not fused:
            step = torch.compile(optimizer.step, backend="eager")
        for seed in seeds:
            backward(model, seed)
            optimizer.step() if fused or step is None else step()
        counts = [state["step"] for state in optimizer.state.values()]
        assert {count.item() for count in counts} == {seeds.stop}
        devices = {count.device.type for count in counts}
        # Vectors that are not dense in memory are never fused.
        assert DEVICE in devices if fused else devices == {"cpu"}
    train(other, optimizer_of(other, foreach=False), range(8))

    assert_same_weights(model, other, rtol=1e-4)


def refuse_to_run() -> Callable[..., None]:
    def fused_step(*_: object, **__: object) -> None:
        raise AssertionError("the fused step ran")

    return fused_step


def test_float64_takes_the_other_paths() -> None:
    model = make_model(torch.float64)
    optimizer = optimizer_of(model)

    train(model, optimizer, range(2))

    assert all(state["exp_avg"].dtype == torch.float64 for state in optimizer.state.values())


def test_a_restored_run_equals_one_that_never_stopped() -> None:
    model, restored = make_model(), make_model()
    optimizer = optimizer_of(model)
    train(model, optimizer, range(3))
    restored.load_state_dict(model.state_dict())
    resumed = optimizer_of(restored)
    saved = copy.deepcopy(optimizer.state_dict())
    resumed.load_state_dict(saved)

    train(model, optimizer, range(3, 6))
    train(restored, resumed, range(3, 6))

    # Convolutions on CUDA do not add in the same order twice.
    assert_same_weights(restored, model, rtol=1e-6 if DEVICE == "cpu" else 1e-4)


def test_a_copied_optimizer_goes_on_with_the_copied_model() -> None:
    model = make_model()
    optimizer = optimizer_of(model)
    train(model, optimizer, range(2))
    twin, twin_optimizer = copy.deepcopy((model, optimizer))

    train(model, optimizer, range(2, 4))
    train(twin, twin_optimizer, range(2, 4))

    assert_same_weights(twin, model, rtol=1e-6 if DEVICE == "cpu" else 1e-4)


def test_a_scaled_loss_gives_the_same_step_and_a_bad_one_none() -> None:
    """With every parameter on the fused path GradScaler leaves both to it, without a read-back."""
    model = nn.Linear(12, 4).to(DEVICE)
    optimizer = optimizer_of(model)
    other = copy.deepcopy(model)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=256.0)
    x = torch.randn(5, 12, device=DEVICE)

    scaler.scale(model(x).square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    other(x).square().mean().backward()
    optimizer_of(other, foreach=False).step()
    assert_same_weights(model, other, rtol=1e-5)

    model.zero_grad()
    scaler.scale(model(x).square().mean() * float("inf")).backward()
    scaler.step(optimizer)
    assert_same_weights(model, other, rtol=1e-5)
    assert all(state["step"].item() == 1 for state in optimizer.state.values())


def test_fused_and_foreach_together_are_refused() -> None:
    with pytest.raises(RuntimeError, match="`fused` and `foreach` cannot be `True` together"):
        optimizer_of(make_model(), fused=True, foreach=True)


def test_fused_is_refused_away_from_cuda() -> None:
    with pytest.raises(RuntimeError, match="fused=True needs parameters on a CUDA device"):
        optimizer_of(make_model().cpu(), fused=True)


def test_fused_is_refused_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ndadam.fused.choice.HAS_TRITON", False)

    with pytest.raises(RuntimeError, match="fused=True needs Triton, which is not installed"):
        optimizer_of(make_model(), fused=True)
    model = make_model()
    train(model, optimizer_of(model), range(1))


on_cuda = pytest.mark.skipif(DEVICE == "cpu", reason="CUDA graphs need CUDA")


def linear_with_gradient() -> nn.Linear:
    torch.manual_seed(1)
    model = nn.Linear(64, 16, device="cuda")
    model(torch.randn(8, 64, device="cuda")).square().mean().backward()
    return model


def capture(optimizer: NDAdam) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    something = torch.zeros(1, device="cuda")
    with torch.cuda.graph(graph):
        something += 1  # a capture that ends empty would only warn
        optimizer.step()
    return graph


@pytest.mark.gpu
@on_cuda
def test_a_scheduler_reaches_a_captured_step() -> None:
    captured, eager = linear_with_gradient(), linear_with_gradient()
    optimizers = optimizer_of(captured, capturable=True), optimizer_of(eager, capturable=True)
    for optimizer in optimizers:
        optimizer.step()
    schedules = [torch.optim.lr_scheduler.ExponentialLR(o, 0.9) for o in optimizers]
    graph = capture(optimizers[0])

    for _ in range(10):
        graph.replay()
        optimizers[1].step()
        for schedule in schedules:
            schedule.step()

    assert_same_weights(captured, eager, rtol=0)
    assert optimizers[0].state[captured.weight]["step"].item() == 11


@pytest.mark.gpu
@on_cuda
@pytest.mark.parametrize(
    ("settings", "warm", "message"),
    [
        ({}, True, "capturable is False"),
        ({"capturable": True}, False, "cannot create its state inside a CUDA graph capture"),
        ({"capturable": True, "foreach": True}, True, "only NDAdam's fused step can be captured"),
    ],
)
def test_a_capture_that_would_go_wrong_is_refused(
    settings: dict[str, bool], warm: bool, message: str
) -> None:
    optimizer = optimizer_of(linear_with_gradient(), **settings)
    if warm:
        optimizer.step()

    with pytest.raises(RuntimeError, match=message):
        capture(optimizer)
