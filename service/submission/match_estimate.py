"""What a match would do, and what the closed form says of it before anything runs."""

from dashboards.web.ports import MatchEstimate
from ndadam.theory.prediction import CRITERIA, NoStationaryRate
from sweeps.match.findings import predicted
from sweeps.match.match_spec import MatchSpec


def match_estimate(spec: MatchSpec) -> MatchEstimate:
    """Count a match's trials and steps, and predict its rate under every criterion.

    Where theory has no answer, the rates are empty and a note says why: the match measures.
    """
    least = spec.full_trials()
    corrections = spec.calibration_replicates * spec.max_corrections
    rates: list[tuple[str, float]] = []
    level: str = spec.level or "step"
    try:
        found = predicted(spec)
    except (NoStationaryRate, ValueError, ArithmeticError) as error:
        notes: tuple[str, ...] = (str(error).rstrip("."),)
    else:
        level, notes = found.level, tuple(note.rstrip(".") for note in found.warnings)
        rates = [(name, found.criteria[name].rate) for name in CRITERIA if name in found.criteria]
    return MatchEstimate(
        rate_name=spec.rate_name,
        rates=tuple(rates),
        criterion=spec.chosen_criterion(),
        level=level,
        window=spec.chosen_window(),
        least_trials=least,
        most_trials=least + corrections,
        most_steps=least * spec.num_steps
        + corrections * (spec.calibration_steps or spec.num_steps),
        notes=notes,
    )
