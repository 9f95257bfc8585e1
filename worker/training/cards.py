"""Readings of NVIDIA cards by NVML: load, memory, power. Imports no torch.

What a card, its driver or the rights of this process do not allow is left out and named once in the
log; nothing here raises.
"""

import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_LOG = logging.getLogger(__name__)

#: ``NVML_ERROR_*``: the card does not offer it, or not to this process. Anything else (a driver
#: that was restarted, a card that fell off the bus) may be over at the next look.
_NEVER = {2, 3, 4, 6, 13}


@dataclass(frozen=True)
class CardReading:
    """One look at a card; None = not measured."""

    #: Percent of the last moment in which any process's kernels ran.
    utilization: float | None
    #: Bytes in use by all processes, and of the card.
    memory: float | None
    memory_total: float | None
    #: Bytes in use by this process.
    process_memory: float | None
    #: Watts now, and at most.
    power: float | None
    power_limit: float | None
    #: Joules since the driver was loaded.
    energy: float | None


class Cards:
    """The cards that this process may use, in the order in which CUDA numbers them."""

    def __init__(self, nvml: Any = None) -> None:
        """``nvml``: the module ``pynvml``, or one with its functions."""
        self._nvml = nvml
        self._handles: list[Any] | None = None
        self._said: set[str] = set()
        self._never: set[str] = set()

    def read(self) -> list[CardReading]:
        """Look at every card; [] where there is no card, or no NVML."""
        if self._handles is None:
            self._open()
        found = []
        for handle in self._handles or ():
            found.append(self._read(handle))
            if self._handles is None:  # lost on the way: opened again at the next look
                return []
        return found

    def close(self) -> None:
        """Let go of the driver."""
        if self._handles is not None:
            self._handles = None
            with contextlib.suppress(Exception):
                self._nvml.nvmlShutdown()

    def _open(self) -> None:
        try:
            if self._nvml is None:
                self._nvml = importlib.import_module("pynvml")
            self._nvml.nvmlInit()
        except Exception as error:
            self._say(f"load and power of the card are not measured: {error}")
            return
        try:
            self._handles = [self._handle(name) for name in self._names()]
        except Exception as error:
            self._say(f"load and power of the card are not measured: {error}")
            with contextlib.suppress(Exception):
                self._nvml.nvmlShutdown()

    def _names(self) -> list[str]:
        """Number or UUID of each visible card. NVML itself knows no CUDA_VISIBLE_DEVICES."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible is None:
            return [str(number) for number in range(self._nvml.nvmlDeviceGetCount())]
        names = [name.strip() for name in visible.split(",") if name.strip()]
        return _uuids_of_torch(len(names)) or names

    def _handle(self, name: str) -> Any:
        if name.isdecimal():
            return self._nvml.nvmlDeviceGetHandleByIndex(int(name))
        return self._nvml.nvmlDeviceGetHandleByUUID(name)

    def _read(self, handle: Any) -> CardReading:
        nvml = self._nvml
        memory = self._ask("memory", nvml.nvmlDeviceGetMemoryInfo, handle)
        load = self._ask("load", nvml.nvmlDeviceGetUtilizationRates, handle)
        power = self._ask("power", nvml.nvmlDeviceGetPowerUsage, handle)
        limit = self._ask("power limit", nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        energy = self._ask("energy", nvml.nvmlDeviceGetTotalEnergyConsumption, handle)
        running = self._ask("processes", nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        return CardReading(
            utilization=None if load is None else float(load.gpu),
            memory=None if memory is None else float(memory.used),
            memory_total=None if memory is None else float(memory.total),
            process_memory=_memory_of_this_process(running or ()),
            power=None if power is None else power / 1000,
            power_limit=None if limit is None else limit / 1000,
            energy=None if energy is None else energy / 1000,
        )

    def _ask(self, what: str, question: Callable[[Any], Any], handle: Any) -> Any:
        if what in self._never or self._handles is None:
            return None
        try:
            return question(handle)
        except Exception as error:
            if getattr(error, "value", None) in _NEVER:
                self._never.add(what)
                self._say(f"{what} of the card is not measured: {error}")
            else:
                self._say(f"the card was lost to NVML ({what}: {error}); trying again")
                self.close()
            return None

    def _say(self, text: str) -> None:
        """Say it once, as one line."""
        if text not in self._said:
            self._said.add(text)
            _LOG.warning("%s", " ".join(text.split()))


def _uuids_of_torch(count: int) -> list[str]:
    """UUIDs of the cards as torch numbers them; [] where torch does not use them yet.

    CUDA numbers the fastest card first unless CUDA_DEVICE_ORDER says otherwise; NVML never does.
    """
    torch = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_initialized():
            return []
        devices = [torch.cuda.get_device_properties(number) for number in range(count)]
        return [f"GPU-{device.uuid}" for device in devices]
    except Exception:  # an older torch, or fewer cards than are named
        return []


def _memory_of_this_process(running: Any) -> float | None:
    """Bytes that NVML counts for this process.

    In a container NVML may number processes as the host does; then the only one on the card is
    taken to be this one.
    """
    running = list(running)
    mine = [process for process in running if process.pid == os.getpid()]
    found = mine or (running if len(running) == 1 else [])
    used = [process.usedGpuMemory for process in found if process.usedGpuMemory is not None]
    return float(sum(used)) if used else None
