"""Trials of several sweeps in one table and one plot; fields of the same name are one field."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from dashboards.plots.answers import NO_PLOT, Form, plot_answer
from dashboards.plots.groups import NO_VALUE, colours_by, grouped, mean_curve
from dashboards.plots.sweep import learning_curves
from dashboards.plots.views import SMOOTH_CHOICES, X_CHOICES, Y_CHOICES, Smooth, View, X, Y, noted
from dashboards.sweep_pages.chosen_points import (
    MOST_TRIALS,
    NONE_FITS,
    ONLY_STEPS,
    best_points,
    fitting_points,
    trials_curve,
)
from dashboards.sweep_pages.plots import curve_labels
from dashboards.sweep_pages.tables import (
    TRIAL_ROWS,
    Column,
    column_choices,
    example_of,
    in_order,
    names_of,
)
from dashboards.web.error_pages import PageRoute
from dashboards.web.links import Pager, TableLinks, pager, up_to_sort
from dashboards.web.point_cache import all_points
from dashboards.web.templating import page
from dashboards.wording.formatting import shortened, upper_first
from dashboards.wording.sweep_facts import (
    StoreDep,
    objective_metric,
    objective_quantity,
    training_of,
)
from sweeps.errors import InvalidFilter
from sweeps.figures.quantities import Quantity, markup, quantity
from sweeps.figures.sweep import MAX_SAMPLES, Curve
from sweeps.records import Page, Sweep, Trial
from sweeps.store.queries.across import MOST_SWEEPS
from sweeps.store.queries.thinning import thin
from sweeps.store.store import Store

router = APIRouter(route_class=PageRoute, include_in_schema=False)

HERE = "/trials"
#: Curves that a reader can tell apart, of all sweeps together.
MOST_CURVES = 12
#: Columns of fields, if the reader chose none.
FIRST_COLUMNS = 6

Names = Annotated[Sequence[str], Query(max_length=100)]


@dataclass
class AcrossQuery:
    """Query of the page. "" means no filter, the order of the sweeps, the first page."""

    sweep: Names = ()
    #: What the list of sweeps ticks.
    arm: Names = ()
    where: str = ""
    columns: Names = ()
    pinned: Names = ()
    trial_sort: str = ""
    trial_cursor: str = ""

    def ids(self) -> list[str]:
        return names_of([*self.sweep, *self.arm])[:MOST_SWEEPS]

    def as_query(self) -> dict[str, str]:
        return {
            "sweep": ",".join(self.ids()),
            "where": self.where,
            "columns": ",".join(names_of(self.columns)),
            "pinned": ",".join(names_of(self.pinned)),
            "trial_sort": self.trial_sort,
            "trial_cursor": self.trial_cursor,
        }


@dataclass(frozen=True)
class Sweeps:
    """Several sweeps and what they have in common."""

    items: list[Sweep]
    #: Id -> a name that no other of them has.
    names: dict[str, str]
    #: Fields that one of them varies, or that they fix at different values.
    fields: list[str]
    #: Metrics that one of them has reported.
    metrics: list[str]
    #: Metrics that they declare alike.
    declared: dict[str, dict[str, Any]]

    @property
    def training(self) -> str:
        """What all of them train; "" if they train several things, whose fields have no words."""
        return training_of(self.items)

    def field(self, name: str) -> Quantity:
        """A field of their configs with its words."""
        return quantity(name, training=self.training)

    @property
    def ids(self) -> list[str]:
        return [sweep.id for sweep in self.items]

    def quantity(self, name: str) -> Quantity:
        return quantity(name, self.declared, self.training)

    def value(self, trial_sweep: str, params: Mapping[str, Any], field: str) -> Any:
        """A field's value in a trial: sampled, or what its sweep fixes; NO_VALUE for neither."""
        if field == "sweep":
            return self.names[trial_sweep]
        if field in params:
            return params[field]
        base = next(sweep.base for sweep in self.items if sweep.id == trial_sweep)
        return base.get(field, NO_VALUE)


def read_sweeps(store: Store, ids: Sequence[str]) -> Sweeps:
    """Read the sweeps. Raises SweepNotFound."""
    items = [store.get_sweep(one) for one in ids]
    twice = Counter(sweep.name for sweep in items)
    names = {s.id: s.name if twice[s.name] == 1 else f"{s.name} ({s.id})" for s in items}
    varied = dict.fromkeys(field for sweep in items for field in sweep.space)
    bases = dict.fromkeys(field for sweep in items for field in sweep.base)
    apart = [
        field
        for field in bases
        if field not in varied and len({repr(s.base.get(field, NO_VALUE)) for s in items}) > 1
    ]
    metrics = dict.fromkeys(
        name for one in ids for name in store.metric_names(one) if "/" not in name
    )
    return Sweeps(items, names, [*varied, *apart], list(metrics), _declared(items))


def _declared(items: Sequence[Sweep]) -> dict[str, dict[str, Any]]:
    """Metrics that the sweeps declare; without those of which units differ."""
    found: dict[str, dict[str, Any]] = {}
    unlike = set()
    for sweep in items:
        for name, about in sweep.metrics.items():
            if found.setdefault(name, about).get("unit") != about.get("unit"):
                unlike.add(name)
    return {name: about for name, about in found.items() if name not in unlike}


@dataclass(frozen=True)
class AcrossTable:
    """One page of trials of several sweeps, and the addresses that sort, filter and turn it."""

    items: list[Trial]
    columns: list[Column]
    sort: str
    where: str
    #: Why the condition cannot be read; "" if it can.
    problem: str
    example: str
    choices: list[Any]
    kept: dict[str, str]
    page_sort: str
    part_sort: str
    self_part: str
    pager: Pager


def across_table(store: Store, sweeps: Sweeps, query: AcrossQuery) -> AcrossTable:
    """Read one page of the trials of all sweeps."""
    order = query.trial_sort or "sweep"
    found, problem = Page[Trial]([], None), ""
    try:
        found = store.trials_across(
            sweeps.ids,
            where=query.where or None,
            sort=order,
            cursor=query.trial_cursor or None,
            limit=TRIAL_ROWS,
        )
    except InvalidFilter as error:
        if error.field != "where":
            raise
        problem = upper_first(str(error).removeprefix("where: "))
    known = {name: Column(sweeps.quantity(name), True, is_metric=True) for name in sweeps.metrics}
    for field in sweeps.fields:
        shown = [sweeps.value(t.sweep_id, t.params, field) for t in found.items]
        known[field] = Column(
            sweeps.field(field), not any(isinstance(value, str) for value in shown)
        )
    asked = [name for name in names_of(query.columns) if name in known]
    columns = in_order(known, asked or sweeps.fields[:FIRST_COLUMNS], names_of(query.pinned))
    values = query.as_query()
    links = TableLinks(HERE, "#trials-title", f"{HERE}/parts/trials", values, "trial_cursor")
    return AcrossTable(
        items=found.items,
        columns=columns,
        sort=order,
        where=query.where,
        problem=problem,
        example=example_of(sweeps.items[0]),
        choices=column_choices(
            [*map(sweeps.field, sweeps.fields), *map(sweeps.quantity, sweeps.metrics)], columns
        ),
        kept={key: value for key, value in values.items() if value and key != "trial_cursor"},
        page_sort=up_to_sort(links, links.page, "trial_sort"),
        part_sort=up_to_sort(links, links.part, "trial_sort"),
        self_part=links.part_with(),
        pager=pager(links, "trials", query.trial_cursor, found.next, f"{TRIAL_ROWS} trials a page"),
    )


def _values(store: Store, sweeps: Sweeps, query: AcrossQuery) -> dict[str, Any]:
    """What ``sweep/across_trials.html`` shows."""
    objectives = {objective_metric(sweep) for sweep in sweeps.items}
    return {
        "here": HERE,
        "sweeps": sweeps,
        "trials": across_table(store, sweeps, query),
        "objectives": {sweep.id: objective_quantity(sweep) for sweep in sweeps.items},
        "one_objective": len(objectives) == 1,
        "no_value": NO_VALUE,
    }


@router.get(HERE)
def across_page(
    request: Request, query: AcrossQuery = Depends(), metric: str = "", store: Store = StoreDep
) -> HTMLResponse:
    """Trials of several sweeps: curves and a table."""
    ids = query.ids()
    values: dict[str, Any] = {
        "title": "Trials of several sweeps",
        "section": "compare",
        "ids": ids,
        "known": store.list_sweeps(kind="sweep", limit=50).items,
        "views": dict(request.query_params),
    }
    if not ids:
        return page("across.html", **values)
    sweeps = read_sweeps(store, ids)
    fields = [("sweep", "sweep"), *((name, sweeps.field(name).name) for name in sweeps.fields)]
    return page(
        "across.html",
        **values,
        **_values(store, sweeps, query),
        chips=[(s, ",".join(one for one in ids if one != s.id)) for s in sweeps.items],
        query={"sweep": ",".join(ids), **({"where": query.where} if query.where else {})},
        metrics=[(name, sweeps.quantity(name).name) for name in sweeps.metrics],
        metric=metric or objective_metric(sweeps.items[0]),
        curve_views=(
            ("x", "over", X_CHOICES[:2]),
            ("y", "y axis", Y_CHOICES),
            ("smooth", "smoothing", SMOOTH_CHOICES),
            ("group", "grouped by", (("", "nothing"), *fields, ("seed", "seed"))),
            ("colour", "coloured by", fields),
        ),
        saved=store.saved_views(None),
        saved_query=request.url.query,
    )


@router.get(f"{HERE}/parts/trials")
def across_part(query: AcrossQuery = Depends(), store: Store = StoreDep) -> HTMLResponse:
    """One page of the table; nothing while no sweep is named."""
    if not (ids := query.ids()):
        return HTMLResponse("")
    return page("sweep/across_trials.html", **_values(store, read_sweeps(store, ids), query))


@router.get(f"{HERE}/parts/views")
def across_views_part(store: Store = StoreDep) -> HTMLResponse:
    """The saved views of this page."""
    return page("shared/view_list.html", saved=store.saved_views(None), saved_of="", saved_query="")


@router.get(f"{HERE}/views/{{name}}")
def across_view(name: str, store: Store = StoreDep) -> Response:
    """Redirect to a saved view."""
    return RedirectResponse(f"{HERE}?{store.saved_view(None, name).query}", status_code=307)


@router.get(f"{HERE}/plots/curves.{{form}}")
def across_curves(
    form: Form,
    query: AcrossQuery = Depends(),
    metric: str = "",
    x: X = "step",
    y: Y = "auto",
    smooth: Smooth = "0",
    group: str = "",
    colour: str = "sweep",
    store: Store = StoreDep,
) -> Response:
    """Curves of the best points of each sweep, or the mean curve of each group of trials."""
    sweeps = read_sweeps(store, query.ids())
    where = query.where.strip()
    name = metric or objective_metric(sweeps.items[0])
    what = sweeps.quantity(name)
    empty = NONE_FITS if where else f"No trial has reported its {what.name} yet."
    if x not in ("step", "log-step"):
        return plot_answer(NO_PLOT, form, file_name="trials-curves", empty=ONLY_STEPS)
    fitting: dict[str, set[int] | None] = {}
    for sweep in sweeps.items:
        found = fitting_points(store, sweep, where, sweeps.ids)
        if isinstance(found, str):
            return plot_answer(NO_PLOT, form, file_name="trials-curves", empty=found)
        fitting[sweep.id] = found
    known = {"sweep", "seed", *sweeps.fields}
    if group in known:
        curves = _group_curves(store, sweeps, name, group, fitting, where)
    else:
        by = colour if colour in known else "sweep"
        curves = _best_curves(store, sweeps, name, by, fitting, where)
    plot = learning_curves(what, [c for c in curves if c.steps], View(x, y, smooth))
    if where:
        noted(plot.figure, [f"only trials that fit: {shortened(where, 90)}"])
    return plot_answer(plot, form, file_name="trials-curves", empty=empty)


def _best_curves(
    store: Store,
    sweeps: Sweeps,
    metric: str,
    colour: str,
    fitting: Mapping[str, set[int] | None],
    where: str,
) -> list[Curve]:
    """Curves of the best points of each sweep, as many of each, coloured by a field."""
    most = max(MOST_CURVES // len(sweeps.items), 1)
    found: list[tuple[Curve, Any]] = []
    for sweep in sweeps.items:
        best = {p.number: p for p in best_points(store, sweep, fitting[sweep.id], most)}
        labels = curve_labels(list(best.values()), sweep.training)
        for c in store.point_curves(
            sweep.id, metric, list(best), MAX_SAMPLES, where=where, among=sweeps.ids
        ):
            label = f"{markup(shortened(sweeps.names[sweep.id], 28))} · {labels[c.point]}"
            value = sweeps.value(sweep.id, best[c.point].params, colour)
            key = f"{sweep.id}:{c.point}"
            found.append((Curve(label, c.steps, c.mean, c.sd, c.n, key=key), value))
    inks = colours_by(sweeps.field(colour), [value for _, value in found])
    return [replace(curve, colour=ink) for (curve, _), (_, ink) in zip(found, inks, strict=True)]


def _group_curves(
    store: Store,
    sweeps: Sweeps,
    metric: str,
    field: str,
    fitting: Mapping[str, set[int] | None],
    where: str,
) -> list[Curve]:
    """One curve for each group of trials of all sweeps: their mean and deviation."""
    found, values, is_part = [], [], False
    for sweep in sweeps.items:
        mine = fitting[sweep.id]
        points = [p for p in all_points(store, sweep) if mine is None or p.number in mine]
        most = MOST_TRIALS // (len(sweeps.items) * max(sweep.replicates, 1))
        chosen = {p.number: p.params for p in thin(points, max(most, 1))}
        is_part |= len(chosen) < len(points)
        for one in store.seed_curves(sweep.id, metric, list(chosen), where=where, among=sweeps.ids):
            found.append(one.curves[metric])
            value = sweeps.value(sweep.id, chosen[one.point], field)
            values.append(one.seed if field == "seed" else value)
    curves = []
    for group in grouped(sweeps.field(field), values):
        mean = mean_curve([found[at] for at in group.members])
        part = ", of an even part of the points" if is_part else ""
        label = f"{group.name} ({len(group.members)} trials{part})"
        curves.append(trials_curve(mean, label, group.colour))
    return curves
