"""Exports of W&B's runs table: about the run, config, summary, as W&B orders and writes them."""

import csv

import pytest

from sweeps.batch.imports.as_sweep import import_found
from sweeps.batch.imports.cells import Asked
from sweeps.batch.imports.wandb_export import read_wandb
from sweeps.records import TrialState
from sweeps.store.commands.imports import ImportRefused

ABOUT = ["Name", "Agent", "State", "Notes", "User", "Tags", "Created", "Runtime", "Sweep"]
CONFIG = ["batch_size", "lr", "metric.goal", "metric.name", "out_dir", "parameters.lr", "seed"]
SUMMARY = ["_runtime", "epoch", "val/acc", "val/loss"]


def row(name, state, lr, seed, accuracy, *, runtime="120"):
    about = [name, "", state, "-", "me", "", "2026-02-01T10:00:00.000Z", runtime, "abc"]
    return [*about, "32", lr, "", "", f"runs/{name}", "", seed, "118.2", "9", accuracy, "0.5"]


@pytest.fixture
def export(tmp_path):
    def write(*rows, head=(*ABOUT, *CONFIG, *SUMMARY)):
        path = tmp_path / "wandb_export_2026-02-01T12_00_00.000+01_00.csv"
        with path.open("w", newline="") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows([head, *rows])
        return path

    return write


ROWS = [
    row("bright-1", "finished", "0.1", "0", "0.90"),
    row("calm-2", "finished", "0.1", "1", "0.92"),
    row("dark-3", "finished", "0.01", "0", "0.80"),
    row("early-4", "finished", "0.01", "1", "0.82"),
    row("fast-5", "crashed", "0.01", "2", "0.10"),
    row("good-6", "running", "0.01", "3", "0.10"),
]


def test_config_is_told_from_summary_by_the_order_of_columns(store, export):
    report = import_found(store, read_wandb(export(*ROWS), Asked("val/acc", "maximize")))

    sweep = report.sweep.sweep
    trials = list(store.all_trials(sweep.id))
    assert sweep.best["params"] == {"lr": 0.1}
    assert (sweep.best["mean"], sweep.best["n"]) == (pytest.approx(0.91), 2)
    assert sweep.spec["base"] == {"batch_size": 32, "seed": 0}
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 4 + [TrialState.FAILED]
    assert trials[0].metrics == {"val/acc": 0.9, "val/loss": 0.5, "epoch": 9.0}
    assert (trials[0].finished_at - trials[0].started_at).total_seconds() == 120
    assert report.taken == [
        "5 trials of 2 points: 4 complete, 1 failed",
        "objective val/acc, larger is better",
        "fields that vary: lr; the same in all: batch_size",
        "other metrics: epoch, val/loss",
        "intervals for 2 of 2 points, of 2 complete trials each",
    ]
    assert report.lacks == [
        "no curves: the source has last values only",
        "1 trial left out: running",
        "out_dir is text that differs in every run, and no field (--params NAME,… makes it one)",
    ]


def test_the_objective_of_the_sweep_is_taken_where_the_table_has_it(export):
    rows = [list(one) for one in ROWS]
    for one in rows:
        one[11:13] = ["maximize", "val/acc"]

    found = read_wandb(export(*rows), Asked())

    assert (found.objective, found.direction) == ("val/acc", "maximize")
    assert set(found.trials[0].params) == {"batch_size", "lr"}


def test_fields_and_metrics_can_be_named(export):
    path = export(*ROWS)
    asked = Asked("val/acc", "maximize", fields=["lr", "out_dir"], metrics=["val/loss"])

    found = read_wandb(path, asked)

    assert found.trials[0].params == {"lr": 0.1, "out_dir": "runs/bright-1"}
    assert set(found.trials[0].metrics) == {"val/acc", "val/loss"}


def test_an_export_again_is_one_sweep(store, export):
    first = import_found(store, read_wandb(export(*ROWS[:3]), Asked("val/acc", "maximize")))
    grown = import_found(store, read_wandb(export(*ROWS), Asked("val/acc", "maximize")))

    assert first.sweep.sweep.id == grown.sweep.sweep.id
    assert (first.sweep.added, grown.sweep.added) == (3, 2)


@pytest.mark.parametrize(
    ("head", "asked", "sentence"),
    [
        (["a", "b"], Asked("a", "minimize"), "must have the columns Name and State, got a, b"),
        (None, Asked(), "--objective must name the column of the objective"),
        (None, Asked("val/acc"), "--direction must say which end of val/acc is better"),
        (None, Asked("nope", "minimize"), "--objective must name columns of wandb_export"),
        (
            [*ABOUT, *CONFIG, *reversed(SUMMARY)],
            Asked("val/acc", "maximize"),
            "does not tell config and summary apart",
        ),
    ],
)
def test_what_cannot_be_told_is_refused_in_a_sentence(export, head, asked, sentence):
    path = export(*ROWS) if head is None else export(["1"] * len(head), head=head)

    with pytest.raises(ImportRefused, match=sentence):
        read_wandb(path, asked)
