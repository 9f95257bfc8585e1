"""The fused step against Algorithm 1 written out in float64.

Without a CUDA device the kernels run through Triton's interpreter on the CPU (tests/conftest.py
chooses it); with one, the same tests run there.
"""

import os

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the fused step is written in Triton")

from ndadam import fused_kernels as kernels
from ndadam.fused import FusedStep, fits_fused_step
from ndadam.fused_launch import FusedGroup

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
# The interpreter computes what the kernel masks with numpy, which warns where a device does not.
pytestmark = [
    pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning"),
]

BETAS = (0.9, 0.999)
LR = 0.05
EPS = 1e-8

# One length for each tile, aligned and not, and beyond the registers.
ROW_LENGTHS = [1, 2, 27, 64, 160, 361, 540, 1440, 2160, 2881, 5760, 6145, 9000]


class Trained:
    """A parameter with its state, and the same in float64 as the reference moves it."""

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        vector_dim: int | None = 0,
        dtype: torch.dtype = torch.float32,
        memory_format: torch.memory_format = torch.contiguous_format,
        seed: int = 0,
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        w = torch.randn(shape, generator=generator, dtype=torch.float64)
        if vector_dim is not None:
            w /= norms(w, vector_dim)
        self.vector_dim = vector_dim
        self.generator = generator
        self.p = w.to(DEVICE, dtype).contiguous(memory_format=memory_format)
        self.exp_avg = torch.zeros_like(self.p, dtype=torch.float32)
        self.exp_avg_sq = torch.zeros_like(norms(self.p, vector_dim), dtype=torch.float32)
        self.step = torch.zeros((), device=DEVICE)
        self.exact = self.p.double().cpu()
        self.exact_avg = torch.zeros_like(self.exact)
        self.exact_avg_sq = torch.zeros_like(norms(self.exact, vector_dim))
        self.exact_step = 0

    def gradient(self) -> Tensor:
        g = torch.randn(self.p.shape, generator=self.generator, dtype=torch.float64)
        return torch.empty_like(self.p).copy_(g)

    def take_exact_step(self, grad: Tensor, lr: float = LR, eps: float = EPS) -> None:
        """Algorithm 1 of arXiv:1709.04546 for vectors, Adam for scalars."""
        g, w = grad.double().cpu(), self.exact
        dims = other_dims(w, self.vector_dim)
        if self.vector_dim is not None:
            g = g - (g * w).sum(dims, keepdim=True) * w
        squares = g**2 if self.vector_dim is None else (g**2).sum(dims, keepdim=True)
        self.exact_step += 1
        self.exact_avg = BETAS[0] * self.exact_avg + (1 - BETAS[0]) * g
        self.exact_avg_sq = BETAS[1] * self.exact_avg_sq + (1 - BETAS[1]) * squares
        direction = self.exact_avg / (1 - BETAS[0] ** self.exact_step)
        size = (self.exact_avg_sq / (1 - BETAS[1] ** self.exact_step)).sqrt() + eps
        w = w - lr * direction / size
        self.exact = w if self.vector_dim is None else w / norms(w, self.vector_dim)

    def assert_agrees(self, rtol: float) -> None:
        assert distance(self.p, self.exact) < rtol
        assert distance(self.exp_avg, self.exact_avg) < rtol
        assert distance(self.exp_avg_sq, self.exact_avg_sq) < rtol
        assert self.step.item() == self.exact_step


def other_dims(w: Tensor, vector_dim: int | None) -> tuple[int, ...]:
    return tuple(d for d in range(w.dim()) if d != vector_dim)


def norms(w: Tensor, vector_dim: int | None) -> Tensor:
    if vector_dim is None:
        return w
    return torch.linalg.vector_norm(w, dim=other_dims(w, vector_dim), keepdim=True)


def distance(a: Tensor, b: Tensor) -> float:
    """||a - b|| / ||b||."""
    return ((a.double().cpu() - b).norm() / b.norm()).item()


def group_of(trained: list[Trained], grads: list[Tensor], **settings: object) -> FusedGroup:
    values: dict[str, object] = {"lr": LR, "betas": BETAS, "eps": EPS} | settings
    return FusedGroup(
        params=[t.p for t in trained],
        grads=grads,
        exp_avgs=[t.exp_avg for t in trained],
        exp_avg_sqs=[t.exp_avg_sq for t in trained],
        steps=[t.step for t in trained],
        vector_dim=trained[0].vector_dim,
        **values,  # type: ignore[arg-type]
    )


def take_steps(trained: list[Trained], steps: int) -> FusedStep:
    fused = FusedStep()
    for _ in range(steps):
        grads = [t.gradient() for t in trained]
        fused([group_of(trained, grads)])
        for t, grad in zip(trained, grads, strict=True):
            t.take_exact_step(grad)
    return fused


@pytest.mark.parametrize("length", ROW_LENGTHS)
def test_rows_of_every_length_agree_with_float64(length: int) -> None:
    trained = Trained((5, length))

    take_steps([trained], steps=3)

    if length > 1:
        trained.assert_agrees(rtol=2e-6)
    torch.testing.assert_close(
        norms(trained.p, 0), torch.ones(5, 1, device=DEVICE), rtol=0, atol=1e-6
    )


def test_all_parameters_of_both_kinds_go_through_one_step() -> None:
    vectors = [Trained((6, 4, 3, 3), seed=1), Trained((3, 1441), seed=2), Trained((40, 27), seed=3)]
    scalars = [Trained((n,), vector_dim=None, seed=n) for n in (1, 16, 2500)]
    fused = FusedStep()

    for _ in range(10):
        grads = [[t.gradient() for t in ts] for ts in (vectors, scalars)]
        fused([group_of(vectors, grads[0]), group_of(scalars, grads[1])])
        for t, grad in zip([*vectors, *scalars], [*grads[0], *grads[1]], strict=True):
            t.take_exact_step(grad)

    for t in [*vectors, *scalars]:
        t.assert_agrees(rtol=3e-6)
    assert fused.copied_gradients == 0


def test_many_steps_stay_close_and_of_unit_norm() -> None:
    trained = Trained((4, 33))

    take_steps([trained], steps=1000 if DEVICE == "cuda" else 30)

    trained.assert_agrees(rtol=2e-5)
    torch.testing.assert_close(
        norms(trained.p, 0), torch.ones(4, 1, device=DEVICE), rtol=0, atol=1e-6
    )


def test_channels_last_weights_are_turned_in_place() -> None:
    trained = Trained((8, 4, 3, 3), memory_format=torch.channels_last)
    strides = trained.p.stride()

    fused = take_steps([trained], steps=2)

    trained.assert_agrees(rtol=2e-6)
    assert trained.p.stride() == strides
    assert fused.copied_gradients == 0


def test_strides_that_differ_only_in_size_1_dimensions_count_as_equal() -> None:
    trained = Trained((3, 1, 3, 3))
    grad = torch.empty_strided((3, 1, 3, 3), (9, 1, 3, 1), device=DEVICE).copy_(trained.gradient())
    fused = FusedStep()

    fused([group_of([trained], [grad])])
    trained.take_exact_step(grad)

    trained.assert_agrees(rtol=2e-6)
    assert fused.copied_gradients == 0


def test_a_gradient_with_other_strides_is_copied_and_counted() -> None:
    trained = Trained((8, 4, 3, 3))
    grad = trained.gradient().contiguous(memory_format=torch.channels_last)
    before = grad.clone()
    fused = FusedStep()

    fused([group_of([trained], [grad])])
    trained.take_exact_step(grad)

    trained.assert_agrees(rtol=2e-6)
    assert fused.copied_gradients == 1
    assert torch.equal(grad, before)


def test_a_gradient_that_starts_off_16_bytes_gives_the_same_result() -> None:
    trained = Trained((4, 1440))
    flat = torch.zeros(4 * 1440 + 1, device=DEVICE)
    grad = flat[1:].view(4, 1440).copy_(trained.gradient())

    FusedStep()([group_of([trained], [grad])])
    trained.take_exact_step(grad)

    trained.assert_agrees(rtol=2e-6)


def test_state_made_before_the_weight_became_channels_last_follows_it() -> None:
    trained = Trained((8, 4, 3, 3))
    fused = FusedStep()
    for memory_format in (torch.contiguous_format, torch.channels_last):
        trained.p = trained.p.contiguous(memory_format=memory_format)
        grad = trained.gradient()
        fused([group_of([trained], [grad])])
        trained.take_exact_step(grad)

    trained.assert_agrees(rtol=2e-6)
    assert trained.exp_avg.stride() == trained.p.stride()


@pytest.mark.parametrize(
    ("dtype", "rounding"), [(torch.bfloat16, 2**-8), (torch.float16, 2**-11)], ids=str
)
@pytest.mark.parametrize("length", [64, 9000])
def test_half_precision_weights_keep_float32_state(
    dtype: torch.dtype, rounding: float, length: int
) -> None:
    trained = Trained((3, length), dtype=dtype)
    trained.exact /= norms(trained.exact, 0)

    take_steps([trained], steps=1)

    assert distance(trained.p, trained.exact) < rounding
    assert distance(trained.exp_avg, trained.exact_avg) < 1e-5
    assert trained.exp_avg.dtype == trained.exp_avg_sq.dtype == torch.float32


@pytest.mark.parametrize("eps", [0.0, 1e-8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("length", [8, 9000])
def test_zero_gradients_leave_every_bit(eps: float, dtype: torch.dtype, length: int) -> None:
    trained = Trained((4, length), dtype=dtype)
    before = trained.p.clone()
    fused = FusedStep()

    for _ in range(3):
        fused([group_of([trained], [torch.zeros_like(trained.p)], eps=eps)])

    assert torch.equal(trained.p, before)
    assert not trained.exp_avg.any()
    assert not trained.exp_avg_sq.any()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e30])
@pytest.mark.parametrize("length", [6, 1440, 6146])
def test_a_bad_row_is_left_alone_and_touches_no_other(bad: float, length: int) -> None:
    trained, alone = Trained((4, length)), Trained((4, length))
    before = trained.p[1].clone()
    grad = trained.gradient()
    FusedStep()([group_of([alone], [grad.clone()])])
    grad[1, 3] = bad

    fused = FusedStep()
    fused([group_of([trained], [grad])])

    assert fused.skipped_vectors(trained.p) == 1
    others = [0, 2, 3]
    assert torch.equal(trained.p[1], before)
    assert not trained.exp_avg[1].any()
    assert torch.equal(trained.p[others], alone.p[others])
    assert torch.equal(trained.exp_avg_sq[others], alone.exp_avg_sq[others])


def test_a_zero_row_stays_zero_at_lr_0_and_then_becomes_a_unit_vector() -> None:
    trained = Trained((2, 2))
    trained.p[0] = 0
    ones = torch.ones_like(trained.p)
    fused = FusedStep()

    fused([group_of([trained], [ones], lr=0.0)])
    assert trained.p[0].tolist() == [0, 0]
    fused([group_of([trained], [ones])])

    expected = torch.full((2,), -(0.5**0.5), device=DEVICE)
    torch.testing.assert_close(trained.p[0], expected, rtol=0, atol=1e-6)
    assert trained.p.isfinite().all()


def test_a_radial_gradient_turns_nothing() -> None:
    """Projected first and squared after: what is left of it is recognised as rounding."""
    trained = Trained((6, 777))
    before = trained.p.clone()

    FusedStep()([group_of([trained], [1e4 * trained.p])])

    assert torch.equal(trained.p, before)


def test_the_loss_scale_is_divided_out_and_the_gradient_kept() -> None:
    trained = Trained((5, 40))
    grad = trained.gradient()
    scaled = grad * 1024
    before = scaled.clone()

    FusedStep()(
        [group_of([trained], [scaled])],
        grad_scale=torch.tensor(1024.0, device=DEVICE),
        found_inf=torch.tensor(0.0, device=DEVICE),
    )
    trained.take_exact_step(grad)

    trained.assert_agrees(rtol=2e-6)
    assert torch.equal(scaled, before)


def test_a_skipped_step_changes_nothing_and_is_not_counted() -> None:
    vectors, scalars = Trained((5, 40)), Trained((7,), vector_dim=None)
    before = vectors.p.clone(), scalars.p.clone()
    groups = [group_of([t], [t.gradient()]) for t in (vectors, scalars)]

    FusedStep()(groups, found_inf=torch.tensor(1.0, device=DEVICE))

    assert torch.equal(vectors.p, before[0])
    assert torch.equal(scalars.p, before[1])
    assert not vectors.exp_avg.any()
    assert vectors.step.item() == scalars.step.item() == 0


def test_maximize_is_a_step_with_the_opposite_gradient() -> None:
    up, down = Trained((5, 40)), Trained((5, 40))
    grad = up.gradient()

    FusedStep()([group_of([up], [grad], maximize=True)])
    FusedStep()([group_of([down], [-grad])])

    assert torch.equal(up.p, down.p)


def test_a_learning_rate_on_the_device_is_read_there() -> None:
    """A tensor changed in place takes effect, as in a replayed graph."""
    trained = Trained((5, 40))
    lr = torch.tensor(LR, device=DEVICE)
    fused = FusedStep()
    for _ in range(4):
        grad = trained.gradient()
        fused([group_of([trained], [grad], lr=lr)])
        trained.take_exact_step(grad, lr=lr.item())
        lr *= 0.9

    trained.assert_agrees(rtol=2e-6)


def test_each_parameter_counts_its_own_steps() -> None:
    early, late = Trained((5, 40), seed=1), Trained((5, 48), seed=2)
    fused = FusedStep()
    for trained in ([early], [early, late], [late], [early, late]):
        grads = [t.gradient() for t in trained]
        fused([group_of(trained, grads)])
        for t, grad in zip(trained, grads, strict=True):
            t.take_exact_step(grad)

    early.assert_agrees(rtol=2e-6)
    late.assert_agrees(rtol=2e-6)


def test_weight_decay_on_scalars_is_torchs() -> None:
    trained = Trained((50,), vector_dim=None)
    p = torch.nn.Parameter(trained.p.clone())
    adam = torch.optim.Adam([p], lr=LR, weight_decay=0.1)
    fused = FusedStep()
    for _ in range(5):
        grad = trained.gradient()
        p.grad = grad.clone()
        adam.step()
        fused([group_of([trained], [grad], weight_decay=0.1)])

    torch.testing.assert_close(trained.p, p.detach(), rtol=1e-5, atol=1e-6)


def test_the_recorded_effective_lr_is_the_length_of_each_rows_step() -> None:
    vectors = [Trained((9, 27), seed=1), Trained((3, 6145), seed=2), Trained((5, 1440), seed=3)]
    fused = FusedStep()
    fused.records_effective_lr = True
    before = [t.p.clone() for t in vectors]

    fused([group_of(vectors, [t.gradient() for t in vectors])])

    for t, w in zip(vectors, before, strict=True):
        recorded = fused.effective_lr(t.p)
        assert recorded is not None
        expected = torch.linalg.vector_norm(t.p - w, dim=1)
        torch.testing.assert_close(recorded, expected, rtol=1e-4, atol=1e-7)


def test_nothing_is_recorded_unless_asked_for() -> None:
    trained = Trained((5, 40))
    fused = FusedStep()

    fused([group_of([trained], [trained.gradient()])])

    assert fused.effective_lr(trained.p) is None


@pytest.mark.parametrize(
    ("p", "vector_dim", "fits"),
    [
        (torch.zeros(8, 4, 3, 3), 0, True),
        (torch.zeros(8, 4, 3, 3).contiguous(memory_format=torch.channels_last), 0, True),
        (torch.zeros(10, 480, 1, 1), 0, True),
        (torch.zeros(8, 4, 3, 3), 1, False),
        (torch.zeros(1, 4, 3, 3), 1, True),
        (torch.zeros(6, 4).t(), 1, True),
        (torch.zeros(6, 8)[:, :4], 0, True),
        (torch.zeros(6, 8)[:, :4], None, False),
        (torch.zeros(6, 8)[:, ::2], 0, False),
        (torch.zeros(6, 4).expand(6, 4), None, True),
        (torch.zeros(6, 4, dtype=torch.float64), 0, False),
        (torch.zeros(0, 4), 0, False),
        (torch.zeros(()), None, True),
    ],
)
def test_only_dense_rows_of_supported_types_are_taken(
    p: Tensor, vector_dim: int | None, fits: bool
) -> None:
    assert fits_fused_step(p, vector_dim) is fits


def test_rows_that_are_not_dense_are_refused_by_name() -> None:
    trained = Trained((3, 5, 2), vector_dim=1)

    with pytest.raises(ValueError, match=r"dense runs of memory, got strides \(10, 2, 1\)"):
        FusedStep()([group_of([trained], [trained.gradient()])])


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
