"""The fused step against Algorithm 1 written out in float64, on a device or interpreted."""

import pytest
import torch

pytest.importorskip("triton", reason="the fused step is written in Triton")

from ndadam.fused.step import FusedStep
from tests.ndadam.fused.fused_reference import (
    DEVICE,
    LR,
    Trained,
    distance,
    group_of,
    norms,
    take_steps,
)

# The interpreter computes what the kernel masks with numpy, which warns where a device does not.
pytestmark = [
    pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning"),
]

# One length for each tile, aligned and not, and beyond the registers.
ROW_LENGTHS = [1, 2, 27, 64, 160, 361, 540, 1440, 2160, 2881, 5760, 6145, 9000]


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
