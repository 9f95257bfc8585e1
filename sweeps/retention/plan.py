"""Keeps what sweeps leave on the disk within a budget, per sweep and in all.

The record, the store, is never touched but for progress events of sweeps that ended long ago.
Removed are, in this order: what belongs to no sweep; checkpoints of trials that need none; files
beyond their days; then, while a budget is exceeded, checkpoints before logs and old before new.
Files of a trial that waits or runs are never removed.
"""

import contextlib
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sweeps.errors import StoreUnavailable
from sweeps.records import SweepState, TrialState
from sweeps.retention.limits import Keep
from sweeps.retention.ray_sessions import dead_files, session_folder
from sweeps.store.commands.retention import SweepFiles
from sweeps.store.store import Store

log = logging.getLogger(__name__)

#: Seconds between two rounds of a service.
PERIOD = 3600.0
#: Trials that may still want their checkpoint: a retry, or an extension, goes on from it.
_MAY_GO_ON = (TrialState.FAILED, TrialState.CANCELLED)
#: Folders of the home with one below for each sweep.
_KINDS = ("checkpoints", "logs")
_OPEN = (TrialState.WAITING, TrialState.RUNNING)


@dataclass(frozen=True)
class Removal:
    """A folder or file that goes, and why."""

    path: Path
    size: int
    why: str


@dataclass(frozen=True)
class RemovalPlan:
    """What a round removes."""

    removals: list[Removal]
    #: Progress events of sweeps that finished before ``events_before``.
    events: int
    events_before: datetime
    #: Bytes below checkpoints, logs and tune, and in Ray's temporary folder, before and after.
    before: int
    after: int


@dataclass
class _Item:
    """The checkpoint folder or the log of one trial."""

    path: Path
    size: int
    changed: float
    #: Checkpoints go before logs.
    is_log: bool
    trial: int | None
    state: TrialState | None


@dataclass
class _Kept:
    """The items of one sweep that no rule has removed yet."""

    sweep: SweepFiles
    items: list[_Item] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(item.size for item in self.items)

    def disposable(self) -> list[_Item]:
        """What may go, checkpoints first, then the oldest."""
        free = [item for item in self.items if item.state not in _OPEN]
        return sorted(free, key=lambda item: (item.is_log, item.changed))


def plan(store: Store, home: Path, keep: Keep, now: datetime | None = None) -> RemovalPlan:
    """Say what a round would remove; removes nothing."""
    now = now or datetime.now(UTC)
    long_ago = now - timedelta(days=keep.days)
    sweeps = {sweep.id: sweep for sweep in store.sweep_states()}
    ray = session_folder(home)
    ray_bytes = 0 if ray is None else _size(ray)
    removals = [*_strays(home, sweeps)]
    kept = [_kept(store, home, sweep) for sweep in sweeps.values()]
    before = sum(one.size for one in kept) + sum(removal.size for removal in removals) + ray_bytes
    for one in kept:
        removals += _needless(one, long_ago)
        over = f"its sweep keeps more than {keep.sweep_bytes:,} bytes"
        removals += _shrink([one], keep.sweep_bytes, over)
    driven = {s.id for s in sweeps.values() if s.state == SweepState.RUNNING}
    over_all = sum(one.size for one in kept) + ray_bytes - keep.bytes
    of_ray = [] if ray is None else list(_of_ray(ray, driven, long_ago, over_all))
    removals += of_ray
    most = keep.bytes - ray_bytes + sum(removal.size for removal in of_ray)
    removals += _shrink(kept, most, f"all sweeps keep more than {keep.bytes:,} bytes")
    after = before - sum(removal.size for removal in removals)
    return RemovalPlan(removals, store.old_progress(long_ago), long_ago, before, after)


def carry_out(store: Store, planned: RemovalPlan) -> None:
    """Remove what was planned. What is gone already, or cannot go, is passed by."""
    for removal in planned.removals:
        if removal.path.is_dir() and not removal.path.is_symlink():
            shutil.rmtree(removal.path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                removal.path.unlink()
        if removal.path.parent.parent.name in _KINDS:
            # The folder of a sweep of which nothing is left.
            with contextlib.suppress(OSError):
                removal.path.parent.rmdir()
    if planned.events:
        store.prune_progress(planned.events_before)


def keep_within(
    store: Store, home: Path, keep: Keep, stop: threading.Event, period: float = PERIOD
) -> None:
    """Carry out a round now and every ``period`` seconds, until ``stop`` is set."""
    while True:
        try:
            planned = plan(store, home, keep)
            carry_out(store, planned)
            if planned.removals:
                freed = planned.before - planned.after
                log.info("removed %d files and folders, %d bytes", len(planned.removals), freed)
        except StoreUnavailable as error:
            log.warning("%s; nothing is removed", error)
        except Exception:
            log.exception("nothing more is removed in this round")
        if stop.wait(period):
            return


# --- What goes ----------------------------------------------------------------------------------


def _strays(home: Path, sweeps: dict[str, SweepFiles]) -> Iterator[Removal]:
    """Folders of deleted sweeps, and Ray Tune's of every driver but one at work."""
    for kind in (*_KINDS, "models"):
        for folder in _folders(home / kind):
            if folder.name not in sweeps:
                yield Removal(folder, _size(folder), "its sweep was deleted")
    by_sweep: dict[str, list[Path]] = {}
    for folder in _folders(home / "tune"):
        by_sweep.setdefault(folder.name.partition("-")[0], []).append(folder)
    for sweep_id, folders in by_sweep.items():
        sweep = sweeps.get(sweep_id)
        newest = max(folders, key=_token)
        for folder in folders:
            if sweep is not None and sweep.state == SweepState.RUNNING and folder is newest:
                continue
            yield Removal(folder, _size(folder), "Ray Tune's, and no driver works in it")


def _of_ray(folder: Path, driven: set[str], long_ago: datetime, over: int) -> Iterator[Removal]:
    """Ray's files of what has ended: beyond their days, and the oldest while too much is kept."""
    for file in dead_files(folder, driven):
        if file.changed < long_ago.timestamp():
            yield Removal(file.path, file.size, "Ray's, of a process that ended long ago")
        elif over > 0:
            yield Removal(file.path, file.size, "Ray's, of a process that has ended; all is full")
        else:
            return
        over -= file.size


def _needless(one: _Kept, long_ago: datetime) -> Iterator[Removal]:
    """Checkpoints that nobody goes on from."""
    ended = one.sweep.finished_at
    is_old = one.sweep.state.is_finished() and ended is not None and ended < long_ago

    def why(item: _Item) -> str | None:
        if item.is_log or item.state in _OPEN:
            return None
        if item.state not in _MAY_GO_ON:
            return "its trial has ended" if item.state else "there is no such trial"
        return f"its trial is {item.state.value}, and its sweep ended long ago" if is_old else None

    yield from _take(one, [(item, why(item)) for item in one.items])


def _shrink(kept: list[_Kept], most: int, why: str) -> list[Removal]:
    """Remove until the size is within ``most``; ended sweeps before those that are open."""
    over = sum(one.size for one in kept) - most
    found: list[Removal] = []
    for one in sorted(kept, key=_age):
        for item in one.disposable():
            if over <= 0:
                return found
            over -= item.size
            found += _take(one, [(item, why)])
    return found


def _age(one: _Kept) -> tuple[bool, float]:
    ended = one.sweep.finished_at
    return not one.sweep.state.is_finished(), ended.timestamp() if ended else 0.0


def _take(one: _Kept, judged: list[tuple[_Item, str | None]]) -> list[Removal]:
    doomed = [(item, why) for item, why in judged if why is not None]
    for item, _ in doomed:
        one.items.remove(item)
    return [Removal(item.path, item.size, why) for item, why in doomed]


# --- What there is ------------------------------------------------------------------------------


def _kept(store: Store, home: Path, sweep: SweepFiles) -> _Kept:
    one = _Kept(sweep)
    paths = [(path, False) for path in _entries(home / "checkpoints" / sweep.id)]
    paths += [(path, True) for path in _entries(home / "logs" / sweep.id)]
    states = store.trial_states(sweep.id) if paths else {}
    for path, is_log in paths:
        number = int(path.stem) if path.stem.isdigit() else None
        state = None if number is None else states.get(number)
        with contextlib.suppress(OSError):
            changed = path.stat().st_mtime
            one.items.append(_Item(path, _size(path), changed, is_log, number, state))
    return one


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _folders(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if path.is_dir()]


def _token(folder: Path) -> int:
    token = folder.name.rpartition("-")[2]
    return int(token) if token.isdigit() else -1


def _size(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; what goes meanwhile counts as nothing."""
    sizes: list[int] = []
    measure: Callable[[str], int] = lambda name: os.lstat(name).st_size  # noqa: E731
    with contextlib.suppress(OSError):
        if not path.is_dir():
            return measure(str(path))
        for folder, _, files in os.walk(path):
            for name in files:
                with contextlib.suppress(OSError):
                    sizes.append(measure(os.path.join(folder, name)))
    return sum(sizes)
