"""Texts of people arrive as texts, whatever reads the file: Markdown, a spreadsheet, LaTeX."""

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from sweeps.analysis.table import Table, csv_cell, latex_text, markdown_text, to_csv, to_markdown

HOSTILE = {
    "a link that runs": "[x](javascript:alert(1)) ![i](http://evil/i.png)",
    "a link by reference": "[x][y] [x]: http://evil",
    "an image": "![i](http://evil/i.png)",
    "HTML": "<img src=x onerror=alert(1)>",
    "an address": "http://evil/ and <http://evil/> and www.evil.example and a@evil.example",
    "an entity": "&lt;b&gt; &#60; &copy",
    "emphasis": "*a* _b_ __c__ `d` ~~e~~",
    "a heading": "# a",
    "a list": "- a",
    "a numbered list": "1. a",
    "a rule": "---",
    "a quotation": "> a",
    "a column": "a | b \\| c",
    "code by indentation": "    a",
    "a backslash at the end": "a\\",
    "ordinary": "alpha_v 0.05, lr 1e-3 [1, 2] (3) +0.1 – γ_C = 5 % & more!",
    "a formula": "=1+1",
    "a command": "=cmd|' /C calc'!A0",
    "LaTeX": "\\input{x} $1$ %",
}


def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def _words(text: str) -> str:
    """The words of Markdown that is one paragraph and nothing else."""
    tokens = _parser().parse(text)
    if not tokens:
        return ""
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"], text
    children = tokens[1].children or []
    assert {child.type for child in children} <= {"text", "text_special"}, text
    return "".join(child.content for child in children)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_markdown_says_what_was_written(text: str) -> None:
    assert _words(markdown_text(text)) == text.strip()


@given(st.text(st.sampled_from("ab1 _*`[]()<>!#+-=.|~\\&;:/@\"'{}^$%\tα")))
def test_no_text_makes_a_mark_of_markdown(text: str) -> None:
    assert _words(markdown_text(text)).split() == text.split()


def test_addresses_are_not_made_links_by_who_links_them() -> None:
    """GitHub and MLflow link what looks like an address; a backslash keeps them from it."""
    found = markdown_text("https://evil/ www.evil.example a@evil.example")

    assert found == "https\\://evil/ www\\.evil.example a\\@evil.example"


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_cell_of_a_markdown_table_stays_one_cell(text: str) -> None:
    table = Table(("arm", "of"), ((text, "b"),))
    tokens = _parser().parse(to_markdown(table))
    cells = [token.content for token in tokens if token.type == "inline"]

    assert len(cells) == 4
    assert not any(
        child.type in ("link_open", "image", "html_inline", "code_inline")
        for token in tokens
        for child in token.children or ()
    )


FORMULAS = ["=1+1", "+sum(A1)", "-rf", "@cmd", "\t=1", " =1", "＝1+1", HOSTILE["a command"]]


@pytest.mark.parametrize("text", FORMULAS)
def test_what_a_spreadsheet_would_compute_arrives_as_text_in_every_column(text: str) -> None:
    table = Table((text, "b", text), ((text, "1", text), ("a", text, "2")))
    rows = list(csv.reader(io.StringIO(to_csv(table), newline="")))

    assert [cell for row in rows for cell in row if cell not in ("a", "b", "1", "2")] == [
        f"'{text}"
    ] * 5


@pytest.mark.parametrize("value", [-0.5, "-0.5", "+1e-3", "-inf", 3, None, True, "a=b", "", "–"])
def test_numbers_and_other_texts_stay_as_they_are(value: object) -> None:
    assert csv_cell(value) == value


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_latex_reads_no_command_in_a_text(text: str) -> None:
    found = latex_text(text)
    ours = r"\\(textbackslash|textasciitilde|textasciicircum)\{\}|\$\\gamma_C\$"
    ours += r"|\\[&%$#_{}]|\{\s*[\[*]\}"

    assert not set(re.sub(ours, "", found)) & set("\\%#~$^_&{}"), found
