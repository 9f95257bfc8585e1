"""A browser is found in one place, installed where there is none, or its tests are skipped."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import browser, install_browser
from tests.browser import HELP, NAMES, Found

ROOT = Path(__file__).parents[3]
MARKED = """
import pytest

@pytest.fixture
def browser(): raise AssertionError("started")

@pytest.mark.browser
@pytest.mark.parametrize("page", range(3))
def test_a_page(browser, page): pass

def test_numbers(): pass
"""


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any browser: an empty PATH, and a home of its own."""
    for name in ("NDSWEEP_CHROMIUM", "PLAYWRIGHT_BROWSERS_PATH", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(browser, "PLACED", tmp_path / "browser" / "chromium")
    browser.find_browser.cache_clear()
    yield tmp_path
    browser.find_browser.cache_clear()


def program(path: Path, *, starts: bool = True) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexit {0 if starts else 1}\n")
    path.chmod(0o755)
    return str(path)


def pytest_of(folder: Path, tests: str, ci: str) -> "subprocess.CompletedProcess[str]":
    """Run a file of tests as the project's are run, without a browser."""
    file = folder / "test_pages.py"
    file.write_text(tests)
    own = ["-p", "tests.conftest", "-c", "pyproject.toml", "-p", "no:cacheprovider", "-n", "0"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *own, str(file)],
        cwd=ROOT,
        env={**os.environ, "NDSWEEP_CHROMIUM": "none", "CI": ci},
        capture_output=True,
        text=True,
    )


class TestFinding:
    def test_an_empty_path_has_none(self, bare: Path) -> None:
        assert browser.find_browser() is None

    def test_nothing_heavy_is_imported_for_it(self, bare: Path) -> None:
        code = (
            "import sys, tests.browser as found\n"
            "print(found.find_browser(), sorted({'playwright', 'torch'} & {*sys.modules}))"
        )
        # Another prefix, so that what make test has placed is not there.
        told = subprocess.check_output(
            [sys.executable, "-c", f"import sys; sys.prefix = '/none'\n{code}"],
            cwd=ROOT,
            env={"PATH": "", "HOME": str(bare)},
            text=True,
        )

        assert told == "None []\n"

    def test_the_one_that_is_set_comes_first(
        self, bare: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program(bare / "bin" / "chromium")
        own = program(bare / "own")
        monkeypatch.setenv("PATH", str(bare / "bin"))
        monkeypatch.setenv("NDSWEEP_CHROMIUM", own)

        assert browser.find_browser() == Found(own, "NDSWEEP_CHROMIUM")

    def test_one_that_is_set_and_does_not_start_is_refused(
        self, bare: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program(bare / "bin" / "chromium")
        monkeypatch.setenv("PATH", str(bare / "bin"))
        monkeypatch.setenv("NDSWEEP_CHROMIUM", "/nowhere/chrome")

        with pytest.raises(FileNotFoundError, match="NDSWEEP_CHROMIUM is /nowhere/chrome, which"):
            browser.find_browser()

    def test_none_means_none(self, bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        program(bare / "bin" / "chromium")
        monkeypatch.setenv("PATH", str(bare / "bin"))
        monkeypatch.setenv("NDSWEEP_CHROMIUM", "none")

        assert browser.find_browser() is None

    @pytest.mark.parametrize("first", range(len(NAMES)))
    def test_every_name_on_path_in_turn(
        self, bare: Path, monkeypatch: pytest.MonkeyPatch, first: int
    ) -> None:
        for name in NAMES[first:]:
            program(bare / "bin" / name)
        monkeypatch.setenv("PATH", str(bare / "bin"))

        found = browser.find_browser()

        assert found == Found(str(bare / "bin" / NAMES[first]), f"{NAMES[first]} on PATH")

    def test_a_stand_in_that_does_not_start_is_passed_over(
        self, bare: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program(bare / "bin" / "chromium-browser", starts=False)
        chrome = program(bare / "bin" / "google-chrome")
        monkeypatch.setenv("PATH", str(bare / "bin"))

        assert browser.find_browser() == Found(chrome, "google-chrome on PATH")

    def test_the_newest_of_playwright_then_our_own(self, bare: Path) -> None:
        own = program(bare / "browser" / "chromium")
        assert browser.find_browser() == Found(own, "placed by make test")

        folder = bare / ".cache" / "ms-playwright"
        program(folder / "chromium-1001" / "chrome-linux" / "chrome")
        newest = program(
            folder / "chromium_headless_shell-1255" / "chrome-headless-shell-linux64"
            / "chrome-headless-shell"
        )  # fmt: skip
        program(folder / "chromium_headless_shell-999" / "chrome-linux" / "headless_shell")
        browser.find_browser.cache_clear()

        assert browser.find_browser() == Found(newest, "Playwright's folder")

    def test_playwrights_folder_may_be_elsewhere(
        self, bare: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        chrome = program(bare / "kept" / "chromium-1255" / "chrome-linux64" / "chrome")
        monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(bare / "kept"))

        assert browser.find_browser() == Found(chrome, "Playwright's folder")


class TestInstalling:
    def test_the_next_way_is_tried_and_each_has_a_line(
        self, bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def refuse() -> None:
            raise install_browser.NotInstalled("no route")

        monkeypatch.setattr(
            install_browser,
            "ways",
            lambda: [
                ("asking", refuse),
                ("placing one", lambda: program(browser.PLACED)),
                ("never", refuse),
            ],
        )

        assert install_browser.main() == 0
        assert capsys.readouterr().out == (
            "The browser tests need Chromium: asking … that did not work: no route (0 s)\n"
            f"The browser tests need Chromium: placing one … {browser.PLACED} is there (0 s)\n"
        )

    @pytest.mark.parametrize(("ci", "code", "said"), [("", 0, "are skipped"), ("true", 1, "fail")])
    def test_where_nothing_works_only_ci_fails(
        self,
        bare: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        ci: str,
        code: int,
        said: str,
    ) -> None:
        monkeypatch.setenv("CI", ci)
        monkeypatch.setattr(install_browser, "ways", list)

        assert install_browser.main() == code
        assert capsys.readouterr().out == f"The browser tests {said}: {HELP}\n"

    def test_a_command_that_fails_says_its_first_error(self) -> None:
        with pytest.raises(install_browser.NotInstalled, match=r"^Error: no route$"):
            install_browser.run(["sh", "-c", "echo begin; echo Error: no route; exit 3"], 60)

    def test_a_command_that_does_not_end_is_ended(self) -> None:
        with pytest.raises(install_browser.NotInstalled, match=r"^no end after 1 s$"):
            install_browser.run(["sh", "-c", "sleep 600"], 1)


class TestWithoutOne:
    def test_one_line_counts_what_is_skipped(self, tmp_path: Path) -> None:
        done = pytest_of(tmp_path, MARKED, ci="")

        assert done.returncode == 0, done.stdout
        lines = [line for line in done.stdout.splitlines() if HELP in line]
        assert len(lines) == 1
        assert lines[0].startswith("SKIPPED [3] ")
        assert "1 passed, 3 skipped" in done.stdout

    def test_in_ci_they_fail(self, tmp_path: Path) -> None:
        done = pytest_of(tmp_path, MARKED, ci="true")

        assert done.returncode == 1, done.stdout
        assert "1 passed, 3 errors" in done.stdout
        assert HELP in done.stdout

    def test_a_test_that_drives_one_unmarked_is_refused(self, tmp_path: Path) -> None:
        done = pytest_of(tmp_path, MARKED.replace("@pytest.mark.browser", ""), ci="")

        assert done.returncode == 4, done.stdout
        assert "these drive a browser and are not marked so" in done.stderr

    def test_whoever_drives_a_browser_is_marked(self) -> None:
        driving = [
            path
            for path in (ROOT / "tests").rglob("test_*.py")
            if any(
                "playwright" in (getattr(node, "module", None) or "")
                for node in ast.walk(ast.parse(path.read_text()))
            )
        ]

        assert len(driving) > 5
        assert [path for path in driving if "pytest.mark.browser" not in path.read_text()] == []
