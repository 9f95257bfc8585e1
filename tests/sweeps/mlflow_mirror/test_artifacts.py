"""What a finished sweep leaves in MLflow: its table, figures, environment and the best network."""

import json
from pathlib import Path
from typing import Any

import pytest

from sweeps.analysis.arms import Analysis, analysis
from sweeps.figures.matplotlib_files import drawing
from sweeps.mlflow_mirror import artifacts as mirror_artifacts
from sweeps.mlflow_mirror.artifacts import Client, SweepArtifacts
from sweeps.mlflow_mirror.figures import interactive_page, sweep_charts
from sweeps.mlflow_mirror.mirror import Mirror
from sweeps.records import NewTrial, Sweep, SweepState, Trial, TrialState
from sweeps.retention.best_weights import keep_if_best, kept, weights_of
from sweeps.retention.places import Places
from sweeps.store.store import Store
from tests.sweeps.mlflow_mirror.recording_client import RecordingClient
from tests.sweeps.store_cases import LEASE, report
from worker.config.train_config import TrainConfig
from worker.data.fetch import prepare_digits
from worker.training.train import train

OBJECTIVE = {"metric": "validation_error", "direction": "minimize"}
SPEC: dict[str, Any] = {
    "base": {"dataset": "digits", "seed": 0, "alpha_v": 0.05},
    "space": {
        "alpha_v": {"kind": "float", "low": 0.01, "high": 0.1, "log": True},
        "gamma_c": {"kind": "choice", "values": [None, 2.5]},
    },
    "sampler": "random",
    "num_points": 2,
    "replicates": 2,
    "objective": OBJECTIVE,
}
CONFIG = {
    "dataset": "digits",
    "depth": 10,
    "widen_factor": 1.0,
    "steps": 2,
    "batch_size": 16,
    "last_batch": "drop",
    "crop_pad": 1,
}


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    """SQLite alone: nothing here depends on the database."""
    return sqlite_store


def finished(store: Store, home: Path | None = None) -> str:
    """A complete sweep of two points with two seeds; with ``home``, weights of the best trial."""
    store.create_sweep("sweep", SPEC, name="small", notes="A *small* one.", num_trials=4)
    claim = store.claim("test", LEASE)
    assert claim is not None
    places = Places(home or Path("/nonexistent"), claim.sweep_id)
    for number, (alpha_v, gamma_c, error) in enumerate([(0.05, 2.5, 0.02), (0.02, None, 0.05)]):
        params = {"alpha_v": alpha_v, "gamma_c": gamma_c}
        new = [
            NewTrial(number, seed, params, params | {"seed": seed}, f"k{number}") for seed in (0, 1)
        ]
        for trial in store.add_trials(claim, new):
            value = error + 0.002 * trial.seed
            attempt = store.start_attempt(claim, trial.number)
            about = {"versions": {"torch": "2.14.1"}, "card": "none", "probe": {"conv1": "x"}}
            reports = [report(50, 3 * value), report(100, value, provenance=about)]
            store.record(claim, trial.number, attempt.id, reports)
            done = TrialState.COMPLETE
            store.finish_attempt(
                claim, trial.number, attempt.id, done, "complete", trial_state=done, objective=value
            )
            if home is not None and trial.number == 0:
                _train(places, trial.number, home)
                keep_if_best(store, places, store.trial(claim.sweep_id, trial.number))
    store.release(claim, SweepState.COMPLETE, "all done")
    return claim.sweep_id


def _train(places: Places, number: int, home: Path) -> None:
    config = TrainConfig(**CONFIG, seed=number)
    for _ in train(config, data_home=home / "data", checkpoint_dir=places.checkpoints(number)):
        pass


def test_table_figures_and_environment_are_sent_once(store: Store) -> None:
    sweep = store.get_sweep(finished(store))
    client, artifacts = RecordingClient(), SweepArtifacts(store, page_url="http://localhost:8000/")

    for _ in range(2):
        artifacts.send(client, sweep, "run")

    assert client.calls == 1
    assert set(client.files) == {
        "results.md",
        "results.csv",
        "environment.json",
        "figures/learning-curves.png",
        "figures/sensitivity-alpha_v.png",
        "figures/sensitivity-gamma_c.png",
        "figures/interactive.html",
    }
    assert client.files["figures/learning-curves.png"].startswith(b"\x89PNG")
    assert json.loads(client.files["environment.json"]) == {
        "versions": {"torch": "2.14.1"},
        "card": "none",
    }


def test_a_run_that_is_made_anew_gets_all_of_it_again(store: Store) -> None:
    sweep = store.get_sweep(finished(store))
    first, anew, artifacts = RecordingClient(), RecordingClient(), SweepArtifacts(store)

    artifacts.send(first, sweep, "run")
    artifacts.send(anew, sweep, "run after its experiment was deleted")

    assert (anew.calls, anew.files.keys()) == (1, first.files.keys())
    assert anew.values == first.values != {}
    assert anew.params == first.params != {}


def test_the_results_are_worked_out_once_for_description_and_table(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = store.get_sweep(finished(store))
    asked: list[str] = []

    def spy(store: Store, sweep_id: str) -> Analysis:
        asked.append(sweep_id)
        return analysis(store, sweep_id)

    monkeypatch.setattr(mirror_artifacts, "analysis", spy)
    client = RecordingClient()
    SweepArtifacts(store).send(client, sweep, "run")

    assert client.files["results.md"].decode() in client.tags["mlflow.note.content"]
    assert asked == [sweep.id]


def test_the_description_is_markdown_with_the_table_and_the_way_back(store: Store) -> None:
    sweep = store.get_sweep(finished(store))
    client = RecordingClient()
    SweepArtifacts(store, page_url="http://localhost:8000/").send(client, sweep, "run")

    text = client.tags["mlflow.note.content"]
    link = f"[Page of the sweep](http://localhost:8000/sweeps/{sweep.id})"
    # Above all that may be folded.
    assert text.startswith(f"{link} · complete: all done\n\nA *small* one.\n\n")
    assert "| 2.10 (" in text


def test_the_run_of_a_sweep_can_be_compared_by_what_it_fixed_and_its_best_value(
    store: Store,
) -> None:
    sweep = store.get_sweep(finished(store))
    client = RecordingClient()
    SweepArtifacts(store).send(client, sweep, "run")

    assert client.params == {"dataset": "digits", "sampler": "random"}
    assert sweep.best is not None
    assert client.values == {"validation_error": sweep.best["mean"]}


def test_new_notes_of_an_ended_sweep_leave_its_description_whole(store: Store) -> None:
    sweep_id = finished(store)
    client, artifacts = RecordingClient(), SweepArtifacts(store)
    artifacts.send(client, store.get_sweep(sweep_id), "run")
    store.set_notes(sweep_id, "Looked at *again*.")
    client.tags["mlflow.note.content"] = "Looked at *again*."

    artifacts.send(client, store.get_sweep(sweep_id), "run")

    assert client.tags["mlflow.note.content"].startswith(
        "complete: all done\n\nLooked at *again*.\n\n"
    )
    assert "| 2.10 (" in client.tags["mlflow.note.content"]
    assert client.calls == 1


def test_figures_hold_what_was_measured_in_percent(store: Store) -> None:
    curves, alpha_v, gamma_c = sweep_charts(store, store.get_sweep(finished(store)))

    assert list(curves.series[0].x) == [50, 100]
    assert curves.series[0].y == pytest.approx([6.3, 2.1])
    assert alpha_v.x.is_log
    assert alpha_v.series[0].x == [0.05, 0.02]
    assert alpha_v.series[0].y == pytest.approx([2.1, 5.1])
    # Unset is no place on an axis of numbers.
    assert gamma_c.series[0].x == [2.5]
    assert drawing(alpha_v).png.startswith(b"\x89PNG")


def test_the_interactive_page_needs_no_other_host(store: Store) -> None:
    text = interactive_page("a < b", sweep_charts(store, store.get_sweep(finished(store))))

    head, _, body = text.rpartition('<div id="figures">')
    assert "a &lt; b" in head
    assert "http" not in body
    assert 'src="' not in head[:300]


class TestKeptModel:
    def trial(self, number: int, objective: float | None, state: str = "complete") -> Trial:
        at: Any = None
        return Trial(
            "s", number, 0, 0, TrialState(state), {}, {}, "k", "", None, objective, {}, 1, 1, None,
            "", at, None, None,
        )  # fmt: skip

    def places(self, store: Store, home: Path, direction: str = "minimize") -> Places:
        spec = {"objective": {"metric": "validation_error", "direction": direction}}
        sweep, _ = store.create_sweep("sweep", spec, name="s", num_trials=4)
        return Places(home, sweep.id)

    def weights(self, places: Places, number: int) -> None:
        places.checkpoints(number).mkdir(parents=True)
        (places.checkpoints(number) / "weights.pt").write_bytes(str(number).encode())

    @pytest.mark.parametrize(("direction", "best"), [("minimize", 1), ("maximize", 2)])
    def test_only_the_best_is_kept(
        self, store: Store, tmp_path: Path, direction: str, best: int
    ) -> None:
        places = self.places(store, tmp_path, direction)
        for number, objective in enumerate((0.2, 0.1, 0.3)):
            self.weights(places, number)
            keep_if_best(store, places, self.trial(number, objective))

        about = kept(tmp_path, places.sweep_id)
        assert about is not None
        assert about["trial"] == best
        assert weights_of(tmp_path, places.sweep_id).read_bytes() == str(best).encode()

    def test_what_has_no_result_or_no_weights_is_not_kept(
        self, store: Store, tmp_path: Path
    ) -> None:
        places = self.places(store, tmp_path)
        self.weights(places, 0)

        assert not keep_if_best(store, places, self.trial(0, None))
        assert not keep_if_best(store, places, self.trial(0, 0.1, "diverged"))
        assert not keep_if_best(store, places, self.trial(1, 0.1))
        assert kept(tmp_path, places.sweep_id) is None


@pytest.mark.stack
def test_the_best_network_is_loaded_from_mlflow_with_signature_and_example(
    store: Store, tmp_path: Path, mlflow_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow
    import torch

    prepare_digits(tmp_path / "data")
    sweep_id = finished(store, tmp_path)
    runs_before: list[str | None] = []

    class Artifacts(SweepArtifacts):
        def send(self, client: Client, sweep: Sweep, run_id: str) -> None:
            runs_before.extend(one.mlflow_run_id for one in store.attempts(sweep.id))
            super().send(client, sweep, run_id)

    mirror = Mirror(
        store,
        mlflow_url,
        page_url="http://localhost:8000",
        artifacts=Artifacts(store, tmp_path, "http://localhost:8000"),
    )
    # MLflow would pickle the network here, left to itself, and name our modules in it.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "databricks")
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    while mirror.turn():
        pass
    state = store.get_sweep(sweep_id).mirror
    assert state is not None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_url)
    address = f"runs:/{state['run_id']}/model"
    model = mlflow.pytorch.load_model(address)
    info = mlflow.models.get_model_info(address)
    child = store.trial(sweep_id, 0).attempts[0].mlflow_run_id
    assert child is not None
    # Curves first: figures and models take their time.
    assert child in runs_before
    assert None not in runs_before
    note = mlflow.MlflowClient(mlflow_url).get_run(child).data.tags["mlflow.note.content"]

    with torch.no_grad():
        logits = model(torch.zeros(3, 1, 8, 8))
    assert logits.shape == (3, 10)
    assert info.signature.inputs is not None
    assert info.saved_input_example_info is not None
    assert "each image less its mean over its deviation" in info.metadata["input"]
    assert f"(http://localhost:8000/sweeps/{sweep_id}/trials/0)" in note
