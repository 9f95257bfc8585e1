"""What runs are called in MLflow, and how their tags read where people compare them."""

import re
from dataclasses import replace
from typing import Any

import pytest
from markdown_it import MarkdownIt

from sweeps.mlflow_mirror.names import param_text
from sweeps.mlflow_mirror.run_fields import (
    attempt_tags,
    experiment_name,
    experiment_tags,
    run_address,
    run_name,
    sweep_tags,
    tame_markdown,
)
from sweeps.records import NewTrial, PendingAttempt, Sweep, SweepState, Trial, TrialState
from sweeps.store.store import Store
from tests.sweeps.store_cases import LEASE, report

PARAMS = {"optimizer": "ndadam", "alpha_v": 0.1951668359570564, "gamma_c": None}
PROVENANCE = {
    "git_commit": "b6d5ec4",
    "versions": {"torch": "2.14.1", "ray": "2.60.0"},
    "pid": 4321,
    "probe": {"conv1": "invariant"},
}


@pytest.fixture
def trial(sqlite_store: Store) -> Trial:
    """One complete trial of a sweep that is over."""
    store = sqlite_store
    spec = {"objective": {"metric": "validation_error", "direction": "minimize"}}
    store.create_sweep("sweep", spec, name="small", num_trials=1)
    claim = store.claim("test", LEASE)
    assert claim is not None
    (added,) = store.add_trials(claim, [NewTrial(0, 7, PARAMS, PARAMS | {"seed": 7}, "k")])
    attempt = store.start_attempt(claim, added.number)
    store.record(claim, added.number, attempt.id, [report(10, 0.0295, provenance=PROVENANCE)])
    done = TrialState.COMPLETE
    store.finish_attempt(
        claim, added.number, attempt.id, done, "complete", trial_state=done, objective=0.0295
    )
    store.release(claim, SweepState.COMPLETE, "all done")
    return store.trial(claim.sweep_id, added.number)


@pytest.fixture
def sweep(sqlite_store: Store, trial: Trial) -> Sweep:
    return sqlite_store.get_sweep(trial.sweep_id)


def tags_of(trial: Trial, sweep: Sweep) -> dict[str, str]:
    work = PendingAttempt(trial, trial.attempts[0], [], 0, more=False)
    return attempt_tags(work, sweep, "http://localhost:8000")


class TestNames:
    def test_a_run_is_called_by_what_it_varies_and_its_seed(self, trial: Trial) -> None:
        assert run_name(trial, 1) == "trial 0: ndadam, alpha_v 0.195, seed 7"
        assert run_name(trial, 2) == "trial 0.2: ndadam, alpha_v 0.195, seed 7"

    def test_a_run_of_a_match_says_what_it_is_for(self, trial: Trial) -> None:
        source = replace(trial, role="source", params={"optimizer": "sgd"})

        assert run_name(source, 1) == "trial 0 source: sgd, seed 7"

    def test_a_large_space_is_cut_where_a_setting_ends(self, trial: Trial) -> None:
        many = replace(trial, params={f"field_{n}": 0.5 for n in range(20)})

        assert run_name(many, 1).endswith("field_2 0.5, field_3 0.5, …, seed 7")


class TestTags:
    def test_provenance_is_told_part_by_part_and_without_what_always_differs(
        self, trial: Trial, sweep: Sweep
    ) -> None:
        tags = tags_of(trial, sweep)

        told = {name: text for name, text in tags.items() if name.startswith("provenance.")}
        assert told == {
            "provenance.git_commit": "b6d5ec4",
            "provenance.versions.torch": "2.14.1",
            "provenance.versions.ray": "2.60.0",
        }
        assert tags["mlflow.source.git.commit"] == "b6d5ec4"

    def test_a_cause_is_told_where_the_state_does_not_say_it(
        self, trial: Trial, sweep: Sweep
    ) -> None:
        killed = replace(trial.attempts[0], state=TrialState.FAILED, exit_cause="out of memory")

        assert "exit_cause" not in tags_of(trial, sweep)
        failed = tags_of(replace(trial, attempts=(killed,)), sweep)
        assert (failed["state"], failed["exit_cause"]) == ("failed", "out of memory")

    def test_the_best_point_is_told_in_words(self, sweep: Sweep) -> None:
        found = sweep_tags(sweep, "http://localhost:8000")["best"]

        assert found == "validation_error 0.0295, point 0: ndadam, alpha_v 0.195"
        fixed = replace(sweep, best={"mean": 0.0295, "point": 0, "params": {}})
        assert sweep_tags(fixed, "")["best"] == "validation_error 0.0295, point 0"

    def test_the_best_point_has_the_declared_unit(self, sweep: Sweep) -> None:
        spec = sweep.spec | {
            "objective": {"metric": "score", "direction": "maximize"},
            "metrics": {"score": {"direction": "maximize", "unit": "points/s"}},
        }
        best = {"mean": 104.25, "point": 3, "params": {}}
        found = sweep_tags(replace(sweep, spec=spec, best=best), "")["best"]

        assert found == "score 104.2 points/s, point 3"

    def test_an_experiment_leads_back_and_names_what_decides(self, sweep: Sweep) -> None:
        tags = experiment_tags(sweep, "http://localhost:8000/")

        assert f"(http://localhost:8000/sweeps/{sweep.id})" in tags["mlflow.note.content"]
        assert tags["mlflow.experiment.primaryMetric.name"] == "validation_error"
        assert tags["mlflow.experiment.primaryMetric.greaterIsBetter"] == "False"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([0.9, 0.999], "0.9, 0.999"),
        ("cosine", "cosine"),
        (True, "true"),
        (1e-05, "1e-05"),
        ([[0, 1.0], [100, 0.1]], "[[0, 1.0], [100, 0.1]]"),
        ([], "[]"),
    ],
)
def test_a_parameter_is_one_line(value: Any, text: str) -> None:
    assert param_text(value) == text


def test_addresses_open_the_pages_for_training() -> None:
    address = run_address("http://localhost:5000", "3", "a1b2")

    assert address == (
        "http://localhost:5000/#/experiments/3/runs/a1b2?workflowType=machine_learning"
    )


HOSTILE = "[x](javascript:alert(1)) ![i](http://evil/i.png) <img src=x onerror=alert(1)>"
PAGES = "http://localhost:8000"


class TestDescriptions:
    """MLflow shows them as Markdown; nobody's text may load, run or lead elsewhere from there."""

    @pytest.mark.parametrize("place", ["name", "notes", "reason", "params", "tags"])
    def test_texts_of_people_neither_load_nor_run(
        self, trial: Trial, sweep: Sweep, place: str
    ) -> None:
        if place == "params":
            trial = replace(trial, params={"dataset": HOSTILE})
        else:
            sweep = replace(sweep, **{place: [HOSTILE] if place == "tags" else HOSTILE})
        notes = [
            tags[name]
            for tags in (tags_of(trial, sweep), sweep_tags(sweep, PAGES))
            for name in tags
            if name == "mlflow.note.content"
        ]
        notes.append(experiment_tags(sweep, PAGES)["mlflow.note.content"])

        assert len(notes) == 3
        for note in notes:
            tokens = MarkdownIt("commonmark", {"html": True}).parse(note)
            children = [child for token in tokens for child in token.children or ()]
            kinds = {token.type for token in [*tokens, *children]}
            assert not kinds & {"image", "html_inline", "html_block"}, note
            links = [c.attrGet("href") for c in children if c.type == "link_open"]
            assert links, note
            allowed = ("http://", "https://") if place == "notes" else (PAGES,)
            assert all(str(link).startswith(allowed) for link in links), note

    @pytest.mark.parametrize(
        "notes",
        [
            "see [the page](https://example.org/a) and *this*",
            "| a | b |\n|---|---|\n| 1 | 2 |",
            "1 < 2 and a[0]",
            "line\n\n- item `code`",
        ],
    )
    def test_notes_are_markdown_as_they_were_written(self, notes: str) -> None:
        assert tame_markdown(notes) == notes

    @pytest.mark.parametrize(
        "notes",
        [
            "[a](javascript:alert(1))",
            "[a]( javascript:alert(1))",
            "[a](<javascript:alert(1)>)",
            "[a](data:text/html,x)",
            "[a](//evil.example)",
            "[a]\n\n[a]: javascript:alert(1)",
            "![i](http://evil/i.png)",
            "![i][r]\n\n[r]: http://evil/i.png",
            "[![i](http://evil/i.png)](http://evil)",
            "<img src=x onerror=alert(1)>",
            "<!-- x --><script>alert(1)</script>",
            "<javascript:alert(1)>",
        ],
    )
    def test_what_loads_or_runs_in_notes_becomes_text(self, notes: str) -> None:
        html = MarkdownIt("commonmark", {"html": True}).render(tame_markdown(notes))

        assert not re.search(r"<(img|script)|href=\"(?!https?://)", html), html

    def test_an_experiment_has_one_line_whatever_an_older_store_holds(self) -> None:
        assert experiment_name("a\n\\input{x}\nb", "0123") == "a \\input{x} b (0123)"
