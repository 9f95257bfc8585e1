"""Intervals of means over seeds: of an error on the logit scale, of any other metric as it is."""

from collections.abc import Sequence

from ndadam.statistics.inference import (
    MeanInterval,
    fraction_ends,
    fraction_interval,
    mean_interval,
)
from ndadam.statistics.student_t import t_quantile
from sweeps.analysis.formatting import is_error


def mean_over_seeds(metric: str, values: Sequence[float]) -> MeanInterval:
    """The mean of a metric's values, one per seed, with its 95 % interval."""
    return fraction_interval(values) if _is_fraction(metric, values) else mean_interval(values)


def ends_of_mean(
    metric: str, mean: float | None, sd: float | None, n: int
) -> tuple[float, float] | tuple[None, None]:
    """Ends of the same interval, from mean, standard deviation and number of the values.

    (None, None) where a single value, or none, has no spread.
    """
    if mean is None or sd is None or n < 2:
        return None, None
    if _is_fraction(metric, [mean]):
        return fraction_ends(mean, sd, n)
    half = t_quantile(0.975, n - 1) * sd / n**0.5
    return mean - half, mean + half


def _is_fraction(metric: str, values: Sequence[float]) -> bool:
    """Whether the metric is an error, and no other number that is only called one."""
    return is_error(metric) and all(0 <= value <= 1 for value in values)
