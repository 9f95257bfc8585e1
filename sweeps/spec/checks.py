"""Checks the sampler of a spec, and its space against the config, so that no trial fails.

Every rule of ``TrainConfig`` concerns one field or two. So in each branch every value that is
likely to be refused (a range's ends, each choice) is tried alone, and every pair of them together;
the rules of other trainings' configs are tried in the same places.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from sweeps.spec.branches import Branch
from sweeps.spec.declarations import PriorPoint
from sweeps.spec.domains import Choice, Domain, same
from sweeps.spec.validation_messages import explain, shown
from worker.config.train_config import TrainConfig
from worker.config.trial_config import FieldError, TrialConfig

#: Samplers that need no ``num_points``, because the number of their points is known.
COUNTED = ("grid", "list")
#: Largest number of branches: conditions on many fields multiply it.
MAX_BRANCHES = 1024
#: Configs tried at submission, at about 10 microseconds each.
MAX_CHECKS = 50_000
#: Up to this many numbers of one field are all tried with every value of another.
_MANY = 12


def check_space(
    space: Mapping[str, Domain], config: type[TrialConfig], base: Mapping[str, Any]
) -> None:
    """Refuse unknown fields, conditions that cannot hold, and too many branches."""
    for name, domain in space.items():
        if not config.has_field(name):
            raise FieldError(
                f"space.{shown(name).strip(chr(39))}",
                f"{shown(name)} is not a field of a training config",
            )
        if name in config.FIXED:
            why = config.FIXED[name]
            raise FieldError(f"space.{name}", f"{name} cannot vary in a sweep: {why}")
        if config.IS_FREE and name in base:
            raise FieldError(
                f"space.{name}",
                f"{name} must stand in base or in space, not in both; got {shown(base[name])} in "
                "base",
            )
        for other, values in (domain.when or {}).items():
            _check_condition(space, name, other, values)
    _check_cycles(space)
    splitting = {name for domain in space.values() for name in domain.when or {}} | {"optimizer"}
    number = math.prod(domain.size() or 1 for name, domain in space.items() if name in splitting)
    if number > MAX_BRANCHES:
        raise FieldError(
            "space",
            f"conditions may split the space into {MAX_BRANCHES:,} branches, "
            f"these make up to {number:,}",
        )


def check_sampler(
    sampler: str,
    space: Mapping[str, Domain],
    num_points: int | None,
    initial_points: Sequence[Mapping[str, Any]],
) -> None:
    """Refuse a grid over a continuous range, a list without points, a search without an end."""
    if sampler == "grid":
        for name, domain in space.items():
            if domain.size() is None:
                raise FieldError(
                    f"space.{name}",
                    f"sampler grid needs a step or a choice for every field, and {name} is "
                    "continuous",
                )
    elif sampler == "list" and not initial_points:
        raise FieldError(
            "initial_points", "initial_points must hold the points of sampler 'list', got none"
        )
    elif num_points is None and sampler not in COUNTED:
        raise FieldError("num_points", f"num_points must be set for sampler {sampler!r}, got none")


def _check_condition(
    space: Mapping[str, Domain], name: str, other: str, values: Sequence[Any]
) -> None:
    path = f"space.{name}.when"
    domain = space.get(other)
    if not isinstance(domain, Choice):
        raise FieldError(
            path, f"when must name choice fields of the space, and {shown(other)} is not one"
        )
    for value in values:
        if not domain.holds(value):
            raise FieldError(
                f"{path}.{other}",
                f"when must list values of {other} ({shown(domain.values)}), got {shown(value)}",
            )


def _check_cycles(space: Mapping[str, Domain]) -> None:
    waiting = {name: set(domain.when or {}) for name, domain in space.items()}
    while free := [name for name, needs in waiting.items() if not needs]:
        for name in free:
            del waiting[name]
        for needs in waiting.values():
            needs.difference_update(free)
    if waiting:
        name = min(waiting)
        raise FieldError(
            f"space.{name}.when", f"conditions must not run in a circle: {', '.join(waiting)}"
        )


def check_trainable(
    config: type[TrialConfig],
    base: Mapping[str, Any],
    space: Mapping[str, Domain],
    branches: Sequence[Branch],
) -> None:
    """Refuse a space with a point that the config refuses, naming field, values and reason."""
    _check_count(branches)
    reached: set[str] = set()
    for branch in branches:
        reached |= branch.fixed.keys() | branch.free.keys()
        first = {name: domain.corners()[0] for name, domain in branch.free.items()}
        for changed, is_outermost in _variants(branch):
            _try(config, base, branch, {**first, **changed}, changed, resolve=is_outermost)
    for name in space:
        if name not in reached:
            raise FieldError(f"space.{name}.when", f"the conditions of {name} never hold together")


def _check_count(branches: Sequence[Branch]) -> None:
    count = 0
    for branch in branches:
        alone = sum(len(domain.corners()) for domain in branch.free.values())
        sizes = [len(_ends(domain.corners())) for domain in branch.free.values()]
        total = sum(sizes)
        count += 1 + alone + (total**2 - sum(size**2 for size in sizes)) // 2
    if count > MAX_CHECKS:
        raise FieldError(
            "space",
            f"the space has {count:,} pairs of values that would have to be checked against each "
            f"other, at most {MAX_CHECKS:,} are; use ranges, or fewer choices",
        )


def _variants(branch: Branch) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield changes to the branch's first corner: none, one field, two fields.

    Each comes with a flag: whether to try it with the published defaults too, which is done for no
    change and for one field at its ends.
    """
    corners = {name: domain.corners() for name, domain in branch.free.items()}
    ends = {name: _ends(values) for name, values in corners.items()}
    yield {}, True
    for name, values in corners.items():
        yield from (({name: value}, True) for value in ends[name])
        if len(ends[name]) < len(values):
            tried = set(map(same, ends[name]))
            yield from (({name: value}, False) for value in values if same(value) not in tried)
    for (a, a_values), (b, b_values) in itertools.combinations(ends.items(), 2):
        yield from (({a: x, b: y}, False) for x in a_values for y in b_values)


def _ends(values: Sequence[Any]) -> list[Any]:
    """Select the values to try with other fields: all, or the smallest and largest of many numbers.

    Rules between fields compare numbers or test whether one is set, so a rule that holds at both
    ends holds between them; every value is still tried alone.
    """
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) <= _MANY:
        return list(values)
    rest = [v for v in values if v not in numbers]
    return [min(numbers), max(numbers), *rest]


def _try(
    config: type[TrialConfig],
    base: Mapping[str, Any],
    branch: Branch,
    free: Mapping[str, Any],
    changed: Mapping[str, Any],
    *,
    resolve: bool,
) -> None:
    params = {**branch.fixed, **free}
    try:
        found = config.model_validate({**base, **params})
        if resolve:
            found.resolved()
    except ValidationError as error:
        refused = explain(error)[0]
        field = _field(refused["path"], {**base, **params})
        if field in base and field not in params:
            path = f"base.{field}"
        else:
            path = f"space.{field if field in params else next(iter(changed or params))}"
        raise FieldError(path, f"{_where(branch, params, field)}: {refused['reason']}") from error


def _field(path: str, known: Mapping[str, Any]) -> str:
    """Return the field of a refusal's path; the fields of parts have a dot in their names."""
    return path if path in known else path.split(".")[0]


def _where(branch: Branch, params: Mapping[str, Any], field: str) -> str:
    shown_first = [name for name in (field,) if name in params]
    names = [*shown_first, *(name for name in branch.fixed if name != field)]
    if not names:
        return "the space has a point that cannot be trained"
    pairs = ", ".join(f"{name} = {shown(params[name])}" for name in names)
    return f"the space has a point that cannot be trained ({pairs})"


def check_initial_points(
    config: type[TrialConfig],
    base: Mapping[str, Any],
    branches: Sequence[Branch],
    points: Sequence[Mapping[str, Any]],
) -> None:
    """Refuse an initial point that is not in the space."""
    for index, params in enumerate(points):
        path = f"initial_points.{index}"
        _check_point(branches, params, path)
        try:
            config.model_validate({**base, **params})
        except ValidationError as error:
            raise FieldError(path, explain(error)[0]["reason"]) from error


def check_prior(branches: Sequence[Branch], prior: Sequence[PriorPoint]) -> None:
    """Refuse a prior result at a point that is not in the space."""
    for index, point in enumerate(prior):
        _check_point(branches, point.params, f"prior.{index}.params")


def _check_point(branches: Sequence[Branch], params: Mapping[str, Any], path: str) -> None:
    branch = branch_of(branches, params)
    if branch is None:
        raise FieldError(
            path,
            "a point must set exactly the fields of the space that are active in it, "
            f"got {shown(dict(params))}",
        )
    for name, domain in branch.free.items():
        if not domain.holds(params[name]):
            raise FieldError(
                f"{path}.{name}",
                f"{name} must lie in its domain of the space, got {shown(params[name])}",
            )


def check_step_limit(most: int | None, base: TrialConfig, space: Mapping[str, Domain]) -> None:
    """Refuse a limit of steps that is shorter than a trial."""
    if most is None or base.LENGTH is None:
        return
    domain = space.get(base.LENGTH)
    asked = [base.planned_steps] if domain is None else domain.corners()
    longest = max((n for n in asked if isinstance(n, int)), default=0)
    if longest > most:
        raise FieldError(
            "limits.steps",
            f"limits.steps must be at least the {longest:,} steps that a trial is asked for, "
            f"got {most:,}",
        )


def branch_of(branches: Sequence[Branch], params: Mapping[str, Any]) -> Branch | None:
    """Return the branch that contains a point, or None."""
    for branch in branches:
        if params.keys() == branch.fixed.keys() | branch.free.keys() and all(
            same(params[name]) == same(value) for name, value in branch.fixed.items()
        ):
            return branch
    return None


def check_device(base: TrialConfig, gpus: float) -> None:
    """Refuse trials on device 'cuda' without a GPU in their resources."""
    if isinstance(base, TrainConfig) and base.device == "cuda" and gpus == 0:
        raise FieldError(
            "resources.gpus", "resources.gpus must be above 0 for base.device 'cuda', got 0"
        )
