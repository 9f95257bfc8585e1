"""CUDA graphs and compilations of the fused step."""

import pytest
import torch

pytest.importorskip("triton", reason="the fused step is written in Triton")

from ndadam.fused import kernels
from ndadam.fused.launch import FusedGroup
from ndadam.fused.step import FusedStep
from tests.ndadam.fused.fused_reference import BETAS, DEVICE, LR, Trained, group_of

# The interpreter computes what the kernel masks with numpy, which warns where a device does not.
pytestmark = [
    pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning"),
]


on_cuda = pytest.mark.skipif(DEVICE == "cpu", reason="CUDA graphs and Triton's compiler need CUDA")


def capture(fused: FusedStep, group: FusedGroup) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    something = torch.zeros(1, device="cuda")
    with torch.cuda.graph(graph):
        something += 1  # a capture that ends empty would only warn
        fused([group])
    return graph


@pytest.mark.gpu
@on_cuda
def test_replayed_steps_equal_eager_ones_while_the_learning_rate_changes() -> None:
    captured, eager = Trained((16, 1440)), Trained((16, 1440))
    lrs = [torch.tensor(LR, device=DEVICE) for _ in range(2)]
    grad = captured.gradient()
    replayed, plain = FusedStep(), FusedStep()
    replayed([group_of([captured], [grad], lr=lrs[0])])  # builds the tables
    plain([group_of([eager], [grad], lr=lrs[1])])
    graph = capture(replayed, group_of([captured], [grad], lr=lrs[0]))

    for _ in range(10):
        for lr in lrs:
            lr *= 0.9
        grad.copy_(captured.gradient())
        graph.replay()
        plain([group_of([eager], [grad], lr=lrs[1])])

    assert torch.equal(captured.p, eager.p)
    assert captured.step.item() == eager.step.item() == 11


@pytest.mark.gpu
@on_cuda
def test_a_graph_keeps_the_gradients_it_was_captured_with() -> None:
    """Also when they were made in the capture, and when other steps come between replays."""
    captured, eager = Trained((16, 1440)), Trained((16, 1440))
    source = captured.gradient()
    replayed, plain = FusedStep(), FusedStep()
    for fused, trained in ((replayed, captured), (plain, eager)):
        fused([group_of([trained], [source])])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made_inside = source * 2
        replayed([group_of([captured], [made_inside])])

    for seed in range(3):
        source.copy_(captured.gradient())
        graph.replay()
        plain([group_of([eager], [source * 2])])
        between = torch.full_like(source, seed).addcmul_(source, source)
        replayed([group_of([captured], [between])])
        plain([group_of([eager], [between])])

    assert torch.equal(captured.p, eager.p)


@pytest.mark.gpu
@on_cuda
def test_a_first_step_inside_a_capture_is_refused() -> None:
    trained = Trained((16, 40))
    fused, group = FusedStep(), group_of([trained], [trained.gradient()])

    with pytest.raises(RuntimeError, match="take one step with these parameters before capturing"):
        capture(fused, group)


@pytest.mark.gpu
@on_cuda
def test_new_learning_rates_betas_and_gradients_compile_nothing() -> None:
    trained = Trained((16, 40))
    fused = FusedStep()

    def step(lr: float, betas: tuple[float, float]) -> int:
        fused([group_of([trained], [trained.gradient()], lr=lr, betas=betas)])
        caches = [kernel.device_caches for kernel in (kernels.advance, kernels.update)]
        return sum(len(entry[0]) for cache in caches for entry in cache.values())

    first = step(LR, BETAS)

    assert [step(LR * 0.9**t, (0.9 - t / 100, 0.99)) for t in range(1, 20)] == [first] * 19
