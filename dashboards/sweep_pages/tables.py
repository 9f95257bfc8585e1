"""The two long tables of a sweep's page, one page of each at a time, sorted by the store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import Query
from markupsafe import Markup, escape

from dashboards.sweep_pages.results import standing_of_best
from dashboards.sweep_pages.usage import COLUMNS as USAGE
from dashboards.sweep_pages.usage import columns_of, measured
from dashboards.web.links import Pager, TableLinks, pager, up_to_sort
from dashboards.wording.formatting import caption, number, upper_first
from dashboards.wording.sweep_facts import objective_metric
from sweeps.analysis.intervals import ends_of_mean
from sweeps.errors import InvalidFilter
from sweeps.figures.quantities import Quantity, quantity
from sweeps.records import Page, Point, Sweep, Trial, TrialState
from sweeps.store.store import Store

BOARD_ROWS = 10
TRIAL_ROWS = 25
#: Columns of sampled values that fit; all of them are on the trial's page.
BOARD_COLUMNS, TRIAL_COLUMNS = 7, 4
#: Columns that may stay at the left: more would leave no room for the others.
MOST_PINS = 3


@dataclass(frozen=True)
class Column:
    """A sampled field, or a metric, as a column."""

    what: Quantity
    is_number: bool
    #: The last value of a metric.
    is_metric: bool = False
    #: Stays at the left while the table scrolls: 1, 2, … from there; 0 = it does not.
    pin: int = 0

    @property
    def sort(self) -> str:
        """The store's key of a sort by this column."""
        return f"{'metrics' if self.is_metric else 'params'}.{self.name}"

    @property
    def classes(self) -> str:
        """Classes of its cells."""
        pinned = f"pin pin-{self.pin}" if self.pin else ""
        return " ".join(filter(None, ("num" if self.is_number else "", pinned)))

    @property
    def is_usage(self) -> bool:
        return self.name in USAGE

    @property
    def heading(self) -> str:
        return USAGE.get(self.name, self.name)

    def used(self, trial: Trial) -> str:
        """What a trial used of its machine, if that is the column."""
        return number(measured(trial.usage, self.name), 3)

    @property
    def name(self) -> str:
        """As in the configuration."""
        return self.what.key

    @property
    def about(self) -> str:
        """What its symbol stands for; "" where the heading says it."""
        return f"{self.what.name} ({self.name})" if self.what.symbol else ""


@dataclass(frozen=True)
class BoardRow:
    """A point of the leaderboard, with its 95 % interval over seeds."""

    number: int
    params: dict[str, Any]
    mean: float | None
    low: float | None
    high: float | None
    sd: float | None
    n: int
    state: str


@dataclass(frozen=True)
class Leaderboard:
    """One page of points, and the addresses that sort and turn it."""

    points: list[BoardRow]
    columns: list[Column]
    sort: str
    #: Number of the best point, and how far it is to be trusted.
    selected: int | None
    standing: str
    page_sort: str
    part_sort: str
    self_part: str
    pager: Pager


def leaderboard(store: Store, sweep: Sweep, here: str, sort: str, cursor: str) -> Leaderboard:
    """Read one page of the leaderboard; "" for ``sort`` means best first."""
    order = sort or (sweep.objective.best_first)
    found = store.points(sweep.id, sort=order, cursor=cursor or None, limit=BOARD_ROWS)
    query = {"sort": sort, "cursor": cursor}
    links = TableLinks(here, "#leaderboard-title", f"{here}/parts/leaderboard", query)
    return Leaderboard(
        points=[_row(sweep, point) for point in found.items],
        columns=_columns(sweep, found.items, BOARD_COLUMNS),
        sort=order,
        selected=(sweep.best or {}).get("point"),
        standing=standing_of_best(sweep),
        page_sort=f"{here}?sort=",
        part_sort=f"{here}/parts/leaderboard?sort=",
        self_part=links.part_with(),
        pager=pager(links, "leaderboard", cursor, found.next, f"{BOARD_ROWS} points a page"),
    )


def _row(sweep: Sweep, point: Point) -> BoardRow:
    low, high = ends_of_mean(sweep.objective.metric, point.mean, point.sd, point.n)
    return BoardRow(
        number=point.number,
        params=point.params,
        mean=point.mean,
        low=low,
        high=high,
        sd=point.sd,
        n=point.n,
        state=point.state.value,
    )


def _columns(sweep: Sweep, rows: list[Point] | list[Trial], most: int) -> list[Column]:
    domains = sweep.space
    names = list(domains) or list(dict.fromkeys(name for row in rows for name in row.params))
    return [
        Column(quantity(name, training=sweep.training), _holds_numbers(name, domains, rows))
        for name in names[:most]
    ]


def _holds_numbers(
    name: str, domains: dict[str, dict[str, Any]], rows: list[Point] | list[Trial]
) -> bool:
    """From the choices of the field's domain, or from the shown values if it has none (a match)."""
    shown = (row.params.get(name) for row in rows)
    values = domains[name].get("values", ()) if name in domains else shown
    return not any(isinstance(value, str) for value in values)


@dataclass(frozen=True)
class StateLink:
    """A filter by state, with its number of trials."""

    name: str
    count: int
    page: str
    part: str


def names_of(parts: Sequence[str]) -> list[str]:
    """Names that come one by one from a form, and separated by commas in a link."""
    return list(dict.fromkeys(name for part in parts for name in part.split(",") if name))


@dataclass(frozen=True)
class TrialTable:
    """One page of trials, and the addresses that sort, filter and turn it."""

    items: list[Trial]
    columns: list[Column]
    sort: str
    state: str
    point: int | None
    where: str
    #: Why the condition cannot be read; "" if it can.
    problem: str
    #: A condition that this sweep could be asked.
    example: str
    #: What may be a column: name, words, whether it is one, whether it is pinned.
    choices: list[tuple[str, Markup, bool, bool]]
    #: The query without the condition and the columns, for the forms that change these.
    kept: dict[str, str]
    states: list[StateLink]
    page_sort: str
    part_sort: str
    self_part: str
    pager: Pager


@dataclass(frozen=True)
class TrialQuery:
    """Query of the trial table. "" means no filter, the default order, the first page."""

    state: str = ""
    point: int | None = None
    #: A condition; see ``sweeps.store.queries.where``.
    where: str = ""
    #: Sampled fields and metrics that are columns; () = the first few sampled fields.
    columns: Annotated[Sequence[str], Query(max_length=100)] = ()
    #: Those of them that stay at the left.
    pinned: Annotated[Sequence[str], Query(max_length=100)] = ()
    trial_sort: str = ""
    trial_cursor: str = ""

    def column_names(self) -> list[str]:
        """From a form one by one, from a link separated by commas."""
        return names_of(self.columns)

    def pinned_names(self) -> list[str]:
        return names_of(self.pinned)

    def as_query(self) -> dict[str, str]:
        return {
            "state": self.state,
            "point": "" if self.point is None else str(self.point),
            "where": self.where,
            "columns": ",".join(self.column_names()),
            "pinned": ",".join(self.pinned_names()),
            "trial_sort": self.trial_sort,
            "trial_cursor": self.trial_cursor,
        }


def trial_table(store: Store, sweep: Sweep, here: str, query: TrialQuery) -> TrialTable:
    """Read one page of the sweep's trials."""
    order = query.trial_sort or "number"
    found, problem = Page[Trial]([], None), ""
    try:
        found = store.trials(
            sweep.id,
            state=query.state or None,
            point=query.point,
            where=query.where or None,
            sort=order,
            cursor=query.trial_cursor or None,
            limit=TRIAL_ROWS,
        )
    except InvalidFilter as error:
        if error.field != "where":
            raise
        problem = upper_first(str(error).removeprefix("where: "))
    metrics = [name for name in store.metric_names(sweep.id) if "/" not in name]
    columns = _chosen_columns(
        sweep, found.items, metrics, query.column_names(), query.pinned_names()
    )
    links = TableLinks(
        here, "#trials-title", f"{here}/parts/trials", query.as_query(), "trial_cursor"
    )
    fresh = {"trial_sort": None, "trial_cursor": None}
    return TrialTable(
        items=found.items,
        columns=columns,
        where=query.where,
        problem=problem,
        example=example_of(sweep),
        choices=_column_choices(sweep, metrics, columns),
        kept={k: v for k, v in query.as_query().items() if v and k != "trial_cursor"},
        sort=order,
        state=query.state,
        point=query.point,
        states=[
            StateLink(
                state.value,
                sweep.trials[state],
                links.page_with(state=state.value, **fresh),
                links.part_with(state=state.value, **fresh),
            )
            for state in TrialState
            if sweep.trials[state]
        ],
        page_sort=up_to_sort(links, links.page, "trial_sort"),
        part_sort=up_to_sort(links, links.part, "trial_sort"),
        self_part=links.part_with(),
        pager=pager(links, "trials", query.trial_cursor, found.next, f"{TRIAL_ROWS} trials a page"),
    )


def _chosen_columns(
    sweep: Sweep,
    rows: list[Trial],
    metrics: list[str],
    asked: Sequence[str],
    pinned: Sequence[str],
) -> list[Column]:
    """The columns that were asked for, pinned ones first.

    If none were: the objectives behind the first, and the first few sampled fields.
    """
    sampled = {column.name: column for column in _columns(sweep, rows, len(sweep.space) or 100)}
    metric_columns = [quantity(name, sweep.metrics, sweep.training) for name in metrics]
    known = {
        **{what.key: Column(what, True, is_metric=True) for what in metric_columns},
        **{name: Column(quantity(name), True) for name in columns_of(sweep.usage)},
        **sampled,
    }
    names = [name for name in asked if name in known]
    if not names:
        # The first objective has a place of its own.
        others = [one.metric for one in sweep.objectives[1:] if one.metric in known]
        names = [*others, *list(sampled)[:TRIAL_COLUMNS]]
    return in_order(known, names, pinned)


def in_order(
    known: Mapping[str, Column], names: Sequence[str], pinned: Sequence[str]
) -> list[Column]:
    """Columns by name: at most ``MOST_PINS`` pinned ones, then the others."""
    pins = [name for name in pinned if name in known][:MOST_PINS]
    return [
        *(replace(known[name], pin=at + 1) for at, name in enumerate(pins)),
        *(known[name] for name in names if name not in pins),
    ]


def example_of(sweep: Sweep) -> str:
    """A condition on the first field that varies over a range."""
    for name, domain in sweep.space.items():
        if domain.get("kind") in ("float", "int"):
            return f"{name} > {number(domain['low'])} and state = complete"
    return "state = complete and seed = 0"


def _column_choices(
    sweep: Sweep, metrics: list[str], columns: list[Column]
) -> list[tuple[str, Markup, bool, bool]]:
    other = [name for name in metrics if name != objective_metric(sweep)]
    words = {name: quantity(name, sweep.metrics, sweep.training) for name in other}
    words |= {name: quantity(name, training=sweep.training) for name in sweep.space}
    names = [*sweep.space, *other, *columns_of(sweep.usage)]
    return column_choices([words.get(name) or quantity(name) for name in names], columns)


def column_choices(
    known: Sequence[Quantity], columns: Sequence[Column]
) -> list[tuple[str, Markup, bool, bool]]:
    """What the menu of columns offers: name, words, whether it is shown, whether it is pinned."""
    shown = {column.name: column for column in columns}
    return [
        (
            what.key,
            escape(USAGE[what.key]) if what.key in USAGE else caption(what),
            what.key in shown,
            what.key in shown and shown[what.key].pin > 0,
        )
        for what in known
    ]
