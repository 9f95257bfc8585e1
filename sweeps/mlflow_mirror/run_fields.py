"""What the mirror says of a sweep and of an attempt, as MLflow's parameters, tags and states."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from sweeps.analysis.formatting import declared_unit
from sweeps.analysis.table import markdown_text
from sweeps.mlflow_mirror.names import (
    MAX_PARAM,
    MAX_TAG,
    cut,
    mirror_name,
    original_tag,
    param_text,
)
from sweeps.records import Attempt, PendingAttempt, Sweep, SweepState, Trial, TrialState

#: MLflow's state of the run of a sweep. A sweep that has yet to start, or go on, does not run.
SWEEP_STATUS = {
    SweepState.QUEUED: "SCHEDULED",
    SweepState.RUNNING: "RUNNING",
    SweepState.PAUSED: "SCHEDULED",
    SweepState.COMPLETE: "FINISHED",
    SweepState.FAILED: "FAILED",
    SweepState.CANCELLED: "KILLED",
}

#: MLflow's state of the run of an attempt; the tag "state" says it in our words.
ATTEMPT_STATUS = {
    TrialState.WAITING: "SCHEDULED",
    TrialState.RUNNING: "RUNNING",
    TrialState.COMPLETE: "FINISHED",
    TrialState.PRUNED: "FINISHED",
    TrialState.DIVERGED: "FINISHED",
    TrialState.FAILED: "FAILED",
    TrialState.CANCELLED: "KILLED",
}

#: Tags by which the mirror finds its runs again.
SWEEP_TAG, ATTEMPT_TAG, TRIAL_TAG = "ndsweep.sweep", "ndsweep.attempt_id", "ndsweep.trial"

#: Where MLflow says that a run comes from.
_SOURCE = {"mlflow.source.name": "ndsweep", "mlflow.source.type": "LOCAL"}
#: Of an attempt's provenance, what says nothing to who compares runs, or is elsewhere.
_LEFT_OUT = ("non_finite", "pid", "probe")
#: Letters of a run's name that say what it varies.
_NAME_SETTINGS = 60


def milliseconds(at: datetime) -> int:
    """A time as MLflow counts it."""
    return round(at.timestamp() * 1000)


def experiment_name(name: str, sweep_id: str) -> str:
    """The experiment of a sweep, in one line: names repeat, ids do not."""
    return f"{' '.join(name.split())} ({sweep_id})"


def page(page_url: str, sweep: str, kind: str, trial: int | None = None) -> str:
    """The address of a sweep's or trial's page; "" where the service's address is unknown."""
    if not page_url:
        return ""
    if trial is not None:
        return f"{page_url.rstrip('/')}/sweeps/{sweep}/trials/{trial}"
    place = "matches" if kind == "match" else "sweeps"
    return f"{page_url.rstrip('/')}/{place}/{sweep}"


def run_address(mlflow_url: str, experiment_id: str, run_id: str) -> str:
    """Where a browser finds a run.

    Without its last part MLflow opens the pages that it has for language models.
    """
    place = f"{mlflow_url}/#/experiments/{experiment_id}/runs/{run_id}"
    return f"{place}?workflowType=machine_learning"


def experiment_tags(sweep: Sweep, page_url: str) -> dict[str, str]:
    """Tags of a sweep's experiment: what it is, where its page is, what decides."""
    tags = {
        # Else MLflow takes it for an application of language models.
        "mlflow.experimentKind": "custom_model_development",
        "mlflow.note.content": _page_link(sweep, page_url),
    }
    if sweep.kind == "sweep":
        objective = sweep.objective
        tags |= {
            "mlflow.experiment.primaryMetric.name": mirror_name(objective.metric),
            "mlflow.experiment.primaryMetric.greaterIsBetter": str(objective.is_maximized),
        }
    return {name: text for name, text in tags.items() if text}


def sweep_tags(sweep: Sweep, page_url: str) -> dict[str, str]:
    """Tags of a sweep's own run."""
    verdict = (sweep.result or {}).get("verdict") if sweep.kind == "match" else None
    tags = {
        "mlflow.runName": sweep.name,
        **_SOURCE,
        SWEEP_TAG: sweep.id,
        "kind": sweep.kind,
        "state": sweep.state.value,
        "reason": sweep.reason,
        "tags": ", ".join(sweep.tags),
        "mlflow.note.content": description(sweep, page_url),
        "page": page(page_url, sweep.id, sweep.kind),
        "best": _best_words(sweep),
        "verdict": (verdict or {}).get("state", ""),
        "trials": ", ".join(f"{n} {state}" for state, n in sweep.trials.items() if n),
    }
    return {name: cut(text, MAX_TAG, "spec.json") for name, text in tags.items() if text}


def _best_words(sweep: Sweep) -> str:
    best = sweep.best or {}
    if best.get("mean") is None:
        return ""
    settings = ", ".join(_settings(best.get("params") or {}))
    metric = sweep.objective.metric
    mean = f"{best['mean']:.4g} {declared_unit(sweep.metrics, metric)}".rstrip()
    words = f"{metric} {mean}, point {best.get('point')}"
    return f"{words}: {settings}" if settings else words


def description(sweep: Sweep, page_url: str, body: str = "") -> str:
    """A run's description in Markdown: the way back, what was asked, and what came out."""
    reason = f": {markdown_text(sweep.reason)}" if sweep.reason else ""
    state = sweep.state.value + reason
    # The link first: MLflow folds descriptions, and what lies in the fold cannot be clicked. The
    # name is the title of its page.
    first = " · ".join(part for part in (_page_link(sweep, page_url), state) if part)
    parts = [first, tame_markdown(sweep.notes), body]
    # MLflow takes 8,000 characters of a tag.
    return "\n\n".join(part for part in parts if part)[:7900]


#: Parts of somebody's Markdown that ask another host, or run: images, HTML, other schemes.
_WILD = re.compile(
    r"!(?=\[)|<(?=[A-Za-z/!?])|(?<=\])\((?!\s*<?https?://)|(?<=\])(?=:\s)", re.IGNORECASE
)


def tame_markdown(notes: str) -> str:
    """Notes as Markdown that loads nothing: images and HTML as text, links to http and https."""
    return _WILD.sub(r"\\\g<0>", notes)


def _page_link(sweep: Sweep, page_url: str) -> str:
    address = page(page_url, sweep.id, sweep.kind)
    return f"[Page of the {sweep.kind}]({address})" if address else ""


def run_name(trial: Trial, attempt: int) -> str:
    """What lists, legends and comparisons call an attempt: number, role, what it varies, seed."""
    number = f"trial {trial.number}" + (f".{attempt}" if attempt > 1 else "")
    head = " ".join(part for part in (number, trial.role) if part)
    seed = f"seed {trial.seed}"
    kept: list[str] = []
    for words in _settings(trial.params):
        if len(", ".join([*kept, words])) > _NAME_SETTINGS:
            kept.append("…")
            break
        kept.append(words)
    return f"{head}: {', '.join([*kept, seed])}"


def _settings(params: Mapping[str, Any]) -> Iterator[str]:
    """Each setting in a few letters, the optimizer without its field's name; unset ones are not."""
    for name, value in params.items():
        if value is None:
            continue
        shown = f"{value:.3g}" if isinstance(value, float) else param_text(value)
        yield shown if name == "optimizer" else f"{name} {shown}"


def attempt_tags(work: PendingAttempt, sweep: Sweep, page_url: str) -> dict[str, str]:
    """Tags of an attempt's run: where it belongs, how it stands, where it ran."""
    trial, attempt = work.trial, work.attempt
    tags = {
        **_SOURCE,
        SWEEP_TAG: trial.sweep_id,
        TRIAL_TAG: str(trial.number),
        ATTEMPT_TAG: str(attempt.id),
        "attempt": str(attempt.number),
        "point": str(trial.point),
        "role": trial.role,
        "state": attempt.state.value,
        "exit_cause": "" if attempt.exit_cause == attempt.state.value else attempt.exit_cause,
        "page": page(page_url, trial.sweep_id, sweep.kind, trial.number),
        "mlflow.note.content": _note(trial, sweep, page_url),
        **_special_ends(trial, attempt),
    }
    for name, value in _flat(attempt.provenance):
        tags[mirror_name(f"provenance.{name}")] = param_text(value)
    if (commit := attempt.provenance.get("git_commit")) is not None:
        tags["mlflow.source.git.commit"] = str(commit)
    for name in trial.config:
        if (original := original_tag(name)) is not None:
            tags[original[0]] = original[1]
    return {name: cut(text, MAX_TAG, "trial page") for name, text in tags.items() if text}


def _flat(provenance: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each part by itself: a version that differs is seen, inside of JSON it is not."""
    for name, value in provenance.items():
        if name in _LEFT_OUT:
            continue
        if isinstance(value, Mapping):
            yield from ((f"{name}.{part}", one) for part, one in value.items())
        else:
            yield name, value


def _note(trial: Trial, sweep: Sweep, page_url: str) -> str:
    """A trial's description in Markdown: what it trained with, and the way back to its page."""
    settings = "\n".join(
        f"- `{name}`: {markdown_text(str(value))}" for name, value in trial.params.items()
    )
    address = page(page_url, sweep.id, sweep.kind, trial.number)
    link = f"[Page of the trial]({address})" if address else ""
    name = markdown_text(sweep.name)
    heading = f"Trial {trial.number} of {name}, point {trial.point}, seed {trial.seed}"
    return "\n\n".join(part for part in (link, heading, settings) if part)


def _special_ends(trial: Trial, attempt: Attempt) -> dict[str, str]:
    tags: dict[str, str] = {}
    if attempt.state == TrialState.PRUNED:
        tags["stopped early"] = "true"
    if attempt.state == TrialState.DIVERGED:
        tags["diverged"] = "true"
        tags["diverged_at_step"] = str(trial.diverged_at_step)
        if trial.objective is not None:
            tags["last_finite_objective"] = repr(trial.objective)
    for name, step in (attempt.provenance.get("non_finite") or {}).items():
        tags[mirror_name(f"non_finite.{name}")] = f"first at step {step}"
    return tags


def attempt_params(trial: Trial) -> dict[str, str]:
    """The resolved config as MLflow's parameters, long values cut."""
    return {
        mirror_name(name): cut(param_text(value), MAX_PARAM, _artifact(name))
        for name, value in trial.config.items()
        if value is not None
    }


def long_params(trial: Trial) -> dict[str, str]:
    """The whole text of each value that was cut, by artifact."""
    texts = {name: param_text(value) for name, value in trial.config.items() if value is not None}
    return {_artifact(n): text for n, text in texts.items() if len(text) > MAX_PARAM}


def _artifact(name: str) -> str:
    return f"params/{mirror_name(name).replace('/', '_')}.txt"
