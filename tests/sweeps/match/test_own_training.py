"""A match of a training function of a package: every step is recorded, and the rates agree."""

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sweeps.match.match_spec import MatchSpec
from sweeps.match.proposer import MatchProposer
from sweeps.match.result import MatchResult
from sweeps.records import Attempt, Trial, TrialState
from sweeps.search.protocol import Finished, Proposal
from sweeps.spec.validation_messages import explain
from tests.sweeps.match.match_simulation import START, World
from tests.worker.training.installed import on_path, write_package
from tests.worker.training.parts_package import write_parts
from worker.report import Series
from worker.training.trial import trial_reports

#: A perceptron on made-up numbers, whose first layers are under batch norm.
SOURCE = """
    from dataclasses import dataclass
    from typing import Literal
    import ndsweep

    @dataclass(frozen=True)
    class Config:
        steps: int = 1000
        optimizer: Literal["sgd", "ndadam"] = "sgd"
        lr: float = 0.2
        momentum: float = 0.0
        weight_decay: float = 0.0
        alpha_v: float = 0.05
        alpha_s: float = 0.01
        betas: tuple[float, float] = (0.0, 0.99)

    @ndsweep.training(metrics={"train_loss": ndsweep.Metric("minimize", unit="nats")})
    def train(config: Config, run: ndsweep.Run) -> None:
        import torch
        import ndadam
        from torch import nn

        torch.set_num_threads(1)
        torch.manual_seed(run.seed)
        model = nn.Sequential(
            nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)
        )
        if config.optimizer == "sgd":
            optimizer = torch.optim.SGD(
                model.parameters(), config.lr, config.momentum, weight_decay=config.weight_decay
            )
        else:
            groups = ndadam.param_groups(model, alpha_v=config.alpha_v, alpha_s=config.alpha_s)
            optimizer = ndadam.NDAdam(groups, betas=config.betas)
        draw = torch.Generator().manual_seed(run.seed)

        def loss_of(network, batch):
            return nn.functional.cross_entropy(network(batch[0]), batch[1])

        def batch():
            x = torch.randn(16, 8, generator=draw)
            noise = torch.randn(16, 4, generator=draw)
            return x, (2 * x[:, :4] + noise).argmax(1)

        found = ndadam.probe(model, batch(), loss_of)
        run.record(model, optimizer, every=100, probe=found)
        run.num_steps = config.steps
        for step in range(1, config.steps + 1):
            loss = loss_of(model, batch())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 100 == 0:
                run.report(step, {"train_loss": loss.item()})
"""
MATCH = {
    "name": "own",
    "training": "mine",
    "base": {"steps": 600},
    "source": {"optimizer": "sgd", "lr": 0.2, "weight_decay": 0.05},
    "target": {"optimizer": "ndadam", "betas": [0.0, 0.95]},
    "level": "step",
    "replicates": 2,
    "max_corrections": 1,
}


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Path]:
    with on_path(write_package(tmp_path / "package", SOURCE)):
        yield tmp_path


class Training(World):
    """Really trains what the match proposes."""

    def __init__(self, folder: Path, training: str = "mine") -> None:
        super().__init__()
        self.folder, self.training = folder, training

    def finish(self, trial: Trial) -> Trial:
        task = {
            "training": self.training,
            "config": trial.config,
            "device": "cpu",
            "measurement": trial.measurement,
            "checkpoint_dir": str(self.folder / str(trial.number)),
        }
        series: dict[str, list[Series]] = {}
        metrics: dict[str, float] = {}
        provenance: dict[str, Any] = {}
        for report in trial_reports(task):
            metrics |= report.metrics
            provenance |= report.provenance
            for name, piece in report.series.items():
                series.setdefault(name, []).append(piece)
        self.recorded[trial.number] = {name: _joined(parts) for name, parts in series.items()}
        attempt = Attempt(
            0, 0, TrialState.COMPLETE, START, START, "complete", provenance, mlflow_run_id=None
        )
        ended = dataclasses.replace(
            trial,
            state=TrialState.COMPLETE,
            metrics=metrics,
            step=report.step,
            num_steps=report.num_steps,
            finished_at=START,
            attempts=(attempt,),
        )
        self.trials[trial.number] = ended
        return ended


def _joined(parts: list[Series]) -> list[Series]:
    """The pieces as the store joins them."""
    values = [value for part in parts for value in part.values]
    return [Series(start=parts[0].start, every=parts[0].every, values=values)]


def matched(spec: MatchSpec, world: Training) -> MatchResult:
    """Run a match to its end."""
    proposer = MatchProposer(spec, world)
    while not isinstance(step := proposer.next(), Finished):
        assert isinstance(step, Proposal)
        trial = world.start(step)
        proposer.running(trial)
        proposer.tell(world.finish(trial))
    result = proposer.result()
    assert step.reason == "all done"
    assert result is not None
    return result


def test_the_rates_of_a_function_s_two_optimizers_are_matched(package: Path) -> None:
    world = Training(package / "trials")
    result = matched(MatchSpec.model_validate(MATCH), world)

    # Momentum 0: the stationary rate is the root of 2 x lr x weight decay.
    assert result["verdict"]["log_ratio"]["value"] == pytest.approx(0, abs=0.2)
    assert result["verdict"]["rate"] == pytest.approx(math.sqrt(2 * 0.2 * 0.05), rel=0.3)
    assert result["classes"]["invariant"] == 8
    assert world.trials[0].metrics["gain"] > 0


def test_an_optimizer_of_a_package_is_matched_as_it_was_measured(tmp_path: Path) -> None:
    values = {
        "name": "own optimizer",
        "base": {
            "network": "net",
            "dataset": "numbers",
            "batch_size": 16,
            "steps": 300,
            "lr_schedule": "constant",
        },
        "source": {"optimizer": "two-rates", "lr": 0.02, "optimizer.scalar_lr": 0.02},
        "target": {"optimizer": "ndadam", "betas": [0.0, 0.95], "alpha_s": 0.01},
        "criterion": "equal_mean",
        "replicates": 2,
        "max_corrections": 2,
    }
    with on_path(write_parts(tmp_path / "package")):
        spec = MatchSpec.model_validate(values)
        result = matched(spec, Training(tmp_path / "trials", "images"))

    assert result["rate_name"] == "alpha_v"
    assert result["verdict"]["log_ratio"]["value"] == pytest.approx(0, abs=0.2)
    assert result["classes"]["invariant"] > 0


PARTS_MATCH = {
    "name": "own optimizers",
    "base": {
        "network": "net",
        "dataset": "numbers",
        "batch_size": 16,
        "steps": 300,
        "lr_schedule": "constant",
    },
    "source": {"optimizer": "sgd", "lr": 0.01, "momentum": 0.0, "weight_decay": 0.0},
    "target": {"optimizer": "two-rates", "optimizer.scalar_lr": 0.01, "weight_decay": 0.0},
    "criterion": "equal_mean",
    "replicates": 2,
}


def test_the_declared_rate_of_an_optimizer_of_a_package_is_found(tmp_path: Path) -> None:
    with on_path(write_parts(tmp_path / "package")):
        spec = MatchSpec.model_validate(PARTS_MATCH)
        result = matched(spec, Training(tmp_path / "trials", "images"))
        again = MatchSpec.model_validate(spec.model_dump(mode="json"))

    assert again == spec
    assert result["rate_name"] == "lr"
    # Nothing predicts its rate: calibration starts at the field's default.
    assert {row["predicted"] for row in result["criteria"]} == {None}
    assert result["calibration"][0]["rate"] == 0.05
    assert result["verdict"]["log_ratio"]["value"] == pytest.approx(0, abs=0.2)
    # Both are plain SGD in the end.
    assert result["verdict"]["rate"] == pytest.approx(0.01, rel=0.2)


@pytest.mark.parametrize(
    ("changes", "path", "reason"),
    [
        ({"max_corrections": 0}, "max_corrections", "nothing predicts"),
        ({"criterion": "stationary"}, "criterion", "needs a target whose stationary rate theory"),
        ({"criterion": "schedule"}, "criterion", "got target 'of a package'"),
        ({"target": {"optimizer": "two-rates", "lr": 0.1}}, "target.lr", "what the match finds"),
        ({"target": {"optimizer": "lino"}}, "target.optimizer", "got 'lino'; if a package"),
        ({"source": {"optimizer": "lino"}}, "source.optimizer", "got 'lino'; if a package"),
    ],
)
def test_what_a_target_of_a_package_cannot_have_is_refused(
    tmp_path: Path, changes: dict[str, Any], path: str, reason: str
) -> None:
    with on_path(write_parts(tmp_path)), pytest.raises(ValidationError) as caught:
        MatchSpec.model_validate(PARTS_MATCH | changes)
    (found,) = explain(caught.value)

    assert found["path"] == path
    assert reason in found["reason"]


def test_a_match_of_a_function_comes_back_from_the_store(package: Path) -> None:
    spec = MatchSpec.model_validate(MATCH)
    stored = spec.model_dump(mode="json")

    assert stored["training"] == "mine"
    assert MatchSpec.model_validate(stored) == spec


def test_a_rate_may_have_a_range_below_one(tmp_path: Path) -> None:
    narrow = "alpha_v: Annotated[float, Field(gt=0, le=0.5)] = 0.05"
    source = SOURCE.replace("alpha_v: float = 0.05", narrow).replace(
        "from typing import Literal",
        "from typing import Annotated, Literal\n    from pydantic import Field",
    )
    with on_path(write_package(tmp_path, source)):
        spec = MatchSpec.model_validate(MATCH)

    assert spec.target_setting.lr is None
    assert spec.target_config(0.5).alpha_v == 0.5


NO_RATE = SOURCE.replace("alpha_v: float = 0.05", "").replace("config.alpha_v", "0.05")


@pytest.mark.parametrize(
    ("source", "changes", "path", "reason"),
    [
        (NO_RATE, {}, "training", "a match sets alpha_v, and its config has no such field"),
        (SOURCE, {"training": "external"}, "training", "must not be 'external'"),
        (SOURCE, {"training": "yours"}, "training", "one of external, images, mine, got 'yours'"),
        (SOURCE, {"criterion": "schedule"}, "criterion", "which only training 'images' takes"),
        (SOURCE, {"base": {"steps": 600, "lr": 0.1}}, "base.lr", "belongs to source or target"),
        (SOURCE, {"base": {"width": 3}}, "base.width", "not a field here"),
        (
            SOURCE,
            {"source": {"optimizer": "adam"}},
            "source.optimizer",
            "optimizer should be 'sgd' or 'ndadam', got 'adam'",
        ),
        (
            SOURCE,
            {"compare": {"margin": 0.1}},
            "compare.metric",
            "must be a metric of training 'mine' (train_loss), got 'test_error'",
        ),
    ],
)
def test_a_match_that_a_function_cannot_train_is_refused(
    tmp_path: Path, source: str, changes: dict[str, Any], path: str, reason: str
) -> None:
    with on_path(write_package(tmp_path, source)), pytest.raises(ValidationError) as caught:
        MatchSpec.model_validate(MATCH | changes)
    (found,) = explain(caught.value)

    assert found["path"] == path
    assert reason in found["reason"]
