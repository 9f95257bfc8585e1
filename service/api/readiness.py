"""Whether the parts of a service work, in sentences that anybody may read.

The API looks at the store and at the disk itself. Runner, Ray and MLflow are the runner's to judge:
it reports every ten seconds, and its report is believed while it is young. Sentences name no
address and no path, because ``/readyz`` answers without a token.
"""

import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from dashboards.wording.formatting import duration
from service.contract.outputs import PartState, ServicePartOut
from service.supervision.home import LEAST_FREE_BYTES, LITTLE_FREE_BYTES
from sweeps.cluster.capacity import ClusterShape, total
from sweeps.records import Runner
from sweeps.store.queries.monitoring import Waits
from sweeps.store.store import Store

# Seconds.
#: For which what was found is not looked for again.
KEEP = 2.0
#: A store that takes longer to answer a small question is degraded.
SLOW_STORE = 2.0
#: Three reports of a runner; and the age at which nobody believes that it runs.
LATE, SILENT = 30.0, 60.0
#: A runner that was not seen yet may be starting for so long after the API did.
BOOT = 60.0
#: Behind which the mirror is more than busy.
MIRROR_LAG = 120.0
#: A lease of a report that does not say it.
_LEASE = 15.0
_REMEMBERED = 86_400.0

#: Parts without which no trial runs.
NEEDED = ("runner", "ray", "disk")


@dataclass(frozen=True)
class ServiceStatus:
    """How a service stands at one moment."""

    parts: tuple[ServicePartOut, ...]
    waits: Waits
    #: Since the newest report of a runner, in seconds; None where none was made for a day.
    runner_age: float | None
    #: Since the leases of running sweeps were renewed, the oldest; None where none runs.
    lease_age: float | None
    #: Age of what MLflow lacks longest, in seconds; None where there is no MLflow to fill.
    mirror_lag: float | None
    #: Of the home's disk, in bytes; None where it cannot be read.
    disk_free: int | None
    disk_total: int | None

    @property
    def state(self) -> Literal["ok", "degraded"]:
        """``ok`` where all parts are; never worse than ``degraded``: who can ask is served."""
        return "ok" if all(part.state == "ok" for part in self.parts) else "degraded"

    @property
    def why_not_running(self) -> str | None:
        """Why sweeps cannot run now, a sentence; None where they can."""
        down = (part for part in self.parts if part.name in NEEDED and part.state == "down")
        return next((f"Sweeps cannot run: {part.detail}." for part in down), None)


class Readiness:
    """Looks at the parts of one service. Safe across threads."""

    def __init__(
        self, store: Store, home: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._home = home
        self._clock = clock
        self._began = clock()
        self._lock = threading.Lock()
        self._found: ServiceStatus | None = None
        self._until = 0.0

    def look(self) -> ServiceStatus:
        """How the service stands, at most ``KEEP`` seconds ago. Raises StoreUnavailable."""
        with self._lock:
            if self._found is None or self._clock() >= self._until:
                self._found = self._look()
                self._until = self._clock() + KEEP
            return self._found

    def disk(self) -> ServicePartOut:
        """The home's disk, which can be looked at without the store."""
        return _disk(self._space())

    def _look(self) -> ServiceStatus:
        start = time.perf_counter()
        self._store.health()
        latency = time.perf_counter() - start
        waits = self._store.waits()
        newest = next(iter(self._store.runners(_REMEMBERED)), None)
        age = None if newest is None else _age(newest)
        lease_age = _lease_age(newest, waits)
        space = self._space()
        is_starting = self._clock() - self._began < BOOT
        parts = (
            _store(latency),
            _runner(newest, age, waits, lease_age, is_starting=is_starting),
            *_of_report(newest if age is not None and age <= SILENT else None, waits),
            _disk(space),
        )
        free, total = space or (None, None)
        has_none = newest is not None and "mlflow" in newest.info and not newest.info["mlflow"]
        lag = None if has_none else waits.mirror_lag
        return ServiceStatus(parts, waits, age, lease_age, lag, free, total)

    def _space(self) -> tuple[int, int] | None:
        place = self._home.absolute()
        while not place.exists() and place != place.parent:
            place = place.parent
        try:
            found = shutil.disk_usage(place)
        except OSError:
            return None
        return found.free, found.total


def _age(runner: Runner) -> float:
    """Seconds since a report; a clock that is ahead of ours makes none of less than 0."""
    return max(0.0, (datetime.now(UTC) - runner.at).total_seconds())


def _lease_age(runner: Runner | None, waits: Waits) -> float | None:
    if waits.lease_left is None:
        return None
    lease = float((runner.info if runner else {}).get("lease_seconds") or _LEASE)
    return max(0.0, lease - waits.lease_left)


def _store(latency: float) -> ServicePartOut:
    state: PartState = "ok" if latency < SLOW_STORE else "degraded"
    return ServicePartOut(name="store", state=state, detail=f"answers in {1000 * latency:.0f} ms")


def _runner(
    runner: Runner | None,
    age: float | None,
    waits: Waits,
    lease_age: float | None,
    *,
    is_starting: bool,
) -> ServicePartOut:
    def part(state: PartState, detail: str) -> ServicePartOut:
        return ServicePartOut(name="runner", state=state, detail=detail)

    if runner is None or age is None or age > SILENT:
        said = "no runner has reported" + ("" if age is None else f" for {duration(age)}")
        if is_starting:
            return part("degraded", f"{said}; one that starts takes some seconds")
        return part("down", f"{said}, and sweeps wait until one runs; its log says why it ended")
    if age > LATE:
        return part("degraded", f"its last report is {age:.0f} s old, and it makes one every 10 s")
    if waits.lease_left is not None and waits.lease_left < 0:
        over = duration(-waits.lease_left)
        return part(
            "degraded", f"the lease of a running sweep ran out {over} ago; a runner takes it over"
        )
    busy = len(runner.info.get("drivers") or ())
    most = runner.info.get("max_drivers", busy)
    leases = "" if lease_age is None else f"; leases were renewed {lease_age:.0f} s ago"
    return part("ok", f"reported {age:.0f} s ago; {busy} of {most} drivers have a sweep{leases}")


def _of_report(runner: Runner | None, waits: Waits) -> tuple[ServicePartOut, ServicePartOut]:
    """Ray and MLflow, as the runner last saw them."""
    if runner is None:
        unknown = "not known: the runner looks at it, and none reports"
        return (
            ServicePartOut(name="ray", state="degraded", detail=unknown),
            ServicePartOut(name="mlflow", state="degraded", detail=unknown),
        )
    return _ray(runner.info), _mlflow(runner.info, waits)


def _ray(info: dict[str, Any]) -> ServicePartOut:
    def part(state: PartState, detail: str) -> ServicePartOut:
        return ServicePartOut(name="ray", state=state, detail=detail)

    if info.get("error"):
        return part("down", f"{info['error']}; sweeps wait")
    if not info.get("cluster"):
        return part("degraded", "no driver is connected to the cluster yet")
    shape = ClusterShape.from_json(info["cluster"])
    if not any(node.cpus for node in shape.nodes):
        return part("down", "the cluster has no machine that offers a CPU; sweeps wait for one")
    # Counts alone: machines' names are nobody's business without a token.
    refused = _machines(len(shape.nodes) - len(shape.usable))
    if not any(node.cpus for node in shape.usable):
        return part("down", f"no machine is fit for trials ({refused} refused; {_WHY})")
    all_of = total(shape.usable)
    used = f"{_machines(len(shape.usable))} with {all_of.cpus:g} CPUs and {all_of.gpus:g} GPUs"
    if len(shape.usable) < len(shape.nodes):
        return part("degraded", f"{used}; {refused} refused ({_WHY})")
    return part("ok", used)


#: Where the reason of a refusal stands, which names the machine.
_WHY = "GET /api/v1/machines says why"


def _machines(count: int) -> str:
    return f"{count} machine{'' if count == 1 else 's'}"


def _mlflow(info: dict[str, Any], waits: Waits) -> ServicePartOut:
    def part(state: PartState, detail: str) -> ServicePartOut:
        return ServicePartOut(name="mlflow", state=state, detail=detail)

    found = info.get("mlflow")
    if not found:
        return part("ok", "the runner has none to fill")
    if found["away_seconds"]:
        silent = duration(found["away_seconds"])
        return part("down", f"has not answered for {silent}; sweeps go on, records are sent later")
    lag = f"the oldest record that it lacks is {duration(waits.mirror_lag)} old"
    if waits.mirror_lag > MIRROR_LAG:
        return part("degraded", lag)
    return part("ok", lag if waits.mirror_lag >= 1 else "has every record")


def _disk(space: tuple[int, int] | None) -> ServicePartOut:
    def part(state: PartState, detail: str) -> ServicePartOut:
        return ServicePartOut(name="disk", state=state, detail=detail)

    if space is None:
        return part("degraded", "the disk of the home cannot be read")
    free, total = space
    left = f"{free / 1e9:.1f} of {total / 1e9:.0f} GB are free on the disk of the home"
    if free < LEAST_FREE_BYTES:
        return part("down", f"{left}, too little to write anything; free some")
    return part("ok" if free >= LITTLE_FREE_BYTES else "degraded", left)
