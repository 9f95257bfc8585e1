"""Spec text: numbers are numbers, words are words, and traps are refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.errors import UnreadableSpec
from sweeps.spec.text import load_spec_text


def test_yaml_is_read_as_people_mean_it() -> None:
    text = (
        "a: 1e-3\nb: no\nc: 1:30\nd: [1, .5, -2.5e+3]\ne: 2020-01-01\nf: true\ng:\nh: '1'\ni: 010"
    )

    assert load_spec_text(text) == {
        "a": 0.001,
        "b": "no",
        "c": "1:30",
        "d": [1, 0.5, -2500.0],
        "e": "2020-01-01",
        "f": True,
        "g": None,
        "h": "1",
        "i": 10,
    }


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), json_values))
def test_json_is_read_exactly(value: dict[str, object]) -> None:
    assert load_spec_text(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: &x 1\nb: *x", "aliases.*line 2, column 4"),
        ("a: 1\na: 2", "'a' appears twice, line 2"),
        ('{"a": 1, "a": 2}', "'a' appears twice"),
        ('{"a": NaN}', "NaN is not a number"),
        ("a: [", "line [12]"),
        ("1: 2", "key must be a word"),
        ("? [a]\n: 2", "key must be a word"),
        ("[" * 5000, "too deeply"),
        ('{"a":' * 5000, "too deeply"),
        ("a: !!python/object:os.system {}", "tags .* line 1, column 4"),
        ("a: \x00", "unacceptable character"),
        ("a: " + "9" * 5000, "digits"),
        ("<<: {a: 1}\n<<: {a: 2}", "appears twice"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text: str, reason: str) -> None:
    with pytest.raises(UnreadableSpec, match=reason):
        load_spec_text(text)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    reason = ""
    try:
        load_spec_text(text)
    except UnreadableSpec as error:
        reason = str(error)

    assert reason == "" or reason.startswith("the spec cannot be read: ")
