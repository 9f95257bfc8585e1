"""What goes from the disk, what stays, and in what order."""

import json
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sweeps.records import Claim, SweepState, TrialState
from sweeps.retention.limits import Keep
from sweeps.retention.plan import carry_out, keep_within, plan
from sweeps.store.store import Store
from tests.sweeps.stack import until
from tests.sweeps.store_cases import claimed, report, trial

MB = 1_000_000
LATER = datetime.now(UTC) + timedelta(days=8)
STATES = [
    TrialState.COMPLETE,
    TrialState.FAILED,
    TrialState.CANCELLED,
    TrialState.DIVERGED,
    TrialState.WAITING,
]


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    """SQLite alone: nothing here depends on the database."""
    return sqlite_store


def write(path: Path, size: int, age: float = 0.0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    for place in (path, path.parent):
        os.utime(place, (1e9 - age, 1e9 - age))


def sweep_with_files(
    store: Store, home: Path, states: list[TrialState], *, end: SweepState | None
) -> Claim:
    """Trials in these states, with a checkpoint of 1 MB and a log of 0.1 MB each."""
    claim = claimed(store)
    for number, state in enumerate(states):
        added = store.add_trials(claim, [trial(number)])[0]
        write(home / "checkpoints" / claim.sweep_id / str(number) / "a.pt", MB, age=100 - number)
        write(home / "logs" / claim.sweep_id / f"{number}.log", MB // 10, age=100 - number)
        if state == TrialState.WAITING:
            continue
        attempt = store.start_attempt(claim, added.number)
        store.record(claim, added.number, attempt.id, [report(10)])
        store.finish_attempt(claim, added.number, attempt.id, state, state.value, trial_state=state)
    if end is not None:
        store.release(claim, end, "")
    return claim


def left(home: Path) -> set[str]:
    files = (path for kind in ("checkpoints", "logs", "tune") for path in home.glob(f"{kind}/*/*"))
    return {f"{path.parts[-3]}/{path.name}" for path in files}


def test_a_checkpoint_goes_with_the_need_for_it(store: Store, tmp_path: Path) -> None:
    claim = sweep_with_files(store, tmp_path, STATES, end=None)

    planned = plan(store, tmp_path, Keep())
    carry_out(store, planned)

    checkpoints = {name for name in left(tmp_path) if name.startswith("checkpoints")}
    # Failed and cancelled trials may go on from theirs; one that waits will.
    assert checkpoints == {"checkpoints/1", "checkpoints/2", "checkpoints/4"}
    assert len([name for name in left(tmp_path) if name.startswith("logs")]) == 5
    assert (planned.before, planned.after) == (5 * MB + 5 * MB // 10, 3 * MB + 5 * MB // 10)
    assert store.get_sweep(claim.sweep_id).trials["failed"] == 1


def test_failures_keep_theirs_for_some_days_after_the_end(store: Store, tmp_path: Path) -> None:
    sweep_with_files(store, tmp_path, STATES[:3], end=SweepState.COMPLETE)
    soon = plan(store, tmp_path, Keep(days=7))
    late = plan(store, tmp_path, Keep(days=7), now=LATER)

    assert {removal.path.name for removal in soon.removals} == {"0"}
    assert {removal.path.name for removal in late.removals} == {"0", "1", "2"}
    assert any("ended long ago" in removal.why for removal in late.removals)


def test_a_dry_run_removes_nothing(store: Store, tmp_path: Path) -> None:
    sweep_with_files(store, tmp_path, STATES, end=None)
    before = left(tmp_path)

    assert plan(store, tmp_path, Keep(sweep_bytes=0, bytes=0)).removals
    assert left(tmp_path) == before


def test_a_sweep_beyond_its_budget_loses_checkpoints_before_logs_and_old_before_new(
    store: Store, tmp_path: Path
) -> None:
    sweep_with_files(store, tmp_path, [TrialState.FAILED] * 4, end=SweepState.FAILED)

    # 4.4 MB: three checkpoints go, the oldest first.
    carry_out(store, plan(store, tmp_path, Keep(sweep_bytes=1_450_000)))
    assert left(tmp_path) == {"checkpoints/3", *(f"logs/{n}.log" for n in range(4))}

    carry_out(store, plan(store, tmp_path, Keep(sweep_bytes=250_000)))
    assert left(tmp_path) == {"logs/2.log", "logs/3.log"}


def test_trials_that_wait_or_run_keep_their_files_whatever_the_budget(
    store: Store, tmp_path: Path
) -> None:
    sweep_with_files(store, tmp_path, [TrialState.WAITING, TrialState.FAILED], end=None)

    carry_out(store, plan(store, tmp_path, Keep(sweep_bytes=0, bytes=0, days=0)))

    assert left(tmp_path) == {"checkpoints/0", "logs/0.log"}


def test_all_sweeps_together_lose_the_one_that_ended_first(store: Store, tmp_path: Path) -> None:
    first = sweep_with_files(store, tmp_path, [TrialState.FAILED], end=SweepState.FAILED)
    second = sweep_with_files(store, tmp_path, [TrialState.FAILED], end=SweepState.FAILED)

    carry_out(store, plan(store, tmp_path, Keep(bytes=1_200_000)))

    assert not (tmp_path / "checkpoints" / first.sweep_id / "0").exists()
    assert (tmp_path / "checkpoints" / second.sweep_id / "0").exists()


def test_what_belongs_to_no_sweep_goes_and_so_do_tunes_folders(
    store: Store, tmp_path: Path
) -> None:
    claim = sweep_with_files(store, tmp_path, [], end=None)
    for name in (f"{claim.sweep_id}-9", f"{claim.sweep_id}-10", "0123456789ab-1"):
        write(tmp_path / "tune" / name / "state.json", 10)
    write(tmp_path / "checkpoints" / "0123456789ab" / "0" / "a.pt", 10)
    write(tmp_path / "logs" / "0123456789ab" / "0.log", 10)
    write(tmp_path / "logs" / "api.log", 10)

    carry_out(store, plan(store, tmp_path, Keep()))

    # Of a running sweep the newest driver's; the service's own logs are nobody's sweep.
    assert [folder.name for folder in (tmp_path / "tune").iterdir()] == [f"{claim.sweep_id}-10"]
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["api.log"]
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_progress_events_of_sweeps_that_ended_long_ago_are_pruned_and_nothing_else(
    store: Store, tmp_path: Path
) -> None:
    done = sweep_with_files(store, tmp_path, [TrialState.COMPLETE] * 3, end=SweepState.COMPLETE)
    open_ = sweep_with_files(store, tmp_path, [TrialState.COMPLETE], end=None)
    kinds = [event.kind for event in store.events(done.sweep_id, limit=1000)]

    planned = plan(store, tmp_path, Keep(days=7), now=LATER)
    carry_out(store, planned)

    left_kinds = [event.kind for event in store.events(done.sweep_id, limit=1000)]
    assert planned.events == 3
    assert left_kinds == [kind for kind in kinds if kind != "progress"]
    assert "progress" in {event.kind for event in store.events(open_.sweep_id, limit=1000)}
    assert store.metrics(done.sweep_id, 0)["validation_error"] == [(10, 0.5)]


def test_a_service_keeps_within_its_budget_by_itself(store: Store, tmp_path: Path) -> None:
    claim = sweep_with_files(store, tmp_path, [TrialState.COMPLETE], end=SweepState.COMPLETE)
    checkpoints = tmp_path / "checkpoints" / claim.sweep_id / "0"
    assert checkpoints.exists()
    stop = threading.Event()
    thread = threading.Thread(target=keep_within, args=(store, tmp_path, Keep(), stop, 0.01))
    thread.start()
    try:
        until(lambda: not checkpoints.exists(), "a checkpoint that nobody needs goes")
    finally:
        stop.set()
        thread.join()

    assert left(tmp_path) == {"logs/0.log"}


def ray_session(home: Path, tmp_path: Path) -> Path:
    """A temporary folder of Ray's with logs of a living and of a dead process."""
    folder = tmp_path / "nds-x"
    logs = folder / "session_2026-01-01_00-00-00_1_1" / "logs"
    write(logs / "worker-ab-01000000-99999999.out", MB)
    write(logs / f"worker-ab-01000000-{os.getpid()}.out", MB)
    write(logs / "gcs_server.out", MB)
    home.mkdir(parents=True, exist_ok=True)
    (home / "ray.json").write_text(json.dumps({"folder": str(folder)}))
    return logs


def test_logs_of_rays_ended_processes_go_after_their_days(store: Store, tmp_path: Path) -> None:
    logs = ray_session(tmp_path, tmp_path)

    planned = plan(store, tmp_path, Keep())
    carry_out(store, planned)

    assert (planned.before, planned.after) == (3 * MB, 2 * MB)
    assert [removal.path.name for removal in planned.removals] == [
        "worker-ab-01000000-99999999.out"
    ]
    assert {path.name for path in logs.iterdir()} == {
        "gcs_server.out",
        f"worker-ab-01000000-{os.getpid()}.out",
    }


def test_rays_files_count_in_the_budget_of_all_and_go_before_checkpoints(
    store: Store, tmp_path: Path
) -> None:
    logs = ray_session(tmp_path, tmp_path)
    claim = sweep_with_files(store, tmp_path, [TrialState.FAILED], end=SweepState.FAILED)
    for path in logs.iterdir():
        os.utime(path)

    enough = plan(store, tmp_path, Keep(bytes=5 * MB))
    some = plan(store, tmp_path, Keep(bytes=int(3.5 * MB)))
    little = plan(store, tmp_path, Keep(bytes=int(2.5 * MB)))

    assert enough.removals == []
    assert [r.path.parent.name for r in some.removals] == ["logs"]
    assert [r.path.name for r in little.removals][1:] == ["0"]
    assert little.removals[1].path == tmp_path / "checkpoints" / claim.sweep_id / "0"


def test_tunes_folder_in_rays_goes_unless_its_sweep_is_driven(store: Store, tmp_path: Path) -> None:
    logs = ray_session(tmp_path, tmp_path)
    claim = claimed(store)
    for name in (f"{claim.sweep_id}-1", "0123456789ab-1"):
        folder = logs.parent / "artifacts" / "2026-01-01_00-00-00" / name
        write(folder / "state.json", MB)
        os.utime(folder, (1e9, 1e9))

    removed = [removal.path.name for removal in plan(store, tmp_path, Keep()).removals]

    assert "0123456789ab-1" in removed
    assert f"{claim.sweep_id}-1" not in removed


def test_without_a_local_ray_nothing_of_it_is_looked_for(store: Store, tmp_path: Path) -> None:
    (tmp_path / "ray.json").write_text('{"folder": "/nonexistent/nds"}')

    assert plan(store, tmp_path, Keep()).before == 0
