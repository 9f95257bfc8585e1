"""How much of a card a run is planned to take. What it takes is beside it in docs/operations.md."""

import sys
from pathlib import Path

import pytest
import torch

from ndadam import WideResNet
from worker import TrainConfig, train
from worker.card_sharing.memory_ledger import MemoryLedger
from worker.config.train_config import FieldError
from worker.data.prepared import DatasetInfo, dataset_info
from worker.steps.memory_estimate import CONTEXT, USABLE, check_memory, gib, memory_plan

GIB = 2**30
CIFAR = DatasetInfo(
    name="cifar10",
    num_train=50_000,
    num_test=10_000,
    shape=(32, 32, 3),
    classes=tuple("0123456789"),
    train_counts=(5000,) * 10,
    test_counts=(1000,) * 10,
    channel_means=(125.3, 123.0, 113.9),
    channel_deviations=(63.0, 62.1, 66.7),
    checksum="",
    source="",
)


def config(**fields):
    return TrainConfig.model_validate(
        {"dataset": "cifar10", "depth": 22, "widen_factor": 7.5, "precision": "bf16"} | fields
    ).resolved()


def plan(**fields):
    return memory_plan(config(**fields), CIFAR)


@pytest.mark.parametrize("shortcut", ["pool_pad", "conv"])
@pytest.mark.parametrize(("depth", "widen_factor"), [(10, 1.0), (16, 4.0), (22, 7.5), (28, 10.0)])
def test_weights_are_those_of_the_network(depth, widen_factor, shortcut):
    with torch.device("meta"):
        network = WideResNet(depth, widen_factor, 10, shortcut=shortcut, activation="relu")
    count = sum(p.numel() for p in network.parameters() if p.dim() > 1)

    shape = {"depth": depth, "widen_factor": widen_factor, "shortcut": shortcut}
    per_weight = {"ndadam": 4 + 4 + 2 + 4 + 4, "sgd": 4 + 4 + 2 + 4 + 8, "adam": 4 + 4 + 2 + 8 + 4}

    for optimizer, size in per_weight.items():
        assert plan(optimizer=optimizer, **shape).weights == count * size


def test_activations_are_those_that_a_step_saves(data_home, tiny_config):
    """Beside what autograd keeps in a plain step on the CPU, which is the stepwise plan."""
    network = WideResNet(16, 2.0, 4, shortcut="pool_pad", activation="leaky_relu")
    images = torch.randn(8, 3, 16, 16)
    sizes = {}

    def keep(tensor):
        sizes[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    held = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: held.append(t) or keep(t), lambda t: t):
        network(images).sum()
    weights = {p.data_ptr() for p in network.parameters()}
    kept = sum(size for pointer, size in sizes.items() if pointer not in weights)

    info = DatasetInfo(**(vars(CIFAR) | {"shape": (16, 16, 3), "classes": tuple("abcd")}))
    fields = {"depth": 16, "widen_factor": 2.0, "batch_size": 8, "precision": "fp32"}
    planned = memory_plan(config(**fields, deterministic=True), info).activations

    assert kept < planned < 1.5 * kept


def test_everything_that_takes_memory_counts():
    small = plan()

    assert plan(batch_size=256).activations == pytest.approx(2 * small.activations, rel=0.01)
    assert plan(precision="fp32").activations == pytest.approx(2 * small.activations, rel=0.01)
    assert plan(deterministic=True).activations > 1.2 * small.activations
    assert memory_plan(config(), CIFAR, measured=True).weights > small.weights
    assert plan(widen_factor=15.0).weights > 3 * small.weights
    assert plan(depth=28).own > small.own
    assert small.images == 60_000 * (3072 + 8)
    assert small.total(3) - small.total(2) == small.own
    assert small.total() == small.shared + small.own
    assert plan(batch_size=256).choosing == pytest.approx(2 * small.choosing, rel=0.01)


def test_as_many_fit_as_the_card_has_room_for():
    one = plan()
    for runs in (1, 2, 7):
        card = one.total(runs) / USABLE
        assert one.most(int(card) + 1) == runs
        assert one.most(int(card) - one.own // 100) == runs - 1
    assert one.most(CONTEXT) == 0


def test_more_trials_than_fit_are_refused_with_the_estimate():
    check_memory(config(), CIFAR, 80 * GIB, trials_per_gpu=8)
    with pytest.raises(FieldError) as caught:
        check_memory(config(), CIFAR, 12 * GIB, trials_per_gpu=8)

    assert caught.value.field == "trials_per_gpu"
    most = plan().most(12 * GIB)
    assert 1 < most < 8
    for part in (f"at most {most} for WRN-22-7.5", "GiB", "the card has 12.00 GiB; got 8"):
        assert part in str(caught.value)


def test_a_run_larger_than_the_card_is_refused_with_the_estimate():
    with pytest.raises(FieldError) as caught:
        check_memory(config(batch_size=8192), CIFAR, 16 * GIB)

    assert caught.value.field == "batch_size"
    for part in ("WRN-22-7.5 at batch 8192 in bf16 takes about", "the card has 16.00 GiB"):
        assert part in str(caught.value)


def test_the_documentation_has_these_figures():
    docs = Path(__file__).parents[3] / "docs"
    operations, sweeps = (docs / f"{name}.md" for name in ("operations", "sweeps"))
    rows = operations.read_text()
    networks = [(16, 1.0), (16, 4.0), (22, 7.5), (28, 10.0)]
    with pytest.raises(FieldError) as refused:
        check_memory(config(optimizer="ndadam"), CIFAR, 12 * GIB, trials_per_gpu=4)

    for depth, widen_factor in networks:
        one = plan(depth=depth, widen_factor=widen_factor, optimizer="ndadam")
        shared = gib(one.shared)
        assert f"| WRN-{depth}-{widen_factor:g} | {gib(one.own)} | {shared} |" in rows
    assert f"{gib(CONTEXT)}\nfor the process itself" in rows
    assert str(refused.value) in sweeps.read_text()


def test_training_refuses_it_before_the_first_step(data_home, tiny_config, monkeypatch):
    monkeypatch.setattr(
        sys.modules["worker.training.train"], "card_bytes", lambda device: CONTEXT + 2**20
    )

    with pytest.raises(FieldError, match=r"takes about .* and the card has 0.88 GiB"):
        train(tiny_config, data_home=data_home)


def test_a_network_of_somebody_elses_has_no_plan(monkeypatch):
    other = config().model_copy(update={"network": "theirs"})

    assert memory_plan(other, CIFAR) is None
    check_memory(other, CIFAR, 1, trials_per_gpu=8)


def task(data_home, config, **fields):
    values = {"config": config.stored(), "device": "cpu", "data_home": str(data_home)}
    return values | {"measurement": None} | fields


def test_trials_wait_until_the_card_has_room(data_home, tiny_config, monkeypatch):
    one = memory_plan(tiny_config.resolved(), dataset_info("colours", data_home))
    card = int(one.total(2) / USABLE) + 1
    monkeypatch.setattr("worker.card_sharing.memory_ledger.card_bytes", lambda device: card)
    room = MemoryLedger(torch.device("cpu"))
    small = task(data_home, tiny_config)

    assert room.take("a", small)
    assert room.take("b", small)
    assert not room.take("c", small)
    assert (room.planned("a"), room.planned("c")) == (one.own, None)
    # Measured, it takes more.
    room.leave("a")
    assert not room.take("c", task(data_home, tiny_config, measurement={"every": 1}))
    assert room.take("c", small)
    # Too large for the card by itself: it need not wait to hear so.
    huge = task(data_home, tiny_config.model_copy(update={"batch_size": 80_000}))
    for key in "bc":
        room.leave(key)
    assert room.take("d", huge)
    with pytest.raises(FieldError, match="batch_size must leave a run that fits"):
        room.refuse_too_large(huge)
    # What is wrong with a task is for its run to say.
    assert room.take("e", task(data_home, tiny_config.model_copy(update={"dataset": "none"})))


def test_a_cpu_has_room_for_all(data_home, tiny_config):
    room = MemoryLedger(torch.device("cpu"))

    assert all(room.take(key, task(data_home, tiny_config)) for key in range(100))
    room.refuse_too_large(task(data_home, tiny_config, trials_per_gpu=8))
    assert room.planned(0) is None
