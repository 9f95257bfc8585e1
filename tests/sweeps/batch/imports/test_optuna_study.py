"""Real studies of Optuna: states, conditions, domains, curves, several objectives, refusals."""

import sqlite3

import optuna
import pytest

from sweeps.batch.imports.as_sweep import import_found
from sweeps.batch.imports.optuna_study import read_study
from sweeps.records import TrialState
from sweeps.store.commands.imports import ImportRefused


@pytest.fixture(autouse=True)
def _quiet():
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    yield
    optuna.logging.set_verbosity(level)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'study.db'}"


def close(study):
    study._storage.remove_session()
    study._storage._backend.engine.dispose()


def objective(trial):
    lr = trial.suggest_float("lr", 1e-4, 1.0, log=True)
    name = trial.suggest_categorical("optimizer", ["sgd", "adam"])
    width = trial.suggest_int("width", 8, 64, step=8)
    momentum = trial.suggest_float("momentum", 0.0, 0.9) if name == "sgd" else 0.0
    for step in range(4):
        trial.report(lr + 1 / (step + 1), step)
        if trial.number == 3 and step == 2:
            raise optuna.TrialPruned
    if trial.number == 5:
        raise RuntimeError("no memory")
    trial.set_user_attr("val_loss", lr)
    trial.set_user_attr("note", "text")
    return lr + 0.1 * momentum + width / 1000


@pytest.fixture
def study(url):
    sampler = optuna.samplers.RandomSampler(seed=0)
    made = optuna.create_study(study_name="mnist", storage=url, sampler=sampler)
    made.optimize(objective, n_trials=24, catch=(RuntimeError,))
    made.ask()
    close(made)
    return made


def test_a_study_becomes_a_sweep(store, study, url):
    report = import_found(store, read_study("mnist", url))

    sweep = report.sweep.sweep
    trials = list(store.all_trials(sweep.id))
    assert sweep.name == "mnist"
    assert sweep.spec["space"]["lr"] == {"kind": "float", "low": 1e-4, "high": 1.0, "log": True}
    assert sweep.spec["space"]["width"] == {
        "kind": "int",
        "low": 8,
        "high": 64,
        "log": False,
        "step": 8,
    }
    assert sweep.spec["space"]["momentum"]["when"] == {"optimizer": ["sgd"]}
    assert (trials[3].state, trials[5].state) == (TrialState.PRUNED, TrialState.FAILED)
    assert sweep.best["mean"] == pytest.approx(study.best_value)
    assert store.metrics(sweep.id, 0)["value"][0] == (0, pytest.approx(trials[0].params["lr"] + 1))
    assert trials[0].metrics["val_loss"] == trials[0].params["lr"]
    assert sweep.result["importance"]
    assert report.taken == [
        "24 trials of 24 points: 22 complete, 1 pruned, 1 failed",
        "objective value, smaller is better",
        "fields that vary: lr, optimizer, width, momentum",
        "other metrics: val_loss",
        "curves of 24 trials: value",
    ]
    assert report.lacks == [
        "n = 1 for every point: no intervals and no verdicts",
        "no seeds: repetitions of a point are numbered as they come",
        "1 trial left out: running",
        "user attributes that are no numbers",
    ]


def test_times_are_those_of_the_trials(store, study, url):
    found = read_study("mnist", url)

    assert found.trials[0].started_at == study.trials[0].datetime_start.astimezone()
    assert found.trials[0].finished_at >= found.trials[0].started_at


def test_importing_again_is_one_sweep_and_a_study_that_goes_on_adds_its_trials(store, study, url):
    first = import_found(store, read_study("mnist", url))
    again = import_found(store, read_study("mnist", url))
    made = optuna.load_study(study_name="mnist", storage=url)
    made.optimize(objective, n_trials=2)
    close(made)
    grown = import_found(store, read_study("mnist", url))

    assert (again.sweep.added, grown.sweep.added) == (0, 2)
    assert first.sweep.sweep.id == grown.sweep.sweep.id


def test_the_file_of_a_storage_names_its_only_study(study, tmp_path):
    assert read_study(str(tmp_path / "study.db")).name == "mnist"
    assert read_study("mnist", str(tmp_path / "study.db")).name == "mnist"


def test_a_journal_is_read_too(store, tmp_path):
    path = tmp_path / "journal.log"
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    made = optuna.create_study(study_name="j", storage=optuna.storages.JournalStorage(backend))
    made.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)

    found = read_study(str(path))

    assert (found.name, len(found.trials)) == ("j", 3)


def test_seeds_are_a_parameter_or_an_attribute(store, url):
    made = optuna.create_study(study_name="seeds", storage=url, direction="maximize")
    made.enqueue_trial({"x": 1, "seed": 7})
    made.enqueue_trial({"x": 1, "seed": 8})
    made.optimize(lambda t: t.suggest_int("x", 1, 3) + t.suggest_int("seed", 0, 9) / 10, n_trials=2)
    close(made)

    report = import_found(store, read_study("seeds", url))

    [point] = store.all_points(report.sweep.sweep.id)
    assert (point.params, point.n, point.mean) == ({"x": 1}, 2, pytest.approx(1.75))
    assert [trial.seed for trial in store.all_trials(report.sweep.sweep.id)] == [7, 8]
    assert report.sweep.sweep.objective.direction == "maximize"


@pytest.mark.filterwarnings("ignore:.*set_metric_names is experimental")
def test_several_objectives_make_a_front_and_one_can_be_chosen(store, url):
    made = optuna.create_study(study_name="two", storage=url, directions=["minimize", "maximize"])
    made.set_metric_names(["loss", "accuracy"])
    made.optimize(lambda t: (t.suggest_float("x", 0, 1), t.params["x"] ** 2), n_trials=3)
    close(made)

    first = read_study("two", url)
    second = read_study("two", url, objective="accuracy")

    assert (first.objective, first.direction) == ("loss", "minimize")
    assert (second.objective, second.direction) == ("accuracy", "maximize")
    assert set(first.trials[0].metrics) == {"loss", "accuracy"}
    assert first.notes == []
    assert "of 2 objectives the sweep has accuracy; loss are metrics" in second.notes[0]
    whole, one = (import_found(store, found).sweep.sweep for found in (first, second))
    assert [vars(of) for of in whole.objectives] == [
        {"metric": "loss", "direction": "minimize", "reference": None},
        {"metric": "accuracy", "direction": "maximize", "reference": None},
    ]
    front = store.get_sweep(whole.id).result["front"]
    # What is lower is less accurate: no point beats another.
    assert (len(front["points"]), front["num_points"]) == (3, 3)
    assert one.id != whole.id
    assert not one.has_front
    assert one.spec["metrics"]["loss"]["direction"] == "minimize"
    with pytest.raises(ImportRefused, match="has the objectives loss, accuracy, got 'f1'"):
        read_study("two", url, objective="f1")


def test_the_only_objective_may_be_named(url, study):
    assert read_study("mnist", url, objective="error").objective == "error"


def test_ranges_that_differ_between_trials_are_covered_by_one(url):
    made = optuna.create_study(study_name="r", storage=url)
    made.optimize(lambda t: t.suggest_float("x", 0, 1 + t.number), n_trials=3)
    close(made)

    assert read_study("r", url).domains["x"] == {
        "kind": "float",
        "low": 0.0,
        "high": 3.0,
        "log": False,
    }


def test_what_is_not_there_is_a_sentence_and_nothing_is_made(tmp_path, study, url):
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE mine (a)")
    database.close()
    text = tmp_path / "text.log"
    text.write_text("not a journal\n")

    for arguments, sentence in [
        (("mnist",), "name the storage of the study with --storage"),
        (("mnist", f"sqlite:///{tmp_path / 'no.db'}"), "there is no storage .*no.db"),
        (("nope", url), "there is no study 'nope' in .*study.db; there are mnist"),
        ((str(other),), "other.db holds no studies of Optuna"),
        ((str(text),), "text.log holds no studies of Optuna"),
    ]:
        with pytest.raises(ImportRefused, match=sentence):
            read_study(*arguments)
    assert not (tmp_path / "no.db").exists()
    with sqlite3.connect(other) as database:
        assert len(database.execute("SELECT name FROM sqlite_master").fetchall()) == 1
    database.close()


def test_a_study_without_finished_trials_is_refused(store, url):
    made = optuna.create_study(study_name="empty", storage=url)
    made.ask()
    close(made)

    with pytest.raises(ImportRefused, match=r"no finished trial \(1 trial left out: running\)"):
        import_found(store, read_study("empty", url))
