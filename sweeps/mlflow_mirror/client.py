"""The requests that the mirror makes of MLflow. The only file that imports it.

A refused request waits longer each time and is given up in the end; other sweeps do not wait.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sweeps.mlflow_mirror.names import MAX_METRICS, MAX_PARAMS, MAX_TAGS, batches, mirror_name
from sweeps.records import MetricPoint
from worker.pauses import pauses

#: Parameters per request: 40 of 6,000 characters stay below a request's 1 MB in any script.
_PARAMS = 40

#: Characters of parameters and tags that travel with metrics; together below 1 MB too.
_TEXT = 100_000

_SETTINGS = {
    # Seconds; a server that takes half a minute for each request still gets everything.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
    # The mirror repeats what fails, and says so meanwhile.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    # Costs a request for each run that ends.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


class Unreachable(Exception):
    """MLflow does not answer, or not as it should; a retry may help."""


class Gone(Exception):
    """The experiment or run was deleted in MLflow."""


class MlflowRefused(Exception):
    """MLflow does not accept this, however often it is sent."""


@dataclass(frozen=True)
class KnownRun:
    """A run as MLflow has it."""

    run_id: str
    tags: Mapping[str, str]
    #: Whether MLflow shows it as going on.
    is_open: bool


class MirrorClient:
    """MLflow at an address, with its errors sorted by what helps against them."""

    def __init__(self, tracking_uri: str) -> None:
        self.url = tracking_uri.rstrip("/")

    @cached_property
    def _mlflow(self) -> Any:
        # Seconds and a hundred megabytes, in the thread that needs it and not before.
        os.environ.update(_SETTINGS)
        from mlflow.tracking import MlflowClient

        return MlflowClient(tracking_uri=self.url)

    def experiment(self, name: str, tags: Mapping[str, str]) -> str:
        """Return the id of an experiment, made with these tags if need be.

        A deleted one keeps its name, so another gets a number behind it.
        """
        with _sorted_errors():
            candidate, number = name, 1
            while (found := self._mlflow.get_experiment_by_name(candidate)) is not None:
                if found.lifecycle_stage == "active":
                    return str(found.experiment_id)
                number += 1
                candidate = f"{name} {number}"
            return str(self._mlflow.create_experiment(candidate, tags=dict(tags)))

    def experiment_named(self, name: str) -> str | None:
        """Return the id of an experiment that is there and not deleted."""
        with _sorted_errors():
            found = self._mlflow.get_experiment_by_name(name)
        is_there = found is not None and found.lifecycle_stage == "active"
        return str(found.experiment_id) if is_there else None

    def runs(self, experiment_id: str) -> Iterator[KnownRun]:
        """Every run of an experiment that is not deleted."""
        token: str | None = None
        while True:
            with _sorted_errors():
                page = self._mlflow.search_runs([experiment_id], page_token=token, max_results=1000)
            for run in page:
                is_open = run.info.status in ("RUNNING", "SCHEDULED")
                yield KnownRun(run.info.run_id, run.data.tags, is_open)
            token = page.token
            if not token:
                return

    def create_run(
        self, experiment_id: str, start_ms: int, tags: Mapping[str, str], name: str
    ) -> str:
        """Make a run that goes on."""
        with _sorted_errors():
            run = self._mlflow.create_run(
                experiment_id, start_time=start_ms, tags=dict(tags), run_name=name
            )
            return str(run.info.run_id)

    def log(
        self,
        run_id: str,
        metrics: Sequence[MetricPoint] = (),
        *,
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Log metrics in their order, parameters and tags, in as many requests as it takes.

        What MLflow refuses is left out alone, and a tag says so.
        """
        from mlflow.entities import Metric, Param, RunTag

        points = [Metric(mirror_name(m.name), m.value, m.at_ms, m.step) for m in metrics]
        tag_list = [RunTag(name, text) for name, text in (tags or {}).items()]
        param_list = [Param(name, text) for name, text in (params or {}).items()]
        if self._log_together(run_id, points, param_list, tag_list):
            return
        for batch in batches(tag_list, MAX_TAGS):
            self._log_batch(run_id, tags=batch)
        for batch in batches(param_list, _PARAMS):
            self._log_batch(run_id, params=batch)
        for batch in batches(points, MAX_METRICS):
            self._log_batch(run_id, metrics=batch)

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set tags."""
        self.log(run_id, tags=tags)

    def set_status(self, run_id: str, status: str, end_ms: int | None) -> None:
        """Set a run's state, with its end where it has ended."""
        with _sorted_errors():
            if end_ms is None:
                self._mlflow.update_run(run_id, status=status)
            else:
                self._mlflow.set_terminated(run_id, status=status, end_time=end_ms)

    def log_text(self, run_id: str, text: str, artifact: str) -> None:
        """Store a text as an artifact."""
        with _sorted_errors():
            self._mlflow.log_text(run_id, text, artifact)

    def log_json(self, run_id: str, value: Mapping[str, Any], artifact: str) -> None:
        """Store JSON values as an artifact."""
        with _sorted_errors():
            self._mlflow.log_dict(run_id, dict(value), artifact)

    def log_folder(self, run_id: str, folder: Path, artifact: str = "") -> None:
        """Store every file of a folder as artifacts, below ``artifact``."""
        with _sorted_errors():
            self._mlflow.log_artifacts(run_id, str(folder), artifact or None)

    def delete_run(self, run_id: str) -> None:
        """Delete a run; no change if it is gone."""
        with contextlib.suppress(Gone, MlflowRefused), _sorted_errors():
            self._mlflow.delete_run(run_id)

    def _log_together(
        self, run_id: str, points: list[Any], params: list[Any], tags: list[Any]
    ) -> bool:
        """Log all in one request, if it fits and nothing of it is refused."""
        texts = [*params, *tags]
        if len(tags) > MAX_TAGS or len(params) > MAX_PARAMS:
            return False
        if len(points) + len(texts) > MAX_METRICS or sum(len(t.value) for t in texts) > _TEXT:
            return False
        try:
            with _sorted_errors():
                self._mlflow.log_batch(run_id, metrics=points, params=params, tags=tags)
        except MlflowRefused:
            return False
        return True

    def _log_batch(self, run_id: str, **kind: Sequence[Any]) -> None:
        (name, items), *_ = kind.items()
        try:
            with _sorted_errors():
                self._mlflow.log_batch(run_id, **{name: items})
        except MlflowRefused as error:
            if len(items) > 1:
                half = len(items) // 2
                self._log_batch(run_id, **{name: items[:half]})
                self._log_batch(run_id, **{name: items[half:]})
            elif name != "tags":
                self._note_refusal(run_id, items[0].key, error)

    def _note_refusal(self, run_id: str, key: str, error: MlflowRefused) -> None:
        from mlflow.entities import RunTag

        with contextlib.suppress(MlflowRefused), _sorted_errors():
            tag = RunTag(f"ndsweep.refused.{key}"[:250], str(error)[:1000])
            self._mlflow.log_batch(run_id, tags=[tag])


_GONE = ("RESOURCE_DOES_NOT_EXIST", "NOT_FOUND")

_REFUSED = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_ALREADY_EXISTS", "INVALID_STATE")


@contextlib.contextmanager
def _sorted_errors() -> Iterator[None]:
    """Turn what MLflow's client raises into Unreachable, Gone or MlflowRefused."""
    import requests
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        text = str(error).strip().splitlines()[0][:500] if str(error).strip() else "no message"
        # A deleted run is refused with a general code and these words.
        if error.error_code in _GONE or "must be in the 'active' state" in str(error):
            raise Gone(text) from error
        if error.error_code in _REFUSED:
            raise MlflowRefused(text) from error
        raise Unreachable(text) from error
    except (requests.RequestException, OSError) as error:
        raise Unreachable(f"{type(error).__name__}: {error}"[:500]) from error


# Seconds.
_FIRST, _LAST = 1.0, 60.0

#: Refusals in a row before something counts as never accepted.
MAX_REFUSALS = 6

#: A sweep's id, or an attempt's.
Key = str | int


@dataclass
class _Hold:
    refusals: int = 0
    until: float = 0.0
    waits: Iterator[float] = field(default_factory=lambda: pauses(_FIRST, _LAST))


class Holds:
    """Which sweeps and attempts are not to be sent for now."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: dict[Key, _Hold] = {}

    def refused(self, key: Key) -> bool:
        """Hold something back after a refusal; say whether it is to be given up instead."""
        hold = self._held.setdefault(key, _Hold())
        hold.refusals += 1
        if hold.refusals >= MAX_REFUSALS:
            del self._held[key]
            return True
        hold.until = self._clock() + next(hold.waits)
        return False

    def wait(self, key: Key, seconds: float) -> None:
        """Hold something back for a time, whatever came before."""
        self._held[key] = _Hold(until=self._clock() + seconds)

    def accepted(self, key: Key) -> None:
        """It was sent: what came before is forgotten."""
        self._held.pop(key, None)

    def sweeps(self) -> list[str]:
        """Sweeps that wait, with all that belongs to them."""
        return [key for key in self._waiting() if isinstance(key, str)]

    def attempts(self) -> list[int]:
        """Attempts that wait."""
        return [key for key in self._waiting() if isinstance(key, int)]

    def _waiting(self) -> list[Key]:
        now = self._clock()
        return [key for key, hold in self._held.items() if hold.until > now]
