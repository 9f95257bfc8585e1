"""What several pages read off a sweep's record: its objective, what it varies, how far it is."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fastapi import Depends, Request
from markupsafe import Markup

from dashboards.wording.formatting import named_symbol, sampled_value
from sweeps.figures.quantities import Quantity, quantity
from sweeps.records import Sweep, TrialState
from sweeps.spec.sweep_spec import MODELS
from sweeps.store.store import Store


def _provided_store(request: Request) -> Store:
    store: Store = request.state.store
    return store


#: The store that ``pages_router`` was given.
StoreDep = Depends(_provided_store)

#: Order of the parts of a progress bar: what is decided first.
BAR_ORDER = (
    TrialState.COMPLETE,
    TrialState.PRUNED,
    TrialState.DIVERGED,
    TrialState.FAILED,
    TrialState.CANCELLED,
    TrialState.RUNNING,
    TrialState.WAITING,
)


@dataclass(frozen=True)
class Bar:
    """One state's part of the progress bar, in hundredths of its length."""

    state: str
    count: int
    start: float
    width: float


@dataclass(frozen=True)
class Progress:
    """How many trials there are in each state."""

    done: int
    #: None while a match cannot know.
    total: int | None
    bars: tuple[Bar, ...]

    @property
    def done_percent(self) -> float:
        return 100.0 * self.done / self.total if self.total else 0.0


def progress(sweep: Sweep) -> Progress:
    """Lay the sweep's counts out as a bar."""
    done = sum(sweep.trials[state] for state in TrialState if state.is_finished())
    length = max(sweep.num_trials or 0, sum(sweep.trials.values()), 1)
    bars, start = [], 0.0
    for state in BAR_ORDER:
        count = sweep.trials[state]
        if count:
            width = 100.0 * count / length
            bars.append(Bar(state.value, count, round(start, 3), round(width, 3)))
            start += width
    return Progress(done, sweep.num_trials, tuple(bars))


def address(sweep: Sweep) -> str:
    """The page of a sweep or match."""
    return f"/{'matches' if sweep.kind == 'match' else 'sweeps'}/{sweep.id}"


def objective_metric(sweep: Sweep) -> str:
    """Metric that the sweep optimises; of a match, the one its trials end with."""
    return sweep.objective.metric if sweep.kind == "sweep" else "train_loss"


def objective_quantity(sweep: Sweep) -> Quantity:
    """That metric with its words, and the unit that the sweep declares for it."""
    return quantity(objective_metric(sweep), sweep.metrics, sweep.training)


def objective_quantities(sweep: Sweep) -> list[Quantity]:
    """All of its objectives with their words; the first is ``objective_quantity``."""
    return [quantity(one.metric, sweep.metrics, sweep.training) for one in sweep.objectives]


def training_of(sweeps: Iterable[Sweep]) -> str:
    """The training that sweeps share; "" if they have several."""
    names = {one.training for one in sweeps}
    return names.pop() if len(names) == 1 else ""


def is_adaptive(sweep: Sweep) -> bool:
    """Whether the search looked at results, so that means over its points would flatter."""
    return sweep.sampler in MODELS or sweep.scheduler is not None


def settings_text(params: dict[str, Any], training: str) -> Markup:
    """``α^v = 0.05, α^s = 0.001``."""
    parts = (
        Markup('<span class="nowrap">{} = {}</span>').format(
            named_symbol(quantity(name, training=training)), sampled_value(value)
        )
        for name, value in params.items()
    )
    return Markup(", ").join(parts)


def mlflow_experiment(sweep: Sweep) -> str | None:
    """Address of the sweep in MLflow, once the mirror has created it."""
    return _web_address((sweep.mirror or {}).get("url"))


def mlflow_run(sweep: Sweep, run_id: str | None) -> str | None:
    """Address of one attempt's run in MLflow: below the experiment that the mirror names."""
    experiment = mlflow_experiment(sweep)
    if experiment is None or run_id is None:
        return None
    root = experiment.split("/runs/")[0].rstrip("/")
    _, mark, asked = experiment.partition("?")
    return f"{root}/runs/{run_id}{mark}{asked}"


def _web_address(url: Any) -> str | None:
    """Only http links: the mirror's state is data and may hold anything."""
    return url if isinstance(url, str) and url.startswith(("http://", "https://")) else None
