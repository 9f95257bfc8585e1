"""``ndsweep batch``: the same batch, by the command that people know."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.cli.app import app
from sweeps.batch.plan import plan_runs, read_specs
from sweeps.batch.results import write_result
from tests.sweeps.batch.batch_cases import failed_result, spec, write_spec
from tests.sweeps.batch.test_import_results import all_runs, folder
from worker.data.fetch import prepare_digits


def test_a_batch_without_time_says_what_is_left(tmp_path: Path) -> None:
    prepare_digits(tmp_path)
    path = write_spec(tmp_path, replicates=2)
    out = tmp_path / "out"
    arguments = ["batch", str(path), "--out", str(out), "--data-home", str(tmp_path)]
    shifted = ["--seed-offset", "3"]
    ended = CliRunner().invoke(app, [*arguments, "--until", "0s", *shifted])

    assert ended.exit_code == 3, ended.output
    assert "tiny optimizer=sgd seed 3  left" in ended.output
    assert "2 left of 2 runs" in ended.output
    assert json.loads((out / "specs" / "tiny.json").read_text())["base"]["seed"] == 3
    for run in plan_runs(read_specs([path], seed_offset=3), tmp_path):
        write_result(out, failed_result(run, "failed the last time"))
    again = CliRunner().invoke(app, [*arguments, "--until", "0s", *shifted, "--retry-failed"])

    assert again.exit_code == 3, again.output
    assert "0 failed, 2 left of 2 runs" in again.output


def test_a_spec_that_cannot_run_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(spec() | {"replicates": 0}))
    ended = CliRunner().invoke(app, ["batch", str(path), "--out", str(tmp_path / "out")])

    assert ended.exit_code == 2
    assert "bad.json: replicates:" in ended.output
    assert not (tmp_path / "out").exists()


def test_results_are_imported_into_the_store_of_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NDSWEEP_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NDSWEEP_STORE_URL", raising=False)
    results = folder(tmp_path / "results", all_runs())
    first = CliRunner().invoke(app, ["import-results", str(results)])
    (results / "notes.txt").write_text("mine")
    second = CliRunner().invoke(app, ["import-results", str(results)])

    assert first.exit_code == 0, first.output
    assert "tiny: 4 trials added; imported: all done" in first.output
    assert second.exit_code == 1
    assert "tiny: 0 trials added" in second.output
    assert "skipped: notes.txt is not a file of a batch" in second.output
