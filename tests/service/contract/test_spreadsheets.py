"""Every CSV that the service hands out, with names that a spreadsheet would compute."""

import csv
import io

import pytest

FORMULA = "=1+1"


@pytest.fixture
def sweeps(finished, store):
    """Two finished sweeps whose names, optimizers and params are formulas."""
    return [
        finished(f"{FORMULA} {n}", [0.1, 0.2, 0.3], config={"optimizer": FORMULA, "dataset": "@a"})
        for n in range(2)
    ]


def _cells(text):
    rows = list(csv.reader(io.StringIO(text)))
    assert len(rows) > 1
    return [cell for row in rows for cell in row]


def _is_number(cell):
    try:
        float(cell)
    except ValueError:
        return False
    return True


PATHS = [
    "/api/v1/sweeps/{id}/export?format=csv",
    "/api/v1/sweeps/{id}/analysis?format=csv",
    "/sweeps/{id}/plots/curves.csv",
    "/sweeps/{id}/plots/timeline.csv",
    "/sweeps/{id}/plots/parallel.csv",
    "/sweeps/{id}/plots/sensitivity/alpha_v.csv",
]


@pytest.mark.parametrize("path", PATHS)
def test_no_cell_of_a_download_is_a_formula(client, sweeps, path):
    answer = client.get(path.replace("{id}", sweeps[0]))

    assert answer.status_code == 200, answer.text
    cells = _cells(answer.text)
    risky = [cell for cell in cells if cell[:1] in "=+-@" and cell and not _is_number(cell)]
    assert not risky


@pytest.mark.parametrize("table", ["arms", "differences"])
def test_labels_of_compared_arms_are_texts(client, sweeps, table):
    arms = [{"sweep": sweep, "label": f"{FORMULA}{n}"} for n, sweep in enumerate(sweeps)]
    answer = client.post(
        f"/api/v1/comparisons?format=csv&table={table}",
        json={"arms": arms, "metric": "test_error"},
    )

    assert answer.status_code == 200, answer.text
    cells = _cells(answer.text)
    assert f"'{FORMULA}0" in cells
    assert not [cell for cell in cells if cell.startswith("=")]


@pytest.mark.parametrize("name", ['a"b', "a%0d%0ab", "a%2f..%2fb", "ü"])
def test_the_name_of_a_downloaded_file_is_plain(client, sweeps, name):
    answer = client.get(f"/sweeps/{sweeps[0]}/trials/0/plots/metric/{name}.csv")

    disposition = answer.headers.get("content-disposition", "")
    assert disposition.count('"') in (0, 2)
    assert disposition.isascii()
