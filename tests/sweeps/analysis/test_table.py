"""One table in every form, whatever is written in its cells."""

import csv
import io
import xml.etree.ElementTree as ET
from typing import get_args

import pytest

from sweeps.analysis.table import Format, Table, to_csv, to_html, to_markdown, to_text, written

TABLE = Table(
    ("arm", "error", "kind"), (("sgd", "4.14 ± 0.30", "a"), ("nd-adam", "–", "b")), "means"
)
#: What one form or another would read as its own mark.
MARKS = "a|b *c* d\\e <i>f</i> & 50% #1 _x^y~ {g} [h]\nnext γ_C"


def test_text_has_its_columns_below_each_other() -> None:
    assert to_text(TABLE) == (
        "means\n\n"
        "arm      error        kind\n"
        "-------  -----------  ----\n"
        "sgd      4.14 ± 0.30  a\n"
        "nd-adam  –            b\n"
    )


def test_markdown_sets_numbers_to_the_right() -> None:
    assert to_markdown(TABLE) == (
        "means\n\n"
        "| arm | error | kind |\n"
        "|---|---:|---|\n"
        "| sgd | 4.14 ± 0.30 | a |\n"
        "| nd-adam | – | b |\n"
    )


def test_latex_sets_numbers_to_the_right_and_keeps_the_caption_as_a_comment() -> None:
    assert written(TABLE, "latex") == (
        "% means\n"
        "\\begin{tabular}{lrl}\n"
        "\\toprule\n"
        "arm & error & kind \\\\\n"
        "\\midrule\n"
        "sgd & 4.14 $\\pm$ 0.30 & a \\\\\n"
        "nd-adam & -- & b \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
    )


def test_html_is_well_formed_and_marks_columns_of_numbers() -> None:
    box = ET.fromstring(to_html(TABLE))

    assert box.findtext("table/caption") == "means"
    assert [cell.get("class") for cell in box.iter("td")] == [None, "n", None] * 2
    assert [cell.get("scope") for cell in box.iter("th")] == ["col"] * 3


@pytest.mark.parametrize("form", get_args(Format))
def test_a_table_without_rows_or_caption_is_its_head(form: Format) -> None:
    text = written(Table(("a", "b"), ()), form)

    assert text.endswith("\n")
    assert not text.startswith("\n")


def test_marks_in_a_cell_are_text_in_every_form() -> None:
    table = Table(("a", MARKS), ((MARKS, "1"), ("x", "2")), MARKS)

    lines = to_markdown(table).splitlines()
    assert len(lines) == 6
    assert {line.count("|") - line.count("\\|") for line in lines[2:]} == {3}
    assert "\\*c\\* d\\\\e" in lines[2]
    box = ET.fromstring(to_html(table))
    assert [cell.text for cell in box.iter("td")] == [MARKS, "1", "x", "2"]
    assert next(iter(csv.reader(io.StringIO(to_csv(table))))) == ["a", MARKS]
    latex = written(table, "latex")
    assert r"a|b *c* d\textbackslash{}e <i>f</i> \& 50\% \#1 \_x\textasciicircum{}y" in latex
    assert r"$\gamma_C$" in latex


@pytest.mark.parametrize("name", ["=1+1", "+sum", "-rf", "@cmd", "\t=1"])
def test_a_name_that_a_spreadsheet_would_compute_arrives_there_as_text(name: str) -> None:
    rows = csv.reader(io.StringIO(to_csv(Table(("arm", "x"), ((name, name),)))))

    assert list(rows)[1] == [f"'{name}", f"'{name}"]


@pytest.mark.parametrize("name", ["-1", "+2.5", "-1e-05", "-inf", "sgd", "", "a=b"])
def test_numbers_and_other_names_are_written_as_they_are(name: str) -> None:
    rows = csv.reader(io.StringIO(to_csv(Table(("arm", "x"), ((name, "-0.5"),)))))

    assert list(rows)[1] == [name, "-0.5"]
