"""``ndsweep import …``: writes to the store of the home, prints what was taken and what lacks."""

import pytest
from typer.testing import CliRunner

from service.cli.app import app
from sweeps.store.store import Store

TABLE = "lr,seed,error\n0.1,0,0.5\n0.1,1,0.6\n0.2,0,0.7\n0.2,1,0.9\n"


@pytest.fixture
def run(home):
    return lambda *arguments: CliRunner().invoke(app, ["import", *map(str, arguments)])


def test_a_table_is_imported_once_and_shown(run, tmp_path, home):
    path = tmp_path / "mine.csv"
    path.write_text(TABLE)
    arguments = ("csv", path, "--objective", "error", "--direction", "minimize", "--name", "n")

    first, again = run(*arguments), run(*arguments)

    store = Store(f"sqlite:///{home / 'store.db'}")
    [sweep] = store.list_sweeps().items
    store.close()
    assert first.exit_code == again.exit_code == 0, first.output
    assert first.output.splitlines() == [
        f"{sweep.id}  n: 4 trials added",
        "taken: 4 trials of 2 points: 4 complete",
        "taken: objective error, smaller is better",
        "taken: fields that vary: lr",
        "taken: intervals for 2 of 2 points, of 2 complete trials each",
        "lacks: no curves: the source has last values only",
        "lacks: no times: that of the file stands in for them",
    ]
    assert again.output.startswith(f"{sweep.id}  n: 0 trials added")


def test_names_are_separated_by_commas(run, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("lr,wd,host,error,loss\n1,0,a,1,1\n2,0,b,2,2\n")
    names = ("--params", "lr, wd", "--metrics", "loss", "--ignore", "host")

    found = run("csv", path, "--objective", "error", "--direction", "maximize", *names)

    assert "fields that vary: lr; the same in all: wd" in found.output
    assert "other metrics: loss" in found.output


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("optuna", "nope"), 1, "ndsweep: 'nope' is not the file of a storage"),
        (("csv", "nope.csv", "--objective", "a", "--direction", "minimize"), 2, "nope.csv"),
        (("ray", "nope", "--direction", "minimize"), 2, "nope"),
    ],
)
def test_a_refusal_is_a_sentence(run, arguments, code, words):
    found = run(*arguments)

    assert found.exit_code == code
    assert words in found.output
    assert "Traceback" not in found.output


def test_a_direction_must_be_one_of_two_words(run, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(TABLE)

    found = run("csv", path, "--objective", "error", "--direction", "down")

    assert found.exit_code == 2
    assert "must be one of minimize, maximize" in found.output
