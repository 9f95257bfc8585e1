"""What our processes need around them, put into the environment where a machine lacks it."""

import os
from pathlib import Path

#: Names of this machine, of which no proxy knows anything.
_HERE = ("127.0.0.1", "localhost", "::1")


def complete_surroundings() -> None:
    """Complete the environment of this process and of those that it starts."""
    _have_a_home_folder()
    _pass_proxies_by()


def _have_a_home_folder() -> None:
    """Ray and MLflow do not start without one; a container may run as a user without one."""
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = str(Path(os.environ.get("NDSWEEP_HOME") or ".ndsweep").absolute())


def _pass_proxies_by() -> None:
    """Have our parts find each other on this machine where a proxy stands before the network."""
    if not any(os.environ.get(name) for name in os.environ if name.lower().endswith("_proxy")):
        return
    passed_by = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    names = [name for name in passed_by.replace(" ", "").split(",") if name]
    if "*" not in names:
        names += [name for name in _HERE if name not in names]
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(names)
