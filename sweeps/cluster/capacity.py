"""What machines offer: whether a trial can ever run there, and whether trials fit on a card.

Imports neither ray nor torch, so that the API may ask.
"""

import contextlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeps.spec.sweep_spec import Resources
from worker.config.train_config import FieldError, TrainConfig
from worker.data.prepared import DatasetInfo
from worker.steps.memory_estimate import check_memory


def usable_cpus() -> int:
    """CPUs that this process may use: its affinity, and the quota of its control group."""
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:  # a system without it
        allowed = os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            allowed = min(allowed, max(1, int(quota) // int(period)))
    return allowed


@dataclass(frozen=True)
class NodeShape:
    """What one machine of the cluster offers in all, busy or not."""

    cpus: float
    gpus: float
    #: Memory of its smallest card, where that is known.
    card_bytes: int | None = None
    #: Host and address; "" where nobody said.
    name: str = ""
    #: Why it gets no trials; "" = it may.
    refused: str = ""

    def to_json(self) -> dict[str, Any]:
        """As JSON values, without what is not known."""
        return {name: value for name, value in vars(self).items() if value not in (None, "")}


@dataclass(frozen=True)
class ClusterShape:
    """The machines that a runner sees."""

    nodes: tuple[NodeShape, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON values, for the store."""
        return {"nodes": [node.to_json() for node in self.nodes]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "ClusterShape":
        """The inverse of ``to_json``."""
        known = NodeShape.__dataclass_fields__
        nodes = [{k: v for k, v in node.items() if k in known} for node in data["nodes"]]
        return cls(tuple(NodeShape(**node) for node in nodes))

    @property
    def usable(self) -> tuple[NodeShape, ...]:
        """The machines that are not refused."""
        return tuple(node for node in self.nodes if not node.refused)

    @property
    def card_bytes(self) -> int | None:
        """Memory of the smallest card, on which a trial may be placed; None while unknown."""
        sizes = [node.card_bytes for node in self.usable if node.card_bytes is not None]
        return min(sizes, default=None)

    def fits(self, cpus: float, gpus: float) -> int:
        """How many such trials run at the same time; 0 = none, ever."""
        return sum(_fits_on(node, cpus, gpus) for node in self.usable)

    def describe(self) -> str:
        """The machines in words: "2 machines: 16 CPUs and 1 GPU; 2 CPUs"."""
        usable = self.usable
        if not usable:
            return "no machine"
        machines = "; ".join(_words(node.cpus, node.gpus) for node in usable)
        return machines if len(usable) == 1 else f"{len(usable)} machines: {machines}"

    def refusals(self) -> str:
        """Which machines get no trials, and why: "; machine gpu7 is not used: …"; "" for none."""
        return "".join(
            f"; machine {node.name} is not used: {node.refused}"
            for node in self.nodes
            if node.refused
        )


# Ray counts resources in ten-thousandths; three trials of 0.333 share a card, four of 0.3 do not.
_UNIT = 1e-4


def _fits_on(node: NodeShape, cpus: float, gpus: float) -> int:
    rooms = [
        math.floor(offered / asked + _UNIT)
        if gpus_share_a_card is False
        else math.floor(offered) * math.floor(1 / asked + _UNIT)
        for offered, asked, gpus_share_a_card in (
            (node.cpus, cpus, False),
            (node.gpus, gpus, 0 < gpus < 1),
        )
        if asked > 0
    ]
    return min(rooms, default=0)


def _words(cpus: float, gpus: float) -> str:
    def count(n: float, noun: str) -> str:
        return f"{n:g} {noun}{'' if n == 1 else 's'}"

    return count(cpus, "CPU") + (f" and {count(gpus, 'GPU')}" if gpus else "")


@dataclass(frozen=True)
class Refusal:
    """Why a spec can never run: the field to blame and a sentence."""

    field: str
    reason: str


def why_not(cpus: float, gpus: float, shape: ClusterShape | None) -> Refusal | None:
    """Say why a trial of these resources can never run, or None where it can.

    Without a known cluster (``shape`` None) only what no cluster can do is refused: one trial
    trains on one GPU or on a share of one.
    """
    if gpus > 1:
        return Refusal("resources.gpus", f"one trial uses at most 1 GPU, got {gpus:g}")
    if shape is None or shape.fits(cpus, gpus):
        return None
    asked = f"a trial asks for {_words(cpus, gpus)}, and the cluster offers {shape.describe()}"
    most = max((node.gpus for node in shape.usable), default=0.0)
    return Refusal("resources.gpus" if gpus > most else "resources.cpus", asked)


def occupied(cpus: float, gpus: float, free: ClusterShape, others: int) -> str:
    """Say why no such trial fits now, with ``others`` trials of other sweeps running."""
    asked = f"a trial asks for {_words(cpus, gpus)}, and {free.describe()} are free"
    if not others:
        return f"{asked}; no other sweep has a trial running, so another program holds the rest"
    return f"{asked}; other sweeps have {others} trial{'' if others == 1 else 's'} running"


def can_run(spec: Any, shape: ClusterShape | None) -> Refusal | None:
    """``why_not`` for a SweepSpec or a MatchSpec, with the machines that are not used."""
    refusal = why_not(spec.resources.cpus, spec.resources.gpus, shape)
    if refusal is None or shape is None:
        return refusal
    return Refusal(refusal.field, refusal.reason + shape.refusals())


def total(nodes: Sequence[NodeShape]) -> NodeShape:
    """All machines together."""
    return NodeShape(sum(n.cpus for n in nodes), sum(n.gpus for n in nodes))


def no_room(
    config: TrainConfig,
    info: DatasetInfo,
    resources: Resources,
    shape: ClusterShape | None,
    *,
    measured: bool,
) -> Refusal | None:
    """Say why a card cannot hold such trials, with the estimate; None where it can.

    ``measured``: every step is recorded, as in a match. Nothing is refused while the cards are not
    known; a worker looks again before it trains. A fraction of a card without ``trials_per_gpu`` is
    shared by processes that know nothing of each other: each is held against the whole card.
    """
    card = None if shape is None else shape.card_bytes
    if card is None or resources.gpus == 0:
        return None
    try:
        check_memory(
            config.resolved(),
            info,
            card,
            trials_per_gpu=resources.trials_per_gpu,
            measured=measured,
        )
    except FieldError as error:
        return Refusal(error.field, str(error))
    return None
