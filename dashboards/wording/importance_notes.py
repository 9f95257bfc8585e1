"""Of which part of a space each importance is, and why a field has none."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup
from pydantic import TypeAdapter, ValidationError

from dashboards.wording.formatting import choice_word, symbol
from sweeps.figures.quantities import quantity
from sweeps.records import Sweep
from sweeps.spec.branches import Branch, branches
from sweeps.spec.domains import Domain

#: Branches that are listed by name.
MOST_NAMED = 6
#: As sweeps.analysis.stored.importance asks for, which loads Optuna.
FEWEST_POINTS, FEWEST_FIELDS = 10, 2
_DOMAINS: TypeAdapter[dict[str, Domain]] = TypeAdapter(dict[str, Domain])


def branch_name(fixed: Mapping[str, Any], training: str) -> str:
    """A branch by what it fixes; "all points" where the space has no branches."""
    words = ", ".join(
        f"{quantity(k, training=training).name} {choice_word(v)}" for k, v in fixed.items()
    )
    return words or "all points"


def importance_notes(sweep: Sweep) -> list[Markup]:
    """Sentences on the branches of a sweep's space; none where it has one branch alone."""
    found = _branches(sweep)
    if len(found) < 2:
        return []
    shown = [branch for branch in found if len(branch.free) >= FEWEST_FIELDS]
    alone = [branch for branch in found if len(branch.free) < FEWEST_FIELDS]
    fixed = list(dict.fromkeys(name for branch in found for name in branch.fixed))
    notes = [_chosen_by(_fields(fixed, sweep.training), len(fixed))]
    if shown:
        notes.append(_shown(shown, sweep.training))
    if alone:
        notes.append(_alone(alone, sweep.training))
    return notes


def why_no_importance(sweep: Sweep, *, is_computed: bool) -> str:
    """What the page says in place of a plot without bars."""
    found = _branches(sweep)
    if found and all(len(branch.free) < FEWEST_FIELDS for branch in found):
        where = "no branch of this space varies" if len(found) > 1 else "this space does not vary"
        return f"Importance compares fields with each other, and {where} two of them."
    if not is_computed:
        return "Importance is not computed yet; it comes with the sweep's next whole analysis."
    where = " in one branch" if len(found) > 1 else ""
    return f"Importance needs {FEWEST_POINTS} finished points{where} that vary two fields or more."


def _branches(sweep: Sweep) -> list[Branch]:
    try:
        return branches(_DOMAINS.validate_python(sweep.space))
    except ValidationError:
        # A space of another version: shown as it is, without a word on its branches.
        return []


def _chosen_by(fields: Markup, count: int) -> Markup:
    chooses = "chooses the branch and has" if count == 1 else "choose the branch and have"
    return Markup("Importance is within one branch of the space: {} {} none.").format(
        fields, chooses
    )


def _shown(found: Sequence[Branch], training: str) -> Markup:
    named = found[:MOST_NAMED]
    parts = [
        Markup("{} ({})").format(branch_name(b.fixed, training), _fields(list(b.free), training))
        for b in named
    ]
    return Markup("It is of {}, from {} finished points of the branch on.").format(
        _listed(parts, len(found)), FEWEST_POINTS
    )


def _alone(found: Sequence[Branch], training: str) -> Markup:
    parts = []
    for branch in found[:MOST_NAMED]:
        what = _fields(list(branch.free), training) if branch.free else "nothing"
        parts.append(Markup("{} (varies {})").format(branch_name(branch.fixed, training), what))
    return Markup("None of {}: one field has no other to be compared with.").format(
        _listed(parts, len(found))
    )


def _fields(names: Sequence[str], training: str) -> Markup:
    return Markup(", ").join(symbol(quantity(name, training=training)) for name in names)


def _listed(parts: Sequence[Markup], count: int) -> Markup:
    more = count - len(parts)
    named = Markup("; ").join(parts)
    return Markup("{}; and {} more").format(named, more) if more > 0 else named
