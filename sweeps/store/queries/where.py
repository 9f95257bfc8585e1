"""Conditions on trials as people type them: ``alpha_v > 0.05 and state = complete``.

A condition compares a field with a value by =, !=, <, <=, > or >=; ``and``, ``or``, ``not`` and
parentheses join conditions. Fields are those of a trial, the mean of its point, its sampled values,
and the last value of each metric it reported. Over several sweeps, a field that one of them varies
and another one fixes has the fixed value there, and ``sweep`` is a sweep's id or name. Words need
quotes where they are not one word: ``exit_cause = "diverged at step 150"``. ``none`` is no value; a
trial without the field fits ``= none`` alone.

Python's own parser of expressions reads them, and only this much of it is taken. Nothing is
evaluated.
"""

import ast
import json
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa

from sweeps.errors import InvalidFilter
from sweeps.records import TrialState
from sweeps.store.database.tables import metric_names, param_values, points, sweeps, trials

#: Longer conditions are no question that a person asks.
MAX_LENGTH = 500
_of_its_point = points.alias()
#: Fields of a trial itself, and of its point.
FIELDS: dict[str, sa.ColumnElement[Any]] = {
    **{
        name: trials.c[name]
        for name in ("number", "point", "seed", "state", "objective", "step", "exit_cause", "role")
    },
    "point_mean": sa.select(_of_its_point.c.mean)
    .where(_of_its_point.c.sweep_id == trials.c.sweep_id, _of_its_point.c.number == trials.c.point)
    .correlate(trials)
    .scalar_subquery(),
}
_WORDS = ("state", "exit_cause", "role")

Test = Callable[[Any, Any], sa.ColumnElement[bool]]
_TESTS: dict[type[ast.cmpop], Test] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}
#: For a value on the left: ``0.05 < alpha_v``.
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
}
_EXAMPLE = "such as alpha_v > 0.05 and state = complete"
# A single = outside quotes.
_EQUALS = re.compile(r"""("[^"]*"|'[^']*')|(?<![<>=!])=(?!=)""")


def trials_where(
    conn: sa.Connection, sweep_id: str, text: str, among: Sequence[str] = ()
) -> sa.ColumnElement[bool]:
    """The condition as a clause on the trials of one sweep. Raises InvalidFilter, which says what.

    ``among``: ids of the sweeps that are asked together, whose fields may be named.
    """
    parsed = _parsed(text)
    fields = _fields(conn, sweep_id)
    if among:
        fields = replace(
            fields,
            elsewhere=_anywhere(conn, among),
            fixed=fixed_fields(conn, sweep_id),
            is_one_of_several=True,
        )
    return _clause(fields, parsed)


def _anywhere(conn: sa.Connection, sweep_ids: Sequence[str]) -> frozenset[str]:
    """What one of several sweeps varies, fixes or has reported."""
    specs = sa.select(sweeps.c.spec).where(sweeps.c.id.in_(list(sweep_ids)))
    found = {
        name
        for spec in conn.execute(specs).scalars()
        for part in ("space", "base")
        for name in spec.get(part) or {}
    }
    reported = sa.select(metric_names.c.name).where(
        metric_names.c.sweep_id.in_(list(sweep_ids)), metric_names.c.kind == "metric"
    )
    return frozenset(found | set(conn.execute(reported).scalars()))


def fixed_fields(conn: sa.Connection, sweep_id: str) -> dict[str, Any]:
    """The values that a sweep's base sets for all of its trials."""
    spec = conn.execute(sa.select(sweeps.c.spec).where(sweeps.c.id == sweep_id)).scalar() or {}
    return dict(spec.get("base") or {})


def _parsed(text: str) -> ast.expr:
    if len(text) > MAX_LENGTH:
        raise _refused(f"it must have at most {MAX_LENGTH} characters, got {len(text)}")
    python = _EQUALS.sub(lambda found: found[1] or "==", text.strip())
    try:
        return ast.parse(python, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        why = f"{text.strip()[:80]!r} cannot be read; write conditions {_EXAMPLE}"
        raise _refused(why) from None


@dataclass(frozen=True)
class _Fields:
    """What a condition may name in one sweep."""

    sweep_id: str
    sweep_name: str
    params: frozenset[str]
    metrics: frozenset[str]
    #: Of all of the sweeps that are asked together.
    elsewhere: frozenset[str] = frozenset()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    is_one_of_several: bool = False

    def check(self, name: str) -> None:
        """Raise InvalidFilter for a field that is not there."""
        known = self.params | self.metrics | self.elsewhere | self.fixed.keys()
        if name not in FIELDS and name not in known:
            whole = sorted(metric for metric in self.metrics if "/" not in metric)
            own = sorted(self.params | {name for name in self.elsewhere if "/" not in name})
            shown = dict.fromkeys([*FIELDS, *own, *whole])
            raise _refused(f"there is no field {name[:60]!r}; there are {', '.join(shown)}")


def _fields(conn: sa.Connection, sweep_id: str) -> _Fields:
    of_trials = (param_values.c.sweep_id == sweep_id, param_values.c.owner == "trial")
    sampled = sa.select(param_values.c.name).where(*of_trials).distinct()
    reported = sa.select(metric_names.c.name).where(
        metric_names.c.sweep_id == sweep_id, metric_names.c.kind == "metric"
    )
    return _Fields(
        sweep_id,
        str(conn.execute(sa.select(sweeps.c.name).where(sweeps.c.id == sweep_id)).scalar()),
        frozenset(conn.execute(sampled).scalars()),
        frozenset(conn.execute(reported).scalars()),
    )


def _clause(fields: _Fields, node: ast.expr) -> sa.ColumnElement[bool]:
    match node:
        case ast.BoolOp(op=op, values=values):
            parts = [_clause(fields, value) for value in values]
            return sa.and_(*parts) if isinstance(op, ast.And) else sa.or_(*parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            # A trial without the field is no answer to "not alpha_v > 0.05" either way round in
            # SQL; here it is one, as a reader expects of "not".
            return sa.not_(sa.func.coalesce(_clause(fields, operand), sa.false()))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            sides = [left, *comparators]
            pairs = zip(sides, ops, sides[1:], strict=False)
            return sa.and_(*(_comparison(fields, a, type(op), b) for a, op, b in pairs))
    raise _refused(f"{ast.unparse(node)[:80]!r} is no condition; write conditions {_EXAMPLE}")


def _comparison(
    fields: _Fields, left: ast.expr, test: type[ast.cmpop], right: ast.expr
) -> sa.ColumnElement[bool]:
    if test not in _TESTS:
        raise _refused("fields are compared by =, !=, <, <=, > and >=")
    if not isinstance(left, ast.Name):
        left, test, right = right, _TURNED.get(test, test), left
    if not isinstance(left, ast.Name):
        raise _refused(f"{ast.unparse(left)[:60]!r} is no field")
    name, value = left.id, _value(right)
    if name == "sweep" and fields.is_one_of_several:
        return _of_sweep(fields, test, value)
    fields.check(name)
    if value is None and test not in (ast.Eq, ast.NotEq):
        raise _refused(f"{name} can be = none or != none, and is not compared with it otherwise")
    if name in FIELDS:
        return _of_trial(name, test, value)
    if name in fields.params:
        return _of_params(fields.sweep_id, name, test, value)
    if name in fields.metrics:
        found = trials.c.metrics[name].as_float()
        return _compared(found, name, test, value, is_word=False)
    return _of_fixed(fields.fixed.get(name), test, value)


def _of_sweep(
    fields: _Fields, test: type[ast.cmpop], value: float | str | None
) -> sa.ColumnElement[bool]:
    if not isinstance(value, str) or test not in (ast.Eq, ast.NotEq):
        raise _refused("sweep is = or != the id or the name of a sweep, in quotes")
    is_it = value in (fields.sweep_id, fields.sweep_name)
    return sa.true() if is_it is (test is ast.Eq) else sa.false()


_OF_FIXED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _of_fixed(
    fixed: Any, test: type[ast.cmpop], value: float | str | None
) -> sa.ColumnElement[bool]:
    """On a value that all trials of the sweep share; None where it has no such field."""
    if value is None:
        fits = (fixed is None) is (test is ast.Eq)
    elif fixed is None:
        fits = False
    elif isinstance(value, str) or not isinstance(fixed, int | float):
        known = fixed if isinstance(fixed, str) else json.dumps(fixed)
        fits = isinstance(value, str) and _OF_FIXED[test](known, value)
    else:
        fits = _OF_FIXED[test](float(fixed), value)
    return sa.true() if fits else sa.false()


def _value(node: ast.expr) -> float | str | None:
    match node:
        case ast.Constant(value=bool() as value):
            return float(value)
        case ast.Constant(value=int() | float() as value):
            return _number(value)
        case ast.Constant(value=str() as value) if value.isprintable():
            return value
        case ast.Constant(value=None):
            return None
        case ast.Name(id=word):
            return {"none": None, "true": 1.0, "false": 0.0}.get(word, word)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -_number(value)
    raise _refused(f"{ast.unparse(node)[:60]!r} is no value; put words in quotes")


def _number(value: float) -> float:
    """A number as the databases take it: one that is too large is larger than any."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _of_trial(
    name: str, test: type[ast.cmpop], value: float | str | None
) -> sa.ColumnElement[bool]:
    if name == "state" and value not in list(TrialState):
        raise _refused(f"state must be one of {', '.join(TrialState)}, got {value!r}")
    is_word = name in _WORDS
    # Whole numbers are compared as they are typed: 2.5 is not rounded to one.
    of_trial = FIELDS[name]
    column = of_trial if is_word else sa.cast(of_trial, sa.Double)
    return _compared(column, name, test, value, is_word=is_word)


def _compared(
    column: sa.ColumnElement[Any],
    name: str,
    test: type[ast.cmpop],
    value: float | str | None,
    *,
    is_word: bool,
) -> sa.ColumnElement[bool]:
    if value is None:
        return column.is_(None) if test is ast.Eq else column.is_not(None)
    if isinstance(value, str) is not is_word:
        kind = "a word" if is_word else "a number"
        raise _refused(f"{name} is {kind}, got {value!r}")
    return _TESTS[test](column, value)


def _of_params(
    sweep_id: str, name: str, test: type[ast.cmpop], value: float | str | None
) -> sa.ColumnElement[bool]:
    """On a sampled value: numbers in one column of the index, words in the other."""
    # By another name: a listing sorted by a sampled value has joined the table itself.
    values = param_values.alias()
    mine = sa.and_(
        values.c.sweep_id == sweep_id,
        values.c.owner == "trial",
        values.c.name == name,
        values.c.owner_number == trials.c.number,
    )
    number, text = values.c.as_number, values.c.as_text
    if value is None:
        is_none = sa.exists().where(mine, sa.or_(number.is_not(None), text.is_not(None)))
        return sa.not_(is_none) if test is ast.Eq else is_none
    column = text if isinstance(value, str) else number
    return sa.exists().where(mine, _TESTS[test](column, value))


def _refused(why: str) -> InvalidFilter:
    return InvalidFilter(f"where: {why}", field="where")
