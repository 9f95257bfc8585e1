"""Tables in LaTeX: no wider than the page, whatever they hold."""

import re

import pytest

from dashboards.report.latex import _GAP, _SIZES, latex_table
from sweeps.analysis.table import Table

NUMBERS = Table(("layer", "first", "last"), (("conv1", "0.1", "–"), ("conv2", "0.2", "0.3")))
SENTENCES = Table(
    ("curves", "the paper", "ratio", "verdict"),
    tuple((f"SGD over ND-Adam {i}", "a sentence of the paper " * 6, "1.3", "yes") for i in "ab"),
)
LONG_HEADS = Table(
    ("layer", *(f"SGD (0.1, 0.00{i}) over SGD (0.05, 0.002)" for i in range(4))),
    (("conv1", "1", "2", "3", "4"),),
)


def spec(table: Table) -> tuple[str, str]:
    """Size of type, and the columns."""
    found = re.match(r"\{\\(\w+)\\begin\{longtable\}\{(.*)\}\n", latex_table(table))
    assert found
    return found[1], found[2]


def test_a_small_table_is_set_as_it_is() -> None:
    assert spec(NUMBERS) == ("small", "lrr")


def test_sentences_and_long_heads_are_broken_and_short_columns_are_not() -> None:
    _, columns = spec(SENTENCES)
    assert re.fullmatch(
        r">\{\\raggedright\\arraybackslash\}p\{[\d.]+\\linewidth\}" * 2 + "rl", columns
    )
    _, columns = spec(LONG_HEADS)
    assert columns.startswith("l>{\\raggedleft")
    assert columns.count("raggedleft") == 4


@pytest.mark.parametrize("table", [NUMBERS, SENTENCES, LONG_HEADS], ids=["n", "s", "h"])
def test_no_table_is_wider_than_a_line(table: Table) -> None:
    size, columns = spec(table)
    letters = dict(_SIZES)[size]

    broken = [float(width) for width in re.findall(r"p\{([\d.]+)\\linewidth\}", columns)]
    kept = re.sub(r">\{.*?\}p\{.*?\}", "-", columns)
    whole = [
        max(len(row[i]) for row in (table.head, *table.rows))
        for i, kind in enumerate(kept)
        if kind != "-"
    ]
    assert len(kept) == len(table.head)
    assert sum(broken) * letters + sum(whole) + _GAP * len(kept) <= letters + 0.5


def test_words_too_long_for_the_usual_type_take_a_smaller_one() -> None:
    words = Table(tuple("w" * 13 for _ in range(8)), (tuple("x" * 12 for _ in range(8)),))

    assert spec(words)[0] == "scriptsize"
