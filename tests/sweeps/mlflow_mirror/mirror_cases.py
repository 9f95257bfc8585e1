"""A store, a mirror of it in a real MLflow server, and what a person sees there."""

from collections.abc import Iterator

import pytest
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from sweeps.mlflow_mirror.mirror import Mirror
from sweeps.store.store import Store
from tests.sweeps.mlflow_mirror.mlflow_server import Proxy


@pytest.fixture
def client(mlflow_url: str) -> MlflowClient:
    """What a person sees in MLflow."""
    return MlflowClient(tracking_uri=mlflow_url)


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    """SQLite alone: nothing here depends on the database."""
    return sqlite_store


@pytest.fixture
def mirror(store: Store, mlflow_url: str) -> Mirror:
    return Mirror(store, mlflow_url, page_url="http://localhost:8000")


@pytest.fixture
def proxy(mlflow_url: str) -> Iterator[Proxy]:
    """A way to the server that can be blocked."""
    proxy = Proxy(mlflow_url)
    yield proxy
    proxy.close()


def send_all(mirror: Mirror) -> None:
    while mirror.turn():
        pass


def runs_of(client: MlflowClient, store: Store, sweep_id: str) -> list[Run]:
    """The runs below the sweep's own, by trial and attempt."""
    place = store.get_sweep(sweep_id).mirror
    assert place is not None
    found = client.search_runs([place["experiment_id"]], max_results=1000)
    children = [r for r in found if r.data.tags.get("mlflow.parentRunId") == place["run_id"]]
    assert len(found) == len(children) + 1
    return sorted(children, key=lambda r: int(r.data.tags["ndsweep.attempt_id"]))


def history(client: MlflowClient, run: Run, metric: str) -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, metric)]
