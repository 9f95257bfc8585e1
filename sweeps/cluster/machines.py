"""The machines of the connected cluster: what each offers, and whether trials may run there.

A driver asks each machine once, before it places trials there, what is otherwise than here
(``worker.data.machine_check``). Who has not answered gets no trial; who answers with a difference
is refused, by name, and asked again now and then. The driver's own machine needs no asking.
"""

import contextlib
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

from sweeps.cluster.capacity import ClusterShape, NodeShape
from worker.data import machine_check
from worker.data.machine_check import GENERAL, Difference

# Seconds.
_CARDS_LIMIT = 20.0
#: Between two questions to a machine that was refused, or whose answer was lost.
ASK_AGAIN = 15.0
#: After which a machine that has not answered is named.
SILENT = 8.0
#: Without a look at the cluster, after which its head counts as silent: there is one each second.
AWAY = 10.0
#: Machines whose differences are told in one sentence; the others are counted.
_NAMED = 3


class Question(Protocol):
    """A machine that was asked."""

    def answer(self) -> list[Difference] | None:
        """What is otherwise there; None while it has not answered. Raises LookupError if lost."""


@dataclass
class _Machine:
    """What is known of one machine."""

    name: str
    #: What it answered last; None before its first answer.
    found: Sequence[Difference] | None = None
    #: Whether that answers what is expected now.
    is_current: bool = False
    asked_at: float | None = None
    question: Question | None = None

    @property
    def differences(self) -> Sequence[Difference]:
        return self.found or ()

    @property
    def is_admitted(self) -> bool:
        return self.is_current and not self.found


class Machines:
    """The machines of a cluster, for one driver. From any thread."""

    def __init__(
        self,
        home: Path,
        data_home: str | None = None,
        *,
        ask: Callable[[str, Mapping[str, Any]], Question] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``ask`` asks a machine, by Ray's id, for what is otherwise than expected there."""
        self._home = home.absolute()
        self._data_home = data_home
        self._ask = ask or _ask
        self._clock = clock
        self._lock = threading.RLock()
        self._expected: dict[str, Any] | None = None
        self._known: dict[str, _Machine] = {}
        self._proof: Path | None = None
        self._nodes: Sequence[Mapping[str, Any]] = ()
        self._looked_at: float | None = None

    # --- What is expected of each ---------------------------------------------------------------

    @property
    def expected(self) -> dict[str, Any]:
        """What every machine must have, as JSON values, for ``machine_check.differences``."""
        with self._lock:
            if self._expected is None:
                self._proof = _write_proof(self._home)
                self._expected = machine_check.found_here(self._home, self._proof)
            return self._expected

    def expect(
        self, datasets: Sequence[str] = (), packages: Mapping[str, str] | None = None
    ) -> None:
        """From now on, also expect what a sweep needs, as far as this machine has it.

        Machines that have answered are asked again if that is anything.
        """
        needs = {
            "datasets": machine_check.sets_here(datasets, self._data_home),
            "packages": machine_check.packages_here(packages or {}),
        }
        if not any(needs.values()):
            return
        with self._lock:
            self._expected = self.expected | needs | {"data_home": self._data_home}
            for machine in self._known.values():
                if machine.asked_at is not None:
                    machine.is_current, machine.asked_at, machine.question = False, None, None

    def close(self) -> None:
        """Remove what other machines were shown."""
        with self._lock:
            if self._proof is not None:
                self._proof.unlink(missing_ok=True)

    # --- What is known --------------------------------------------------------------------------

    def look(self, nodes: Sequence[Mapping[str, Any]], own: str) -> None:
        """Take in who is there, ask who is new, and hear answers. Waits for nobody.

        ``nodes`` as ``ray.nodes()`` tells; ``own`` is the id of the driver's machine. Those without
        CPUs and GPUs train nothing and are not asked.
        """
        alive = {node["NodeID"]: node for node in nodes if node["Alive"] and _trains(node)}
        with self._lock:
            self._looked_at = self._clock()
            self._known = {name: one for name, one in self._known.items() if name in alive}
            for node_id in alive.keys() - self._known.keys():
                is_own = node_id == own
                machine = _Machine(_name(alive[node_id]), [] if is_own else None, is_own)
                self._known[node_id] = machine
            known = list(self._known.items())
        for node_id, machine in known:
            # Without the lock: a cluster may not answer.
            self._hear(machine)
            if self._is_due(machine):
                expected = self.expected
                machine.asked_at = self._clock()
                machine.question = self._ask(node_id, expected)

    def _hear(self, machine: _Machine) -> None:
        question = machine.question
        if question is None:
            return
        try:
            answer = question.answer()
        except LookupError:
            machine.question = None  # asked again after a while, if it is still there
            return
        with self._lock:
            # What is expected may have changed meanwhile.
            if answer is not None and machine.question is question:
                machine.found, machine.is_current, machine.question = answer, True, None

    def _is_due(self, machine: _Machine) -> bool:
        if machine.is_admitted or machine.question is not None:
            return False
        return machine.asked_at is None or self._clock() - machine.asked_at >= ASK_AGAIN

    def refuse(self, node_id: str, differences: Sequence[Difference]) -> None:
        """A worker found something otherwise on its machine."""
        with self._lock:
            machine = self._known.get(node_id)
            if machine is not None:
                machine.found, machine.is_current = list(differences), True
                machine.asked_at, machine.question = self._clock(), None

    def admitted(self) -> list[str]:
        """Ids of the machines on which trials may run, sorted."""
        with self._lock:
            return sorted(name for name, one in self._known.items() if one.is_admitted)

    def is_refused(self, node_id: str) -> bool:
        """Whether a machine is there and counts for nothing."""
        with self._lock:
            machine = self._known.get(node_id)
            return machine is not None and bool(machine.differences)

    def refusal(self, node_id: str, *, general: bool = False) -> str:
        """Say what is otherwise on a machine; "" for nothing. ``general``: for every sweep."""
        with self._lock:
            machine = self._known.get(node_id)
            found = () if machine is None else machine.differences
            return "; ".join(text for kind, text in found if not general or kind in GENERAL)

    def note(self) -> str:
        """Name the machines that get no trials, and why; "" where all do.

        While nobody looks at the cluster, because its head does not answer, that is said.
        """
        with self._lock:
            now = self._clock()
            if self._looked_at is not None and now - self._looked_at >= AWAY:
                return "waiting for Ray: the head of the cluster does not answer"
            notes = [
                f"machine {one.name} is not used: {'; '.join(text for _, text in one.differences)}"
                for one in self._known.values()
                if one.differences
            ]
            notes += [
                f"machine {one.name} is not used yet: it was asked what is installed there and "
                "has not answered"
                for one in self._known.values()
                if one.question is not None and not one.differences
                if one.asked_at is not None and now - one.asked_at >= SILENT
            ]
        more = len(notes) - _NAMED
        return "; ".join(notes[:_NAMED]) + (f"; and {more} more are not used" if more > 0 else "")

    # --- Of Ray ---------------------------------------------------------------------------------

    def shape(self) -> ClusterShape:
        """What each machine offers, for the sweep whose needs are expected."""
        import ray

        nodes = [node for node in ray.nodes() if node["Alive"]]
        self.look(nodes, ray.get_runtime_context().get_node_id())
        self._nodes = nodes
        return ClusterShape(tuple(self._shape_of(node) for node in nodes))

    def seen(self) -> ClusterShape:
        """The same at the last look, for any sweep: refused are machines that no sweep may use."""
        return ClusterShape(tuple(self._shape_of(node, general=True) for node in self._nodes))

    def _shape_of(self, node: Mapping[str, Any], *, general: bool = False) -> NodeShape:
        offered, node_id = node["Resources"], node["NodeID"]
        refused = self.refusal(node_id, general=general)
        gpus = offered.get("GPU", 0.0)
        card = _card_of(node_id) if gpus and not refused else None
        return NodeShape(offered.get("CPU", 0.0), gpus, card, _name(node), refused)

    def free(self) -> ClusterShape:
        """What is free of each machine that is not refused."""
        import ray

        nodes = ray._private.state.available_resources_per_node().items()
        usable = [offered for node_id, offered in nodes if not self.is_refused(node_id)]
        return ClusterShape(tuple(NodeShape(n.get("CPU", 0.0), n.get("GPU", 0.0)) for n in usable))


def _trains(node: Mapping[str, Any]) -> bool:
    return any(node["Resources"].get(kind, 0.0) for kind in ("CPU", "GPU"))


def _name(node: Mapping[str, Any]) -> str:
    """What people call a machine, with the address that tells containers apart."""
    host, address = node.get("NodeManagerHostname", ""), node.get("NodeManagerAddress", "")
    return f"{host} ({address})" if host and address else host or address or node["NodeID"][:12]


def _write_proof(home: Path) -> Path | None:
    """Write a word that only machines with this home can read; None where the disk has no room.

    Each driver has its own: a copy of a home does not pass for it. What drivers of this machine
    left that were killed is removed.
    """
    folder, host = home / "tune", socket.gethostname()
    with contextlib.suppress(OSError):
        for old in folder.glob(f"proof-{host}-*"):
            pid = old.name.rpartition("-")[0].rpartition("-")[2]
            if pid.isdigit() and not psutil.pid_exists(int(pid)):
                old.unlink(missing_ok=True)
    path = folder / f"proof-{host}-{os.getpid()}-{secrets.token_hex(8)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(secrets.token_hex(16))
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        return None
    return path


class _RayQuestion:
    """A question that Ray carries to a machine."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def answer(self) -> list[Difference] | None:
        import ray

        if not ray.wait([self._answer], timeout=0)[0]:
            return None
        try:
            found: list[Difference] = ray.get(self._answer)
            return found
        except ray.exceptions.RayTaskError as error:
            last = str(error).strip().splitlines()[-1]
            return [("code", f"what is installed there cannot be told: {last[:300]}")]
        except ray.exceptions.RayError as error:
            raise LookupError(str(error)) from error


def _ask(node_id: str, expected: Mapping[str, Any]) -> Question:
    import ray

    # As text: the machine may have another version of it, or none.
    ray.cloudpickle.register_pickle_by_value(machine_check)
    return _RayQuestion(_remote(machine_check.differences, node_id).remote(dict(expected)))


def _remote(function: Callable[..., Any], node_id: str) -> Any:
    """A function as it runs on one machine, beside its trials."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(function)


#: Node id -> memory of its smallest card; asked once, since a machine's cards do not change.
_CARDS: dict[str, int | None] = {}
#: Node id -> the answer under way.
_ASKED: dict[str, Any] = {}


def _card_of(node_id: str) -> int | None:
    """Memory of the smallest card of a machine; None until it has answered. Waits for nothing."""
    import ray

    if node_id not in _CARDS:
        answer = _ASKED.get(node_id) or _remote(smallest_card, node_id).remote()
        _ASKED[node_id] = answer
        if not ray.wait([answer], timeout=0)[0]:
            return None
        try:
            _CARDS[node_id] = ray.get(answer)
        except ray.exceptions.RayError:
            # A hint for refusals, no more: a trial looks again before it trains.
            _CARDS[node_id] = None
    return _CARDS[node_id]


def smallest_card() -> int | None:
    """Bytes of the smallest card of this machine, as its driver says; None without one."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CARDS_LIMIT)
        return min((int(mebibytes) * 2**20 for mebibytes in done.stdout.split()), default=None)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
