"""The notebook of the matching guide holds what its script does, and its cells run."""

import importlib.util
import json
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def notebook_writer():
    path = DOCS / "examples" / "write_notebook.py"
    spec = importlib.util.spec_from_file_location("write_notebook", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_notebook_holds_the_cells_of_its_script_and_what_they_printed(notebook_writer):
    notebook = json.loads((DOCS / "matching.ipynb").read_text(encoding="utf-8"))
    script = notebook_writer.SCRIPT.read_text(encoding="utf-8")
    cells = [("".join(cell["source"]), cell) for cell in notebook["cells"]]

    assert [body for body, _ in cells] == [body for _, body in notebook_writer.cells_of(script)]
    printed = "".join(
        text for _, cell in cells for out in cell.get("outputs", []) for text in out["text"]
    )
    assert "Your SGD (lr 0.1, momentum 0.9, weight_decay 0.001) equals AdamW lr" in printed
    assert "not for linear3, whose length the loss sees" in printed


def test_the_notebooks_cells_run_and_two_short_runs_confirm_what_they_say(notebook_writer):
    """Up to the whole match, which the tests above make on a smaller network."""
    names = {"__name__": "notebook"}
    script = notebook_writer.SCRIPT.read_text(encoding="utf-8")
    for is_text, body in notebook_writer.cells_of(script):
        if not is_text and "match_alpha_v" not in body:
            notebook_writer.run_cell(body.replace("STEPS = 1800", "STEPS = 1200"), names)

    assert names["answer"].alpha_v == pytest.approx(0.0453, rel=0.03)
    assert names["rates"]["ndadam"] == pytest.approx(names["rates"]["sgd"], rel=0.12)
