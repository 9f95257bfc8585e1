"""Runs the cells of ``matching_notebook.py`` and writes them, with what they print, as a notebook.

python docs/examples/write_notebook.py
"""

import contextlib
import io
import json
from pathlib import Path

HERE = Path(__file__).parent
SCRIPT = HERE / "matching_notebook.py"
NOTEBOOK = HERE.parent / "matching.ipynb"


def cells_of(script):
    """(is text, body) of every cell."""
    for part in script.split("\n# %%")[1:]:
        head, _, body = part.partition("\n")
        if "[markdown]" in head:
            lines = (line.removeprefix("#").removeprefix(" ") for line in body.split("\n"))
            yield True, "\n".join(lines).strip()
        else:
            yield False, body.strip()


def run_cell(body, names):
    """What a cell prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(body, "cell", "exec"), names)
    return printed.getvalue()


def notebook(script):
    """The executed notebook, in version 4.5 of the format."""
    names = {"__name__": "notebook"}
    cells, count = [], 0
    for number, (is_text, body) in enumerate(cells_of(script)):
        cell = {"cell_type": "markdown" if is_text else "code", "id": f"cell-{number}"}
        cell |= {"metadata": {}, "source": lines(body)}
        if not is_text:
            count += 1
            printed = run_cell(body, names)
            output = {"name": "stdout", "output_type": "stream", "text": lines(printed)}
            cell |= {"execution_count": count, "outputs": [output] if printed else []}
        cells.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def lines(text):
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    found = notebook(SCRIPT.read_text(encoding="utf-8"))
    NOTEBOOK.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
