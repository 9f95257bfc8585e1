"""Specs that train the best points of a sweep again, on seeds that had no part in choosing them.

The best of many is best partly by luck. A confirmation is a separate sweep: only the chosen points,
on fresh seeds, for unbiased means.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from sweeps.errors import SweepStateConflict
from sweeps.records import Point, Sweep, TrialState
from sweeps.spec.declarations import Declared
from sweeps.spec.domains import same
from sweeps.spec.model import SpecModel
from sweeps.spec.sweep_spec import SweepSpec
from worker.config.training import IMAGES

#: Fields of a sweep that its confirmation takes over.
_KEPT = {
    "training",
    "space",
    "metrics",
    "package",
    "parts",
    "resources",
    "concurrency",
    "limits",
    "sampler_seed",
    "comparison",
    "tags",
}
#: Largest number of points of one confirmation.
MAX_POINTS = 50


class ConfirmSpec(SpecModel):
    """Request to confirm the best points of a sweep."""

    points: Annotated[int, Field(strict=True, ge=1, le=MAX_POINTS)] = Field(
        1,
        description="How many of the best points, of each optimizer if the sweep has several; with "
        "several objectives, how many of the front.",
    )
    replicates: Annotated[int, Field(strict=True, ge=2, le=1000)] = Field(
        5, description="Fresh seeds of each point."
    )
    full_training_set: bool = Field(
        False,
        strict=True,
        description="Train on the validation images too; the objective is then the test error, "
        "read once.",
    )
    comparison: Declared | None = Field(
        None, description="How the points will be compared; none = as the sweep declared."
    )


def key_of(asked: ConfirmSpec, points: Sequence[Point]) -> str:
    """Hash that identifies a confirmation among those of a sweep."""
    text = json.dumps([asked.model_dump(mode="json"), [point.number for point in points]])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def best_points(sweep: Sweep, points: Sequence[Point], asked: ConfirmSpec) -> list[Point]:
    """Return the points to confirm, the best of each optimizer first.

    Raises SweepStateConflict for a match, for a sweep that is not finished, and for one whose
    points have no mean.
    """
    if sweep.kind != "sweep":
        raise SweepStateConflict(
            f"cannot confirm {sweep.id}: a match confirms itself, on fresh runs"
        )
    if not sweep.state.is_finished():
        raise SweepStateConflict(
            f"cannot confirm sweep {sweep.id}: it is {sweep.state.value}, and its best point may "
            "yet change"
        )
    ranked = sorted(
        (sweep.objective.sign * point.mean, point.number, point)
        for point in points
        if point.mean is not None and point.state == TrialState.COMPLETE
    )
    if not ranked:
        raise SweepStateConflict(f"cannot confirm sweep {sweep.id}: none of its points has a mean")
    if sweep.has_front:
        return _of_front(sweep, [point for _, _, point in ranked])[: asked.points]
    arms: dict[str, list[Point]] = {}
    for _, _, point in ranked:
        arms.setdefault(same(point.params.get("optimizer")), []).append(point)
    chosen = [point for arm in arms.values() for point in arm[: asked.points]]
    return chosen[:MAX_POINTS]


def _of_front(sweep: Sweep, ranked: Sequence[Point]) -> list[Point]:
    """The points of the front that the driver found, the best in the first objective first."""
    front = (sweep.result or {}).get("front")
    if front is None:
        raise SweepStateConflict(
            f"cannot confirm sweep {sweep.id}: it has several objectives, and no front was "
            "computed from its points"
        )
    on = {point["point"] for point in front["points"]}
    return [point for point in ranked if point.number in on]


def confirmation(
    sweep: Sweep, points: Sequence[Point], asked: ConfirmSpec, first_seed: int
) -> SweepSpec:
    """Build the spec that trains ``points`` on ``first_seed`` and the following seeds."""
    spec = SweepSpec.model_validate(sweep.spec)
    base = spec.base.model_dump(mode="json", exclude_unset=True)
    base["seed"] = first_seed
    objective = spec.objective.model_dump(mode="json")
    objectives = [one.model_dump(mode="json") for one in spec.objectives]
    if spec.training == IMAGES:
        base["test_evaluation"] = "end"
    if asked.full_training_set:
        if spec.training != IMAGES:
            raise SweepStateConflict(
                f"cannot confirm sweep {sweep.id} with full_training_set: only training 'images' "
                f"holds out validation images, and this one is {spec.training!r}"
            )
        base["validation_fraction"] = 0.0
        if objectives:
            raise SweepStateConflict(
                f"cannot confirm sweep {sweep.id} with full_training_set: it has several "
                "objectives, of which the test error would be one alone"
            )
        objective["metric"] = _on_test_data(objective["metric"])
    values = spec.model_dump(mode="json", include=_KEPT) | {
        "name": f"confirm {sweep.name}"[:100],
        "notes": f"Confirms {len(points)} selected of sweep {sweep.id} on fresh seeds.",
        "base": base,
        "objective": objective,
        "objectives": objectives,
        "sampler": "list",
        "initial_points": [point.params for point in points],
        "replicates": asked.replicates,
        "confirms": {"sweep": sweep.id, "points": [point.number for point in points]},
    }
    if asked.comparison is not None:
        values["comparison"] = asked.comparison.model_dump(mode="json")
    return SweepSpec.model_validate(values)


def _on_test_data(metric: str) -> str:
    """Return the metric of the test set that stands in for one of the validation set."""
    stem = metric.removeprefix("validation_")
    return "test_error" if stem == metric else f"test_{stem}"


def first_fresh_seed(sweep: Sweep, earlier: Sequence[Sweep]) -> int:
    """Return the first seed after those of the sweep and its earlier confirmations."""
    return max((one.base.get("seed") or 0) + one.replicates for one in (sweep, *earlier))
