"""Made-up results of the paper's presets, small enough to check by hand.

``python -m tests.dashboards.paper.paper_results FOLDER`` writes them, as they lie in
``paper_runs``.
"""

import sys
from pathlib import Path
from typing import Any

from sweeps.batch.plan import Membership
from sweeps.batch.results import AttemptNote, Curves, RunResult, write_result
from sweeps.spec.presets import read_preset
from sweeps.spec.sweep_spec import SweepSpec

#: Final test errors in percent by (optimizer, scales): three seeds each, none for Adam without
#: scales, one for SGD without.
ERRORS = {
    ("sgd", "trainable"): [4.6, 4.7, 4.8],
    ("adam", "trainable"): [6.0, 6.2, 6.4],
    ("ndadam", "trainable"): [4.4, 4.5, 4.6],
    ("sgd", "fixed"): [4.0],
    ("ndadam", "fixed"): [5.0, 5.1, 5.2],
}
#: Effective learning rate of conv5 at four quarters of the run, by Figure 1 (b)'s settings.
RATES: dict[tuple[str, float, float | None], list[float]] = {
    ("sgd", 0.1, 1e-3): [0.04, 0.05, 0.04, 0.01],
    ("sgd", 0.05, 2e-3): [0.03, 0.05, 0.04, 0.01],
    ("sgd", 0.1, 5e-4): [0.03, 0.04, 0.028, 0.008],
    ("ndadam", 0.05, None): [0.05, 0.045, 0.03, 0.01],
}
STEPS = [20_000, 40_000, 60_000, 80_000]


def _result(config: Any, curves: dict[str, list[float]], metrics: dict[str, float]) -> RunResult:
    note = AttemptNote(
        number=1,
        started_at="2026-03-01T11:00:00.000Z",
        finished_at="2026-03-01T11:09:00.000Z",
        exit_cause="complete",
        seconds=540.0,
        from_step=0,
    )
    return RunResult(
        config=config.stored(),
        config_key=config.key(),
        seed=config.seed,
        specs=[Membership(spec="made-up", point=0, params={})],
        state="complete",
        exit_cause="complete",
        step=80_000,
        num_steps=80_000,
        metrics=metrics,
        curves=[Curves(steps=STEPS, values=curves)],
        attempts=[note],
        started_at=note.started_at,
        finished_at=note.finished_at,
        seconds=540.0,
        provenance={"card": "NVIDIA H100", "versions": {"torch": "2.11.0"}, "git_commit": "0" * 40},
    )


def made_up_results() -> list[RunResult]:
    """Table 1's arms, and the settings of Figure 1 (b) with one seed each."""
    found: dict[str, RunResult] = {}
    table = SweepSpec.model_validate(read_preset("paper-table1-cifar10").spec)
    for params in table.grid_points():
        errors = ERRORS.get((params["optimizer"], params["bn_scale"]), [])
        for seed, error in enumerate(errors):
            config = table.config(params, seed).resolved()
            found[f"{config.key()}-{seed}"] = _run(config, error)
    figure = SweepSpec.model_validate(read_preset("paper-fig1b").spec)
    for params in figure.initial_points:
        config = figure.config(params, 0).resolved()
        if _rates(config):
            found.setdefault(f"{config.key()}-0", _run(config, 5.0))
    return list(found.values())


def _run(config: Any, error: float) -> RunResult:
    share = error / 100
    logits = 20.0 if config.optimizer == "adam" and config.gamma_c is None else 3.0
    curves = {
        "test_error": [0.4, 0.2, 0.1, share],
        "logit_rms": [1.0, 2.0, 2.5, logits],
    }
    rates = _rates(config)
    if rates:
        curves |= {"effective_lr/conv1": rates[::-1], "effective_lr/conv5": rates}
    if config.optimizer == "sgd" and config.bn_scale == "trainable":
        curves["projection_ratio/conv5"] = [-0.2, -0.9, -0.8, -0.1]
    final = {name: values[-1] for name, values in curves.items()}
    return _result(config, curves, final)


def _rates(config: Any) -> list[float]:
    if config.bn_scale != "trainable" or config.optimizer == "adam":
        return []
    if config.optimizer == "sgd":
        return RATES.get(("sgd", config.lr, config.weight_decay), [])
    return RATES.get(("ndadam", config.alpha_v, None), [])


def write_made_up(folder: Path) -> None:
    """Write them as a batch would."""
    for result in made_up_results():
        write_result(folder, result)


if __name__ == "__main__":
    write_made_up(Path(sys.argv[1]))
