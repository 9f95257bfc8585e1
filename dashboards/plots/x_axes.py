"""Where the values of a trial lie over epochs, images or time instead of steps."""

from collections.abc import Callable, Mapping, Sequence

from dashboards.plots.views import Places, X, time_unit
from sweeps.records import Trial
from sweeps.store.store import Store

#: Said in place of a plot.
_NO_IMAGES = "Images are known of trials with a batch_size alone: choose steps or time."
_NO_EPOCHS = (
    "Epochs are known of trials whose length is given in epochs, or that report once an epoch: "
    "choose steps, images or time."
)


def places_of_points(
    store: Store, sweep_id: str, metric: str, x: X, steps: Mapping[int, Sequence[int]]
) -> Places | str | None:
    """Places of the curves of points; None for steps, a sentence where they are not known.

    ``steps``: point -> steps of its curve, in the order of the curves.
    """
    if x == "time":
        return _times(store.reported_at(sweep_id, metric, list(steps)), list(steps))
    if x not in ("epoch", "images"):
        return None
    found = []
    for point, reported in steps.items():
        trials = store.trials(sweep_id, point=point, limit=1).items
        found.append(_steps_per(x, trials[0], reported) if trials else None)
    return _shares(x, found)


def places_of_trial(
    store: Store,
    sweep_id: str,
    number: int,
    x: X,
    curves: Mapping[str, Sequence[tuple[int, float]]],
) -> Places | str | None:
    """Places of the curves of one trial; as ``places_of_points``."""
    if x in ("step", "log-step"):
        return None
    trial = store.trial(sweep_id, number)
    if x == "time":
        seconds = [store.reported_at_by(sweep_id, number, name) for name in curves]
        return _times(dict(enumerate(seconds)), range(len(seconds)))
    reported = [step for step, _ in next(iter(curves.values()), ())]
    return _shares(x, [_steps_per(x, trial, reported)] * len(curves))


def _times(at: Mapping[int, Mapping[int, float]], curves: Sequence[int]) -> Places:
    longest = max((max(one.values(), default=0.0) for one in at.values()), default=0.0)
    unit, size = time_unit(longest)

    def place(curve: int) -> Callable[[int], float | None]:
        known = at.get(curve, {})
        return lambda step: known[step] / size if step in known else None

    return Places(f"time since the first start ({unit})", [place(curve) for curve in curves])


def _shares(x: X, steps_per: Sequence[float | None]) -> Places | str:
    """Places of steps that each are a part of an epoch, or some images."""
    if not all(steps_per):
        return _NO_EPOCHS if x == "epoch" else _NO_IMAGES

    def place(size: float) -> Callable[[int], float | None]:
        return lambda step: step / size

    title = "epochs" if x == "epoch" else "images"
    return Places(title, [place(size) for size in steps_per if size])


def _steps_per(x: X, trial: Trial, reported: Sequence[int]) -> float | None:
    """Steps of an epoch or of an image; None where they are not known."""
    config = trial.config
    if x == "images":
        size = config.get("batch_size")
        return 1 / size if size else None
    if config.get("epochs") and trial.num_steps:
        return trial.num_steps / float(config["epochs"])
    # Unset, it means once an epoch.
    return float(reported[0]) if reported and config.get("report_every") is None else None
