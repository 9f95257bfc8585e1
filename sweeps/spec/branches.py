"""Branches of a conditional space; within a branch no field has a condition.

A field splits the space if another field's ``when`` names it. ``optimizer`` always splits it,
because optimizers are compared at equal budgets. A branch is one possible assignment of all
splitting fields; within it every other active field varies independently.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sweeps.spec.domains import Domain, same


@dataclass(frozen=True)
class Branch:
    """One assignment of the splitting fields, and the domains of the fields free within it."""

    number: int
    fixed: dict[str, Any]
    free: dict[str, Domain]

    def holds(self, params: Mapping[str, Any]) -> bool:
        """Whether params belong to this branch."""
        return params.keys() == self.fixed.keys() | self.free.keys() and all(
            same(params[name]) == same(value) for name, value in self.fixed.items()
        )


def branches(space: Mapping[str, Domain]) -> list[Branch]:
    """Cut a space into its branches, in the order of its choices."""
    splitting = {name for domain in space.values() for name in domain.when or {}}
    splitting |= {"optimizer"} & {n for n, domain in space.items() if domain.kind == "choice"}
    found: list[Branch] = []
    for fixed in _assignments(space, [name for name in space if name in splitting], {}):
        free = {
            name: domain
            for name, domain in space.items()
            if name not in splitting and _is_active(domain, fixed)
        }
        found.append(Branch(len(found), fixed, free))
    return found


def grid_size(branch: Branch) -> int | None:
    """Number of points of the branch's grid; None if a field is continuous."""
    sizes = [domain.size() for domain in branch.free.values()]
    return None if None in sizes else math.prod(size for size in sizes if size is not None)


def grid(branch: Branch) -> Iterator[dict[str, Any]]:
    """Yield every point of the branch's grid lazily; the last field varies fastest."""
    names = list(branch.free)
    sizes = [domain.size() or 0 for domain in branch.free.values()]
    # A product of indices: itertools.product over values would hold every value of every field.
    for digits in itertools.product(*(range(size) for size in sizes)):
        values = (branch.free[n].value(i) for n, i in zip(names, digits, strict=True))
        yield branch.fixed | dict(zip(names, values, strict=True))


def _assignments(
    space: Mapping[str, Domain], names: list[str], fixed: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Assign the splitting fields in turn; leave out a field whose condition is false."""
    ready = [n for n in names if not (set(space[n].when or {}) & set(names))]
    if not ready:
        yield fixed
        return
    name, rest = ready[0], [n for n in names if n != ready[0]]
    if not _is_active(space[name], fixed):
        yield from _assignments(space, rest, fixed)
        return
    for index in range(space[name].size() or 0):
        yield from _assignments(space, rest, fixed | {name: space[name].value(index)})


def _is_active(domain: Domain, fixed: Mapping[str, Any]) -> bool:
    return all(
        name in fixed and same(fixed[name]) in map(same, allowed)
        for name, allowed in (domain.when or {}).items()
    )
