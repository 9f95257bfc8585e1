"""Results as pandas data frames: typed columns, with their units in ``frame.attrs["units"]``.

States are categories, times are UTC, whole numbers that may be missing are ``Int64``. Errors of
classification are fractions from 0 to 1, as everywhere in the API. ``attrs["units"]`` has a word
for each column that has a unit; columns without one are pure numbers or names.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from service.contract.analysis import FrontOut
from service.contract.outputs import MachineUseOut, PointOut, SweepOut, TrialCurvesOut, TrialOut
from sweeps.figures.quantities import layer_order, quantity
from sweeps.records import SweepState, TrialState, objective_of
from worker.config.training import IMAGES

if TYPE_CHECKING:
    import pandas

#: Units of columns that every sweep has.
_UNITS = {
    "step": "steps",
    "num_steps": "steps",
    "diverged_at_step": "steps",
    "created_at": "UTC",
    "started_at": "UTC",
    "finished_at": "UTC",
    "usage.cpu_hours": "hours",
    "usage.gpu_hours": "hours",
    "usage.gpu_utilization_percentage": "%",
    "usage.energy_watt_hours": "Wh",
    "usage.memory_megabytes": "MB",
    "usage.gpu_memory_megabytes": "MB",
}
FRACTION = "fraction (0 to 1)"


def unit_of_metric(spec: Mapping[str, Any], name: str) -> str:
    """The unit in which a metric is stored; "" for a pure number or one that is not known."""
    what = quantity(name, spec.get("metrics"), spec.get("training") or IMAGES)
    return FRACTION if what.is_fraction else what.unit


def unit_of_field(spec: Mapping[str, Any], name: str) -> str:
    """The unit of a field of the built-in training's config; "" for those of other trainings."""
    return quantity(name).unit if spec.get("training", IMAGES) == IMAGES else ""


def trial_frame(
    spec: Mapping[str, Any], trials: Iterable[TrialOut], *, with_config: bool = False
) -> "pandas.DataFrame":
    """A row for each trial, by number; see ``Sweep.trials``."""
    found = list(trials)
    columns: dict[str, Any] = {
        "trial": whole([trial.number for trial in found]),
        "point": whole([trial.point for trial in found]),
        "seed": whole([trial.seed for trial in found]),
        "state": states([trial.state for trial in found], TrialState),
        "objective": numbers([trial.objective for trial in found]),
        "step": whole([trial.step for trial in found]),
        "num_steps": whole([trial.num_steps for trial in found], may_lack=True),
        "diverged_at_step": whole([trial.diverged_at_step for trial in found], may_lack=True),
        "exit_cause": words([trial.exit_cause for trial in found]),
        "created_at": times([trial.created_at for trial in found]),
        "started_at": times([trial.started_at for trial in found]),
        "finished_at": times([trial.finished_at for trial in found]),
    }
    if any(trial.role for trial in found):
        columns["role"] = words([trial.role for trial in found])
    columns |= _named("params", [trial.params for trial in found], spec.get("space") or {})
    if with_config:
        columns |= _named("config", [trial.config for trial in found])
    # What was not measured of any trial is no column.
    used = [{name: value for name, value in trial.usage if value is not None} for trial in found]
    columns |= _named("usage", used, MachineUseOut.model_fields)
    columns |= _named("metrics", [trial.metrics for trial in found])
    return _frame(columns, _units(spec, columns))


def point_frame(
    spec: Mapping[str, Any], points: Iterable[PointOut], best: int | None
) -> "pandas.DataFrame":
    """A row for each point, by number; see ``Sweep.points``."""
    found = list(points)
    columns: dict[str, Any] = {
        "point": whole([point.number for point in found]),
        "state": states([point.state for point in found], TrialState),
        "mean": numbers([point.mean for point in found]),
        "sd": numbers([point.sd for point in found]),
        "low": numbers([point.low for point in found]),
        "high": numbers([point.high for point in found]),
        "n": whole([point.n for point in found]),
        "selected": typed([point.number == best for point in found]),
    }
    columns |= _named("params", [point.params for point in found], spec.get("space") or {})
    unit = unit_of_metric(spec, objective_of(spec).metric)
    of_mean = dict.fromkeys(("mean", "sd", "low", "high"), unit) if unit else {}
    return _frame(columns, of_mean | _units(spec, columns))


def front_frame(spec: Mapping[str, Any], front: FrontOut) -> "pandas.DataFrame":
    """A row for each point of the front; see ``Sweep.front``."""
    names = [one.metric for one in front.objectives]
    columns: dict[str, Any] = {
        "point": whole([point.point for point in front.points]),
        "n": whole([point.values[names[0]].n for point in front.points]),
    }
    units: dict[str, Any] = {}
    for name in names:
        unit = unit_of_metric(spec, name)
        for part in ("mean", "sd", "low", "high"):
            column = f"{name}.{part}"
            columns[column] = numbers([getattr(p.values[name], part) for p in front.points])
            units |= {column: unit} if unit else {}
    columns["is_distinct"] = typed([point.is_distinct for point in front.points])
    columns |= _named("params", [point.params for point in front.points], spec.get("space") or {})
    frame = _frame(columns, units | _units(spec, columns))
    for key in ("hypervolume", "reference", "num_points", "num_reaching", "notes"):
        frame.attrs[key] = getattr(front, key)
    return frame


def curve_frame(spec: Mapping[str, Any], trials: Iterable[TrialCurvesOut]) -> "pandas.DataFrame":
    """A row for each reported value; see ``Sweep.curves``."""
    columns, names = _long(trials)
    columns["metric"] = columns.pop("name")
    units = {name: unit for name in names if (unit := unit_of_metric(spec, name))}
    order = ("trial", "point", "seed", "metric", "step", "value")
    return _frame({name: columns[name] for name in order}, {"step": "steps", "value": units})


def dynamics_frame(spec: Mapping[str, Any], trials: Iterable[TrialCurvesOut]) -> "pandas.DataFrame":
    """A row for each value of each layer; see ``Sweep.dynamics``."""
    import pandas

    columns, names = _long(trials)
    of_name = columns.pop("name")
    parts = [name.partition("/") for name in of_name.categories]
    layers = sorted({layer for _, _, layer in parts}, key=layer_order)
    columns["quantity"] = of_name.map({n: n.partition("/")[0] for n in names}, na_action=None)
    columns["layer"] = of_name.map({n: n.partition("/")[2] for n in names}, na_action=None)
    kinds = list(dict.fromkeys(stem for stem, _, _ in parts))
    columns["quantity"] = pandas.Categorical(columns["quantity"], categories=kinds)
    columns["layer"] = pandas.Categorical(columns["layer"], categories=layers, ordered=True)
    units = {kind: unit for kind in kinds if (unit := unit_of_metric(spec, kind))}
    order = ("trial", "point", "seed", "quantity", "layer", "step", "value")
    return _frame({name: columns[name] for name in order}, {"step": "steps", "value": units})


def sweep_frame(sweeps: Iterable[SweepOut]) -> "pandas.DataFrame":
    """A row for each sweep or match; see ``Client.sweeps``."""
    found = list(sweeps)
    columns = {
        "id": words([sweep.id for sweep in found]),
        "kind": words([sweep.kind for sweep in found]),
        "name": words([sweep.name for sweep in found]),
        "state": states([sweep.state for sweep in found], SweepState),
        "trials": whole([sweep.num_trials for sweep in found], may_lack=True),
        "complete": whole([sweep.trials[TrialState.COMPLETE] for sweep in found]),
        "metric": words([objective_of(s.spec).metric if s.best else None for s in found]),
        "best": numbers([sweep.best.mean if sweep.best else None for sweep in found]),
        "tags": typed([list(sweep.tags) for sweep in found]),
        "created_at": times([sweep.created_at for sweep in found]),
        "finished_at": times([sweep.finished_at for sweep in found]),
    }
    return _frame(columns, {"created_at": "UTC", "finished_at": "UTC"})


def row_frame(
    rows: Sequence[Mapping[str, Any]], units: Mapping[str, Any], columns: Iterable[str] = ()
) -> "pandas.DataFrame":
    """Flat rows as a frame, each column of the type that its values have.

    ``columns``: those of a frame without rows.
    """
    names = dict.fromkeys(name for row in rows for name in row) or dict.fromkeys(columns)
    typed_columns = {name: typed([row.get(name) for row in rows]) for name in names}
    return _frame(typed_columns, {name: unit for name, unit in units.items() if name in names})


def _frame(columns: Mapping[str, Any], units: Mapping[str, Any]) -> "pandas.DataFrame":
    import pandas

    frame = pandas.DataFrame(dict(columns))
    frame.attrs["units"] = dict(units)
    return frame


def _named(
    group: str, rows: Sequence[Mapping[str, Any]], first: Iterable[str] = ()
) -> dict[str, Any]:
    """Columns ``GROUP.NAME`` of all names that any row has, those of ``first`` in its order."""
    names = dict.fromkeys(name for row in rows for name in row)
    ordered = [name for name in first if name in names]
    ordered += [name for name in names if name not in set(ordered)]
    return {f"{group}.{name}": typed([row.get(name) for row in rows]) for name in ordered}


def _units(spec: Mapping[str, Any], columns: Iterable[str]) -> dict[str, str]:
    """Column -> unit, for all that have one."""
    found = {}
    for column in columns:
        group, _, name = column.partition(".")
        if group in ("metrics", "params", "config") and name:
            unit = (unit_of_metric if group == "metrics" else unit_of_field)(spec, name)
        elif column == "objective":
            unit = unit_of_metric(spec, objective_of(spec).metric)
        else:
            unit = _UNITS.get(column, "")
        if unit:
            found[column] = unit
    return found


def _long(trials: Iterable[TrialCurvesOut]) -> tuple[dict[str, Any], list[str]]:
    """Columns trial, point, seed, name, step, value of all curves one below the other."""
    import numpy as np
    import pandas

    keys: list[tuple[int, int, int, int]] = []
    codes: dict[str, int] = {}
    steps, values = [np.empty(0, np.int64)], [np.empty(0, np.float64)]
    for trial in trials:
        for name, curve in trial.curves.items():
            code = codes.setdefault(name, len(codes))
            keys.append((trial.number, trial.point, trial.seed, code))
            steps.append(np.asarray(curve.steps, np.int64))
            values.append(np.asarray(curve.values, np.float64))
    lengths = [len(piece) for piece in steps[1:]]
    of_curve = np.asarray(keys, np.int64).reshape(-1, 4)
    number, point, seed, code = np.repeat(of_curve, lengths, axis=0).T
    columns = {
        "trial": number.copy(),
        "point": point.copy(),
        "seed": seed.copy(),
        "name": pandas.Categorical.from_codes(code, categories=list(codes)),
        "step": np.concatenate(steps),
        "value": np.concatenate(values),
    }
    return columns, list(codes)


# --- Columns -------------------------------------------------------------------------------------


def whole(values: Sequence[int | None], *, may_lack: bool = False) -> Any:
    """Whole numbers: ``int64``, or ``Int64`` where some may be missing."""
    import pandas

    return pandas.array(list(values), dtype="Int64" if may_lack else "int64")


def numbers(values: Sequence[float | None]) -> Any:
    """Numbers as ``float64``; NaN where there is none."""
    import pandas

    return pandas.array([float("nan") if v is None else v for v in values], dtype="float64")


def words(values: Sequence[str | None]) -> Any:
    """Text."""
    import pandas

    return pandas.array(list(values), dtype="str")


def times(values: Sequence[Any]) -> Any:
    """Moments in UTC; NaT where there is none."""
    import pandas

    return pandas.to_datetime(pandas.Series(list(values), dtype="object"), utc=True).dt.as_unit(
        "us"
    )


def states(values: Sequence[Any], kinds: type[SweepState] | type[TrialState]) -> Any:
    """States as a categorical column that knows all of them."""
    import pandas

    return pandas.Categorical([str(v) for v in values], categories=[str(kind) for kind in kinds])


def typed(values: Sequence[Any]) -> Any:
    """A column of the narrowest type that all values have: bool, whole, number, text or object."""
    import pandas

    known = [value for value in values if value is not None]
    kinds = {type(value) for value in known}
    lacks = len(known) < len(values)
    if kinds == {bool}:
        return pandas.array(list(values), dtype="boolean" if lacks else "bool")
    if kinds == {int} and all(-(2**63) <= value < 2**63 for value in known):
        return whole(values, may_lack=lacks)
    if kinds <= {int, float} and len(values):
        return numbers(values)
    if kinds == {str}:
        return words(values)
    return pandas.Series(list(values), dtype="object")
