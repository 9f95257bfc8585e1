"""Runs of the benchmark of matching: filed, stopped, side by side, on whatever machine."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.matching.__main__ import _clock, main
from benchmarks.matching.nets import Cell
from benchmarks.matching.training import StopTime, Workshop, _see_one_card
from worker.data.fetch import prepare_digits
from worker.report import Measurement
from worker.training.train import train_in_turns


def test_a_run_is_trained_once_and_read_from_its_file_after_that(tmp_path, monkeypatch):
    prepare_digits(tmp_path / "data")
    shop = Workshop(tmp_path / "out", tmp_path / "data")
    config = Cell("mlp", "constant", 1e-3, 0.99).spec().source_config
    config = config.model_copy(update={"steps": 5, "report_every": 5})
    wanted = [(config, Measurement(every=1, shadow_betas=(0.9, 0.99)))]

    first = shop.runs(wanted)
    monkeypatch.setattr("benchmarks.matching.training._job", None)

    assert shop.runs(wanted) == first
    assert len(first[0].series["effective_lr"]) == len(first[0].series["shadow_step"]) == 5
    assert first[0].probe["counts"]["invariant"] > 0


def test_parts_go_through_where_only_torch_numpy_and_pydantic_are_installed(tmp_path):
    """Every stage of a part in seconds; what it invents is not kept."""
    prepare_digits(tmp_path / "data")
    here = Path(__file__).parent
    ran = subprocess.run(
        [
            *(sys.executable, str(here / "bare_matching.py"), "--rehearse"),
            *("--only", "mlp,worth-mlp"),
            *("--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")),
        ],
        env={**os.environ, "PYTHONPATH": str(here.parents[2]), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1800,
    )

    assert ran.returncode == 0, ran.stderr
    assert "rehearsed: mlp, worth-mlp; its figures were invented and are gone" in ran.stdout
    assert not list((tmp_path / "out").glob("*"))


def _two_short_runs():
    config = Cell("mlp", "constant", 1e-3, 0.99).spec().source_config
    return [
        (config.model_copy(update={"steps": 4, "report_every": 2, "seed": seed}), None)
        for seed in (1, 2)
    ]


def test_a_part_stops_at_its_time_and_goes_on_with_what_had_ended(tmp_path):
    prepare_digits(tmp_path / "data")
    first = Workshop(tmp_path / "out", tmp_path / "data")
    done = first.runs(_two_short_runs()[:1])

    late = Workshop(tmp_path / "out", tmp_path / "data", until=time.time() - 1)
    with pytest.raises(StopTime, match="0 of 1 runs of this stage have ended"):
        late.runs(_two_short_runs())

    assert len(list((tmp_path / "out" / "runs").iterdir())) == 1
    assert first.runs(_two_short_runs())[0] == done[0]


def test_processes_take_the_cards_in_turn(tmp_path, monkeypatch):
    class Cards:
        get = iter(("2", None)).__next__

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    _see_one_card(Cards())
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2"
    _see_one_card(Cards())
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2"

    prepare_digits(tmp_path / "data")
    shop = Workshop(tmp_path / "out", tmp_path / "data", processes=2, gpus=("2", "3"))
    assert [run.diverged_at_step for run in shop.runs(_two_short_runs())] == [None, None]


def test_a_job_that_is_left_alone_takes_a_card_too(tmp_path):
    shop = Workshop(tmp_path, tmp_path, gpus=("2",))

    assert list(shop.spread(os.getenv, ["CUDA_VISIBLE_DEVICES"])) == ["2"]


def test_runs_side_by_side_are_filed_as_runs_alone_are(tmp_path):
    prepare_digits(tmp_path / "data")
    measured = Measurement(every=1, shadow_betas=(0.9, 0.99))
    wanted = [
        (config.model_copy(update={"steps": 20}), measurement)
        for config, _ in _two_short_runs()
        for measurement in (None, measured)
    ]
    alone = Workshop(tmp_path / "alone", tmp_path / "data").runs(wanted)

    beside = Workshop(tmp_path / "beside", tmp_path / "data", together=3).runs(wanted)

    for one, other in zip(beside, alone, strict=True):
        assert one.series == other.series
        assert one.seconds > 0
        assert one.metrics["train_loss"] == other.metrics["train_loss"]


def test_time_side_by_side_is_shared_by_the_runs_under_way_and_none_of_it_is_lost(
    tmp_path, monkeypatch
):
    """Every look at the clock is a second later; the last turn of a run is its own as well."""
    prepare_digits(tmp_path / "data")
    looks = iter(range(100_000))
    threads = set()

    def turns(config, **how):
        threads.add(how["threads"])
        return train_in_turns(config, **how)

    monkeypatch.setattr("benchmarks.matching.side_by_side.clock_for", lambda device: looks.__next__)
    monkeypatch.setattr("benchmarks.matching.side_by_side.train_in_turns", turns)

    runs = Workshop(tmp_path / "out", tmp_path / "data", together=2).runs(_two_short_runs())

    # One look before the first run is taken in, one when it is, and one after the last has ended.
    assert sum(run.seconds for run in runs) == next(looks) - 3
    assert threads == {1}


def test_runs_side_by_side_end_at_the_time_to_stop(tmp_path):
    prepare_digits(tmp_path / "data")
    late = Workshop(tmp_path / "out", tmp_path / "data", until=time.time() - 1, together=2)
    with pytest.raises(StopTime, match="0 of 2 runs of this stage have ended"):
        late.runs(_two_short_runs())
    assert not list((tmp_path / "out" / "runs").iterdir())


@pytest.mark.parametrize("option", ["--processes", "--together"])
def test_as_many_runs_as_none_are_refused(option, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["matching", option, "0"])

    with pytest.raises(SystemExit):
        main()
    assert f"argument {option}: must be a whole number above 0, got '0'" in capsys.readouterr().err


def test_a_stop_time_is_the_next_time_of_that_name():
    before = time.time()
    midnight = _clock("00:00")
    assert before < midnight <= time.time() + 24 * 3600
    with pytest.raises(Exception, match="must look like 18:30, got '25:00'"):
        _clock("25:00")
