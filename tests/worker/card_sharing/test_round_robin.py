"""Runs that share a thread: each computes what it would alone, and falls alone."""

from functools import partial

import pytest
import torch
from torch import nn

from worker import TrainConfig, train
from worker.card_sharing.round_robin import RoundRobin
from worker.networks.build import build_network
from worker.training import run as run_state
from worker.training.train import train_in_turns

CPU = torch.device("cpu")


def variant(config, **fields):
    base = config.model_dump(exclude_unset=True)
    if fields.get("optimizer", "ndadam") != "ndadam":
        base.pop("alpha_s", None)
    return TrainConfig.model_validate(base | {"deterministic": True} | fields)


def facts(report):
    metrics = {name: x for name, x in report.metrics.items() if name != "images_per_second"}
    return report.step, report.status, metrics, report.series


class Together:
    """Runs by name, what they report in the order of time, and how they end."""

    def __init__(self):
        self.seen, self.ends = [], {}
        self.runs = RoundRobin(
            CPU,
            on_report=lambda key, report: self.seen.append((key, facts(report))),
            on_end=self.ends.__setitem__,
        )

    def add(self, key, config, home, **options):
        self.runs.add(key, partial(train_in_turns, config, data_home=home, **options))

    def finish(self):
        while self.runs.keys:
            assert self.runs.turn()
        return self

    def of(self, key):
        return [report for name, report in self.seen if name == key]


def alone(config, home, **options):
    return [facts(report) for report in train(config, data_home=home, **options)]


@pytest.fixture
def configs(tiny_config):
    """Runs that want different things of torch's process-wide switches."""
    return {
        "ndadam": variant(tiny_config),
        "bf16": variant(tiny_config, precision="bf16", seed=1),
        "sgd": variant(tiny_config, optimizer="sgd", lr=0.05, seed=2, test_evaluation="curve"),
        "loose": variant(tiny_config, deterministic=False, seed=3, steps=23),
    }


def test_each_run_is_bitwise_what_it_is_alone(configs, data_home):
    together = Together()
    for name, config in configs.items():
        together.add(name, config, data_home)
    together.finish()

    for name, config in configs.items():
        assert together.of(name) == alone(config, data_home)
    assert together.ends == dict.fromkeys(configs)
    # In turns, not one after the other.
    assert len({name for name, _ in together.seen[:4]}) == 4


def test_random_numbers_of_the_process_are_each_runs_own(tiny_config, data_home, monkeypatch):
    """A network with dropout draws from torch's default generator in every step."""
    monkeypatch.setattr(run_state, "build_network", partial(_with_dropout, build_network))
    configs = {seed: variant(tiny_config, seed=seed) for seed in range(2)}
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    together = Together()
    for seed, config in configs.items():
        # A turn after every step, so that the draws interleave.
        together.add(seed, config, data_home, steps_per_turn=1)
    together.finish()

    assert torch.equal(torch.rand(3), expected)
    for seed, config in configs.items():
        assert together.of(seed) == alone(config, data_home)


def _with_dropout(build, *args):
    model = build(*args)
    model.groups.append(nn.Dropout(0.2))
    return model


def test_a_run_that_diverges_or_raises_leaves_the_others_as_they_are(configs, data_home):
    def breaks():
        yield from train_in_turns(configs["bf16"], data_home=data_home)
        raise OSError("the disk is gone")

    together = Together()
    together.add("good", configs["ndadam"], data_home)
    together.runs.add("raises", breaks)
    wild = variant(configs["ndadam"], optimizer="sgd", lr=1e12, steps=40, report_every=40)
    together.add("wild", wild, data_home)
    together.add("refused", variant(configs["ndadam"], batch_size=97), data_home)
    together.finish()

    assert together.of("good") == alone(configs["ndadam"], data_home)
    assert together.of("wild")[-1][1] == "diverged"
    assert str(together.ends["raises"]) == "the disk is gone"
    assert "batch_size must be at most the 84 training images" in str(together.ends["refused"])
    assert together.ends["good"] is together.ends["wild"] is None


def test_a_run_that_is_stopped_goes_on_from_its_own_checkpoint(configs, data_home, tmp_path):
    questions = iter(range(100))
    together = Together()
    for name in ("ndadam", "sgd"):
        folder = tmp_path / name
        stop = (lambda: next(questions) >= 7) if name == "sgd" else None
        together.add(name, configs[name], data_home, checkpoint_dir=folder, stop=stop)
    together.finish()
    first = together.of("sgd")
    assert first[-1][1] == "running"

    again = Together()
    again.add("other", configs["bf16"], data_home)
    again.add("sgd", configs["sgd"], data_home, checkpoint_dir=tmp_path / "sgd")
    again.finish()

    assert together.of("ndadam") == alone(configs["ndadam"], data_home)
    assert first + again.of("sgd") == alone(configs["sgd"], data_home)


def test_a_run_that_is_removed_is_gone_at_once(configs, data_home):
    together = Together()
    together.add("gone", configs["ndadam"], data_home)
    together.add("stays", configs["sgd"], data_home)
    for _ in range(4):
        together.runs.turn()
    together.runs.remove("gone")
    together.runs.remove("never there")
    seen = len(together.of("gone"))
    together.finish()

    assert together.of("stays") == alone(configs["sgd"], data_home)
    assert len(together.of("gone")) == seen
    assert together.ends == {"stays": None}
    assert not torch.are_deterministic_algorithms_enabled()
