"""The projection: one kernel on the CPU, elementwise elsewhere, the same numbers from both."""

import pytest
import torch

from ndadam import NDAdam
from ndadam.vectors import turning
from ndadam.vectors.turning import tangents_of
from ndadam.vectors.vector_numbers import KeptNumbers

EPS = torch.finfo(torch.float32).eps


def rows(count, length, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(count, length, generator=generator, dtype=torch.float64)
    return (w / torch.linalg.vector_norm(w, dim=1, keepdim=True)).to(dtype)


def refuse(*_):
    raise AssertionError("the kernel ran")


@pytest.mark.parametrize("shape", [(5, 7), (4, 3, 3, 3), (3, 1, 3, 3), (6, 1), (1, 9), (2, 8192)])
def test_the_kernel_projects_as_the_formula_says(shape):
    w = rows(shape[0], 8192)[:, : torch.Size(shape[1:]).numel()].reshape(shape)
    w = w / torch.linalg.vector_norm(w.flatten(1), dim=1).view(-1, *[1] * (w.dim() - 1))
    grad = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    before = grad.clone(), w.clone()

    tangent, radial = tangents_of(grad, w, tuple(range(1, w.dim())))

    expected = (grad * w).flatten(1).sum(1)
    torch.testing.assert_close(radial, expected, rtol=0, atol=1e-12)
    spread = expected.view(-1, *[1] * (w.dim() - 1))
    torch.testing.assert_close(tangent, grad - spread * w, rtol=0, atol=1e-12)
    assert torch.equal(grad, before[0])
    assert torch.equal(w, before[1])


@pytest.mark.parametrize("length", [64, 1152, 4608, 8192])
def test_what_a_parallel_gradient_leaves_is_recognised_as_rounding(length):
    """Also where all products have one sign, so that errors of a plain sum add up."""
    for w in (rows(64, length, dtype=torch.float32), rows(64, length).abs().float()):
        tangent, radial = tangents_of(1e4 * w, w, (1,))

        left = torch.linalg.vector_norm(tangent, dim=1) / radial
        assert left.max() < 16 * EPS / 2


@pytest.mark.parametrize(
    ("grad", "w", "dims"),
    [
        (rows(4, 6), rows(4, 6).t().contiguous().t(), (1,)),
        (rows(6, 4).t(), rows(4, 6), (1,)),
        (rows(4, 6), rows(4, 6), (0,)),
        (rows(2, 8193), rows(2, 8193), (1,)),
    ],
    ids=["weight with strides", "gradient with strides", "columns", "long rows"],
)
def test_the_kernel_is_left_alone_where_it_does_not_fit(grad, w, dims, monkeypatch):
    monkeypatch.setattr(turning, "_PROJECT", refuse)

    tangent, radial = tangents_of(grad, w, dims)

    expected = (grad * w).sum(dims, keepdim=True)
    torch.testing.assert_close(radial, expected.flatten(), rtol=0, atol=1e-12)
    torch.testing.assert_close(tangent, grad - expected * w, rtol=0, atol=1e-12)


@pytest.mark.parametrize("foreach", [True, False])
def test_a_step_with_the_kernel_equals_one_without(foreach, monkeypatch):
    def steps():
        parameters = [torch.nn.Parameter(rows(4, 6, seed)) for seed in (1, 2)]
        optimizer = NDAdam(parameters, vector_dim=0, foreach=foreach)
        for step in range(10):
            for i, p in enumerate(parameters):
                p.grad = rows(4, 6, 10 * step + i)
            optimizer.step()
        return [p.detach() for p in parameters]

    with_kernel = steps()
    monkeypatch.setattr(turning, "_LONGEST", 0)
    monkeypatch.setattr(turning, "_PROJECT", refuse)

    torch.testing.assert_close(with_kernel, steps(), rtol=0, atol=1e-12)


def test_scratch_is_kept_for_the_same_shapes_and_does_not_pile_up():
    kept = KeptNumbers()
    first = kept.like([torch.zeros(4, 1), torch.zeros(3, 1, 1)])

    assert [x.shape for x in first.parts] == [(4, 1), (3, 1, 1)]
    assert kept.like([torch.ones(4, 1), torch.ones(3, 1, 1)]) is first
    assert kept.like([torch.ones(4, 1)]) is not first
    for count in range(1, 100):
        kept.like([torch.zeros(count, 1)])
    assert len(kept._kept) <= 32
