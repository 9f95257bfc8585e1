"""What a batch runs: the same points as a search, replicate by replicate, each run once."""

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from sweeps.batch.clock import Pace, Paces, Stopwatch, parse_until
from sweeps.batch.plan import BatchRefused, plan_runs, read_specs, spec_points
from sweeps.batch.specs import keep_specs, kept_spec, spec_path
from sweeps.search.proposer import SweepProposer
from sweeps.search.protocol import Proposal
from sweeps.spec.presets import preset_names, read_preset
from sweeps.spec.step_shape import exact_shape
from sweeps.spec.sweep_spec import SweepSpec
from tests.sweeps.batch.batch_cases import ROOT, spec, write_spec
from tests.sweeps.sweep_cases import Curves
from tests.worker.training.installed import on_path
from tests.worker.training.parts_package import write_parts
from worker.data.fetch import prepare_digits


@pytest.fixture(scope="module")
def data_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("data")
    prepare_digits(home)
    return home


def presets_on_a_grid() -> list[str]:
    found = []
    for name in preset_names():
        preset = read_preset(name)
        if preset.kind == "sweep" and preset.spec["sampler"] == "grid":
            found.append(name)
    return found


def searched(spec: SweepSpec) -> list[dict[str, Any]]:
    """The points that a sweep of the spec proposes, each once, in its order."""
    proposer, found = SweepProposer(spec, Curves()), {}
    while isinstance(proposal := proposer.next(), Proposal):
        found[proposal.point] = proposal.params
    return list(found.values())


@pytest.mark.parametrize("name", presets_on_a_grid())
def test_a_preset_has_the_points_that_the_search_proposes(name: str) -> None:
    preset = SweepSpec.model_validate(read_preset(name).spec)

    assert list(spec_points(preset)) == searched(preset)


def test_branches_take_turns_where_a_grid_is_cut_short() -> None:
    values = spec(optimizers=["sgd", "adam"], num_points=3)
    values["space"]["lr"] = {"kind": "choice", "values": [0.1, 0.01]}
    short = SweepSpec.model_validate(values)

    assert list(spec_points(short)) == searched(short)
    assert [p["optimizer"] for p in spec_points(short)] == ["sgd", "adam", "sgd"]


def test_random_points_are_those_of_the_search() -> None:
    values = spec(sampler="random", num_points=4, objective={"metric": "train_error"})
    values["space"]["lr"] = {"kind": "float", "low": 1e-3, "high": 1.0, "log": True}
    drawn = SweepSpec.model_validate(values)

    assert len(list(spec_points(drawn))) == 4
    assert list(spec_points(drawn)) == searched(drawn)


def test_the_first_seed_of_every_point_comes_before_the_second_of_any(
    tmp_path: Path, data_home: Path
) -> None:
    paths = [
        write_spec(tmp_path, name="a", optimizers=["sgd", "adam"], replicates=2),
        write_spec(tmp_path, name="b", optimizers=["adam", "ndadam"], replicates=3),
    ]
    runs = plan_runs(read_specs(paths), data_home)

    order = [(run.config.seed, run.config.optimizer) for run in runs]
    assert order == [
        *((0, o) for o in ("sgd", "adam", "ndadam")),
        *((1, o) for o in ("sgd", "adam", "ndadam")),
        *((2, o) for o in ("adam", "ndadam")),
    ]
    shared = [[member.spec for member in run.specs] for run in runs if len(run.specs) > 1]
    assert shared == [["a", "b"], ["a", "b"]]


def test_seeds_can_be_replaced(tmp_path: Path, data_home: Path) -> None:
    path = write_spec(tmp_path, replicates=5)
    runs = plan_runs(read_specs([path], replicates=2, seed_offset=7), data_home)

    assert [run.config.seed for run in runs] == [7, 8]


def test_a_budget_of_trials_is_kept(tmp_path: Path, data_home: Path) -> None:
    path = write_spec(tmp_path, optimizers=["sgd", "adam"], replicates=2, budget={"trials": 3})

    assert len(plan_runs(read_specs([path]), data_home)) == 3


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {
            "scheduler": {"kind": "asha", "min_steps": 2},
            "objective": {"metric": "train_loss"},
        },
        "scheduler must be none in a batch, which stops no point early; got 'asha': remove it",
    ),
    ({"budget": {"gpu_hours": 1.5}}, r"budget.gpu_hours must be none .* got 1.5: end it with"),
    ({"budget": {"wall_seconds": 60.0}}, r"budget.wall_seconds must be none .* got 60.0: end it"),
    ({"budget": {"steps": 100}}, r"budget.steps must be none .* got 100: set num_points or"),
    ({"limits": {"wall_seconds": 60.0}}, r"limits.wall_seconds must be none .* got 60.0: remove"),
    ({"limits": {"gpu_hours": 1.0}}, r"limits.gpu_hours must be none in a batch"),
    (
        {"base": {"steps": None, "epochs": 2}, "limits": {"steps": 3}},
        r"limits.steps must be at least the \d+ steps of a run, got 3: raise it",
    ),
    ({"base": {"depth": 11}}, "depth must be 6n [+] 4"),
    ({"base": {"batch_size": 10**6}}, "batch_size must be at most the"),
    ({"base": {"dataset": "unheard-of"}}, "dataset 'unheard-of' is not prepared"),
    (
        {"sampler": "tpe", "num_points": 2, "objective": {"metric": "train_loss"}},
        r"sampler must be grid, random, qmc or list in a batch, .* got 'tpe': choose one of them",
    ),
]


@pytest.mark.parametrize(("changes", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
def test_what_a_batch_cannot_run_is_refused_before_it_starts(
    tmp_path: Path, data_home: Path, changes: dict[str, Any], reason: str
) -> None:
    path = write_spec(tmp_path, **changes)

    with pytest.raises(BatchRefused, match=reason):
        plan_runs(read_specs([path]), data_home)


def test_specs_of_one_name_are_refused(tmp_path: Path) -> None:
    path = write_spec(tmp_path)

    with pytest.raises(BatchRefused, match="name must differ"):
        read_specs([path, path])


def test_a_spec_kept_with_results_grows_to_hold_more_seeds(tmp_path: Path) -> None:
    path = write_spec(tmp_path, replicates=2)
    keep_specs(tmp_path, read_specs([path]))
    keep_specs(tmp_path, read_specs([path], seed_offset=3))

    kept = kept_spec(spec_path(tmp_path, "tiny"))
    assert (kept.base.seed, kept.replicates) == (0, 5)


def test_another_spec_of_a_kept_name_is_refused(tmp_path: Path) -> None:
    keep_specs(tmp_path, read_specs([write_spec(tmp_path)]))

    with pytest.raises(BatchRefused, match="holds another spec of the name 'tiny'"):
        keep_specs(tmp_path, read_specs([write_spec(tmp_path, base={"steps": 8})]))


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("90s", "10:31:30"),
        ("15m", "10:45:00"),
        ("1.5h", "12:00:00"),
        ("10:45", "10:45:00"),
        ("9:15", "09:15:00"),
    ],
)
def test_until_is_a_span_or_the_next_time_of_day(text: str, end: str) -> None:
    now = datetime.fromisoformat("2026-01-05T10:30:00")
    until = parse_until(text, now)

    assert until > now
    assert until.time().isoformat() == end


@pytest.mark.parametrize("text", ["", "soon", "15", "25:00", "10:61", "-5m"])
def test_another_until_is_refused(text: str) -> None:
    with pytest.raises(BatchRefused, match="until must be like 90s, 15m, 2h or 17:30"):
        parse_until(text, datetime(2026, 1, 5))


def test_a_pace_tells_the_start_from_the_steps() -> None:
    watch = Stopwatch(from_step=10)
    assert watch.pace() is None
    for step, elapsed in [(20, 8.0), (40, 12.0), (60, 16.0)]:
        watch.note(step, elapsed)

    assert watch.pace() == Pace(start_seconds=6.0, seconds_per_step=0.2)


def test_an_estimate_is_of_the_shape_and_scales_with_the_steps_left() -> None:
    paces, config = Paces(), SweepSpec.model_validate(spec()).config({"optimizer": "sgd"}, 0)
    shape = exact_shape(config.stored())
    other = config.model_copy(update={"depth": 16})
    paces.learn(shape, Pace(2.0, 0.5))

    assert paces.estimate(shape, 100) == pytest.approx(52 * 1.03)
    assert paces.estimate(exact_shape(other.stored()), 100) is None
    assert exact_shape(config.model_copy(update={"seed": 5}).stored()) == shape


_BLOCKED = [
    "alembic fastapi jinja2 matplotlib mlflow optuna pandas plotly psycopg ray rich scipy",
    "sklearn sqlalchemy torchvision typer uvicorn yaml httpx2 pydantic_settings",
]
_WITHOUT = """
import sys
BLOCKED = set(sys.argv.pop(1).split())
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"no {name} here", name=name)
sys.meta_path.insert(0, Refuse())
import runpy
sys.argv[0] = "sweeps.batch"
runpy.run_module("sweeps.batch", run_name="__main__")
"""


def run_without(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """A batch in an interpreter that has torch, numpy and pydantic only."""
    command = [sys.executable, "-c", _WITHOUT, " ".join(_BLOCKED), *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=240)


def test_json_grids_need_neither_yaml_nor_optuna(tmp_path: Path, data_home: Path) -> None:
    path = write_spec(tmp_path)
    # Nothing to train: its only run is there already.
    out = tmp_path / "out"
    done = run_without(path, "--out", out, "--data-home", data_home, "--until", "0s")

    assert done.returncode == 3, done.stderr
    assert "0 complete, 0 diverged, 0 failed, 1 left of 1 runs" in done.stdout
    assert json.loads((out / "specs" / "tiny.json").read_text())["name"] == "tiny"


def test_what_needs_a_package_says_which(tmp_path: Path, data_home: Path) -> None:
    random = write_spec(
        tmp_path, sampler="random", num_points=1, objective={"metric": "train_loss"}
    )
    yaml = tmp_path / "spec.yaml"
    yaml.write_text("name: tiny\n")

    for path, sentence in [
        (random, "needs the package 'optuna'"),
        (yaml, "YAML needs the package"),
    ]:
        refused = run_without(path, "--out", tmp_path / "out", "--data-home", data_home)
        assert refused.returncode == 2
        assert sentence in refused.stderr


def test_points_that_a_spec_lists_need_no_optuna(tmp_path: Path, data_home: Path) -> None:
    points = [{"optimizer": "sgd", "lr": 0.1}, {"optimizer": "sgd", "lr": 0.2}]
    values = spec(sampler="random", num_points=2, initial_points=points)
    values |= {"objective": {"metric": "train_loss"}}
    values["space"]["lr"] = {"kind": "float", "low": 0.01, "high": 1.0}
    path = tmp_path / "listed.json"
    path.write_text(json.dumps(values))

    done = run_without(path, "--out", tmp_path / "out", "--data-home", data_home, "--until", "0s")
    assert done.returncode == 3, done.stderr
    assert "2 left of 2 runs" in done.stdout


def test_a_checkout_that_is_not_installed_knows_its_networks() -> None:
    code = (
        "import importlib.metadata as m; m.entry_points = lambda **_: ();"
        "from worker.config.train_config import TrainConfig;"
        "print(TrainConfig(network='wrn').network)"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True)

    assert found.stdout == "wrn\n", found.stderr


def test_data_of_a_package_are_trained_on_for_a_length_in_steps(tmp_path: Path) -> None:
    base = {"dataset": "numbers", "network": "net", "batch_size": 16}
    values = {
        "name": "own",
        "base": base | {"steps": 20},
        "space": {"lr": {"kind": "choice", "values": [0.1, 0.2]}},
        "sampler": "grid",
        "objective": {"metric": "test_loss"},
    }
    path = tmp_path / "own.json"
    path.write_text(json.dumps(values | {"base": base | {"steps": 20, "optimizer": "sgd"}}))
    epochs = tmp_path / "epochs.json"
    epochs.write_text(json.dumps(values | {"base": base | {"epochs": 2, "optimizer": "sgd"}}))

    with on_path(write_parts(tmp_path / "package")):
        runs = plan_runs(read_specs([path]), tmp_path)
        with pytest.raises(BatchRefused, match="own: steps must be set in a batch") as refused:
            plan_runs(read_specs([epochs]), tmp_path)

    assert [(run.num_steps, run.config.lr) for run in runs] == [(20, 0.1), (20, 0.2)]
    assert "which a package registers" in str(refused.value)
    assert str(refused.value).endswith("got epochs = 2")
