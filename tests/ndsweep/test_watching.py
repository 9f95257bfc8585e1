"""Watching a sweep: a bar in a terminal, one table that is updated in Jupyter."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from ndsweep import watching
from service.contract.outputs import EventOut


@pytest.fixture
def notebook(monkeypatch):
    """IPython as a notebook's kernel has it; returns what was shown and then updated."""
    shown = []

    class Handle:
        def update(self, html):
            shown.append(html.data)

    def display(html, display_id):
        assert display_id
        shown.append(html.data)
        return Handle()

    ipython = ModuleType("IPython")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())
    ipython.display = ModuleType("IPython.display")
    ipython.display.display = display
    ipython.display.HTML = lambda text: SimpleNamespace(data=text)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    return shown


def test_in_a_terminal_the_progress_bar_ends_with_the_state(sweep, capsys):
    assert sweep.watch() is sweep

    out = capsys.readouterr().out
    assert "trained" in out
    assert "4 trials, complete" in out


def test_in_a_notebook_one_table_is_updated(sweep, notebook):
    assert watching.in_notebook()

    sweep.watch()

    assert len(notebook) >= 2
    last = notebook[-1]
    assert "<b>trained</b> complete" in last
    assert 'value="1.0000"' in last
    assert "3 complete, 1 diverged" in last
    assert "<td>10.50 (5.63 to 18.74)</td>" in last
    assert "selected, optimistic" in last


def test_names_and_values_of_people_are_text(connected, client, spec, notebook):
    sweep = connected.submit(spec | {"name": "<script>alert(1)</script>"}).cancel()

    sweep.watch()

    assert "<script>" not in notebook[-1]
    assert "&lt;script&gt;" in notebook[-1]


def test_progress_counts_running_trials_by_their_steps():
    def event(kind, **data):
        at = "2026-01-01T00:00:00Z"
        return EventOut.model_validate(
            {"id": 1, "sweep_id": "s", "at": at, "kind": kind, "data": data}
        )

    tally = watching.TrialCounts(4)
    tally.note(event("trial", trial=0, state="complete"))
    tally.note(event("trial", trial=1, state="running"))
    tally.note(event("progress", trial=1, step=5, num_steps=10))
    sweep = SimpleNamespace(num_trials=4)

    assert watching._share(sweep, 1, tally) == pytest.approx(1.5 / 4)
    assert watching._share(sweep, 1, None) == 0.25


def test_interrupting_leaves_the_sweep_alone(sweep, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(watching, "follow", interrupted)

    sweep.watch()

    assert f"not watching any more; sweep {sweep.id} goes on" in capsys.readouterr().out
    assert sweep.state == "complete"


def test_without_ipython_this_is_no_notebook():
    assert not watching.in_notebook()
