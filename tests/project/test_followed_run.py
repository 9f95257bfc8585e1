"""docs/results: its runs go to the pages, and the followed run's text says what they say."""

import json
import math
import re
import statistics
from pathlib import Path

import pytest

from sweeps.import_results import import_results
from tests.dashboards.conftest import client_of, open_store

RESULTS = Path(__file__).parents[2] / "docs" / "results"
TENTH = 8000


@pytest.mark.parametrize(
    ("name", "sweeps"),
    [
        ("cifar10", {"paper-fig1b", "paper-table1-cifar10", "paper-table2-cifar10"}),
        ("cifar10-follow", {"follow-sgd"}),
    ],
)
def test_kept_runs_are_imported_in_whole(name: str, sweeps: set[str], tmp_path: Path) -> None:
    store = open_store(tmp_path)
    report = import_results(store, RESULTS / name / "runs")
    store.close()

    assert {done.sweep.name for done in report.sweeps} == sweeps
    assert sum(done.added for done in report.sweeps) == len(
        list((RESULTS / name / "runs").glob("*.json"))
    )
    assert report.skipped == []


def test_the_page_of_the_followed_run_shows_the_alpha_v_that_it_took(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    (done,) = import_results(store, RESULTS / "cifar10-follow" / "runs").sweeps
    client = client_of(store, tmp_path)
    page = f"/sweeps/{done.sweep.id}/trials/0"
    shown = client.get(page).text
    drawn = client.get(f"{page}/plots/metric/alpha_v.json").json()
    norms = client.get(f"{page}/plots/layers.json?quantity=weight_norm").json()
    store.close()

    assert f"{page}/plots/metric/alpha_v.json" in shown
    assert len(drawn["data"][0]["y"]) == 206
    assert norms == {"empty": "No curve of it was kept."}


def _curve(path: Path) -> dict[int, float]:
    """Effective learning rate at each report, mean over the convolutions."""
    layers: dict[int, list[float]] = {}
    for curves in json.loads(path.read_text("utf-8"))["curves"]:
        for name, values in curves["values"].items():
            if name.startswith("effective_lr/"):
                for step, value in zip(curves["steps"], values, strict=True):
                    layers.setdefault(step, []).append(value)
    return {step: statistics.fmean(values) for step, values in layers.items() if len(values) == 20}


def _tenths(paths: list[Path]) -> list[float]:
    """Geometric mean of all seeds' curves in each tenth of the run."""
    logs: list[list[float]] = [[] for _ in range(10)]
    for path in paths:
        for step, value in _curve(path).items():
            if value > 0:
                logs[(step - 1) // TENTH].append(math.log(value))
    return [math.exp(statistics.fmean(values)) for values in logs]


def test_the_followed_run_s_table_is_that_of_the_kept_runs() -> None:
    runs = RESULTS / "cifar10" / "runs"
    sgd = _tenths([runs / f"cc7f6e951f82dea9-{seed}.json" for seed in range(3)])
    cosine = _tenths([runs / f"cfb975ee2e1ca663-{seed}.json" for seed in range(3)])
    (followed,) = (RESULTS / "cifar10-follow" / "runs").glob("*.json")
    follows = _tenths([followed])
    text = (RESULTS / "cifar10-follow" / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| ([\d,]+) to [\d,]+ \| (\S+) \| (\S+) \| (\S+) \|$", text, re.M)

    assert [int(start.replace(",", "")) for start, *_ in rows] == [TENTH * i for i in range(10)]
    for i, (_, rate, fixed, free) in enumerate(rows):
        assert rate == f"{sgd[i]:.2e}"
        assert fixed == f"{sgd[i] / cosine[i]:.2f}"
        assert free == f"{sgd[i] / follows[i]:.2f}"
    metrics = json.loads(followed.read_text("utf-8"))["metrics"]
    assert f"**{100 * metrics['test_error']:.2f} %**" in text
