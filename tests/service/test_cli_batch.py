"""``ndsweep batch``: the same batch, by the command that people know."""

import json
from pathlib import Path

from typer.testing import CliRunner

from service.cli import app
from tests.sweeps.batch_cases import spec, write_spec
from worker.digits import prepare_digits


def test_a_batch_without_time_says_what_is_left(tmp_path: Path) -> None:
    prepare_digits(tmp_path)
    path = write_spec(tmp_path, replicates=2)
    out = tmp_path / "out"
    arguments = ["batch", str(path), "--out", str(out), "--data-home", str(tmp_path)]
    ended = CliRunner().invoke(app, [*arguments, "--until", "0s", "--seed-offset", "3"])

    assert ended.exit_code == 3, ended.output
    assert "tiny optimizer=sgd seed 3  left" in ended.output
    assert "2 left of 2 runs" in ended.output
    assert json.loads((out / "specs" / "tiny.json").read_text())["base"]["seed"] == 3


def test_a_spec_that_cannot_run_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(spec() | {"replicates": 0}))
    ended = CliRunner().invoke(app, ["batch", str(path), "--out", str(tmp_path / "out")])

    assert ended.exit_code == 2
    assert "bad.json: replicates:" in ended.output
    assert not (tmp_path / "out").exists()
