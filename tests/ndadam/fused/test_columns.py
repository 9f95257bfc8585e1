"""Weight vectors that are columns of a matrix, as in GPT-2's layers, in the fused step."""

import pytest
import torch

pytest.importorskip("triton", reason="the fused step is written in Triton")

from ndadam.fused.step import FusedStep, fits_fused_step
from tests.ndadam.fused.fused_reference import DEVICE, Trained, group_of, norms, take_steps

# The interpreter computes what the kernel masks with numpy, which warns where a device does not.
pytestmark = [
    pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning"),
]

# (length of a column, columns): one for each tile, columns that fill no tile, and matrices whose
# rows do not start on 16 bytes.
SHAPES = [(27, 72), (192, 132), (768, 36), (1500, 20), (3000, 12), (6144, 4), (2, 5), (700, 9)]
SHAPES += [(6144, 2)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_columns_of_every_length_agree_with_float64(shape: tuple[int, int]) -> None:
    trained = Trained(shape, vector_dim=1)

    fused = take_steps([trained], steps=3)

    trained.assert_agrees(rtol=2e-6)
    ones = torch.ones(1, shape[1], device=DEVICE)
    torch.testing.assert_close(norms(trained.p, 1), ones, rtol=0, atol=1e-6)
    assert fused.copied_gradients == 0


def test_rows_columns_and_scalars_go_through_one_step() -> None:
    kinds = [
        [Trained((6, 40), seed=1), Trained((3, 1441), seed=2)],
        [Trained((40, 6), vector_dim=1, seed=3), Trained((768, 9), vector_dim=1, seed=4)],
        [Trained((1, 30, 9), vector_dim=2, seed=6)],
        [Trained((50,), vector_dim=None, seed=5)],
    ]
    fused = FusedStep()
    fused.records_effective_lr = True

    for _ in range(4):
        grads = [[t.gradient() for t in ts] for ts in kinds]
        before = [[t.p.clone() for t in ts] for ts in kinds]
        fused([group_of(ts, gs) for ts, gs in zip(kinds, grads, strict=True)])
        for ts, gs in zip(kinds, grads, strict=True):
            for t, grad in zip(ts, gs, strict=True):
                t.take_exact_step(grad)

    for ts, ws in zip(kinds, before, strict=True):
        for t, w in zip(ts, ws, strict=True):
            t.assert_agrees(rtol=3e-6)
            if t.vector_dim is not None:
                recorded = fused.effective_lr(t.p)
                assert recorded is not None
                expected = norms(t.p - w, t.vector_dim).flatten()
                torch.testing.assert_close(recorded, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_columns_keep_float32_state(dtype: torch.dtype) -> None:
    trained = Trained((64, 12), vector_dim=1, dtype=dtype)
    trained.exact /= norms(trained.exact, 1)

    take_steps([trained], steps=1)

    assert trained.exp_avg.dtype == torch.float32
    rounding = torch.finfo(dtype).eps
    torch.testing.assert_close(trained.p.double().cpu(), trained.exact, rtol=rounding, atol=1e-6)


def test_a_column_with_a_broken_gradient_sits_the_step_out_alone() -> None:
    trained = Trained((30, 40), vector_dim=1)
    before, grad = trained.p.clone(), trained.gradient()
    grad[7, 33] = torch.nan
    fused = FusedStep()

    fused([group_of([trained], [grad])])

    stays = (trained.p == before).all(0)
    assert stays.nonzero().flatten().tolist() == [33]
    assert fused.skipped_vectors(trained.p) == 1


def test_a_column_with_a_broken_moment_keeps_its_state() -> None:
    trained = Trained((30, 40), vector_dim=1)
    trained.exp_avg[7, 33] = torch.inf
    squares = trained.exp_avg_sq.clone()

    FusedStep()([group_of([trained], [trained.gradient()])])

    stays = (trained.exp_avg_sq == squares)[0]
    assert stays.nonzero().flatten().tolist() == [33]
    assert trained.exp_avg[:, 33].isinf().sum() == 1


def test_a_column_without_a_gradient_keeps_its_bits() -> None:
    trained = Trained((30, 40), vector_dim=1)
    before, grad = trained.p.clone(), trained.gradient()
    grad[:, 12] = 0

    FusedStep()([group_of([trained], [grad], eps=0.0)])

    stays = (trained.p == before).all(0)
    assert stays.nonzero().flatten().tolist() == [12]


def test_a_column_of_another_length_is_stepped_from_its_direction() -> None:
    trained, stretched = Trained((30, 4), vector_dim=1), Trained((30, 4), vector_dim=1)
    stretched.p.mul_(3)
    grad = trained.gradient()

    FusedStep()([group_of([trained], [grad])])
    FusedStep()([group_of([stretched], [grad / 3])])

    torch.testing.assert_close(stretched.p, trained.p, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("p", "vector_dim", "fits"),
    [
        (torch.zeros(6, 4), 1, True),
        (torch.zeros(6144, 1), 1, True),
        (torch.zeros(6145, 2), 1, False),  # more than registers hold
        (torch.zeros(6, 8)[:, :4], 1, False),  # with gaps
        (torch.zeros(3, 5, 2), 1, False),
        (torch.zeros(1, 6, 4), 2, True),
    ],
)
def test_only_whole_matrices_are_taken(p: torch.Tensor, vector_dim: int, fits: bool) -> None:
    assert fits_fused_step(p, vector_dim) is fits
