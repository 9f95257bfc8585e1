"""Trains nothing: makes up what a trial of a match would record, from known laws and seeds."""

import dataclasses
import math
import random
from datetime import UTC, datetime, timedelta

from ndadam.theory.along_schedule import lag_curve
from ndadam.theory.prediction import stationary_effective_lr
from sweeps.match.match_spec import MatchSpec, setting_of
from sweeps.match.proposer import MatchProposer
from sweeps.records import Attempt, Trial, TrialState
from sweeps.search.protocol import Finished, Proposal, Wait
from worker.config.schedules import build_schedule
from worker.config.train_config import TrainConfig
from worker.report import Measurement, Series

START = datetime(2026, 1, 1, tzinfo=UTC)
LAYERS = {"conv1": "jointly_invariant", "conv2": "invariant"}
PROBE = {"counts": {"invariant": 48, "jointly_invariant": 10, "neither": 0}, "layers": LAYERS}


def match_spec(**changes) -> MatchSpec:
    """A constant-rate match of SGD (0.1, 0.9, 0.001) and ND-Adam."""
    spec = {
        "name": "simulated",
        "base": {
            "dataset": "digits",
            "depth": 10,
            "widen_factor": 1.0,
            "recipe": "paper-wrn",
            "lr_schedule": "constant",
            "steps": 2400,
        },
        "source": {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.001},
        "target": {"optimizer": "ndadam", "betas": [0.9, 0.99], "alpha_s": 0.01},
    }
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(spec.get(name), dict):
            spec[name] = {**spec[name], **value}
        else:
            spec[name] = value
    return MatchSpec.model_validate(spec)


class World:
    """Runs proposals by the laws of ``ndadam.theory``, and is the reader of what they recorded.

    ``gain`` is the A that ND-Adam really has; ``shadow_gain`` what source runs report; ``slope``
    bends ND-Adam's law to e = e_0 (alpha / alpha_0)^slope.
    """

    def __init__(self, *, gain=0.9, shadow_gain=None, slope=1.0, noise=0.02, seed_sd=0.004):
        self.gain, self.slope, self.noise, self.seed_sd = gain, slope, noise, seed_sd
        self.shadow_gain = gain if shadow_gain is None else shadow_gain
        self.trials: list[Trial] = []
        self.recorded: dict[int, dict[str, list[Series]]] = {}
        #: Final metrics of source runs that replace the usual ones, and what their probe finds.
        self.extra: dict[str, float] = {}
        self.probe = PROBE
        #: By how much the test error of ND-Adam is higher.
        self.worse = 0.0
        self.diverges = lambda trial: False

    # --- Reader ---

    def metrics(self, number, names=None, max_points=1000):
        return {}

    def series(self, number, name):
        return self.recorded[number].get(name, [])

    # --- Trainer ---

    def start(self, proposal: Proposal) -> Trial:
        """Store a proposal as a waiting trial."""
        number = len(self.trials)
        trial = Trial(
            sweep_id="m",
            number=number,
            point=proposal.point,
            seed=proposal.seed,
            state=TrialState.RUNNING,
            params=proposal.params,
            config=proposal.config.stored(),
            config_key=proposal.config.key(),
            role=proposal.role,
            measurement=(proposal.measurement and proposal.measurement.model_dump(mode="json")),
            objective=None,
            metrics={},
            step=0,
            num_steps=None,
            diverged_at_step=None,
            exit_cause="",
            created_at=START,
            started_at=START,
            finished_at=None,
        )
        self.trials.append(trial)
        return trial

    def finish(self, trial: Trial) -> Trial:
        """Train a started trial to its end."""
        config = TrainConfig.model_validate(trial.config)
        measurement = Measurement.model_validate(trial.measurement or {})
        steps = config.steps
        diverged = self.diverges(trial)
        curve = self.curve(config, steps)
        rng = random.Random(f"{trial.config_key} {trial.seed}")
        shift, x, values = rng.gauss(0, self.seed_sd), 0.0, []
        for e in curve[:: measurement.every]:
            x = 0.8 * x + self.noise * 0.6 * rng.gauss(0, 1)
            values.append(e * math.exp(shift + x))
        if diverged:
            values = values[:17]
        piece = [Series(start=0, every=measurement.every, values=values)]
        names = ["effective_lr", *(f"effective_lr/{layer}" for layer in LAYERS)]
        self.recorded[trial.number] = {name: piece for name in names}
        metrics = {f"effective_lr/{layer}": values[-1] for layer in LAYERS}
        worse = self.worse if config.optimizer == "ndadam" else 0.0
        metrics["test_error"] = 0.1 + worse + rng.gauss(0, 0.002)
        if measurement.shadow_betas:
            metrics |= {"gain": self.shadow_gain, "gain/conv1": 0.8, "gain/conv2": 1.0}
            metrics |= {"kappa": 0.001, "balance_residual": 1e-6, "gradient_memory": 1.0}
            metrics |= self.extra
        end = START + timedelta(seconds=10)
        attempt = Attempt(
            id=trial.number,
            number=0,
            state=TrialState.COMPLETE,
            started_at=START,
            finished_at=end,
            exit_cause="complete",
            provenance={"probe": self.probe},
            mlflow_run_id=None,
        )
        ended = dataclasses.replace(
            trial,
            state=TrialState.DIVERGED if diverged else TrialState.COMPLETE,
            diverged_at_step=17 if diverged else None,
            metrics=metrics,
            step=17 if diverged else steps,
            num_steps=steps,
            finished_at=end,
            attempts=(attempt,),
        )
        self.trials[trial.number] = ended
        return ended

    def curve(self, config: TrainConfig, steps: int) -> list[float]:
        """Effective learning rate of every step."""
        setting = setting_of(config)
        factor = build_schedule(config.lr_schedule, num_steps=steps, steps_per_epoch=1)
        curve = lag_curve(setting, factor, range(steps), gain=self.gain).effective_lr
        if config.optimizer != "ndadam" or self.slope == 1.0:
            return list(curve)
        full = stationary_effective_lr(setting, self.gain)
        return [e * (full / 0.01) ** (self.slope - 1) for e in curve]


def run(spec: MatchSpec, world: World, *, at_once=2, stop_after=None):
    """Drive a match to its end as a driver would; returns the proposer and its last step."""
    proposer = MatchProposer(spec, world)
    going = [trial for trial in world.trials if not trial.state.is_finished()]
    for trial in world.trials:
        (proposer.running if trial in going else proposer.tell)(trial)
    while True:
        step = proposer.next()
        if isinstance(step, Finished) and not going:
            return proposer, step
        if isinstance(step, Proposal) and len(going) < at_once:
            going.append(world.start(step))
            proposer.running(going[-1])
            continue
        assert isinstance(step, Proposal | Wait | Finished)
        proposer.tell(world.finish(going.pop(0)))
        ended = sum(trial.state.is_finished() for trial in world.trials)
        if stop_after is not None and ended >= stop_after:
            return proposer, step
