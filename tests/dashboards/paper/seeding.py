"""Made-up runs of the paper's presets in a store: enough of them to draw every table and figure."""

import math
import random

from sweeps.paper.runs import PaperRuns
from sweeps.paper.values import paper_values
from sweeps.records import NewTrial, SweepState, TrialState
from sweeps.store.store import Store
from tests.dashboards import seeding
from worker.report import Report

STEPS, REPORTS = 80_000, 10
_LAYER = {
    "paper-fig1a": "projection_ratio/conv5",
    "paper-fig1b": "effective_lr/conv5",
}


def finished_paper(store: Store, clock: seeding.Clock) -> str:
    """A sweep that trained every arm of Table 1 (CIFAR-10) and of the figures; its id."""
    spec = {"name": "paper", "base": {"dataset": "cifar10"}, "space": {}, "replicates": 2}
    sweep, _ = store.create_sweep("sweep", spec, name="paper", tags=["paper"], num_trials=40)
    claim = seeding.claim(store)
    table = next(t for t in paper_values().tables if t.id == "table1-cifar10")
    known = {repr(sorted(row.params.items())): row.test_error for row in table.rows}
    seen: set[str] = set()
    number = 0
    for preset in (table.preset, "paper-fig1a", "paper-fig1b", "paper-fig2", "paper-fig3"):
        for arm in PaperRuns(()).arms(preset):
            final = known.get(repr(sorted(arm.params.items())), 4.6)
            for seed in (0, 1):
                config = {**arm.config, "seed": seed}
                if repr(config) in seen:
                    continue
                seen.add(repr(config))
                new = NewTrial(number, seed, arm.params, config, f"key-{number}")
                [trial] = store.add_trials(claim, [new])
                _train(store, claim, trial.number, config, final / 100, _LAYER.get(preset), clock)
            number += 1
    store.release(claim, SweepState.COMPLETE, "all done")
    return sweep.id


def _train(store, claim, number, config, final, layer, clock):  # type: ignore[no-untyped-def]
    rng = random.Random(number)
    final *= math.exp(rng.gauss(0, 0.01))
    attempt = store.start_attempt(claim, number)
    for part in range(1, REPORTS + 1):
        clock.advance(1.0)
        fade = math.exp(-5 * part / REPORTS)
        metrics = {
            "test_error": final + 0.5 * fade,
            "train_loss": 0.02 + fade,
            "logit_rms": (config["gamma_c"] or 6.0) * (1 - fade),
        }
        rate = config["alpha_v"] or config["lr"] or 0.001
        metrics["effective_lr/conv5"] = 0.23 * rate * math.cos(0.15 * part) ** 2 + 1e-6
        metrics["projection_ratio/conv5"] = -1 + 0.5 * fade
        report = Report(
            step=STEPS * part // REPORTS, num_steps=STEPS, status="running", metrics=metrics
        )
        store.record(claim, number, attempt.id, [report])
    done = TrialState.COMPLETE
    store.finish_attempt(
        claim, number, attempt.id, done, "complete", trial_state=done, objective=final
    )
