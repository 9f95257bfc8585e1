"""What the mirror says of a sweep and of an attempt, as MLflow's parameters, tags and states."""

from datetime import datetime

from sweeps.mirror_names import MAX_PARAM, MAX_TAG, cut, mirror_name, original_tag, param_text
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


def milliseconds(at: datetime) -> int:
    """A time as MLflow counts it."""
    return round(at.timestamp() * 1000)


def experiment_name(name: str, sweep_id: str) -> str:
    """The experiment of a sweep: names repeat, ids do not."""
    return f"{name} ({sweep_id})"


def page(page_url: str, sweep: str, kind: str, trial: int | None = None) -> str:
    """The address of a sweep's or trial's page; "" where the service's address is unknown."""
    if not page_url:
        return ""
    if trial is not None:
        return f"{page_url.rstrip('/')}/sweeps/{sweep}/trials/{trial}"
    place = "matches" if kind == "match" else "sweeps"
    return f"{page_url.rstrip('/')}/{place}/{sweep}"


def sweep_tags(sweep: Sweep, page_url: str) -> dict[str, str]:
    """Tags of a sweep's own run."""
    best = sweep.best or {}
    tags = {
        "mlflow.runName": sweep.name,
        SWEEP_TAG: sweep.id,
        "kind": sweep.kind,
        "state": sweep.state.value,
        "reason": sweep.reason,
        "tags": ", ".join(sweep.tags),
        "mlflow.note.content": sweep.notes,
        "page": page(page_url, sweep.id, sweep.kind),
        "best": param_text(best) if best else "",
        "trials": ", ".join(f"{n} {state}" for state, n in sweep.trials.items() if n),
    }
    return {name: cut(text, MAX_TAG, "spec.json") for name, text in tags.items() if text}


def attempt_tags(work: PendingAttempt, sweep: Sweep, page_url: str) -> dict[str, str]:
    """Tags of an attempt's run: where it belongs, how it stands, where it ran."""
    trial, attempt = work.trial, work.attempt
    tags = {
        SWEEP_TAG: trial.sweep_id,
        TRIAL_TAG: str(trial.number),
        ATTEMPT_TAG: str(attempt.id),
        "attempt": str(attempt.number),
        "point": str(trial.point),
        "role": trial.role,
        "state": attempt.state.value,
        "exit_cause": attempt.exit_cause,
        "page": page(page_url, trial.sweep_id, sweep.kind, trial.number),
        "mlflow.note.content": _note(trial, sweep, page_url),
        **_special_ends(trial, attempt),
    }
    for name, value in attempt.provenance.items():
        if name != "non_finite":
            tags[mirror_name(f"provenance.{name}")] = param_text(value)
    for name in trial.config:
        if (original := original_tag(name)) is not None:
            tags[original[0]] = original[1]
    return {name: cut(text, MAX_TAG, "trial page") for name, text in tags.items() if text}


def _note(trial: Trial, sweep: Sweep, page_url: str) -> str:
    """A trial's description in Markdown: what it trained with, and the way back to its page."""
    settings = "\n".join(f"- `{name}`: {value}" for name, value in trial.params.items())
    address = page(page_url, sweep.id, sweep.kind, trial.number)
    link = f"[Page of the trial]({address})" if address else ""
    heading = f"Trial {trial.number} of {sweep.name}, point {trial.point}, seed {trial.seed}"
    return "\n\n".join(part for part in (heading, settings, link) if part)


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
