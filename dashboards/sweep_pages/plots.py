"""Plots of a sweep and of a trial: read from the store, thinned to what a screen shows."""

from collections.abc import Iterator, Mapping, Sequence

from fastapi import APIRouter
from fastapi.responses import Response

from dashboards.plots.answers import NO_PLOT, Form, plot_answer
from dashboards.plots.sweep import learning_curves, sensitivity
from dashboards.plots.trial import Samples, layer_curves, metric_curves
from dashboards.plots.views import Places, Smooth, View, X, Y, noted
from dashboards.plots.x_axes import places_of_points, places_of_trial
from dashboards.sweep_pages.chosen_points import (
    NONE_FITS,
    ONLY_STEPS,
    best_points,
    coloured,
    fitting_points,
    group_curves,
    group_fields,
    point_colours,
)
from dashboards.sweep_pages.results import settings, trend
from dashboards.web.error_pages import PageRoute, error_page
from dashboards.web.point_cache import all_points
from dashboards.wording.formatting import choice_word, number, shortened
from dashboards.wording.sweep_facts import StoreDep, objective_metric, objective_quantity
from sweeps.figures.quantities import layer_order, quantity
from sweeps.figures.sweep import MAX_SAMPLES, Curve, is_log
from sweeps.records import Point, Sweep, Trial
from sweeps.spec.domains import same
from sweeps.store.queries.thinning import thin
from sweeps.store.store import Store

router = APIRouter(route_class=PageRoute, include_in_schema=False)

#: Points of the leaderboard whose curves are drawn: as many as there are colours.
CURVE_POINTS = 6

#: Fields that are always part of a curve's label.
_ALWAYS = ("optimizer", "alpha_v", "lr")

#: Plots of a trial's page: caption and metrics of each.
METRIC_PLOTS = {
    "errors": ("Errors", ("train_error", "validation_error", "test_error")),
    "train_loss": ("Training loss", ("train_loss",)),
    "alpha_v": ("Learning rate of weight vectors", ("alpha_v",)),
    "logit_rms": ("RMS of the logits", ("logit_rms",)),
    "images_per_second": ("Speed", ("images_per_second",)),
}


def curve_metrics(store: Store, sweep: Sweep) -> list[tuple[str, str]]:
    """What the learning curves can show: key and words, the objective first."""
    names = store.metric_names(sweep.id)
    objective = objective_metric(sweep)
    whole = [name for name in names if "/" not in name]
    layers = sorted(
        (name for name in names if "/" in name),
        key=lambda name: (name.split("/")[0], layer_order(name.split("/")[1])),
    )
    ordered = [objective, *(name for name in [*whole, *layers] if name != objective)]
    return [(name, quantity(name, sweep.metrics, sweep.training).name) for name in ordered]


@router.get("/sweeps/{sweep_id}/plots/curves.{form}")
def curves_plot(
    sweep_id: str,
    form: Form,
    metric: str = "",
    x: X = "step",
    y: Y = "auto",
    smooth: Smooth = "0",
    where: str = "",
    group: str = "",
    colour: str = "",
    store: Store = StoreDep,
) -> Response:
    """Learning curves of the best points, or the mean curve of each group of trials."""
    sweep = store.get_sweep(sweep_id)
    name = metric or objective_metric(sweep)
    file_name = f"{sweep_id}-{_file_part(name)}"
    fields = group_fields(sweep, all_points(store, sweep))
    fitting = fitting_points(store, sweep, where)
    places: Places | None = None
    if isinstance(fitting, str):
        return plot_answer(NO_PLOT, form, file_name=file_name, empty=fitting)
    if group in fields:
        if x not in ("step", "log-step"):
            return plot_answer(NO_PLOT, form, file_name=file_name, empty=ONLY_STEPS)
        curves = group_curves(store, sweep, name, group, fitting, where)
    else:
        best = best_points(store, sweep, fitting, CURVE_POINTS)
        curves = _best_curves(store, sweep, name, best, where, colour if colour in fields else "")
        steps = {int(c.key): c.steps for c in curves}
        found = places_of_points(store, sweep_id, name, x, steps)
        if isinstance(found, str):
            return plot_answer(NO_PLOT, form, file_name=file_name, empty=found)
        places = found
    what = quantity(name, sweep.metrics, sweep.training)
    plot = learning_curves(what, curves, View(x, y, smooth), places)
    if where.strip():
        noted(plot.figure, [f"only trials that fit: {shortened(where.strip(), 90)}"])
    empty = NONE_FITS if where.strip() else f"No trial has reported its {what.name} yet."
    return plot_answer(plot, form, file_name=file_name, empty=empty)


def _best_curves(
    store: Store, sweep: Sweep, metric: str, best: Sequence[Point], where: str, colour: str
) -> list[Curve]:
    """The curve of each of the best points, in a colour of its own or of its group by a field."""
    labels = curve_labels(best, sweep.training)
    found = store.point_curves(sweep.id, metric, list(labels), MAX_SAMPLES, where=where)
    inks: dict[int, str] = {}
    if colour and colour != "seed":
        field = quantity(colour, training=sweep.training)
        groups = point_colours(best, field)
        inks = {point.number: ink for point, (_, ink) in zip(best, groups, strict=True)}
        for point in best:
            if field.short not in labels[point.number] and colour in point.params:
                words = next(_words(point.params, [colour], sweep.training))
                labels[point.number] += f" · {words}"
    return [
        Curve(
            labels[c.point],
            c.steps,
            c.mean,
            c.sd,
            c.n,
            colour=inks.get(c.point, ""),
            key=str(c.point),
        )
        for c in found
    ]


def curve_labels(points: Sequence[Point], training: str) -> dict[int, str]:
    """``12 · ndadam · α^v 0.05``: the optimizer, its rate, and other fields that differ.

    Two fields beyond those at most; the leaderboard has the rest.
    """
    names = dict.fromkeys(name for point in points for name in point.params)
    apart = [
        name
        for name in names
        if name not in _ALWAYS and len({same(point.params.get(name)) for point in points}) > 1
    ]
    return {
        point.number: " · ".join(
            [str(point.number), *_words(point.params, [*_ALWAYS, *apart[:2]], training)]
        )
        for point in points
    }


def _words(params: Mapping[str, object], names: Sequence[str], training: str) -> Iterator[str]:
    for name in names:
        if name not in params:
            continue
        value = params[name]
        words = number(value, 3) if isinstance(value, float) else choice_word(value)
        yield words if name == "optimizer" else f"{quantity(name, training=training).short} {words}"


@router.get("/sweeps/{sweep_id}/plots/sensitivity/{param}.{form}")
def sensitivity_plot(
    sweep_id: str, param: str, form: Form, colour: str = "", store: Store = StoreDep
) -> Response:
    """The objective against one field of the space."""
    sweep = store.get_sweep(sweep_id)
    domain = sweep.space.get(param)
    if domain is None:
        return error_page(404, "Not found", f"This sweep does not vary {param[:80]!r}.")
    points = all_points(store, sweep)
    marks, colours = settings(sweep, points, param), None
    if colour in sweep.space:
        marks, colours = coloured(marks, points, quantity(colour, training=sweep.training))
    plot = sensitivity(
        quantity(param, training=sweep.training),
        objective_quantity(sweep),
        marks,
        trend(sweep, points, param),
        log=is_log(domain),
        selected=(sweep.best or {}).get("point"),
        colours=colours,
    )
    return plot_answer(
        plot,
        form,
        file_name=f"{sweep_id}-sensitivity-{_file_part(param)}",
        empty="No point that sets this field has finished yet.",
    )


@router.get("/sweeps/{sweep_id}/trials/{number}/plots/metric/{name}.{form}")
def metric_plot(
    sweep_id: str,
    number: int,
    name: str,
    form: Form,
    x: X = "step",
    y: Y = "auto",
    smooth: Smooth = "0",
    store: Store = StoreDep,
) -> Response:
    """One or more metrics of a trial on one axis."""
    sweep = store.get_sweep(sweep_id)
    caption, names = METRIC_PLOTS.get(name, (name, (name,)))
    found = store.metrics(sweep_id, number, names=names, max_points=MAX_SAMPLES)
    ordered: dict[str, Samples] = {key: found[key] for key in names if key in found}
    places = places_of_trial(store, sweep_id, number, x, ordered)
    if isinstance(places, str):
        return plot_answer(NO_PLOT, form, file_name=f"{sweep_id}-{number}", empty=places)
    return plot_answer(
        metric_curves(
            next(iter(ordered), names[0]),
            ordered,
            View(x, y, smooth),
            places,
            sweep.metrics,
            sweep.training,
        ),
        form,
        file_name=f"{sweep_id}-{number}-{_file_part(name)}",
        empty=f"{caption}: nothing was reported.",
    )


@router.get("/sweeps/{sweep_id}/trials/{number}/plots/layers.{form}")
def layers_plot(
    sweep_id: str,
    number: int,
    form: Form,
    quantity: str = "effective_lr",
    axes: str = "",
    store: Store = StoreDep,
) -> Response:
    """One quantity of every layer of a trial."""
    trial = store.trial(sweep_id, number)
    layers = layer_samples(store, trial, quantity)
    return plot_answer(
        layer_curves(quantity, layers, axes),
        form,
        file_name=f"{sweep_id}-{number}-{_file_part(quantity)}",
        empty="This quantity was not reported.",
    )


def layer_samples(store: Store, trial: Trial, stem: str) -> Mapping[str, Samples]:
    """A quantity of each layer: reported metrics, or else the per-step records of a measurement."""
    names = [name for name in trial.metrics if name.startswith(f"{stem}/")]
    if names:
        found = store.metrics(trial.sweep_id, trial.number, names=names, max_points=MAX_SAMPLES)
        return {name.partition("/")[2]: curve for name, curve in found.items()}
    recorded = [n for n in store.series_names(trial.sweep_id) if n.startswith(f"{stem}/")]
    return {
        name.partition("/")[2]: thin(curve, MAX_SAMPLES)
        for name in recorded
        if (curve := store.recorded_curve(trial.sweep_id, trial.number, name))
    }


def _file_part(name: str) -> str:
    """A metric's name as part of a file name."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in name)[:60]
