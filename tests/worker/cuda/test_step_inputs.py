"""The plan that replayed steps read, filled and kept on a CPU."""

import pytest
import torch

from worker import TrainConfig
from worker.cuda import step_inputs as device_plan
from worker.cuda.step_inputs import DevicePlan
from worker.data.augment import draw_epoch
from worker.data.run_length import Length

EPOCH, EPOCHS, IMAGES = 6, 3, 60


class Rates:
    """Stands for the learning rates of a run: each step has one of its own."""

    def at(self, step):
        return [float(step)]


@pytest.fixture
def plan():
    config = TrainConfig(dataset="digits", batch_size=10, seed=3, device="cpu").resolved()
    length = Length(EPOCH * EPOCHS, EPOCH, batch_size=10, num_train=IMAGES)
    return DevicePlan(config, torch.arange(IMAGES), length, Rates(), torch.device("cpu"), 2)


@pytest.fixture
def drawn(monkeypatch):
    """Epochs in the order in which they were drawn."""
    epochs = []

    def draw(*args, epoch, **named):
        epochs.append(epoch)
        return draw_epoch(*args, epoch=epoch, **named)

    monkeypatch.setattr(device_plan, "draw_epoch", draw)
    return epochs


def test_the_next_epoch_is_drawn_in_the_middle_of_this_one_and_none_after_the_last(plan, drawn):
    seen = []
    for step in range(EPOCH * EPOCHS):
        plan.seek(step)
        seen.append(list(drawn))
    middle = EPOCH // 2
    assert seen[0] == [0]
    assert seen[middle - 1] == [0]
    assert seen[middle] == seen[EPOCH] == [0, 1]
    assert seen[EPOCH + middle] == seen[-1] == [0, 1, 2]


@pytest.mark.parametrize("steps", [range(18), [4, 5, 6, 7], [0, 3, 14, 15], [9, 2, 3, 6]])
def test_what_is_held_is_the_epochs_own_wherever_one_seeks(plan, steps):
    for step in steps:
        plan.seek(step)
        epoch, position = divmod(step, EPOCH)
        expected = draw_epoch(
            torch.arange(IMAGES), 2, True, seed=3, epoch=epoch, device=torch.device("cpu")
        )
        assert plan.draws[0].tolist() == expected.order.tolist()
        assert plan.draws[3].bool().tolist() == expected.flip.tolist()
        assert plan.position.item() == position
        plan.begin()
        assert plan.current_rates.tolist() == [[float(step)]]
        plan.end()
