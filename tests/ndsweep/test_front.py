"""A sweep with several objectives from the first ask to its front: API, page, report, client."""

import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import ndsweep
from dashboards.report.document import to_markdown
from dashboards.report.sweep import report_document
from sweeps.mlflow_mirror.figures import sweep_charts
from sweeps.store.store import Store
from tests.service.external_sweeps import driven

SPEC: dict[str, Any] = {
    "name": "error against time",
    "training": "external",
    "base": {},
    "space": {"lr": {"kind": "choice", "values": [0.1, 0.2, 0.3, 0.4]}},
    "sampler": "nsga2",
    "num_points": 4,
    "replicates": 2,
    "objectives": [{"metric": "accuracy"}, {"metric": "seconds", "reference": 100.0}],
    "metrics": {
        "accuracy": {"direction": "maximize", "unit": "points"},
        "seconds": {"direction": "minimize", "unit": "s"},
    },
}
#: By lr: the last one is less accurate than the third and takes longer.
ACCURACY = {0.1: 50.0, 0.2: 60.0, 0.3: 70.0, 0.4: 65.0}
SECONDS = {0.1: 10.0, 0.2: 20.0, 0.3: 40.0, 0.4: 80.0}


def trained(sweep: ndsweep.Sweep) -> None:
    """Run every trial as an agent does."""
    while (trial := sweep.ask(wait_seconds=60)) is not None:
        lr, noise = trial.params["lr"], 0.5 * trial.seed
        trial.report(step=1, metrics={"accuracy": ACCURACY[lr] + noise})
        if lr == 0.1 and trial.seed == 0:
            with pytest.raises(ndsweep.ServiceRefused, match="must hold the objective 'seconds'"):
                trial.tell(metrics={"accuracy": ACCURACY[lr]})
        trial.tell(metrics={"seconds": SECONDS[lr] + noise})


def test_a_front_from_ask_to_confirmation(
    connected: ndsweep.Client, client: TestClient, store: Store, home: Path
) -> None:
    sweep = connected.submit(SPEC)
    with pytest.raises(ndsweep.NothingToShow, match="no front yet"):
        sweep.front()
    with driven(store, home):
        trained(sweep)

    front = sweep.front()
    assert front["params.lr"].tolist() == [0.3, 0.2, 0.1]
    assert front["accuracy.mean"].tolist() == [70.25, 60.25, 50.25]
    assert front.attrs["units"]["seconds.mean"] == "s"
    assert front.attrs["reference"] == {"accuracy": 50.25, "seconds": 100.0}
    # 20 wide and 59.75 high, 10 and 79.75, of which the smaller lies in the larger, and an edge.
    assert front.attrs["hypervolume"] == pytest.approx(20 * 59.75 + 10 * (79.75 - 59.75))
    assert front["is_distinct"].all()
    with pytest.raises(ndsweep.NothingToShow, match=r"2 objectives \(accuracy, seconds\), so no"):
        sweep.best()
    assert sweep.info.best is not None
    assert sweep.info.best.label == "by the first objective alone"
    assert "goes by accuracy alone" in " ".join(sweep.analysis().notes)

    figure = sweep.plot("front")
    assert [len(trace.x) for trace in figure.data] == [1, 3]
    assert [axis.title.text for axis in (figure.layout.xaxis, figure.layout.yaxis)] == [
        "accuracy (points)",
        "seconds (s)",
    ]
    with pytest.raises(ValueError, match="front"):
        sweep.plot("front", field="lr")

    page = client.get(f"/sweeps/{sweep.id}").text
    assert "3 of 4 points" in page
    assert re.search(r"Accuracy<small[^>]*> larger is better", page)
    assert "3 of its 3 points are shown to differ from every other one" in page
    assert "in one objective" in client.get(f"/sweeps/{sweep.id}/parts/leaderboard").text
    csv = client.get(f"/sweeps/{sweep.id}/plots/front.csv?x=seconds&y=accuracy").text
    assert csv.startswith("point,accuracy.mean,accuracy.low")
    assert client.get(f"/sweeps/{sweep.id}/plots/front.json?x=loss").status_code == 404

    record = store.get_sweep(sweep.id)
    assert sweep_charts(store, record)[0].name == "front"
    text = to_markdown(report_document(store, sweep.id))
    assert "## Front" in text
    assert "fresh seeds may move it off" in text

    confirming = sweep.confirm(points=2, replicates=2)
    assert [p["lr"] for p in confirming.info.spec["initial_points"]] == [0.3, 0.2]
    assert confirming.info.spec["objectives"] == sweep.info.spec["objectives"]
