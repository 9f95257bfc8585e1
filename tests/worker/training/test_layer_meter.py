import math

import pytest
import torch

from worker import TrainConfig
from worker.training.layer_meter import DecayMomentum, VectorCounts, layer_quantities, row_products


def rows(weights, vector_dim=0):
    return weights.movedim(vector_dim, 0).double()


def step_quantities(before, after, vector_dim):
    """Effective learning rate, angle and norm of one layer."""
    w0, w1 = rows(before, vector_dim), rows(after, vector_dim)
    counts = VectorCounts([len(w0)], torch.device("cpu"))
    return layer_quantities(row_products(w0, w1 - w0), counts)[:, 0]


def test_a_quarter_turn_is_measured_as_one():
    before = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    after = torch.tensor([[0.0, 1.0], [2.0, 0.0]])

    effective_lr, angle, norm = step_quantities(before, after, 0).tolist()

    assert effective_lr == pytest.approx(math.sqrt(2))
    assert angle == pytest.approx(math.pi / 2)
    assert norm == pytest.approx(math.sqrt((1 + 4) / 2))


def test_stretching_is_a_step_but_no_turn():
    before = torch.tensor([[3.0, 4.0]])

    effective_lr, angle, norm = step_quantities(before, 1.5 * before, 0).tolist()

    assert (effective_lr, angle, norm) == (pytest.approx(0.5), 0.0, pytest.approx(5.0))


def test_tiny_angles_keep_their_digits():
    angle = 1e-6
    before = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    after = torch.tensor([[math.cos(angle), math.sin(angle)]], dtype=torch.float64)

    assert step_quantities(before, after, 0)[1].item() == pytest.approx(angle, rel=1e-9)


def test_layers_are_root_mean_squares_and_zero_vectors_are_left_out():
    before = torch.tensor([[1.0, 0], [1, 0], [0, 0]])
    after = torch.tensor([[1.3, 0], [0.6, 0], [1, 0]])

    effective_lr, angle, norm = step_quantities(before, after, 0).tolist()

    assert effective_lr == pytest.approx(math.sqrt((0.3**2 + 0.4**2) / 2))
    assert angle == 0
    assert norm == pytest.approx(math.sqrt(2 / 3))


def test_vectors_may_lie_along_another_dimension():
    before = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    after = torch.tensor([[1.1, 0.0], [0.0, 2.0]])

    assert step_quantities(before, after, 1)[0].item() == pytest.approx(0.1 / math.sqrt(2))


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize(
    ("momentum", "first_step", "tolerance"),
    # The record of momentum 0.9 starts 44 steps before the end; 1e-2 of it is then a stand-in.
    [(0.5, 0, 1e-6), (0.5, 40, 1e-5), (0.9, 0, 1e-6), (0.9, 16, 1e-2)],
)
def test_the_part_of_weight_decay_in_an_sgd_step_is_split_off(
    nesterov, momentum, first_step, tolerance
):
    """Two runs share their gradients; the momentum that decay built is their difference."""
    config = TrainConfig(
        optimizer="sgd", weight_decay=0.01, momentum=momentum, nesterov=nesterov
    ).resolved()

    def normal(seed, *shape):
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    gradients = normal(0, 60, 3, 4)
    w = torch.nn.Parameter(normal(1, 3, 4))
    sgd = torch.optim.SGD([w], lr=0.01, momentum=momentum, nesterov=nesterov, weight_decay=0.01)
    meter = DecayMomentum(config, [w], sgd)
    loss_momentum = torch.zeros(3, 4)
    for step in range(60):
        before = w.detach().clone()
        if step >= first_step:
            meter.update(step)
        w.grad = gradients[step].clone()
        sgd.step()
        loss_momentum = momentum * loss_momentum + gradients[step]
    of_loss = gradients[-1] + momentum * loss_momentum if nesterov else loss_momentum
    loss_part = -0.01 * of_loss
    decay_part = (w.detach() - before) - loss_part

    expected = (loss_part * decay_part).sum(1) / decay_part.square().sum(1)

    found = meter.ratio(0, rows(before), rows(w.detach()) - rows(before), 0)
    assert found.item() == pytest.approx(expected.mean().item(), rel=tolerance)


@pytest.mark.parametrize(
    ("fields", "window"),
    [
        ({"optimizer": "sgd"}, 44),
        ({"optimizer": "sgd", "momentum": 0.0}, 1),
        ({"optimizer": "sgd", "weight_decay": 0.0}, 0),
        ({"optimizer": "sgd", "decay_on": "scalars"}, 0),
        ({"optimizer": "adam"}, 0),
        ({"optimizer": "ndadam"}, 0),
    ],
)
def test_it_is_kept_only_where_there_is_such_a_part(fields, window):
    config = TrainConfig(**fields).resolved()
    parameter = torch.nn.Parameter(torch.ones(1, 2))

    meter = DecayMomentum(config, [parameter], torch.optim.SGD([parameter], lr=1))

    assert meter.window == window
