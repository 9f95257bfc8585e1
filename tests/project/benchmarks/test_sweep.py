"""The sweep engine's benchmark on a machine where nothing is installed."""

import os
import sys
from pathlib import Path

import pytest

from benchmarks.sweep.parts import ROOT, process, wait


def test_what_it_starts_finds_packages_that_lie_in_a_folder_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages, log = tmp_path / "packages", tmp_path / "log"
    packages.mkdir()
    (packages / "only_there.py").write_text("NAME = 'only there'\n")
    # As somebody has it who took the packages and a checkout to a machine without a network.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(packages), str(ROOT)]))
    command = [sys.executable, "-c", "import only_there, service; print(only_there.NAME)"]

    with process(command, log):
        wait(lambda: log.read_text().endswith("\n"), "it prints")

    assert log.read_text() == "only there\n"
