"""CSV tables: which columns are what, types of cells, curves by step, refusals."""

import csv

import pytest

from sweeps.batch.imports.as_sweep import import_found
from sweeps.batch.imports.cells import Asked, typed_column
from sweeps.batch.imports.csv_table import read_csv
from sweeps.records import TrialState
from sweeps.store.commands.imports import ImportRefused

ASKED = Asked("error", "minimize")


@pytest.fixture
def table(tmp_path):
    def write(*rows, name="runs.csv"):
        path = tmp_path / name
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(rows)
        return path

    return write


def test_columns_are_fields_metrics_seed_state_times_and_labels(store, table):
    path = table(
        ["run", "state", "lr", "opt", "seed", "error", "minutes", "started_at", "finished_at"],
        "a,finished,0.1,sgd,0,0.5,3,2026-05-01T10:00:00Z,2026-05-01 11:00".split(","),
        ["b", "finished", "0.1", "sgd", "1", "0.7", "4", "", ""],
        ["c", "failed", "0.2", "sgd", "0", "", "1", "", ""],
        ["d", "running", "0.2", "sgd", "1", "0.9", "1", "", ""],
        ["e", "", "0.2", "adam", "1", "nan", "1", "", ""],
    )

    found = read_csv(path, Asked("error", "minimize", metrics=["minutes"]))

    assert found.name == "runs"
    assert [(t.label, t.state, t.seed) for t in found.trials] == [
        ("a", TrialState.COMPLETE, 0),
        ("b", TrialState.COMPLETE, 1),
        ("c", TrialState.FAILED, 0),
        ("e", TrialState.DIVERGED, 1),
    ]
    assert found.trials[0].params == {"lr": 0.1, "opt": "sgd"}
    assert found.trials[0].metrics == {"error": 0.5, "minutes": 3.0}
    assert found.trials[0].finished_at.isoformat() == "2026-05-01T11:00:00+00:00"
    assert found.trials[2].cause == "failed in the source"
    assert found.trials[3].cause == "error is nan"
    assert found.notes == ["1 trial left out: running"]
    report = import_found(store, found)
    assert report.sweep.sweep.best["mean"] == pytest.approx(0.6)


def test_text_that_differs_in_every_row_is_no_field_unless_it_is_asked_for(table):
    path = table(
        ["lr", "folder", "error"], ["1", "out/a", "1"], ["2", "out/b", "2"], ["2", "out/c", "2"]
    )

    plain = read_csv(path, ASKED)
    asked = read_csv(path, Asked("error", "minimize", fields=["lr", "folder"]))

    assert plain.trials[0].params == {"lr": 1}
    assert plain.notes == [
        "folder is text that differs in every row, and no field (--params NAME,… makes it one)"
    ]
    assert asked.trials[0].params == {"lr": 1, "folder": "out/a"}


def test_columns_can_be_left_out(table):
    path = table(["lr", "host", "error"], ["1", "x", "1"], ["2", "y", "2"])

    assert read_csv(path, Asked("error", "minimize", ignore=["host"])).trials[0].params == {"lr": 1}


def test_a_column_of_steps_makes_curves(store, table):
    path = table(
        ["lr", "seed", "epoch", "error", "loss"],
        *(
            [lr, seed, epoch, lr / epoch + seed / 100, 1 / epoch]
            for epoch in (1, 2, 3)
            for lr in (1, 2)
            for seed in (0, 1)
        ),
    )

    found = read_csv(path, Asked("error", "minimize", metrics=["loss"], step="epoch"))

    assert len(found.trials) == 4
    first = found.trials[0]
    assert first.curves["error"] == [(1, 1.0), (2, 0.5), (3, pytest.approx(1 / 3))]
    assert (first.step, first.metrics["loss"]) == (3, pytest.approx(1 / 3))
    report = import_found(store, found)
    assert store.metrics(report.sweep.sweep.id, 0)["loss"][0] == (1, 1.0)
    assert "curves of 4 trials: error, loss" in report.taken


def test_what_ndsweep_exports_can_be_imported(store, table):
    names = "sweep,trial,point,seed,role,state,objective,step,num_steps,diverged_at_step"
    names += ",exit_cause,started_at,finished_at,config.lr,config.seed,metrics.validation_error"
    times = "2026-05-01T10:00:00+00:00,2026-05-01T11:00:00+00:00"
    path = table(
        names.split(","),
        f"s,0,0,3,,complete,0.1,9,9,,complete,{times},0.1,3,0.1".split(","),
        f"s,1,1,3,,diverged,,5,9,5,diverged,{times},0.2,3,".split(","),
    )

    found = read_csv(path, Asked("metrics.validation_error", "minimize"))

    assert found.objective == "validation_error"
    assert [trial.params for trial in found.trials] == [{"lr": 0.1}, {"lr": 0.2}]
    assert [trial.state.value for trial in found.trials] == ["complete", "diverged"]
    assert found.trials[0].seed == 3


def test_the_same_file_is_one_sweep_and_rows_that_were_added_are_added(store, table):
    rows = [["lr", "error"], ["1", "0.5"], ["2", "0.6"]]
    first = import_found(store, read_csv(table(*rows), ASKED))
    again = import_found(store, read_csv(table(*rows), ASKED))
    grown = import_found(store, read_csv(table(*rows, ["3", "0.4"]), ASKED))
    other = import_found(store, read_csv(table(*rows, name="other.csv"), ASKED))

    assert [one.sweep.added for one in (first, again, grown, other)] == [2, 0, 1, 2]
    assert first.sweep.sweep.id == grown.sweep.sweep.id != other.sweep.sweep.id


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1", "2", ""], [1, 2, None]),
        (["1", "2.5"], [1.0, 2.5]),
        (["1e-3", "nan"], [0.001, pytest.approx(float("nan"), nan_ok=True)]),
        (["true", "False"], [True, False]),
        (["[0.9, 0.99]", "[0.5, 0.6]"], [[0.9, 0.99], [0.5, 0.6]]),
        (["1", "x"], ["1", "x"]),
        (["[1]", "x"], ["[1]", "x"]),
    ],
)
def test_a_column_has_one_type(cells, values):
    assert typed_column(cells) == values


@pytest.mark.parametrize(
    ("rows", "asked", "sentence"),
    [
        ([["lr", "error"]], ASKED, "must have a head and at least one row, got 1 lines"),
        ([["lr", "lr", "error"], [1, 2, 3]], ASKED, "must name each column once, got 'lr' twice"),
        ([["lr", "", "error"], [1, 2, 3]], ASKED, "each column once, got one without a name"),
        ([["lr", "error"], [1, 2], [1]], ASKED, "row 3 has 1"),
        (
            [["lr", "loss"], [1, 2]],
            ASKED,
            "--objective must name columns of runs.csv",
        ),
        ([["lr", "error"], [1, 2]], Asked("error"), "--objective and --direction must be given"),
        ([["lr", "error"], [1, "low"]], ASKED, "error must hold numbers, got 'low' in row 2"),
        (
            [["lr", "state", "error"], [1, "odd", 2]],
            ASKED,
            "row 2 has the state 'odd'",
        ),
        (
            [["lr", "t", "error"], [1, "a", 2]],
            Asked("error", "minimize", step="t"),
            "t must hold whole numbers from 0, got 'a'",
        ),
        (
            [["lr", "error"], [1, 2]],
            Asked("error", "minimize", fields=["wd"]),
            "--params must name columns .*; got 'wd'",
        ),
    ],
)
def test_what_is_no_table_is_refused_in_a_sentence(table, rows, asked, sentence):
    with pytest.raises(ImportRefused, match=sentence):
        read_csv(table(*rows), asked)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ImportRefused, match="it is not text in UTF-8"):
        read_csv(path, ASKED)
