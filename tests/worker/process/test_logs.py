"""Logs: lines for people unless asked otherwise, one JSON object a line with ids if asked."""

import json
import logging
import subprocess
import sys
import threading
from datetime import datetime
from typing import Any

import pytest

from worker.process.logs import FORMAT, JsonFormatter, add_ids, is_json, log_ids


@pytest.fixture(autouse=True)
def of_no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have driven a sweep in it."""
    monkeypatch.setattr("worker.process.logs._PROCESS_IDS", {})


def written(message: str, *arguments: Any, ids: dict[str, Any] | None = None, **more: Any) -> Any:
    """What the formatter of a worker makes of a record."""
    log = logging.getLogger("tests")
    record = log.makeRecord("tests", logging.WARNING, "here", 1, message, arguments, None, **more)
    return json.loads(JsonFormatter("worker", ids).format(record))


def test_a_record_is_one_line_with_the_ids_of_where_it_was_written() -> None:
    with log_ids(request="r1", token="t1"):
        with log_ids(sweep="s1"):
            inner = written("a\nb %s", "\ud800", extra={"trial": 3})
        outer = written("after")

    assert datetime.fromisoformat(inner.pop("time")).tzinfo is not None
    assert isinstance(inner.pop("pid"), int)
    assert inner == {
        "level": "WARNING",
        "part": "worker",
        "logger": "tests",
        "message": "a\nb \ud800",
        **{"request": "r1", "token": "t1", "sweep": "s1", "trial": 3},
    }
    assert "sweep" not in outer
    assert not {"request", "token"} & written("outside").keys()


def test_ids_that_are_found_out_later_hold_until_their_block_ends() -> None:
    add_ids(sweep="nowhere")
    with log_ids(request="r1"):
        add_ids(sweep="s1")
        assert written("x")["sweep"] == "s1"
        # A thread that gets the context, as those of the service do, adds for its request too.
        with log_ids(request="r2"):
            assert (written("x")["request"], written("x")["sweep"]) == ("r2", "s1")

    assert "sweep" not in written("x")


def test_ids_of_a_formatter_are_those_of_every_thread() -> None:
    found: list[Any] = []
    ids = {"sweep": "s1", "trial": 0, "attempt": 2}
    thread = threading.Thread(target=lambda: found.append(written("x", ids=ids)))
    thread.start()
    thread.join()

    assert {name: found[0][name] for name in ids} == ids


CODE = """
import logging, threading, warnings
from worker.process.logs import add_process_ids, set_up
set_up("driver")
add_process_ids(sweep="s1")
logging.getLogger("sweeps").info("begins")
warnings.warn("old")
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
raise ValueError("nobody caught this")
"""


@pytest.fixture
def speak(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs CODE with a setting; returns what it wrote to standard error, line by line."""

    def run(setting: str | None) -> list[str]:
        if setting is None:
            monkeypatch.delenv(FORMAT, raising=False)
        else:
            monkeypatch.setenv(FORMAT, setting)
        done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
        assert done.returncode == 1
        return done.stderr.splitlines()

    return run


def test_a_process_that_is_told_so_writes_nothing_but_json(speak: Any) -> None:
    records = [json.loads(line) for line in speak("json")]

    assert [(one["level"], one["logger"]) for one in records] == [
        ("INFO", "sweeps"),
        ("WARNING", "py.warnings"),
        ("CRITICAL", "root"),
        ("CRITICAL", "root"),
    ]
    assert all((one["part"], one["sweep"]) == ("driver", "s1") for one in records)
    assert "division by zero" in records[2]["message"]
    assert records[3]["message"] == "ValueError: nobody caught this"
    assert records[3]["exception"].startswith("Traceback")


def test_people_get_lines_unless_it_is_said_otherwise(speak: Any) -> None:
    assert speak(None)[0].endswith(" INFO begins")


@pytest.mark.parametrize(("setting", "expected"), [("json", True), ("text", False), ("", False)])
def test_the_setting_is_read_from_the_environment(
    setting: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FORMAT, setting)

    assert is_json() is expected
