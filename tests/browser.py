"""Finds the browser that is driven; nothing is imported here that only a browser needs."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

#: What a browser of this kind is called by those who package it.
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge")
#: Where ``make test`` puts one that belongs to no system: it goes when the environment goes.
PLACED = Path(sys.prefix, "browser", "chromium")
#: Said where there is none.
HELP = "no browser; install chromium, or set NDSWEEP_CHROMIUM=/path/to/one, and run make test again"


@dataclass(frozen=True)
class Found:
    """A program that starts, and in words how it was found."""

    path: str
    how: str


@cache
def find_browser() -> Found | None:
    """The first that starts: the one that is set, the system's, Playwright's, then our own.

    ``NDSWEEP_CHROMIUM=none`` means none. One that is set and does not start is refused, because
    whoever set it would not want another.
    """
    named = os.environ.get("NDSWEEP_CHROMIUM")
    if named == "none":
        return None
    if named:
        if not starts(named):
            raise FileNotFoundError(
                f"NDSWEEP_CHROMIUM is {named}, which does not start as a browser"
            )
        return Found(named, "NDSWEEP_CHROMIUM")
    return next((found for found in _candidates() if starts(found.path)), None)


def _candidates() -> Iterator[Found]:
    for name in NAMES:
        path = shutil.which(name)
        if path:
            yield Found(path, f"{name} on PATH")
    for shell in _of_playwright():
        yield Found(str(shell), "Playwright's folder")
    if PLACED.is_file():
        yield Found(str(PLACED), "placed by make test")


def _of_playwright() -> list[Path]:
    """Browsers that Playwright downloaded, the newest first."""
    folder = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    if folder == "0":
        package = find_spec("playwright")
        roots = [Path(place, "driver", "package", ".local-browsers") for place in _places(package)]
    else:
        # Without HOME and without an entry in passwd "~" stays as it is, and nothing is there.
        roots = [Path(folder or os.path.expanduser("~/.cache/ms-playwright"))]
    programs = ("chromium*/chrome-*/chrome-headless-shell", "chromium*/chrome-*/chrome")
    old_programs = ("chromium*/chrome-*/headless_shell",)
    found = [path for root in roots for kind in programs + old_programs for path in root.glob(kind)]
    return sorted(found, key=_revision, reverse=True)


def _places(package: object) -> list[str]:
    return list(getattr(package, "submodule_search_locations", None) or ())


def _revision(path: Path) -> int:
    number = re.search(r"-(\d+)$", path.parents[1].name)
    return int(number[1]) if number else 0


def starts(path: str) -> bool:
    """Whether this is a browser that starts here; some systems have a stand-in that only talks."""
    try:
        told = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return told.returncode == 0
