"""Fills a spec with the results of an earlier sweep, from which the sampler starts.

They are copied at submission, so later changes of the earlier sweep do not affect the proposals.
"""

from collections.abc import Sequence
from typing import Any

from sweeps.records import Point, Sweep
from sweeps.spec.checks import branch_of
from sweeps.spec.declarations import MAX_PRIOR
from sweeps.spec.domains import same
from sweeps.spec.sweep_spec import SweepSpec
from worker.config.train_config import FieldError


def with_earlier_results(spec: SweepSpec, source: Sweep, points: Sequence[Point]) -> SweepSpec:
    """Return the spec with prior results and initial points from ``source``.

    Raises FieldError if the two sweeps have different objectives, or share no point.
    """
    asked = spec.from_sweep
    assert asked is not None
    _refuse_other_objective(spec, source)
    inside = [point for point in points if point.mean is not None and _lies_in(spec, point.params)]
    if not inside:
        raise FieldError(
            "from_sweep.sweep",
            f"sweep {source.id} has no point with a mean that lies in this space; its fields are "
            f"{', '.join(source.space)}",
        )
    values = spec.model_dump(mode="json")
    values["base"] = spec.base.model_dump(mode="json", exclude_unset=True)
    if asked.results:
        room = MAX_PRIOR - len(spec.prior)
        values["prior"] += [{"params": p.params, "value": p.mean} for p in inside[:room]]
    values["initial_points"] += _best(spec, inside, asked.initial_points)
    return SweepSpec.model_validate(values)


def _refuse_other_objective(spec: SweepSpec, source: Sweep) -> None:
    mine = spec.objective.model_dump(mode="json")
    its = source.spec.get("objective")
    if source.kind != "sweep" or its != mine:
        what = "a match" if source.kind != "sweep" else f"about {its}"
        raise FieldError(
            "from_sweep.sweep",
            f"from_sweep must name a sweep with the objective {mine}, and {source.id} is {what}",
        )


def _lies_in(spec: SweepSpec, params: dict[str, Any]) -> bool:
    branch = branch_of(spec.branches(), params)
    return branch is not None and all(d.holds(params[n]) for n, d in branch.free.items())


def _best(spec: SweepSpec, points: Sequence[Point], count: int) -> list[dict[str, Any]]:
    """Return the params of the best points that are not among the spec's initial points."""
    known = {_key(params) for params in spec.initial_points}
    ranked = sorted(points, key=lambda p: (spec.objective.sign * (p.mean or 0.0), p.number))
    return [p.params for p in ranked if _key(p.params) not in known][:count]


def _key(params: dict[str, Any]) -> str:
    return repr(sorted((name, same(value)) for name, value in params.items()))
