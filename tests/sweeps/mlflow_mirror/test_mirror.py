"""The mirror against a real MLflow server: sweeps, attempts, metrics, names and ends."""

import time

import pytest
from mlflow.entities import Metric, ViewType
from mlflow.tracking import MlflowClient

from sweeps.mlflow_mirror.mirror import Mirror
from sweeps.records import Claim, SweepState, TrialState
from sweeps.store.commands.agent_requests import AgentReport, AgentReports, Ask, Handout, Tell
from sweeps.store.store import Store
from tests.sweeps.mlflow_mirror.mirror_cases import (
    client,
    history,
    mirror,
    proxy,
    runs_of,
    send_all,
    store,
)
from tests.sweeps.mlflow_mirror.mlflow_server import Proxy
from tests.sweeps.store_cases import LEASE, claimed, new_sweep, report, run, trial

__all__ = ["client", "mirror", "proxy", "store"]

pytestmark = pytest.mark.stack


def test_nothing_runs_on_in_mlflow_of_a_sweep_that_was_deleted(
    store: Store, mirror: Mirror, client: MlflowClient
) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0)])
    store.start_attempt(claim, 0)
    send_all(mirror)
    place = store.get_sweep(claim.sweep_id).mirror
    assert place is not None
    store.release(claim, SweepState.CANCELLED, "cancelled")
    store.delete_sweep(claim.sweep_id)

    send_all(mirror)

    runs = client.search_runs([place["experiment_id"]])
    assert [run.info.status for run in runs] == ["KILLED", "KILLED"]


def test_a_sweep_becomes_a_run_with_a_run_per_attempt(
    store: Store, mirror: Mirror, client: MlflowClient
) -> None:
    claim = claimed(store, notes="why")
    store.add_trials(claim, [trial(0), trial(1)])
    run(store, claim, 0, 0.25)
    attempt = store.start_attempt(claim, 1)
    store.record(claim, 1, attempt.id, [report(10, 0.5), report(20, 0.4)])

    send_all(mirror)

    first, second = runs_of(client, store, claim.sweep_id)
    assert (first.info.status, second.info.status) == ("FINISHED", "RUNNING")
    assert first.data.params == {"lr": "0.0", "seed": "0"}
    assert first.data.tags["page"] == f"http://localhost:8000/sweeps/{claim.sweep_id}/trials/0"
    assert history(client, second, "validation_error") == [(10, 0.5), (20, 0.4)]
    place = store.get_sweep(claim.sweep_id).mirror
    assert place is not None
    parent = client.get_run(place["run_id"])
    assert parent.info.status == "RUNNING"
    assert parent.data.tags["ndsweep.sweep"] == claim.sweep_id
    assert parent.data.tags["mlflow.note.content"].endswith("\n\nwhy")


def test_trials_of_agents_become_runs(store: Store, mirror: Mirror, client: MlflowClient) -> None:
    new_sweep(store, spec={"training": "external", "objective": {"metric": "loss"}})
    claim = store.claim("runner-1", LEASE, external=True)
    assert claim is not None
    store.add_trials(claim, [trial(0)])
    (handout,) = store.serve_agents([Ask(claim.sweep_id, "node7")])
    assert isinstance(handout, Handout)
    lease = handout.trials[0].lease
    reports = tuple(AgentReport(step, {"loss": 1 / step}) for step in (1, 2))
    store.serve_agents([AgentReports(claim.sweep_id, 0, lease, reports)])
    send_all(mirror)
    store.serve_agents([Tell(claim.sweep_id, 0, lease, TrialState.COMPLETE)])

    send_all(mirror)

    (only,) = runs_of(client, store, claim.sweep_id)
    assert only.info.status == "FINISHED"
    assert history(client, only, "loss") == [(1, 1.0), (2, 0.5)]
    assert only.data.tags["provenance.agent"] == "node7"


def test_metrics_carry_the_time_they_were_reported_at(
    store: Store, mirror: Mirror, client: MlflowClient
) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0)])
    before = time.time() * 1000
    run(store, claim, 0, 0.25)
    after = time.time() * 1000
    time.sleep(0.2)

    send_all(mirror)

    (only,) = runs_of(client, store, claim.sweep_id)
    (metric,) = client.get_metric_history(only.info.run_id, "validation_error")
    assert before - 1 <= metric.timestamp <= after + 1


@pytest.mark.parametrize(
    ("state", "status", "tag"),
    [
        (TrialState.COMPLETE, "FINISHED", None),
        (TrialState.PRUNED, "FINISHED", "stopped early"),
        (TrialState.DIVERGED, "FINISHED", "diverged"),
        (TrialState.FAILED, "FAILED", None),
        (TrialState.CANCELLED, "KILLED", None),
    ],
)
def test_every_end_of_a_trial_shows_as_what_it_is(
    store: Store,
    mirror: Mirror,
    client: MlflowClient,
    state: TrialState,
    status: str,
    tag: str | None,
) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0)])
    run(store, claim, 0, 0.25, state)

    send_all(mirror)

    (only,) = runs_of(client, store, claim.sweep_id)
    assert only.info.status == status
    assert only.data.tags["state"] == state.value
    assert tag is None or only.data.tags[tag] == "true"


def test_values_that_are_not_numbers_are_flagged_and_never_sent(
    store: Store, mirror: Mirror, client: MlflowClient
) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0)])
    attempt = store.start_attempt(claim, 0)
    values = {1: float("nan"), 2: float("inf"), 3: float("-inf"), 4: 0.5}
    reports = [report(step, metrics={"loss": value}) for step, value in values.items()]
    store.record(claim, 0, attempt.id, reports)

    send_all(mirror)

    (only,) = runs_of(client, store, claim.sweep_id)
    assert history(client, only, "loss") == [(4, 0.5)]
    assert only.data.tags["non_finite.loss"] == "first at step 1"


def test_names_that_mlflow_refuses_arrive_under_others_with_the_original_kept(
    store: Store, mirror: Mirror, client: MlflowClient
) -> None:
    names = ["α^v", "‖Δw‖/‖w‖", "lr[v]", "lr(v)", "test/acc@1", "", "x" * 300, "a//b", "plain"]
    claim = claimed(store)
    store.add_trials(claim, [trial(0)])
    attempt = store.start_attempt(claim, 0)
    values = {name: float(index) for index, name in enumerate(names)}
    store.record(claim, 0, attempt.id, [report(1, metrics=values)])

    send_all(mirror)

    (only,) = runs_of(client, store, claim.sweep_id)
    assert sorted(only.data.metrics.values()) == sorted(values.values())
    assert only.data.metrics["plain"] == values["plain"]
    prefix = "ndsweep.name."
    tags = only.data.tags.items()
    originals = {tag.removeprefix(prefix): name for tag, name in tags if tag.startswith(prefix)}
    by_original = {originals.get(name, name): value for name, value in only.data.metrics.items()}
    assert by_original == values


def test_many_and_long_parameters_all_arrive(
    store: Store, mirror: Mirror, client: MlflowClient
) -> None:
    claim = claimed(store)
    config = {f"p{i}": i for i in range(250)} | {"long": "x" * 7000, "γ_C": 2.5, "seed": 0}
    new = trial(0)
    new = type(new)(0, 0, new.params, config, "key")
    store.add_trials(claim, [new])
    run(store, claim, 0, 0.5)

    send_all(mirror)

    (only,) = runs_of(client, store, claim.sweep_id)
    assert {f"p{i}": str(i) for i in range(250)}.items() <= only.data.params.items()
    assert "2.5" in only.data.params.values()
    assert only.data.params["long"].endswith(
        "(cut; the whole text is the artifact params/long.txt)"
    )
    folder = client.list_artifacts(only.info.run_id, "params")
    assert [file.path for file in folder] == ["params/long.txt"]
    assert folder[0].file_size == 7000


def test_more_metrics_than_a_request_holds_arrive_in_order_and_once(
    store: Store, mirror: Mirror, client: MlflowClient
) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0)])
    attempt = store.start_attempt(claim, 0)
    store.record(claim, 0, attempt.id, [report(step, step / 3000) for step in range(1, 2501)])

    send_all(mirror)

    (only,) = runs_of(client, store, claim.sweep_id)
    expected = [(step, step / 3000) for step in range(1, 2501)]
    assert history(client, only, "validation_error") == expected


def test_a_cancelled_sweep_that_never_ran_makes_no_run(
    store: Store, mirror: Mirror, client: MlflowClient
) -> None:
    sweep = new_sweep(store)
    before = len(client.search_experiments())

    send_all(mirror)
    store.request(sweep.id, "cancel")
    send_all(mirror)

    assert store.get_sweep(sweep.id).state == SweepState.CANCELLED
    assert len(client.search_experiments()) == before
    assert store.mirror_backlog().sweeps == 0


def test_a_short_trial_takes_three_requests(store: Store, proxy: Proxy) -> None:
    """Made, told everything at once, ended: hundreds of short trials must not wait on requests."""
    claim = claimed(store)
    store.add_trials(claim, [trial(0), trial(1)])
    mirror = Mirror(store, proxy.url)
    run(store, claim, 0, 0.5)
    send_all(mirror)
    before = proxy.requests

    run(store, claim, 1, 0.4)
    send_all(mirror)

    # One more for the sweep's own tags, which name its best trial.
    assert proxy.requests - before == 3 + 1


def test_a_sweep_deleted_in_the_store_does_not_hold_up_the_others(
    store: Store, mirror: Mirror, client: MlflowClient
) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0)])
    run(store, claim, 0, 0.5)
    send_all(mirror)
    store.release(claim, SweepState.COMPLETE, "all done")
    store.delete_sweep(claim.sweep_id)
    other = claimed(store)
    store.add_trials(other, [trial(0)])
    run(store, other, 0, 0.5)

    send_all(mirror)

    assert len(runs_of(client, store, other.sweep_id)) == 1


def test_a_finished_sweep_leaves_no_run_running(
    store: Store, mirror: Mirror, client: MlflowClient
) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0), trial(1)])
    run(store, claim, 0, 0.5)
    store.start_attempt(claim, 1)
    send_all(mirror)
    store.release(claim, SweepState.CANCELLED, "cancelled")

    send_all(mirror)

    place = store.get_sweep(claim.sweep_id).mirror
    assert place is not None
    every = client.search_runs([place["experiment_id"]], run_view_type=ViewType.ALL)
    assert {r.info.status for r in every} == {"FINISHED", "KILLED"}
    assert client.get_run(place["run_id"]).info.status == "KILLED"


def test_another_mirrors_run_wins_if_it_was_first(
    store: Store, mirror: Mirror, client: MlflowClient, claim_and_run: tuple[Claim, int]
) -> None:
    claim, attempt_id = claim_and_run
    send_all(mirror)
    (only,) = runs_of(client, store, claim.sweep_id)

    assert store.set_mlflow_run(attempt_id, "another") == only.info.run_id


@pytest.fixture
def claim_and_run(store: Store) -> tuple[Claim, int]:
    """A sweep with one trial that has ended."""
    claim = claimed(store)
    store.add_trials(claim, [trial(0)])
    return claim, run(store, claim, 0, 0.5).id


def test_the_same_metric_sent_twice_is_one(client: MlflowClient, mlflow_url: str) -> None:
    """The mirror relies on it: what it repeats after a lost answer must not double."""
    experiment = client.create_experiment(f"twice-{time.time_ns()}")
    made = client.create_run(experiment)
    metric = Metric("m", 0.5, 1_700_000_000_000, 3)

    client.log_batch(made.info.run_id, metrics=[metric])
    client.log_batch(made.info.run_id, metrics=[metric])

    assert history(client, made, "m") == [(3, 0.5)]
