"""Figure 1 (a) from our runs: how SGD's weight decay balances the growth of weight vectors."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from sweeps.paper.figures import (
    LAYER,
    MIDDLE,
    MeanCurve,
    layers_of,
    mean_curve,
    part_of_run,
)
from sweeps.paper.runs import Arm, PaperRuns

#: The end of a run, without the very last steps, whose learning rate is 0.
END = (0.90, 0.99)
#: Half the distance of neighbouring float32 numbers, relative: weights round a shorter step away,
#: and what is left of it, none, would look as if the gradient had undone all of the decay.
_LOST = 2.0**-24


@dataclass(frozen=True)
class LayerBalance:
    """The projection ratio of one layer at three times of a run, mean over seeds."""

    layer: str
    start: float
    middle: float
    end: float


def balance_curve(arm: Arm, layer: str, label: str) -> MeanCurve | None:
    """A layer's projection ratio as long as its steps are more than rounding; None without one."""
    curve = mean_curve(label, arm, f"projection_ratio/{layer}")
    moved = mean_curve("", arm, f"effective_lr/{layer}")
    if curve is None or moved is None:
        return curve
    lost = {s for s, rate in zip(moved.steps, moved.mean, strict=True) if rate < _LOST}
    return curve.without(lost)


def balance_by_layer(runs: PaperRuns) -> list[LayerBalance]:
    """How decay and gradient balance, at each layer that was measured."""
    (arm,) = runs.arms("paper-fig1a")
    num_steps = arm.config["steps"]
    found = []
    for layer in layers_of(arm, "projection_ratio"):
        curve = balance_curve(arm, layer, layer)
        if curve is None or len(curve.steps) < 3:
            continue
        points = list(zip(curve.steps, curve.mean, strict=True))
        middle = part_of_run(points, num_steps, MIDDLE) or points[1:-1]
        end = part_of_run(points, num_steps, END) or points[-1:]
        found.append(
            LayerBalance(
                layer=layer,
                start=points[0][1],
                middle=statistics.fmean(value for _, value in middle),
                end=statistics.fmean(value for _, value in end),
            )
        )
    return found


def balance_note(runs: PaperRuns, found: Sequence[LayerBalance]) -> str:
    """How far the two parts cancel in the middle of the run, and what theory gives; "" unmeasured.

    Source of the plateau: independent gradients in equilibrium, where decay's part points against
    the mean of past weights and momentum carries past gradients along.
    """
    here = next((row for row in found if row.layer == LAYER), None)
    if here is None:
        return ""
    (arm,) = runs.arms("paper-fig1a")
    momentum = arm.config["momentum"]
    plateau = 2 * momentum / (1 + momentum) ** 2
    shares = [-100 * row.middle for row in found]
    return (
        f"In the middle of the run the gradient's part undoes {-100 * here.middle:.0f} % of "
        f"decay's at {LAYER}, {min(shares):.0f} to {max(shares):.0f} % over the layers; 100 % "
        f"would cancel it. Theory gives {100 * plateau:.1f} %, 2μ/(1 + μ)² for momentum "
        f"{momentum:g} and gradients that are independent from step to step: the rest of decay "
        "takes back what steps at right angles to w add to its length."
    )
