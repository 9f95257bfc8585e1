"""Comparisons and analyses as tables: CSV, Markdown, LaTeX, and rows for a data frame."""

import csv
import io
import math

import pytest

from ndadam.statistics.inference import welch
from service.client.frames import arm_rows, difference_rows
from service.contract.outputs import ComparisonOut
from sweeps.analysis.result_tables import comparison_text

COMPARISONS = "/api/v1/comparisons"
SGD = [0.10, 0.12, 0.11, 0.13]
NDADAM = [0.07, 0.09, 0.09, 0.10]


@pytest.fixture
def body(finished):
    ids = [finished("sgd", SGD), finished("ndadam_2", NDADAM)]
    return {"arms": [{"sweep": one} for one in ids]}


def test_csv_holds_numbers_in_full(client, body):
    answer = client.post(COMPARISONS, params={"format": "csv"}, json=body)

    row = next(iter(csv.DictReader(io.StringIO(answer.text))))
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert math.isclose(float(row["p"]), welch(SGD, NDADAM).p_value)

    arms = client.post(COMPARISONS, params={"format": "csv", "table": "arms"}, json=body)
    rows = list(csv.DictReader(io.StringIO(arms.text)))
    assert [float(one["mean"]) for one in rows] == pytest.approx([0.115, 0.0875])


def test_markdown_has_a_cell_for_each_column(client, body):
    text = client.post(COMPARISONS, params={"format": "markdown"}, json=body).text

    tables = [block for block in text.split("\n\n") if block.startswith("|")]
    assert len(tables) == 3
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_latex_escapes_what_is_a_command_there(client, body):
    text = client.post(COMPARISONS, params={"format": "latex"}, json=body).text

    assert r"ndadam\_2 \#0" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 3


def test_rows_are_flat_and_alike_so_that_a_data_frame_takes_them(client, body):
    found = ComparisonOut.model_validate(client.post(COMPARISONS, json=body).json())

    for rows in (arm_rows(found), difference_rows(found)):
        assert len({tuple(row) for row in rows}) == 1
        assert not any(isinstance(v, dict | list) for row in rows for v in row.values())
    assert arm_rows(found)[0]["params.alpha_v"] == 0.05


@pytest.mark.parametrize("form", ["csv", "markdown", "latex"])
def test_an_analysis_comes_as_a_table_too(client, body, form):
    path = f"/api/v1/sweeps/{body['arms'][0]['sweep']}/analysis"

    answer = client.get(path, params={"format": form})

    assert answer.status_code == 200
    assert "11.50" in answer.text


def test_captions_have_the_unit_that_all_compared_sweeps_declare(client, body):
    found = client.post(COMPARISONS, json=body).json() | {"metric": "score"}
    one, other = {"score": {"unit": "points/s"}}, {"score": {"unit": "points"}}

    assert "score (points/s): a minus b" in comparison_text(found, declared=[one, one])
    assert "score: a minus b" in comparison_text(found, declared=[one, other])
    assert "score: a minus b" in comparison_text(found)
