"""Provenance of a run's numbers: commit, versions, device, data, process, memory."""

import os
import platform
import resource
import socket
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from worker.data.prepared import DatasetInfo

_PACKAGES = ("ndadam-sweeps", "torch", "numpy", "ray")


def provenance(device: torch.device, info: DatasetInfo) -> dict[str, Any]:
    """Collect the provenance known at the start of a run, as JSON values."""
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


def peak_memory_bytes(device: torch.device) -> int:
    """Return the peak memory of this process: on the card, or resident in RAM for a CPU run."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
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
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
