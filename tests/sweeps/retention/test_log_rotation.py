"""Logs are moved aside by size and by age, under the hands of those who write them."""

import os
import time
from pathlib import Path

import pytest

from sweeps.retention.log_rotation import LogRotation

DAY = 86_400.0


@pytest.fixture
def rotation(tmp_path: Path) -> LogRotation:
    """Of ``api.log``: at 100 bytes, two older ones kept, for 7 days."""
    return LogRotation(tmp_path, ("api", "absent"), days=7, most_bytes=100, most_files=2)


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def test_a_long_log_is_moved_aside_and_its_writer_goes_on(
    rotation: LogRotation, tmp_path: Path
) -> None:
    now = time.time()
    with (tmp_path / "api.log").open("a") as writer:
        for text in ("a" * 101, "b" * 101, "c" * 101, "d"):
            writer.write(text)
            writer.flush()
            rotation.look(now)

    assert texts(tmp_path) == {"api.log": "d", "api.log.1": "c" * 101, "api.log.2": "b" * 101}


def test_a_log_of_more_than_a_day_is_moved_aside_unless_it_is_empty(
    rotation: LogRotation, tmp_path: Path
) -> None:
    log = tmp_path / "api.log"
    log.write_text("of today")
    now = time.time()

    rotation.look(now)
    assert texts(tmp_path) == {"api.log": "of today"}
    rotation.look(now + 1.1 * DAY)
    assert texts(tmp_path) == {"api.log": "", "api.log.1": "of today"}
    os.utime(tmp_path / "api.log.1", (now + 1.1 * DAY,) * 2)
    rotation.look(now + 3 * DAY)
    assert texts(tmp_path) == {"api.log": "", "api.log.1": "of today"}


def test_what_an_earlier_service_left_counts_from_its_last_line(
    rotation: LogRotation, tmp_path: Path
) -> None:
    log = tmp_path / "api.log"
    log.write_text("of last week")
    now = time.time()
    os.utime(log, (now - 2 * DAY,) * 2)

    rotation.look(now)

    assert texts(tmp_path) == {"api.log": "", "api.log.1": "of last week"}


def test_old_ones_are_removed(rotation: LogRotation, tmp_path: Path) -> None:
    now = time.time()
    for name in ("api.log.1", "api.log.2"):
        (tmp_path / name).write_text("x")
    os.utime(tmp_path / "api.log.2", (now - 8 * DAY,) * 2)

    rotation.look(now)

    assert texts(tmp_path) == {"api.log.1": "x"}


def test_a_copy_is_as_private_as_its_log(rotation: LogRotation, tmp_path: Path) -> None:
    log = tmp_path / "api.log"
    log.write_text("x" * 101)
    log.chmod(0o600)

    rotation.look(time.time())

    assert (tmp_path / "api.log.1").stat().st_mode & 0o777 == 0o600


def test_a_log_that_cannot_be_moved_aside_stays_and_is_told(
    rotation: LogRotation, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "api.log").write_text("x" * 101)
    (tmp_path / "api.log.1").mkdir()
    (tmp_path / "api.log.2").write_text("in the way")

    rotation.look(time.time())

    assert (tmp_path / "api.log").read_text() == "x" * 101
    assert "api.log is not rotated" in caplog.text
