"""What a measured match found."""

from dataclasses import dataclass

from ndadam.invariance.probe import ProbeResult
from ndadam.matching.equivalents import layers_in_words, layers_without_rate
from ndadam.matching.runs import MeasuredRun
from ndadam.matching.verdict import Finding, LogRatio
from ndadam.theory.caveats import gain_in_words
from ndadam.theory.fitted_curve import Points
from ndadam.theory.laws import Level, OptimizerSetting, RateName, rate_name
from ndadam.theory.prediction import Criterion, Prediction


@dataclass(frozen=True)
class MeasuredMatch:
    """What a match found; ``str`` says it in sentences.

    Attributes:
        rate: The target's learning rate (alpha_v for ndadam), as the fresh runs used it.
        interval: Of the rate that would match exactly: 95 %, from the fresh runs. None without
            a verdict.
        verdict: "matched", "not shown" or "not matchable", with the reason.
        log_ratio: Source over target in the window; None where it could not be measured.
        predicted: From the measured source and gain A, before any run of the target.
        points: With criterion "schedule", the target's (step, factor) points.
        closed_form: From the settings alone; None where theory has no answer.
        classes: Number of weight vectors by what the loss sees of their length.
        inside: Share of the run in which the two curves are within the tolerance.
        layers: The rate that each layer alone would ask for.
        trust_until_step: From here on the closed form is not to be trusted.
        not_these_layers: Layers that the match says nothing about.
        source_runs, target_runs: Every record and final loss behind the verdict.
        steps_trained: The cost, over all runs.
    """

    source: OptimizerSetting
    target: OptimizerSetting
    criterion: Criterion
    level: Level
    tolerance: float
    window: tuple[int, int]
    rate: float
    predicted: float | None
    gain: float
    interval: tuple[float, float] | None
    verdict: Finding
    log_ratio: LogRatio | None
    inside: float | None
    points: Points | None
    closed_form: Prediction | None
    probe: ProbeResult
    layers: dict[str, float]
    source_runs: tuple[MeasuredRun, ...]
    target_runs: tuple[MeasuredRun, ...]
    steps_trained: int

    @property
    def rate_name(self) -> RateName:
        return rate_name(self.target.optimizer)

    @property
    def classes(self) -> dict[str, int]:
        return {str(name): count for name, count in self.probe.counts().items()}

    @property
    def trust_until_step(self) -> int | None:
        return self.closed_form.trust_until_step if self.closed_form else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the closed form or the answer doubtful, a sentence each."""
        found = self.closed_form.warnings if self.closed_form is not None else ()
        return (*found, *gain_in_words(self.gain))

    @property
    def not_these_layers(self) -> tuple[str, ...]:
        return layers_without_rate(self.probe)

    def __str__(self) -> str:
        found = [self.verdict.sentence]
        if self.interval is not None:
            low, high = self.interval
            found.append(
                f"{self.target.optimizer} {self.rate_name} = {self.rate:.4g} was run; what matches "
                f"lies in {low:.4g} to {high:.4g} (95 %)."
            )
        if self.trust_until_step is not None and self.interval is not None:
            found.append(f"To be trusted until step {self.trust_until_step}.")
        left_out = layers_in_words(self.not_these_layers, self.probe.limited_by_eps)
        if left_out:
            found.append(f"{left_out[0].upper()}{left_out[1:]}.")
        found += gain_in_words(self.gain)
        return " ".join(found)
