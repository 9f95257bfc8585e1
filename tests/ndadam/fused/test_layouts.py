"""Weights and gradients of any memory layout in the fused step, and which of them it takes."""

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the fused step is written in Triton")

from ndadam.fused.step import FusedStep, fits_fused_step
from tests.ndadam.fused.fused_reference import DEVICE, Trained, group_of, take_steps

# The interpreter computes what the kernel masks with numpy, which warns where a device does not.
pytestmark = [
    pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning"),
]


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

    with pytest.raises(ValueError, match=r"runs of memory or columns, got strides \(10, 2, 1\)"):
        FusedStep()([group_of([trained], [trained.gradient()])])
