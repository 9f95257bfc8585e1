"""Memory of a card for the runs of one process: what each is planned to take, what is left."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import torch

from worker.config.parts import is_registered
from worker.config.train_config import TrainConfig
from worker.data.prepared import DatasetInfo, dataset_info, default_home
from worker.errors import WorkerError
from worker.steps.device import card_bytes
from worker.steps.memory_estimate import CONTEXT, USABLE, MemoryPlan, check_memory, memory_plan


class MemoryLedger:
    """Keeps account of the memory of runs on a device; on a CPU every run fits."""

    def __init__(self, device: torch.device) -> None:
        self._card = card_bytes(device)
        self._taken: dict[Hashable, tuple[str, MemoryPlan]] = {}

    def take(self, key: Hashable, task: dict[str, Any]) -> bool:
        """Reserve memory for a trial. Returns False if it must wait until others have ended.

        A trial too large for the card by itself does not wait: ``refuse_too_large`` refuses it.
        """
        planned = self._plan(task)
        if planned is None:
            return True
        taken = {**self._taken, key: planned}
        if self._taken and self._needed(taken) > USABLE * (self._card or 0):
            return False
        self._taken = taken
        return True

    def planned(self, key: Hashable) -> int | None:
        """Bytes that a trial is planned to take by itself; None if no estimate exists."""
        return self._taken[key][1].own if key in self._taken else None

    def leave(self, key: Hashable) -> None:
        """Free the memory of a trial."""
        self._taken.pop(key, None)

    def refuse_too_large(self, task: dict[str, Any]) -> None:
        """Raise FieldError if the card cannot hold as many such trials as are asked for."""
        if self._card is None:
            return
        facts = _facts(task)
        if facts is None:
            return
        config, info = facts
        check_memory(
            config,
            info,
            self._card,
            trials_per_gpu=task.get("trials_per_gpu", 1),
            measured=task.get("measurement") is not None,
        )

    def _plan(self, task: dict[str, Any]) -> tuple[str, MemoryPlan] | None:
        if self._card is None:
            return None
        try:
            facts = _facts(task)
        except (KeyError, TypeError, ValueError, WorkerError):
            # Its run will raise the error.
            return None
        if facts is None:
            return None
        config, info = facts
        plan = memory_plan(config, info, measured=task.get("measurement") is not None)
        return None if plan is None else (config.dataset, plan)

    @staticmethod
    def _needed(taken: dict[Hashable, tuple[str, MemoryPlan]]) -> int:
        images = {name: plan.images for name, plan in taken.values()}
        choosing = max(plan.choosing for _, plan in taken.values())
        own = sum(plan.own for _, plan in taken.values())
        return CONTEXT + sum(images.values()) + choosing + own


def _facts(task: dict[str, Any]) -> tuple[TrainConfig, DatasetInfo] | None:
    """Config and data of a run; None for data of a package, of which nothing is known before."""
    config = TrainConfig.model_validate({**task["config"], "device": task["device"]}).resolved()
    if is_registered("dataset", config.dataset):
        return None
    home = Path(task["data_home"]) if task["data_home"] else default_home()
    return config, dataset_info(config.dataset, home)
