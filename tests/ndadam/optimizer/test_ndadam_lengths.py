"""Weights replaced by others of another length: a step measures from the direction, in every path.

An averaged model copied in, weights loaded without their optimizer's state, clipping, pruning.
"""

import pytest
import torch
from torch import nn

from ndadam import NDAdam, NDAdamReference, param_groups
from ndadam.vectors.turning import lengths_of
from tests.ndadam.optimizer.test_ndadam_paths import (
    PATHS,
    Path,
    gradients,
    skip_float64_of_the_kernel,
)

# The interpreter computes what the kernel masks with numpy, which warns where a device does not.
pytestmark = [
    pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning"),
]
LENGTHS = [0.5, 10.0, 1.0, 1e-3, 1e3]  # of the first rows of each weight; others stay


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
    return lambda dtype, **settings: Path(request.param, dtype, monkeypatch, **settings)


def stretches(like, lengths=LENGTHS):
    """A factor for each row of a weight, ready to be multiplied with it."""
    factors = torch.ones(len(like), dtype=like.dtype, device=like.device)
    count = min(len(like), len(lengths))
    factors[:count] = torch.tensor(lengths[:count], dtype=like.dtype)
    return factors.view(-1, *[1] * (like.dim() - 1))


def replace(ours, lengths=LENGTHS):
    with torch.no_grad():
        for p in ours.vectors:
            p.mul_(stretches(p, lengths))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("maximize", [False, True])
def test_a_replaced_vector_takes_the_step_of_its_direction(path, dtype, maximize):
    """With the gradients that a loss has which knows directions only, 1 / |w| of those at w / |w|.

    Also those of the steps after it: the moments are what they would have been.
    """
    plain, replaced = path(dtype, maximize=maximize), path(dtype, maximize=maximize)
    skip_float64_of_the_kernel(plain) if dtype == torch.float64 else None
    exact = dtype != torch.bfloat16
    lengths = LENGTHS if exact else [0.5, 16.0, 1.0, 2.0**-10, 1024.0]
    for step in range(6):
        grads = gradients(step, dtype)
        plain.step(grads)
        if step in (0, 3):  # before the state is there, and with one
            replace(replaced, lengths)
            grads = [grad / stretches(grad, lengths) for grad in grads]
        replaced.step(grads)

    tolerance = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 2e-2}[dtype]
    for p, q in zip(plain.vectors, replaced.vectors, strict=True):
        torch.testing.assert_close(q.detach(), p.detach(), rtol=0, atol=tolerance)
        for a, b in zip(replaced.state(q), plain.state(p), strict=True):
            torch.testing.assert_close(a, b, rtol=100 * tolerance, atol=tolerance)


def test_the_twin_says_the_same():
    """Between NDAdam and Algorithm 1 nothing differs where lengths are replaced at each step."""
    w = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    parameters = [nn.Parameter(w.clone()) for _ in range(2)]
    optimizers = [
        cls([p], vector_dim=0) for cls, p in zip((NDAdam, NDAdamReference), parameters, strict=True)
    ]
    for step in range(20):
        generator = torch.Generator().manual_seed(step)
        factors = torch.rand(4, 1, dtype=torch.float64, generator=generator) * 10 + 0.1
        grad = torch.randn(4, 6, dtype=torch.float64, generator=generator)
        for p, optimizer in zip(parameters, optimizers, strict=True):
            with torch.no_grad():
                p.mul_(factors)
            p.grad = grad.clone()
            optimizer.step()

    torch.testing.assert_close(*[p.detach() for p in parameters], rtol=0, atol=1e-12)


@pytest.mark.parametrize("norm", [0.5, 1.0, 10.0])
def test_in_front_of_a_normalisation_any_length_turns_by_the_same_angle(norm):
    """It was twice the angle at 0.5 and a tenth of it at 10: the gradient there is 1 / |w|."""
    turned, ended = [], []
    for length in (1.0, norm):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 5, bias=False), nn.BatchNorm1d(5, eps=1e-14)).double()
        optimizer = NDAdam(param_groups(model), eps=0.0)
        x = torch.randn(40, 6, dtype=torch.float64)
        targets = torch.randn(10, 40, 5, dtype=torch.float64)
        for step, target in enumerate(targets):
            if step == 5:
                with torch.no_grad():
                    model[0].weight.mul_(length)
            before = nn.functional.normalize(model[0].weight.detach(), dim=1)
            optimizer.zero_grad()
            (model(x) * target).mean().backward()
            optimizer.step()
            if step == 5:
                turned.append((model[0].weight.detach() * before).sum(1).acos())
        ended.append(model[0].weight.detach().clone())

    torch.testing.assert_close(turned[1], turned[0], rtol=1e-6, atol=0)
    assert turned[0].mean() > 0.01
    torch.testing.assert_close(ended[1], ended[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("foreach", [True, False])
def test_without_a_normalisation_the_second_moment_has_the_tangents_size(foreach):
    """A radial gradient over-subtracted |w|^2 times; v was wrong for hundreds of steps."""
    u, tangent = torch.tensor([0.6, 0.8]), torch.tensor([0.8, -0.6])
    p = nn.Parameter(10 * u[None])
    optimizer = NDAdam([p], vector_dim=0, foreach=foreach)
    with torch.no_grad():
        p.copy_(10 * u)
    p.grad = (3 * u + 2 * tangent)[None]
    optimizer.step()

    # By the chain rule the gradient with respect to u is 10 times the tangential 2.
    assert optimizer.state[p]["exp_avg_sq"].item() == pytest.approx(0.001 * 20**2, rel=1e-5)
    torch.testing.assert_close(optimizer.state[p]["exp_avg"][0], 0.1 * 20 * tangent)
    expected = nn.functional.normalize(u - 0.05 * tangent, dim=0)
    torch.testing.assert_close(p.detach()[0], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_a_vector_without_a_gradient_comes_to_unit_norm_and_unit_ones_keep_their_bits(path, dtype):
    ours = path(dtype)
    skip_float64_of_the_kernel(ours) if dtype == torch.float64 else None
    before = [p.detach().clone() for p in ours.vectors]
    replace(ours, [4.0, 0.5])
    ours.step([torch.zeros_like(w) for w in before])

    for p, w in zip(ours.vectors, before, strict=True):
        assert torch.equal(p.detach()[2:], w[2:])
        error = torch.finfo(dtype).eps if dtype == torch.bfloat16 else 1e-6
        norms = torch.linalg.vector_norm(p.detach().float().flatten(1), dim=1)
        torch.testing.assert_close(norms, torch.ones_like(norms), rtol=0, atol=error)


def test_a_broken_gradient_leaves_a_vector_of_any_length(path):
    ours = path(torch.float32)
    ours.step(gradients(0, torch.float32))
    replace(ours, [10.0])
    before = [p.detach().clone() for p in ours.vectors]
    grads = gradients(1, torch.float32)
    for grad in grads:
        grad[0].view(-1)[0] = float("nan")
    ours.step(grads)

    for p, w in zip(ours.vectors, before, strict=True):
        assert torch.equal(p.detach()[0], w[0])
        assert not torch.equal(p.detach()[1], w[1])
    assert list(ours.optimizer.skipped_vectors().values()) == [1] * len(before)


def test_a_length_whose_square_has_no_number_sits_out_and_one_too_short_counts_as_zero(path):
    ours = path(torch.float32)
    ours.step(gradients(0, torch.float32))
    replace(ours, [1e30, 1e-30])
    before = [p.detach().clone() for p in ours.vectors]
    ours.step(gradients(1, torch.float32))

    for p, w in zip(ours.vectors, before, strict=True):
        assert torch.equal(p.detach()[0], w[0])
        norms = torch.linalg.vector_norm(p.detach()[1:].flatten(1), dim=1)
        torch.testing.assert_close(norms, torch.ones_like(norms), rtol=0, atol=1e-6)
    assert list(ours.optimizer.skipped_vectors().values()) == [1] * len(before)


def test_such_lengths_are_normalised_before_the_first_step(path):
    plain, ours = path(torch.float32), path(torch.float32)
    replace(ours, [1e30, 1e-30])
    for each in (plain, ours):
        each.step(gradients(0, torch.float32))

    for p, q in zip(plain.vectors, ours.vectors, strict=True):
        torch.testing.assert_close(q.detach(), p.detach(), rtol=0, atol=1e-6)


def test_an_averaged_model_trains_on_as_from_its_directions():
    """The mean of unit vectors is shorter than 1; so are pruned and clipped ones."""
    torch.manual_seed(0)
    models = [
        nn.Sequential(nn.Linear(6, 5, bias=False), nn.BatchNorm1d(5, eps=1e-14)).double()
        for _ in range(2)
    ]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [NDAdam(param_groups(m), eps=0.0) for m in models]
    x, target = torch.randn(2, 40, 6, dtype=torch.float64), torch.randn(40, 5).double()
    mean = torch.randn(5, 6, dtype=torch.float64)

    def train(steps):
        for _ in range(steps):
            for model, optimizer in zip(models, optimizers, strict=True):
                optimizer.zero_grad()
                (model(x[0]) * target).mean().backward()
                optimizer.step()

    train(5)
    with torch.no_grad():
        models[0][0].weight.copy_(mean)
        models[1][0].weight.copy_(nn.functional.normalize(mean, dim=1))
    train(20)

    torch.testing.assert_close(models[0][0].weight, models[1][0].weight, rtol=0, atol=1e-9)


def test_lengths_that_are_1_up_to_rounding_are_known_at_once_on_the_cpu():
    rows = nn.functional.normalize(torch.randn(50, 9000), dim=1)

    assert lengths_of(rows, (1,)) is None
    rows[3] *= 1.0001
    found = lengths_of(rows, (1,))
    assert found.flatten().ne(1).nonzero().flatten().tolist() == [3]
    assert lengths_of(torch.zeros(2, 3), (1,)).tolist() == [[1], [1]]
