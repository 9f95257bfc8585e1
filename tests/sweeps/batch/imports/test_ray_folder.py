"""Folders of Ray Tune: written by Ray's own loggers, without starting Ray.

The same reader was tried on the folder of a real run (Ray 2.60, ASHA, a function that raises).
"""

import json
import shutil
from pathlib import Path

import pytest
from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback

from sweeps.batch.imports.as_sweep import import_found
from sweeps.batch.imports.ray_folder import read_experiment
from sweeps.records import TrialState
from sweeps.store.commands.imports import ImportRefused


class TuneTrial:
    """As much of a trial as Ray's loggers ask for."""

    checkpoint = None

    def __init__(self, folder, number, config):
        self.trial_id = f"a5730_{number:05}"
        self.config = config
        name = f"train_{self.trial_id}_{number}_lr={config['lr']:.4f}_2026-05-01_10-00-0{number}"
        self.local_path = str(folder / name)
        self.init_local_path()

    def init_local_path(self):
        Path(self.local_path).mkdir(parents=True, exist_ok=True)


def result(trial, step, loss, *, done=False, **more):
    """A report as the controller hands it to loggers."""
    return {
        "loss": loss,
        "nested": {"acc": 1 - loss},
        "timestamp": 1_780_000_000 + step,
        "checkpoint_dir_name": None,
        "done": done,
        "training_iteration": step,
        "trial_id": trial.trial_id,
        "date": "2026-05-01_10-00-00",
        "time_this_iter_s": 1.0,
        "time_total_s": float(step),
        "pid": 4711,
        "hostname": "gpu-1",
        "node_ip": "127.0.0.1",
        "config": trial.config,
        "time_since_restore": float(step),
        "iterations_since_restore": step,
        **more,
    }


@pytest.fixture
def experiment(tmp_path):
    """Two rates with two seeds to the end, one stopped early, one that raised, one that runs."""
    folder = tmp_path / "mine"
    loggers = [JsonLoggerCallback(), CSVLoggerCallback()]
    settings = [(0.1, 0), (0.1, 1), (0.01, 0), (0.01, 1), (1.0, 0), (0.5, 0), (0.3, 0)]
    trials = []
    for number, (lr, seed) in enumerate(settings):
        config = {"lr": lr, "seed": seed, "opt": {"name": "sgd", "betas": [0.9, 0.99]}}
        trial = TuneTrial(folder, number, config)
        trials.append(trial)
        last = {4: 2, 5: 1, 6: 1}.get(number, 4)
        for step in range(1, last + 1):
            done = step == last and number == 4
            report = result(trial, step, lr / step + 0.01 * seed, done=done)
            for logger in loggers:
                logger.log_trial_result(step, trial, report)
        for logger in loggers:
            logger.log_trial_end(trial)
    (folder / trials[5].local_path / "error.txt").write_text(
        "Failure # 1\nTraceback\nValueError: no such optimizer\n"
    )
    write_state(folder, trials, {5: "ERROR", 6: "RUNNING"})
    return folder


def write_state(folder, trials, statuses):
    """As ``TuneController.save_to_dir`` writes it: each trial as JSON in JSON."""
    data = [
        [
            json.dumps({"trial_id": one.trial_id, "status": statuses.get(n, "TERMINATED")}),
            json.dumps({"start_time": 1.0}),
        ]
        for n, one in enumerate(trials)
    ]
    data.append([json.dumps({"trial_id": "a5730_00099", "status": "PENDING"}), "{}"])
    state = {"trial_data": data, "runner_data": {"_metric": "loss"}, "stats": {"start_time": 1.0}}
    (folder / "experiment_state-2026-05-01_10-00-00.json").write_text(json.dumps(state))


def test_an_experiment_becomes_a_sweep(store, experiment):
    found = read_experiment(experiment, objective=None, direction="minimize")
    report = import_found(store, found)

    sweep = report.sweep.sweep
    trials = list(store.all_trials(sweep.id))
    assert (sweep.name, sweep.objective.metric) == ("mine", "loss")
    assert sweep.best["params"] == {"lr": 0.01}
    assert (sweep.best["n"], sweep.best["mean"]) == (2, pytest.approx(0.0075))
    assert sweep.spec["base"] == {"opt.name": "sgd", "opt.betas": [0.9, 0.99], "seed": 0}
    assert [trial.state for trial in trials] == [
        *[TrialState.COMPLETE] * 4,
        TrialState.PRUNED,
        TrialState.FAILED,
    ]
    assert trials[5].exit_cause == "ValueError: no such optimizer"
    assert store.metrics(sweep.id, 0)["nested/acc"][0] == (1, pytest.approx(0.9))
    assert trials[0].metrics == {"loss": pytest.approx(0.025), "nested/acc": pytest.approx(0.975)}
    assert (trials[0].finished_at - trials[0].started_at).total_seconds() == 4
    provenance = store.trial(sweep.id, 0).attempts[0].provenance
    assert provenance == {
        "source": "Ray Tune",
        "source_trial": "a5730_00000",
        "host": "gpu-1",
        "pid": 4711,
    }
    assert report.taken == [
        "6 trials of 4 points: 4 complete, 1 pruned, 1 failed",
        "objective loss, smaller is better",
        "fields that vary: lr; the same in all: opt.betas, opt.name",
        "other metrics: nested/acc",
        "curves of 6 trials: loss, nested/acc",
        "intervals for 2 of 4 points, of 2 complete trials each",
    ]
    assert report.lacks == [
        "1 trial left out: running",
        "1 trial left out: not started",
        "1 trial stopped by Tune before step 4, by its scheduler or a stopping rule: taken as "
        "pruned (--stopped-early)",
    ]


def test_trials_stopped_early_can_count_as_complete(experiment):
    found = read_experiment(
        experiment, objective="nested/acc", direction="maximize", stopped_early="complete"
    )

    assert found.trials[4].state == TrialState.COMPLETE


def test_importing_again_is_one_sweep(store, experiment):
    first, again = (
        import_found(store, read_experiment(experiment, objective=None, direction="minimize"))
        for _ in range(2)
    )

    assert (first.sweep.added, again.sweep.added) == (6, 0)
    assert first.sweep.sweep.id == again.sweep.sweep.id


def test_progress_csv_says_the_same_as_result_json(experiment):
    whole = read_experiment(experiment, objective="loss", direction="minimize")
    for path in experiment.glob("*/result.json"):
        path.unlink()

    table = read_experiment(experiment, objective="loss", direction="minimize")

    assert [(t.label, t.state, t.curves) for t in table.trials] == [
        (t.label, t.state, t.curves) for t in whole.trials
    ]


def test_without_a_state_file_trials_without_an_error_count_as_finished(experiment):
    next(experiment.glob("experiment_state-*.json")).unlink()

    found = read_experiment(experiment, objective="loss", direction="minimize")

    assert len(found.trials) == 7
    assert "no experiment_state file: trials without an error count as finished" in found.notes
    with pytest.raises(ImportRefused, match="--objective must be given"):
        read_experiment(experiment, objective=None, direction="minimize")


def test_a_line_that_was_cut_off_and_a_loss_of_nan_are_read(experiment):
    path = next(experiment.glob("train_a5730_00000*/result.json"))
    lines = path.read_text().splitlines()
    lines[-1] = lines[-1].replace('"loss": 0.025', '"loss": NaN')
    path.write_text("\n".join([*lines, '{"loss": 0.0']))

    found = read_experiment(experiment, objective="loss", direction="minimize")

    assert found.trials[0].state == TrialState.DIVERGED
    assert len(found.trials[0].curves["loss"]) == 3


def test_a_trial_that_reported_nothing_is_failed(store, experiment):
    for name in ("result.json", "progress.csv"):
        next(experiment.glob(f"train_a5730_00003*/{name}")).unlink()

    found = read_experiment(experiment, objective="loss", direction="minimize")

    trial = next(one for one in found.trials if one.label == "a5730_00003")
    assert (trial.state, trial.cause) == (TrialState.FAILED, "no value of loss")


def test_what_is_no_experiment_is_refused_in_a_sentence(tmp_path, experiment):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ImportRefused, match="must hold folders of trials"):
        read_experiment(empty, objective="loss", direction="minimize")
    with pytest.raises(ImportRefused, match="reports 'f1'; they report loss, nested/acc"):
        read_experiment(experiment, objective="f1", direction="minimize")
    broken = next(experiment.glob("*/params.json"))
    broken.write_text("{")
    with pytest.raises(ImportRefused, match="cannot be read"):
        read_experiment(experiment, objective="loss", direction="minimize")
    shutil.rmtree(broken.parent)
    assert read_experiment(experiment, objective="loss", direction="minimize").trials
