"""Provenance of a run's numbers: commit, versions, device, data, process, memory, training.

Loads torch only for runs that use it.
"""

import os
import platform
import resource
import socket
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker.config.parts import Part
from worker.config.training import Training
from worker.data.prepared import DatasetInfo

if TYPE_CHECKING:
    import torch

    from worker.data.own_data import OwnInfo

_PACKAGES = ("ndadam-sweeps", "torch", "numpy", "ray")


def provenance(device: "torch.device", info: "DatasetInfo | OwnInfo") -> dict[str, Any]:
    """Collect the provenance known at the start of a run on images, as JSON values."""
    import torch

    return {
        "git_commit": git_commit(),
        "versions": _versions(),
        "device": device.type,
        "card": torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_model(),
        "threads": torch.get_num_threads(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "data": {"name": info.name, "checksum": info.checksum},
        "peak_memory_bytes": peak_memory_bytes(device),
    }


def of_parts(parts: Mapping[str, Part]) -> dict[str, Any]:
    """Return where the registered parts of a run come from; nothing where it has none."""
    if not parts:
        return {}
    packages = {part.package: part.version for part in parts.values()}
    return {
        "parts": {part.key: f"{part.package} {part.version}" for part in parts.values()},
        "versions": _versions() | packages,
    }


def origin(training: Training) -> dict[str, str]:
    """Return where a training comes from."""
    return {
        "training": training.name,
        "package": training.package,
        "package_version": training.version,
    }


def function_provenance(training: Training, device: str) -> dict[str, Any]:
    """Collect the provenance of a training function's run; ``device`` is "cpu" or "cuda"."""
    return {
        "git_commit": git_commit(),
        "versions": _versions() | {training.package: training.version},
        "device": device,
        "card": _card_model() if device == "cuda" else _cpu_model(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "peak_memory_bytes": _peak_so_far(device),
        **origin(training),
    }


def peak_memory_bytes(device: "torch.device") -> int:
    """Return the peak memory of this process: on the card, or resident in RAM for a CPU run."""
    if device.type == "cuda":
        import torch

        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _peak_so_far(device: str) -> int:
    """Peak memory as far as a function's own libraries tell: on the card only of torch."""
    if device == "cuda" and "torch" in sys.modules:
        import torch

        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@cache
def git_commit() -> str | None:
    """Return the commit of this checkout, or None for an installed package."""
    # Parents are not searched: an environment is often inside a checkout of another project.
    git = Path(__file__).resolve().parents[2] / ".git"
    return _resolve_head(git) if (git / "HEAD").is_file() else None


def _resolve_head(git: Path) -> str | None:
    head = (git / "HEAD").read_text().strip()
    if not head.startswith("ref: "):
        return head
    ref = head.removeprefix("ref: ")
    if (git / ref).is_file():
        return (git / ref).read_text().strip()
    packed = git / "packed-refs"
    lines = packed.read_text().splitlines() if packed.is_file() else []
    return next((line.split()[0] for line in lines if line.endswith(f" {ref}")), None)


@cache
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


@cache
def _cpu_model() -> str:
    return _first_value(Path("/proc/cpuinfo"), "model name") or platform.machine()


@cache
def _card_model() -> str:
    """Name of the card, from the driver; the cards of one machine are taken to be alike."""
    found = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    return (_first_value(found[0], "Model") if found else None) or "unknown card"


def _first_value(path: Path, name: str) -> str | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        lines = []
    values = (line.split(":", 1)[1].strip() for line in lines if line.startswith(name))
    return next(values, None)
