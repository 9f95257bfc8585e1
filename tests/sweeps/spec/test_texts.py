"""What people may write: names are one line, notes are free text, in every spec and request."""

import itertools

import pytest
from pydantic import TypeAdapter, ValidationError

from service.contract.agents import AskSpec, TellSpec
from service.contract.inputs import Labels
from sweeps.analysis.compared_arms import ArmRef
from sweeps.match.match_spec import MatchSpec
from sweeps.spec.model import Label, Notes
from sweeps.spec.sweep_spec import SweepSpec
from sweeps.spec.validation_messages import explain

NAME, NOTES = TypeAdapter(Label), TypeAdapter(Notes)

#: Free text that was refused: spaces, joiners and hyphens that no key of a keyboard has.
FREE = {
    "line ends of Windows": ("a\r\nb", "a\nb"),
    "line ends of old": ("a\rb", "a\nb"),
    "no-break space": ("5\u00a0%", "5\u00a0%"),
    "ideographic space": ("\u8a13\u7df4\u3000\u4e00", "\u8a13\u7df4\u3000\u4e00"),
    "a family": ("👨‍👩‍👧 and a flag 🏴󠁧󠁢󠁳󠁣󠁴󠁿", "👨‍👩‍👧 and a flag 🏴󠁧󠁢󠁳󠁣󠁴󠁿"),
    "soft hyphen": ("Donau\u00addampf", "Donau\u00addampf"),
    "right to left": ("\u200f\u05e9\u05dc\u05d5\u05dd", "\u200f\u05e9\u05dc\u05d5\u05dd"),
    "separators": ("a\u2028b\u2029c", "a\u2028b\u2029c"),
    "tab": ("a\tb", "a\tb"),
    "Markdown": ("# a\n\n- [b](c)", "# a\n\n- [b](c)"),
}
#: In a name each would be a second line, or change what stands beside it -> place, sign.
MANY_LINES = {
    "line end": ("a\n\\input{x}\nb", 2, "U+000A"),
    "carriage return": ("ab\rc", 3, "U+000D"),
    "tab": ("a\tb", 2, "U+0009"),
    "escape": ("\x1b[31mred", 1, "U+001B"),
    "line separator": ("a\u2028b", 2, "U+2028"),
    "right-to-left override": ("abc\u202e", 4, "U+202E"),
    "zero width": ("a\u200bb", 2, "U+200B"),
}


@pytest.mark.parametrize(("given", "kept"), FREE.values(), ids=FREE)
def test_notes_are_free_text(given, kept):
    assert NOTES.validate_python(given) == kept


@pytest.mark.parametrize("text", ["a\x00b", "a\x1b[2J", "a\x07", "a\x7f", "a\x85b"])
def test_control_characters_in_notes_are_refused_with_their_place(text):
    with pytest.raises(ValidationError) as refused:
        NOTES.validate_python(text)

    (found,) = explain(refused.value)
    assert f"character 2 is U+{ord(text[1]):04X}" in found["reason"]


@pytest.mark.parametrize(("text", "place", "sign"), MANY_LINES.values(), ids=MANY_LINES)
def test_names_are_one_line_of_printable_text(text, place, sign):
    with pytest.raises(ValidationError) as refused:
        NAME.validate_python(text)

    (found,) = explain(refused.value)
    assert f"must be one line of printable text, and character {place} is {sign}" in found["reason"]


@pytest.mark.parametrize("text", ["α^v = 0.05 – «größer» 学習率 🚀", "=1+1", "<b>a</b>", "a|b `c`"])
def test_names_may_have_any_letter_and_sign(text):
    assert NAME.validate_python(text) == text


PLACES = [
    *itertools.product([SweepSpec, MatchSpec], ["name", "tags", "notes"]),
    *itertools.product([Labels], ["tags", "notes"]),
    (ArmRef, "label"),
    (AskSpec, "agent"),
    (TellSpec, "reason"),
]


@pytest.mark.parametrize(("model", "field"), PLACES)
def test_every_place_for_a_name_or_notes_has_these_rules(model, field):
    bad = "a\x1bb"
    with pytest.raises(ValidationError) as refused:
        model.model_validate({field: [bad] if field == "tags" else bad})

    reasons = {found["path"].partition(".")[0]: found["reason"] for found in explain(refused.value)}
    assert "printable text, and character 2 is U+001B" in reasons[field]
