"""Points and trials in groups by one field: a colour, and a mean of their curves, for each."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.wording.formatting import choice_word, number
from sweeps.figures.colours import GREY, OPTIMIZER_COLOURS, PALETTE, depth_colour
from sweeps.figures.quantities import Quantity, markup, quantity
from sweeps.figures.sweep import MAX_SAMPLES, is_number
from sweeps.store.queries.thinning import thin

#: More values of a field than this are taken together: as many as there are colours.
MOST_VALUES = len(PALETTE)
#: Parts of a range, each with as many members.
PARTS = 4
#: Stands for a field that a member does not use.
NO_VALUE: Any = object()


@dataclass(frozen=True)
class Group:
    """Members of like value, by their place in the list that was grouped."""

    name: str
    colour: str
    members: tuple[int, ...]


def grouped(field: str | Quantity, values: Sequence[Any]) -> list[Group]:
    """Group members by a field: numbers of a range in parts, other values each by itself.

    Args:
        field: For the names of the groups.
        values: One per member; ``NO_VALUE`` where it has none.
    """
    what = quantity(field)
    used = [at for at, value in enumerate(values) if value is not NO_VALUE]
    numbers = all(is_number(values[at]) for at in used)
    if numbers and len({values[at] for at in used}) > MOST_VALUES:
        found = _parts(used, values)
    else:
        found = _by_word(used, values)
    groups = [
        Group(_named(what, words), _colour(what.key, words, index, len(found), numbers), members)
        for index, (words, members) in enumerate(found)
    ]
    rest = tuple(at for at, value in enumerate(values) if value is NO_VALUE)
    return [*groups, Group(_named(what, "not used"), GREY, rest)] if rest else groups


def _parts(used: Sequence[int], values: Sequence[Any]) -> list[tuple[str, tuple[int, ...]]]:
    ordered = sorted(used, key=lambda at: values[at])
    ends = [round(part * len(ordered) / PARTS) for part in range(PARTS + 1)]
    pieces = [ordered[start:stop] for start, stop in itertools.pairwise(ends)]
    return [
        (f"{number(values[piece[0]], 3)} to {number(values[piece[-1]], 3)}", tuple(piece))
        for piece in pieces
        if piece
    ]


def _by_word(used: Sequence[int], values: Sequence[Any]) -> list[tuple[str, tuple[int, ...]]]:
    by_word: dict[str, list[int]] = {}
    for at in sorted(used, key=lambda at: _order(values[at])):
        by_word.setdefault(choice_word(values[at]), []).append(at)
    if len(by_word) <= MOST_VALUES:
        return [(word, tuple(members)) for word, members in by_word.items()]
    largest = sorted(by_word, key=lambda word: -len(by_word[word]))[: MOST_VALUES - 1]
    others = tuple(at for word, some in by_word.items() if word not in largest for at in some)
    named = [(word, tuple(some)) for word, some in by_word.items() if word in largest]
    return [*named, ("other values", others)]


def _order(value: Any) -> tuple[int, float, str]:
    if is_number(value):
        return 1, float(value), ""
    return (0 if value is None else 2), 0.0, choice_word(value)


def _named(what: Quantity, words: str) -> str:
    if what.key in ("optimizer", "sweep"):
        return markup(words)
    return f"{what.symbol or markup(what.name)} {markup(words)}"


def _colour(field: str, words: str, index: int, count: int, is_ordered: bool) -> str:
    if field == "optimizer" and words in OPTIMIZER_COLOURS:
        return OPTIMIZER_COLOURS[words]
    # Two ends suffice for an order; unordered values get colours that stand apart.
    return depth_colour(index, count) if is_ordered else PALETTE[index % len(PALETTE)]


def colours_by(field: str | Quantity, values: Sequence[Any]) -> list[tuple[str, str]]:
    """Name and colour of the group of each member, in the order of ``values``."""
    found: list[tuple[str, str]] = [("", GREY)] * len(values)
    for group in grouped(field, values):
        for at in group.members:
            found[at] = (group.name, group.colour)
    return found


@dataclass(frozen=True)
class MeanCurve:
    """A mean over curves at each step, with its deviation (None below two curves) and count."""

    steps: list[int]
    mean: list[float]
    sd: list[float | None]
    n: list[int]


def mean_curve(curves: Sequence[Sequence[tuple[int, float]]]) -> MeanCurve:
    """The mean of several curves over their steps, at most ``MAX_SAMPLES`` of them.

    Between its own steps a curve counts by the straight line between them; before its first and
    after its last step it does not count.
    """
    # Loaded with the first group: the service starts without it.
    import numpy as np

    steps = thin(sorted({step for curve in curves for step, _ in curve}), MAX_SAMPLES)
    rows = np.array(
        [
            np.interp(steps, [s for s, _ in one], [v for _, v in one], left=np.nan, right=np.nan)
            for one in curves
            if one
        ]
    )  # (curves, steps)
    if not rows.size:
        return MeanCurve([], [], [], [])
    known = ~np.isnan(rows)
    n = known.sum(axis=0)
    mean = np.where(known, rows, 0.0).sum(axis=0) / np.maximum(n, 1)
    off = np.where(known, rows - mean, 0.0)
    sd = np.sqrt(np.square(off).sum(axis=0) / np.maximum(n - 1, 1))
    return MeanCurve(
        list(steps),
        mean.tolist(),
        [float(one) if count > 1 else None for one, count in zip(sd, n, strict=True)],
        n.tolist(),
    )
