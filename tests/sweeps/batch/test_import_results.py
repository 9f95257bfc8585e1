"""Results of batches as sweeps of the store: whole or not at all, once each, in both databases."""

import json
from collections.abc import Sequence
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import pytest

from sweeps.batch.import_results import import_results
from sweeps.batch.plan import Membership, spec_points
from sweeps.batch.results import AttemptNote, Curves, RunResult, result_path, write_result
from sweeps.batch.specs import keep_specs, spec_path
from sweeps.errors import SweepStateConflict
from sweeps.records import SweepState, TrialState
from sweeps.spec.presets import read_preset
from sweeps.spec.sweep_spec import SweepSpec
from sweeps.store.commands.imports import ImportRefused
from sweeps.store.store import Store
from tests.sweeps.batch.batch_cases import spec
from worker.config.train_config import config_key

ERRORS = {("sgd", 0): 0.05, ("sgd", 1): 0.07, ("ndadam", 0): 0.04, ("ndadam", 1): 0.03}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A results folder, away from the store's own file."""
    return tmp_path / "results"


def note(number: int, cause: str = "complete") -> AttemptNote:
    return AttemptNote(
        number=number,
        started_at=f"2026-03-01T1{number}:00:00.000Z",
        finished_at=f"2026-03-01T1{number}:10:00.000Z",
        exit_cause=cause,
        seconds=600.0,
        from_step=0,
    )


def run(
    optimizer: str, seed: int, *, names: Sequence[str] = ("tiny",), **changes: Any
) -> RunResult:
    """A run of ``spec(optimizers=["sgd", "ndadam"])``, as a batch writes it."""
    params = {"optimizer": optimizer}
    made = SweepSpec.model_validate(spec(optimizers=["sgd", "ndadam"]))
    config = made.config(params, seed)
    error = ERRORS[optimizer, seed]
    point = ["sgd", "ndadam"].index(optimizer)
    values: dict[str, Any] = {
        "config": config.stored(),
        "config_key": config.key(),
        "seed": seed,
        "specs": [Membership(spec=name, point=point, params=params) for name in names],
        "state": "complete",
        "exit_cause": "complete",
        "step": 6,
        "num_steps": 6,
        "metrics": {"test_error": error, "train_loss": 0.5},
        "curves": [
            Curves(
                steps=[2, 4, 6],
                values={"test_error": [0.5, 0.2, error], "train_loss": [2.0, 1.0, 0.5]},
            )
        ],
        "attempts": [note(1)],
        "started_at": "2026-03-01T11:00:00.000Z",
        "finished_at": "2026-03-01T11:10:00.000Z",
        "seconds": 600.0,
        "provenance": {"card": "H100", "versions": {"torch": "2.11.0"}},
    }
    return RunResult.model_validate(values | changes)


def folder(path: Path, runs: Sequence[RunResult], *, replicates: int = 2, seed: int = 0) -> Path:
    values = spec(optimizers=["sgd", "ndadam"], replicates=replicates, base={"seed": seed})
    keep_specs(path, [SweepSpec.model_validate(values)])
    for result in runs:
        write_result(path, result)
    return path


def all_runs() -> list[RunResult]:
    return [run(optimizer, seed) for optimizer, seed in ERRORS]


def test_an_imported_sweep_is_like_one_that_ran_here(store: Store, out: Path) -> None:
    report = import_results(store, folder(out, all_runs()))

    assert report.skipped == []
    (done,) = report.sweeps
    sweep = store.get_sweep(done.sweep.id)
    assert (sweep.name, sweep.state, sweep.reason) == ("tiny", "complete", "imported: all done")
    assert (sweep.num_trials, sweep.trials["complete"], done.added) == (4, 4, 4)
    assert sweep.best is not None
    assert sweep.best["params"] == {"optimizer": "ndadam"}
    assert sweep.best["mean"] == pytest.approx(0.035)
    assert sweep.result is not None
    assert {arm["objective"]["n"] for arm in sweep.result["arms"]} == {2}
    assert sweep.finished_at is not None
    assert sweep.finished_at.isoformat() == "2026-03-01T11:10:00+00:00"
    trials = store.trials(sweep.id).items
    assert [(t.config["optimizer"], t.seed) for t in trials] == list(ERRORS)
    first = store.trial(sweep.id, 0)
    assert (first.objective, first.step, first.exit_cause) == (0.05, 6, "complete")
    assert first.attempts[0].provenance["card"] == "H100"
    assert store.metrics(sweep.id, 0)["test_error"] == [(2, 0.5), (4, 0.2), (6, 0.05)]
    # Nobody ever sees it waiting to be run.
    states = [
        event.data["state"] for event in store.events(sweep.id, 0, 100) if event.kind == "sweep"
    ]
    assert states == ["complete"]
    assert store.claim("a runner") is None


def test_importing_again_adds_only_what_is_new(store: Store, out: Path) -> None:
    some = [run("sgd", 0), run("ndadam", 0)]
    first = import_results(store, folder(out, some)).sweeps[0]
    again = import_results(store, out).sweeps[0]
    grown = import_results(store, folder(out, all_runs())).sweeps[0]

    assert first.sweep.reason == "imported: 2 of 4 runs"
    assert (first.added, again.added, grown.added) == (2, 0, 2)
    assert first.sweep.id == again.sweep.id == grown.sweep.id
    assert again.sweep == first.sweep
    assert grown.sweep.reason == "imported: all done"
    assert len(store.trials(grown.sweep.id).items) == 4
    assert len(store.points(grown.sweep.id).items) == 2


def test_a_second_folder_with_other_seeds_joins_the_first(store: Store, out: Path) -> None:
    early = folder(out / "a", [run("sgd", 0), run("ndadam", 0)], replicates=1)
    late = folder(out / "b", [run("sgd", 1), run("ndadam", 1)], replicates=1, seed=1)
    first = import_results(store, early).sweeps[0]
    second = import_results(store, late).sweeps[0]

    assert second.sweep.id == first.sweep.id
    assert (second.sweep.num_trials, second.sweep.trials["complete"]) == (4, 4)
    assert second.sweep.spec["replicates"] == 2
    assert second.sweep.spec["base"]["seed"] == 0


def test_runs_that_did_not_complete_keep_their_state_and_attempts(store: Store, out: Path) -> None:
    lost = run(
        "sgd",
        0,
        state="failed",
        exit_cause="lost 3 times",
        attempts=[note(1, "lost: killed"), note(2, "stopped in time"), note(3, "lost 3 times")],
        curves=[],
        metrics={},
    )
    bad = run("ndadam", 0, state="diverged", exit_cause="diverged at step 2", diverged_at_step=2)
    done = import_results(store, folder(out, [lost, bad])).sweeps[0]

    failed, diverged = (store.trial(done.sweep.id, number) for number in (0, 1))
    assert [a.state for a in failed.attempts] == ["failed", "cancelled", "failed"]
    assert (failed.state, failed.objective) == (TrialState.FAILED, None)
    assert (diverged.state, diverged.objective) == (TrialState.DIVERGED, None)
    assert diverged.diverged_at_step == 2
    assert done.sweep.best is None

    mended = import_results(store, folder(out, [run("sgd", 0)])).sweeps[0]
    assert (mended.added, mended.replaced) == (0, 1)
    failed = store.trial(done.sweep.id, 0)
    assert (failed.state, failed.objective) == (TrialState.COMPLETE, 0.05)
    assert [a.number for a in failed.attempts] == [1, 2, 3, 4]
    assert mended.sweep.trials["failed"] == 0


def test_a_run_of_two_specs_becomes_a_trial_of_each(store: Store, out: Path) -> None:
    values = spec(name="twin", optimizers=["sgd", "ndadam"])
    keep_specs(out, [SweepSpec.model_validate(values)])
    folder(out, [run("sgd", 0, names=["tiny", "twin"]), run("ndadam", 0)], replicates=1)
    report = import_results(store, out)

    assert [(done.sweep.name, done.added) for done in report.sweeps] == [("tiny", 2), ("twin", 1)]


DAMAGE: list[tuple[str, str]] = [
    ('{"format": "ndsweep-run-1"', "is not the result of a run"),
    ("{}", "config: Field required"),
    ('{"format": "ndsweep-run-9"}', "is not the result of a run"),
]


@pytest.mark.parametrize(("text", "sentence"), DAMAGE, ids=["torn", "empty", "of another version"])
def test_a_damaged_file_costs_its_own_run_alone(
    store: Store, out: Path, text: str, sentence: str
) -> None:
    runs = all_runs()
    folder(out, runs)
    result_path(out, runs[0].config_key, runs[0].seed).write_text(text)
    (out / "notes.txt").write_text("mine")
    report = import_results(store, out)

    assert report.sweeps[0].added == 3
    assert len(report.skipped) == 2
    assert sentence in report.skipped[0]
    assert "run the batch again" in report.skipped[0]
    assert report.skipped[1] == "notes.txt is not a file of a batch; it is left alone"


def test_an_edited_result_is_no_record(store: Store, out: Path) -> None:
    runs = all_runs()
    folder(out, runs)
    path = result_path(out, runs[0].config_key, runs[0].seed)
    values = json.loads(path.read_text())
    values["config"]["lr"] = 0.5
    path.write_text(json.dumps(values))
    report = import_results(store, out)

    assert report.sweeps[0].added == 3
    assert "was changed: its config does not have the key" in report.skipped[0]


def test_a_damaged_spec_leaves_its_runs_out(store: Store, out: Path) -> None:
    folder(out, [run("sgd", 0, names=["tiny", "twin"]), run("ndadam", 0, names=["twin"])])
    report = import_results(store, out)
    assert report.sweeps[0].added == 1
    assert report.skipped == [
        f"{run('ndadam', 0).config_key}-0.json belongs to twin, whose spec is not in "
        f"{out / 'specs'}; copy it there from where the batch ran"
    ]

    spec_path(out, "tiny").write_text("{")
    with pytest.raises(ImportRefused, match="2 runs and 0 specs were found"):
        import_results(store, out)


KEPT = Path(__file__).parents[3] / "docs" / "results" / "cifar10" / "runs"


def kept_copy(out: Path, *, specs: bool) -> Path:
    """The runs that the repository keeps, with or without their specs."""
    left_out = None if specs else ignore_patterns("specs")
    return copytree(KEPT, out, ignore=left_out)


def kept_errors() -> dict[str, dict[tuple[str, int], float]]:
    """Spec -> (key of the config, seed) -> test error of each kept run, as its file has it."""
    found: dict[str, dict[tuple[str, int], float]] = {}
    for path in KEPT.glob("*.json"):
        run = json.loads(path.read_text())
        for member in run["specs"]:
            errors = found.setdefault(member["spec"], {})
            errors[run["config_key"], run["seed"]] = run["metrics"]["test_error"]
    return found


@pytest.mark.parametrize("specs", [True, False], ids=["with their specs", "by the presets' names"])
def test_runs_kept_beside_a_report_can_be_imported(store: Store, out: Path, specs: bool) -> None:
    report = import_results(store, kept_copy(out, specs=specs))

    assert report.skipped == []
    sweeps = {done.sweep.name: done.sweep for done in report.sweeps}
    kept = kept_errors()
    assert sweeps.keys() == kept.keys() >= {"paper-table1-cifar10", "paper-table2-cifar10"}
    for name, sweep in sweeps.items():
        found = {(config_key(t.config), t.seed): t.objective for t in store.all_trials(sweep.id)}
        assert found == kept[name]
        # Whatever a batch's own spec began with, a point has its number in the preset.
        numbered = dict(enumerate(spec_points(SweepSpec.model_validate(read_preset(name).spec))))
        assert all(p.params == numbered[p.number] for p in store.all_points(sweep.id))
        # Like a driver's own result: nothing to compute later.
        assert store.get_sweep(sweep.id).result["importance"] == []
    assert sum(done.added for done in import_results(store, out).sweeps) == 0


def test_a_run_of_something_else_than_the_preset_says_is_passed_over(
    store: Store, out: Path
) -> None:
    write_result(kept_copy(out, specs=False), run("sgd", 0, names=["paper-adam-l2"]))
    report = import_results(store, out)

    assert {done.sweep.name for done in report.sweeps} == kept_errors().keys()
    [sentence] = report.skipped
    assert "belongs to paper-adam-l2" in sentence
    assert "it trained something else than the preset of that name" in sentence


def test_a_sweep_that_goes_on_here_is_left_alone(store: Store, out: Path) -> None:
    folder(out, all_runs()[:2])
    sweep = import_results(store, out).sweeps[0].sweep
    store.extend(sweep.id, sweep.spec | {"replicates": 3}, num_trials=6)
    assert store.get_sweep(sweep.id).state == SweepState.QUEUED
    report = import_results(store, folder(out, all_runs()))

    assert report.sweeps == []
    assert "import again when it is finished" in report.skipped[0]
    assert len(store.trials(sweep.id).items) == 2
    with pytest.raises(SweepStateConflict):
        store.delete_sweep(sweep.id)


def test_a_folder_without_results_is_refused(store: Store, out: Path) -> None:
    with pytest.raises(ImportRefused, match="name the folder that was its --out"):
        import_results(store, out)
