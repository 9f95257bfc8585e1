"""Which seed each imported trial has: that of its source, or a number for each repetition."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sweeps.batch.imports.found import FoundTrial, counted
from sweeps.records import TrialState

_MOST = 2**31


def with_seeds(
    trials: Sequence[FoundTrial], keys: Sequence[str]
) -> tuple[list[tuple[FoundTrial, int]], list[str], list[str]]:
    """Each trial with its seed, unique within its point; what there is of seeds, what is lacking.

    Args:
        trials: In the order of the source.
        keys: The point of each trial: equal for repetitions.

    Of trials with the same point and seed, the last complete one is kept.
    """
    numbers = _numbers_of([trial.seed for trial in trials])
    named: dict[tuple[str, int], FoundTrial] = {}
    for trial, key, number in zip(trials, keys, numbers, strict=True):
        if number is not None:
            place = (key, number)
            old = named.get(place)
            if old is None or _rank(trial) >= _rank(old):
                named[place] = trial
    kept = {id(trial) for trial in named.values()}
    taken = set(named)
    free: Counter[str] = Counter()
    found = []
    for trial, key, number in zip(trials, keys, numbers, strict=True):
        if number is not None:
            if id(trial) in kept:
                found.append((trial, number))
            continue
        while (key, free[key]) in taken:
            free[key] += 1
        taken.add((key, free[key]))
        found.append((trial, free[key]))
    return (found, *_words(trials, keys, found))


def _rank(trial: FoundTrial) -> int:
    return 1 if trial.state == TrialState.COMPLETE else 0


def _numbers_of(seeds: Sequence[Any]) -> list[int | None]:
    """Seeds from 0 to 2^31 - 1; if any is something else, all are numbered as they come."""
    known = [seed for seed in seeds if seed is not None]
    if all(type(seed) is int and 0 <= seed < _MOST for seed in known):
        return list(seeds)
    places = {word: n for n, word in enumerate(dict.fromkeys(map(str, known)))}
    return [None if seed is None else places[str(seed)] for seed in seeds]


def _words(
    trials: Sequence[FoundTrial], keys: Sequence[str], found: Sequence[tuple[FoundTrial, int]]
) -> tuple[list[str], list[str]]:
    """What there is of seeds, and what is lacking."""
    taken, lacks = [], []
    key_of = {id(trial): key for trial, key in zip(trials, keys, strict=True)}
    repeats = Counter(key_of[id(trial)] for trial, _ in found if trial.state == TrialState.COMPLETE)
    counts = sorted(count for count in repeats.values() if count > 1)
    if counts:
        several = counts[0] if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
        taken.append(
            f"intervals for {len(counts):,} of {counted(len(set(keys)), 'point')}, of {several} "
            "complete trials each"
        )
    else:
        lacks.append("n = 1 for every point: no intervals and no verdicts")
    without = sum(trial.seed is None for trial in trials)
    if without:
        of = "no seeds" if without == len(trials) else f"no seed of {counted(without, 'trial')}"
        lacks.append(f"{of}: repetitions of a point are numbered as they come")
    dropped = len(trials) - len(found)
    if dropped:
        lacks.append(
            f"{counted(dropped, 'trial')} with the same point and seed as another: the last "
            "complete one is kept"
        )
    return taken, lacks
