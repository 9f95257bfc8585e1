"""Figures of the pages as plotly figures: the service draws them, nothing is drawn here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ndsweep.results import NothingToShow
from service.client.client import Client as Service
from service.client.client import ServiceRefused
from service.contract.outputs import SweepOut

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class Plot:
    """Where a page has a figure. ``{option}`` in the path stands for an option's value."""

    path: str
    #: Options that it needs, and those that it takes.
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


#: How curves are drawn: over what, on which axis, how much smoothed.
_VIEW = ("x", "y", "smooth")
SWEEP_PLOTS = {
    "curves": Plot("plots/curves", takes=("metric", *_VIEW)),
    "sensitivity": Plot("plots/sensitivity/{field}", needs=("field",)),
    "importance": Plot("plots/importance"),
    "variance": Plot("plots/variance"),
    "parallel": Plot("plots/parallel"),
    "contour": Plot("plots/contour", takes=("x", "y")),
    "timeline": Plot("plots/timeline"),
    "front": Plot("plots/front", takes=("x", "y")),
    "metric": Plot("trials/{trial}/plots/metric/{metric}", needs=("trial", "metric"), takes=_VIEW),
    "layers": Plot("trials/{trial}/plots/layers", needs=("trial",), takes=("quantity",)),
}
MATCH_PLOTS = {
    "curves": Plot("plots/curves"),
    "layers": Plot("plots/layers"),
}


def drawn(service: Service, sweep: SweepOut, what: str, options: Mapping[str, Any]) -> "Figure":
    """Fetch a figure; see ``Sweep.plot``."""
    plot = _plot(sweep, what, options)
    _refuse_fields(sweep, what, options)
    place = "matches" if plot in MATCH_PLOTS.values() and sweep.kind == "match" else "sweeps"
    path = f"/{place}/{sweep.id}/{plot.path.format(**_in_path(options))}"
    query = {name: value for name, value in options.items() if name in plot.takes}
    if "trial" in plot.needs:
        service.trial(sweep.id, int(options["trial"]))
    try:
        found = service.figure(path, **query)
    except ServiceRefused as error:
        if error.status != 404:
            raise
        asked = ", ".join(f"{name}={value!r}" for name, value in options.items())
        why = "; contours need two fields that vary over ranges" if what == "contour" else ""
        raise ValueError(
            f"{sweep.kind} {sweep.id} has no figure {what!r} of {asked:.200}{why}"
        ) from error
    if "data" not in found:
        raise NothingToShow(str(found.get("empty", "there is nothing to draw yet")))

    from plotly.graph_objects import Figure

    return Figure(data=found["data"], layout=found["layout"])


def _plot(sweep: SweepOut, what: str, options: Mapping[str, Any]) -> Plot:
    if sweep.kind == "match" and "trial" not in options:
        known = SWEEP_PLOTS | MATCH_PLOTS
        names = [*MATCH_PLOTS, "timeline", "metric"]
    else:
        known, names = SWEEP_PLOTS, list(SWEEP_PLOTS)
    if what not in names:
        raise ValueError(f"a {sweep.kind} has the figures {', '.join(names)}, got {what!r:.80}")
    plot = known[what]
    missing = [name for name in plot.needs if options.get(name) is None]
    if missing:
        raise ValueError(f"figure {what!r} needs {' and '.join(f'{name}=' for name in missing)}")
    extra = [name for name in options if name not in (*plot.needs, *plot.takes)]
    if extra:
        takes = ", ".join((*plot.needs, *plot.takes)) or "no options"
        raise ValueError(f"figure {what!r} takes {takes}, got {extra[0]}")
    return plot


def _refuse_fields(sweep: SweepOut, what: str, options: Mapping[str, Any]) -> None:
    """The pages' plots answer an unknown field with a page; say it in a sentence instead."""
    space = sweep.spec.get("space") or {}
    names = ("x", "y") if what == "contour" else ("field",)
    asked = [options.get(name) for name in names]
    unknown = [name for name in asked if name is not None and name not in space]
    if unknown:
        raise ValueError(
            f"sweep {sweep.id} varies {', '.join(space)}; figure {what!r} was asked for "
            f"{unknown[0]!r:.80}"
        )


def _in_path(options: Mapping[str, Any]) -> dict[str, str]:
    from urllib.parse import quote

    return {name: quote(str(value), safe="") for name, value in options.items()}
