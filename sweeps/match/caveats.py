"""What measured runs of a match give the reader reason to doubt, a sentence each."""

import math
from collections.abc import Sequence
from typing import Any

from ndadam.theory.caveats import gain_in_words
from sweeps.match.match_spec import MatchSpec
from sweeps.match.result import SourceFindings, Verdict
from sweeps.match.runs import Ending, mean_metric
from sweeps.records import Trial

#: Outside these a value is worth a sentence.
_USUAL_MEMORY = (0.9, 1.1)
#: The source's measured rate over that of its settings; networks stay within a tenth.
_USUAL_SIZE = 1.2
_SMALL_KAPPA = 0.05
_SMALL_RESIDUAL = 0.01
_ONE_RECORDED_RUN = (
    "The source is one recorded run: how its seeds differ is in no interval, and the gain A is not "
    "known before calibration."
)


def warnings(
    spec: MatchSpec,
    sources: Sequence[Trial],
    gain: float,
    ending: Ending,
    source: SourceFindings,
    probe: dict[str, Any],
    verdict: Verdict | None,
) -> list[str]:
    """Everything that the trials so far give reason to say."""
    found = _about_gradients(sources, gain)
    memory = mean_metric(sources, "gradient_memory")
    is_open = verdict is not None and verdict["state"] == "not shown"
    if is_open and memory is not None and not _USUAL_MEMORY[0] <= memory <= _USUAL_MEMORY[1]:
        found.append(
            f"Over the source's run gradients were {memory:.2f} times what the second moment "
            "remembered: ND-Adam's rate lags until they are steady. A smaller beta2 or a later "
            "window shortens the wait."
        )
    found += [*_about_classes(probe), *_about_size(spec, source)]
    if spec.source.curve is not None:
        found.append(_ONE_RECORDED_RUN)
    if ending.stopped is not None:
        found.append(
            f"There is no verdict, because {ending.stopped}: no rate here is confirmed. A retry "
            "trains it again and goes on."
        )
    if ending.uncompared is not None:
        found.append(ending.uncompared)
    return found


def _about_classes(probe: dict[str, Any]) -> list[str]:
    """Weight vectors whose length the loss sees, by layer, and those for which eps is why."""
    found = []
    kinds, limited = probe.get("layers", {}), probe.get("limited_by_eps", [])
    neither = probe.get("counts", {}).get("neither", 0)
    if neither:
        layers = [layer for layer, kind in kinds.items() if kind == "neither"]
        found.append(
            f"{neither} weight vectors are neither invariant nor jointly invariant"
            + (f", most of {', '.join(layers)}" if layers else "")
            + ": the formulas do not hold for them, and the headline leaves them out."
        )
    if limited:
        found.append(
            f"The eps of a normalisation is not small beside what it normalises after "
            f"{', '.join(limited)}: the loss sees the length of most vectors there, which the "
            "headline leaves out. A smaller bn_eps would make them invariant."
        )
    return found


def _about_size(spec: MatchSpec, source: SourceFindings) -> list[str]:
    """Where a stationary source moved at another rate than its settings give."""
    e, measured = source["effective_lr"], source["measured"]
    if spec.chosen_criterion() != "stationary" or e is None or measured is None:
        return []
    ratio = measured["value"] / e
    if abs(math.log(ratio)) <= math.log(_USUAL_SIZE):
        return []
    remedy = (
        "the match is to what was measured"
        if spec.source.curve is None
        else "look whether units and settings are those of the recording"
    )
    return [
        f"In the window the source ran at {measured['value']:.3g} per step, {ratio:.2f} times the "
        f"{e:.3g} that its settings give in equilibrium: {remedy}."
    ]


def _about_gradients(sources: Sequence[Trial], gain: float) -> list[str]:
    """What the source's measurements say about the formulas' assumptions."""
    found = []
    kappa = mean_metric(sources, "kappa")
    if kappa is not None and abs(kappa) > _SMALL_KAPPA:
        found.append(
            f"The loss is not blind to the length of the weights (kappa = {kappa:.2f}, 0 would "
            "be): e* does not hold exactly, the measured source does."
        )
    residual = mean_metric(sources, "balance_residual")
    if residual is not None and abs(residual) > _SMALL_RESIDUAL:
        found.append(
            f"The balance law is off by {100 * residual:.1f} %, which no training explains: "
            "gradients may have been clipped or scaled between backward and step."
        )
    return found + (gain_in_words(gain) if sources else [])
