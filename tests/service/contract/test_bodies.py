"""JSON and YAML bodies: what is read, and what is refused before anything looks at it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.contract.bodies import MAX_DEPTH, RefusedDocument, check_plain
from sweeps.errors import UnreadableSpec
from sweeps.spec.text import read_json, read_yaml

REFUSED_JSON = {
    "NaN": ('{"a": NaN}', "NaN"),
    "infinity": ('{"a": -Infinity}', "-Infinity"),
    "overflow to infinity": ('{"a": 1e999}', "finite"),
    "deep nesting": ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
    "just too deep": ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "levels"),
    "integer of 70 bits": ('{"a": 1180591620717411303424}', "64 bits"),
    "integer of 5,000 digits": ('{"a": ' + "9" * 5000 + "}", "digits"),
    "a key twice": ('{"a": 1, "a": 2}', "'a' appears twice"),
    "NUL": ('{"a": "x\\u0000"}', "NUL"),
    "half a surrogate pair": ('{"a": "\\ud800"}', "surrogate"),
    "half a surrogate pair as a key": ('{"\\udfff": 1}', "surrogate"),
    "cut off": ('{"a": ', "line 1, column 7"),
    "empty": ("", "not valid JSON"),
}
REFUSED_YAML = {
    "NaN": ("a: .nan", "finite"),
    "infinity": ("a: -.inf", "finite"),
    "alias bomb": ("a: &x [1]\nb: [*x, *x]", "aliases"),
    "python object": ("a: !!python/object/apply:os.system ['true']", "tags .* line 1, column 4"),
    "deep nesting": ("[" * 5000 + "]" * 5000, "nested too deeply"),
    "a key twice": ("a: 1\na: 2", "'a' appears twice"),
    "a key that is a number": ("1: 2", "a key must be a word"),
    "huge integer": ("a: " + "9" * 40, "64 bits"),
    "integer of 5,000 digits": ("a: " + "9" * 5000, "digits"),
    "cut off": ("a: [1, 2", "line"),
    "a date": ("a: !!timestamp 2026-01-01", "tags"),
    "what is no date": ("a: !!timestamp abc", "tags"),
    "a set": ("a: !!set {b: }", "tags"),
    "a tag of one's own": ("a: !mine b", "tags"),
    "a tag that contradicts its value": ("a: !!bool maybe", "tags"),
    "a list that is to be a mapping": ("!!map [1]", "tags"),
    "text that is to be a list": ("a: !!str [1]", "line 1"),
    "two documents": ("a: 1\n---\na: 2", "document"),
}


@pytest.mark.parametrize(("text", "reason"), REFUSED_JSON.values(), ids=REFUSED_JSON)
def test_json_that_cannot_be_a_spec_is_refused_with_a_reason(text, reason):
    with pytest.raises((UnreadableSpec, RefusedDocument), match=reason):
        check_plain(read_json(text))


@pytest.mark.parametrize(("text", "reason"), REFUSED_YAML.values(), ids=REFUSED_YAML)
def test_yaml_that_cannot_be_a_spec_is_refused_with_a_reason(text, reason):
    with pytest.raises((UnreadableSpec, RefusedDocument), match=reason):
        check_plain(read_yaml(text))


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner), max_leaves=20
)


@given(VALUES)
def test_plain_values_come_back_from_json_as_they_were(value):
    import json

    assert read_json(json.dumps(value)) == value


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused_and_never_fails_otherwise(text):
    for read in (read_json, read_yaml):
        try:
            check_plain(read(text))
        except (UnreadableSpec, RefusedDocument):
            pass
