"""One small JSON file per finished run: what a batch leaves behind, and what is read back."""

import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from sweeps.batch.plan import Membership
from sweeps.records import LOST, TrialState
from sweeps.store.queries.thinning import thin
from worker.atomic_file import whole_file
from worker.config.train_config import config_key
from worker.report import Report

#: Points of one curve in a file, at most.
MAX_POINTS = 1000
#: Digits that are kept of a curve's values; final metrics are kept exactly.
_DIGITS = 7
_FILE_NAME = re.compile(r"[0-9a-f]{16}-\d+\.json")

RunState = Literal["complete", "diverged", "failed"]


class Curves(BaseModel):
    """Metrics that were reported at the same steps."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    steps: list[int]
    values: dict[str, list[float]]


class AttemptNote(BaseModel):
    """One try at a run. Times are RFC 3339, UTC."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    started_at: str
    finished_at: str
    exit_cause: str
    seconds: float
    from_step: int

    @property
    def state(self) -> TrialState:
        """How it ended, if there was another attempt after it."""
        return TrialState.FAILED if self.exit_cause.startswith(LOST) else TrialState.CANCELLED


class RunResult(BaseModel):
    """A finished run: what was trained, what came out, and where."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    format: Literal["ndsweep-run-1"] = "ndsweep-run-1"
    #: The resolved config, as JSON values without device.
    config: dict[str, Any]
    config_key: str
    seed: int
    #: The specs that it belongs to.
    specs: list[Membership]
    state: RunState
    #: "complete", "diverged at step 12", or what went wrong.
    exit_cause: str
    step: int
    num_steps: int
    diverged_at_step: int | None = None
    #: Latest value of every metric.
    metrics: dict[str, float]
    curves: list[Curves]
    attempts: list[AttemptNote]
    started_at: str
    finished_at: str
    #: Of all attempts together.
    seconds: float
    #: Of training and evaluation, without the start of a process; None for a run without two
    #: reports in one attempt.
    seconds_per_step: float | None = None
    start_seconds: float | None = None
    provenance: dict[str, Any]

    def curve(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of one metric; empty if it was never reported."""
        return sorted(
            point
            for group in self.curves
            for point in zip(group.steps, group.values.get(name, ()), strict=False)
        )


class ResultRefused(ValueError):
    """A file that is no result of a run; the sentence says what to do about it."""


def result_path(folder: Path, config_key: str, seed: int) -> Path:
    """Where the result of a run lies."""
    return folder / f"{config_key}-{seed}.json"


def result_paths(folder: Path) -> list[Path]:
    """Every file of a folder that is named like a result, sorted."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if _FILE_NAME.fullmatch(path.name))


def read_result(path: Path) -> RunResult:
    """Read one result. Raises ResultRefused for a file that is damaged or of another kind."""
    try:
        result = RunResult.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ResultRefused(
            f"{path.name} is not the result of a run ({where}: {first['msg']}); remove it and run "
            "the batch again, or take it from where it was written"
        ) from error
    if path.name != result_path(path.parent, result.config_key, result.seed).name:
        raise ResultRefused(
            f"{path.name} holds the run {result.config_key} with seed {result.seed}; rename it to "
            f"{result.config_key}-{result.seed}.json"
        )
    return result


def read_results(folder: Path) -> Iterator[RunResult]:
    """Yield every whole result of a folder; others are passed over."""
    for path in result_paths(folder):
        try:
            yield read_result(path)
        except ResultRefused:
            continue


def write_result(folder: Path, result: RunResult) -> Path:
    """Write a result under its own name, whole or not at all."""
    path = result_path(folder, result.config_key, result.seed)
    write_whole(path, result.model_dump_json(indent=None) + "\n")
    return path


def write_whole(path: Path, text: str) -> None:
    """Write a file under a temporary name, sync it and give it its own."""
    with whole_file(path) as file:
        file.write(text.encode())


def curves_of(reports: Iterable[Report]) -> list[Curves]:
    """The curves of a run's reports, thinned; metrics with the same steps share them."""
    by_name: dict[str, dict[int, float]] = {}
    for report in reports:
        for name, value in report.metrics.items():
            by_name.setdefault(name, {})[report.step] = value
    groups: dict[tuple[int, ...], dict[str, list[float]]] = {}
    for name, curve in by_name.items():
        points = thin(sorted(curve.items()), MAX_POINTS)
        steps = tuple(step for step, _ in points)
        groups.setdefault(steps, {})[name] = [_rounded(value) for _, value in points]
    return [Curves(steps=list(steps), values=values) for steps, values in groups.items()]


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def attempt_note(
    before: Sequence[AttemptNote], *, began: float, from_step: int, exit_cause: str
) -> AttemptNote:
    """The attempt that follows ``before`` and ends now. ``began`` is on the monotonic clock."""
    seconds, now = time.monotonic() - began, datetime.now(UTC)
    return AttemptNote(
        number=len(before) + 1,
        started_at=_rfc3339(now - timedelta(seconds=seconds)),
        finished_at=_rfc3339(now),
        exit_cause=exit_cause,
        seconds=round(seconds, 3),
        from_step=from_step,
    )


def _rfc3339(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def result_of(
    config: dict[str, Any],
    attempts: Sequence[AttemptNote],
    *,
    specs: Iterable[Membership],
    state: RunState,
    exit_cause: str,
    num_steps: int,
    **found: Any,
) -> RunResult:
    """The result of a run that ended with the last of its attempts; ``found`` are other fields."""
    return RunResult(
        config=config,
        config_key=config_key(config),
        seed=config["seed"],
        specs=list(specs),
        state=state,
        exit_cause=exit_cause,
        num_steps=num_steps,
        attempts=list(attempts),
        started_at=attempts[0].started_at,
        finished_at=attempts[-1].finished_at,
        seconds=round(sum(attempt.seconds for attempt in attempts), 3),
        **found,
    )


def write_attempts(folder: Path, attempts: list[AttemptNote]) -> None:
    """Keep the attempts at an unfinished run beside its checkpoints."""
    text = json.dumps([attempt.model_dump() for attempt in attempts])
    write_whole(folder / "attempts.json", text)


def read_attempts(folder: Path) -> list[AttemptNote]:
    """The attempts at an unfinished run; none where nothing is known."""
    try:
        values = json.loads((folder / "attempts.json").read_text(encoding="utf-8"))
        return [AttemptNote.model_validate(value) for value in values]
    except (OSError, ValueError):
        return []
