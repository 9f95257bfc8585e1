"""One run of Ray Tune over what a dispatcher hands out. Tune places trials, and nothing else.

Tune keeps no record here: no snapshots, no loggers, no restore. A searcher hands out trials, a
stopper reads their reports and says when to stop, a callback tells of starts and ends.
"""

import contextlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle, tune
from ray.exceptions import (
    ActorUnschedulableError,
    NodeDiedError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
    WorkerCrashedError,
)
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher
from ray.util.placement_group import PlacementGroup, placement_group

from sweeps.cluster.fair_share import Share
from sweeps.cluster.machines import Machines
from sweeps.driver.dispatcher import Dispatcher
from sweeps.driver.run import Run
from worker.errors import HostLost, WrongMachine

log = logging.getLogger(__name__)

_SETTINGS = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # Reports are checked here; Tune would end the whole run for one without its metric.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    # No snapshots of an experiment that is never restored.
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",
    # Quick reports come together: a part of the requests. One that comes soon after another waits
    # for the next, or for the word that nothing has come (``worker.tune_trainable``). Tune 2.60
    # takes length and time for each other.
    "TUNE_RESULT_BUFFER_LENGTH": "2",
    "TUNE_RESULT_BUFFER_MIN_TIME_S": "5",
    "TUNE_RESULT_BUFFER_MAX_TIME_S": "5",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "1000000000",
    "RAY_AIR_NEW_OUTPUT": "0",
}

Trainable = Callable[[dict[str, Any]], None]

#: What Tune itself reads of a result.
_KEPT = frozenset(
    {
        "done",
        "should_checkpoint",
        "time_this_iter_s",
        "time_total_s",
        "timestamp",
        "training_iteration",
        "trial_id",
    }
)
_LOST = (
    ActorUnschedulableError,
    HostLost,
    NodeDiedError,
    OutOfMemoryError,
    RayActorError,
    WorkerCrashedError,
    WrongMachine,
)
#: Ray's label of a machine, its id, and a value that no machine has.
_MACHINE, _NO_MACHINE = "ray.io/node-id", "none"
#: More than 1, or Tune does not buffer; the environment takes whole numbers only.
_BUFFER_SECONDS = 1.01
#: Trials at once where the sweep's share is what limits them.
_MANY = 1024
#: Seconds between looks for trials that Tune dropped without a word.
_LOOK_SECONDS = 1.0
#: Seconds between two questions for a trial while none runs.
_ASK_SECONDS = 0.05


class TrialLost(RuntimeError):
    """Tune gave a trial up: its worker could not be reused, started or reached."""


def train(params: dict[str, Any]) -> None:
    """The trainable: what ``worker`` trains. Torch is imported where it trains, not here."""
    from worker.tune_trainable import trainable

    trainable(params)


def run(
    dispatcher: Dispatcher,
    trainable: Trainable,
    *,
    cpus: float,
    gpus: float,
    share: Share,
    machines: Machines,
    folder: Path,
    on_done: Callable[[], None] = lambda: None,
    must_abort: Callable[[], bool] = lambda: False,
) -> None:
    """Run every trial that the dispatcher hands out, then return.

    ``share`` says how many that is at a time, and how long workers without a trial are kept;
    ``machines``, where they may run.
    ``folder`` becomes Tune's, with nothing in it that anybody needs later. ``on_done`` is called
    when the last trial has ended, before workers are put away. Once ``must_abort`` is true, trials
    that still run are ended without a word to them.
    """
    os.environ.update(_SETTINGS)
    runs: dict[str, Run] = {}
    place = _PlaceOnMachines({"CPU": cpus} | ({"GPU": gpus} if gpus else {}), machines)
    warm_workers = _WarmWorkerScheduler(share, place)
    tuner = tune.Tuner(
        tune.with_resources(trainable, place),
        tune_config=tune.TuneConfig(
            search_alg=_TrialSource(dispatcher, runs, on_done),
            scheduler=warm_workers,
            num_samples=-1,
            max_concurrent_trials=_MANY,
            reuse_actors=True,
            trial_name_creator=_short_name,
            trial_dirname_creator=_short_name,
        ),
        run_config=tune.RunConfig(
            name=folder.name,
            storage_path=str(folder.parent.resolve()),
            stop=_Stopper(dispatcher, runs, must_abort),
            callbacks=[_Reporter(dispatcher, runs, warm_workers, machines)],
            verbose=0,
        ),
    )
    tuner.fit()
    for left in list(runs.values()):
        dispatcher.ended(left)


class _Unsaved:
    """Tune pickles what it is given, to restore it one day. The store is the record instead."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class _TrialSource(_Unsaved, Searcher):  # type: ignore[misc]
    """Gives Tune the next trial of the dispatcher."""

    def __init__(
        self, dispatcher: Dispatcher, runs: dict[str, Run], on_done: Callable[[], None]
    ) -> None:
        super().__init__()
        self._dispatcher = dispatcher
        self._runs = runs
        self._on_done = on_done

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        run = self._dispatcher.next()
        if run is None:
            if not self._dispatcher.is_done:
                return None
            self._on_done()
            return str(Searcher.FINISHED)
        self._runs[trial_id] = run
        return {"task": self._dispatcher.task(run)}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """Nothing: the callback reports it, with its cause."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: the store is the record."""

    def restore(self, checkpoint_path: str) -> None:
        """Never called: Tune's state is not restored."""


class _PlaceOnMachines(tune.PlacementGroupFactory):  # type: ignore[misc]
    """The resources of a trial, on machines on which trials may run when they are asked for.

    Tune takes two such requests for the same, and hands workers from one trial to the next. What it
    pickles, for workers and for itself, is a request without machines.
    """

    def __init__(self, resources: dict[str, float], machines: Machines) -> None:
        super().__init__([resources])
        self._machines = machines
        #: Machines that the newest requests were told.
        self.told: list[str] | None = None

    def admitted(self) -> list[str]:
        """Ids of the machines on which trials may run now."""
        return self._machines.admitted()

    def to_placement_group(self) -> PlacementGroup:
        self.told = self.admitted()
        among = f"in({','.join(self.told)})" if self.told else _NO_MACHINE
        return placement_group(self.bundles, bundle_label_selector=[{_MACHINE: among}])

    @property
    def is_outdated(self) -> bool:
        """Whether other machines are admitted now than the newest requests were told."""
        return self.told is not None and self.told != self.admitted()

    def __reduce__(self) -> tuple[Any, ...]:
        return tune.PlacementGroupFactory, (self.bundles,)


class _WarmWorkerScheduler(_Unsaved, FIFOScheduler):  # type: ignore[misc]
    """Keeps every worker warm between trials until another sweep may need its place.

    Tune itself keeps one worker and ends the others after each round; starting them again costs
    seconds each. The attributes used here are private to Tune: if they go, trials only start more
    slowly.
    """

    def __init__(self, share: Share, place: _PlaceOnMachines) -> None:
        super().__init__()
        self._share = share
        self._controller: Any = None
        self._place = place
        # Of the workers without a trial, how many were so all the time since then.
        self._idle = 0
        self._idle_since = time.monotonic()

    def on_trial_add(self, tune_controller: Any, trial: TuneTrial) -> None:
        trial.placement_group_factory = self._place
        if self._controller is not None:
            return
        self._controller = getattr(tune_controller, "_tune_controller", tune_controller)
        cache = getattr(self._controller, "_actor_cache", None)
        if cache is not None:
            cache.increase_max(self._place, _MANY)
        if hasattr(self._controller, "_buffer_length"):
            self._controller._buffer_length = _BUFFER_SECONDS
        if hasattr(self._controller, "_update_trial_queue"):
            self._controller._update_trial_queue = _without_blocking(
                self._controller._update_trial_queue
            )

    @property
    def num_placed(self) -> int:
        """Workers that have a place on the cluster, with or without a trial."""
        return int(getattr(getattr(self._controller, "_actor_manager", None), "num_live_actors", 0))

    def put_away(self) -> None:
        """End workers that have had no trial for too long: others may be waiting for the place."""
        cache = getattr(self._controller, "_actor_cache", None)
        if cache is None:
            return
        self._idle = min(self._idle, cache.num_cached_objects)
        if time.monotonic() - self._idle_since < self._share.idle_seconds:
            return
        for _ in range(self._idle):
            worker = cache.pop_cached_object(self._place)
            worker.set_on_stop(None)
            worker.set_on_error(None)
            self._controller._remove_actor(tracked_actor=worker)
        self._idle = cache.num_cached_objects
        self._idle_since = time.monotonic()

    def place_again(self) -> None:
        """Have trials that wait for a place look among the machines that are admitted now."""
        actors = getattr(self._controller, "_actor_manager", None)
        requests = getattr(actors, "_resource_manager", None)
        waiting = getattr(requests, "_request_to_staged_pgs", None)
        if requests is None or waiting is None or not self._place.is_outdated:
            return
        self._place.told = self._place.admitted()
        for _ in range(len(waiting[self._place])):
            requests.cancel_resource_request(self._place)
            requests.request_resources(self._place)

    def choose_trial_to_run(self, tune_controller: Any) -> None:
        """No choice: Tune then takes the oldest that waits, without a look at every trial."""


class _Stopper(_Unsaved, tune.Stopper):  # type: ignore[misc]
    """Passes reports on to the dispatcher, which decides whether the trial stops."""

    def __init__(
        self, dispatcher: Dispatcher, runs: dict[str, Run], must_abort: Callable[[], bool]
    ) -> None:
        self._dispatcher = dispatcher
        self._runs = runs
        self._must_abort = must_abort

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        run = self._runs.get(trial_id)
        # Tune repeats the last result, done, when a trainable has returned.
        if run is None or result.get("done"):
            return False
        return self._dispatcher.report(run, result)

    def stop_all(self) -> bool:
        return self._must_abort()


class _Reporter(_Unsaved, tune.Callback):  # type: ignore[misc]
    """Passes starts and ends of trials on to the dispatcher."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        runs: dict[str, Run],
        warm_workers: _WarmWorkerScheduler,
        machines: Machines,
    ) -> None:
        self._dispatcher = dispatcher
        self._runs = runs
        self._warm_workers = warm_workers
        self._machines = machines
        self._next_look = 0.0

    def on_trial_start(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **_: Any
    ) -> None:
        if trial.trial_id in self._runs:
            self._dispatcher.started(self._runs[trial.trial_id])

    def on_trial_result(
        self,
        iteration: int,
        trials: list[TuneTrial],
        trial: TuneTrial,
        result: dict[str, Any],
        **_: Any,
    ) -> None:
        # Tune keeps the last result of every trial for ever, and statistics of each number in it,
        # those of the configuration too: 50 kB a trial.
        for name in result.keys() - _KEPT:
            del result[name]

    def on_trial_complete(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **_: Any
    ) -> None:
        if (run := self._runs.pop(trial.trial_id, None)) is not None:
            self._dispatcher.ended(run)
        _forget(trial)

    def on_trial_error(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **_: Any
    ) -> None:
        if (run := self._runs.pop(trial.trial_id, None)) is not None:
            error = _error_of(trial)
            if isinstance(error, WrongMachine):
                self._machines.refuse(error.machine, error.differences)
            self._dispatcher.ended(run, error, lost=isinstance(error, (*_LOST, TrialLost)))

    def on_step_end(self, iteration: int, trials: list[TuneTrial], **_: Any) -> None:
        """Find trials that Tune ended without calling back: their worker could not be reused."""
        self._warm_workers.put_away()
        # Only read while no trial has a worker: all of them are still starting then.
        self._dispatcher.workers_starting = self._warm_workers.num_placed
        if self._runs and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            self._dispatcher.look()
            self._warm_workers.place_again()
            self._end_hung(trials)
            for trial in trials:
                if trial.trial_id in self._runs and trial.is_finished():
                    self.on_trial_error(iteration, trials, trial)

    def _end_hung(self, trials: list[TuneTrial]) -> None:
        """End the workers of trials that do not stop; Tune then hears of their deaths."""
        hung = self._dispatcher.hung()
        for trial in trials if hung else ():
            worker = trial.temporary_state.ray_actor
            if self._runs.get(trial.trial_id) in hung and worker is not None:
                log.warning("trial %s does not stop; its worker is ended", trial)
                ray.kill(worker)


def _without_blocking(ask: Callable[[], bool]) -> Callable[..., bool]:
    """Tune's question for the next trial, which never waits for one.

    While none of its trials is left Tune asks for ten minutes and does nothing else. Its workers
    would keep their places all that time, and a sweep whose turn it is waits for these places.
    """

    def ask_once(blocking: bool = False, timeout: int = 0) -> bool:
        found = ask()
        if blocking and not found:
            time.sleep(_ASK_SECONDS)
        return found

    return ask_once


def _forget(trial: TuneTrial) -> None:
    """Drop what Tune would keep of the reports of a trial that is over."""
    metadata = trial.run_metadata
    for name in ("metric_analysis", "metric_n_steps"):
        # Private to Tune: without it a driver only grows.
        getattr(metadata, name, {}).clear()


def _short_name(trial: TuneTrial) -> str:
    """Ray refuses long folder names; the number is enough."""
    return f"{trial.config['task']['checkpoint_dir'].rpartition('/')[2]}-{trial.trial_id[-5:]}"


def _error_of(trial: TuneTrial) -> BaseException:
    """What ended a trial, as its own exception where it can be read back."""
    path = trial.pickled_error_file
    if path is not None:
        # Our own process wrote it a moment ago.
        with contextlib.suppress(Exception), open(path, "rb") as file:
            error: BaseException = cloudpickle.load(file)
            return error.cause if isinstance(error, RayTaskError) else error
    text = Path(trial.error_file).read_text() if trial.error_file else "no error was recorded"
    # Only what Ray itself raised in a worker is pickled: the rest is Tune giving a trial up.
    return TrialLost(text.strip()[-2000:]) if path is None else RuntimeError(text.strip()[-2000:])
