"""docs/results: its runs go to the pages, and the followed run's text says what they say."""

import json
import math
import re
import statistics
from pathlib import Path

import pytest

from sweeps.batch.import_results import import_results
from tests.dashboards.conftest import client_of, open_store

RESULTS = Path(__file__).parents[3] / "docs" / "results"
TENTH = 8000


@pytest.mark.parametrize(
    ("name", "sweeps"),
    [
        ("cifar10", {"paper-fig1b", "paper-table1-cifar10", "paper-table2-cifar10"}),
        ("cifar10-follow", {"follow-sgd"}),
        ("cifar100", {"paper-table1-cifar100"}),
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
    assert norms == {"empty": "This quantity was not reported."}


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


# --- How far each arm is off the curve that was followed -----------------------------------------


def test_how_far_arms_are_off_the_followed_curve_is_that_of_the_kept_runs() -> None:
    benchmarks = RESULTS.parent / "benchmarks"
    part = json.loads((benchmarks / "matching-paper.json").read_text("utf-8"))
    layers = [curves["sgd"] for name, curves in part["curves"].items() if "/" in name]
    followed = [statistics.fmean(values) for values in zip(*layers, strict=True)]
    runs = RESULTS / "cifar10" / "runs"
    arms = {
        "ND-Adam in closed loop": list((RESULTS / "cifar10-follow" / "runs").glob("*.json")),
        "SGD itself, other seeds": [runs / f"cc7f6e951f82dea9-{seed}.json" for seed in range(3)],
        "ND-Adam at 0.05": [runs / f"cfb975ee2e1ca663-{seed}.json" for seed in range(3)],
    }
    text = (benchmarks / "matching.md").read_text("utf-8")

    for arm, paths in arms.items():
        off = [_off(_curve(path), followed, part["stretch"]) for path in paths]
        cells = [_range_of(values) for values in zip(*off, strict=True)]
        assert f"| {arm} | {' | '.join(cells)} |" in text


def _off(curve: dict[int, float], followed: list[float], stretch: int) -> tuple[float, ...]:
    """RMS in logs of means of ten reports, of single ones, and of those after 66,000 steps."""
    logs = {
        step: math.log(value / _between(followed, step / stretch - 0.5))
        for step, value in curve.items()
        if 4000 <= step <= 76_000
    }
    until = [log for step, log in logs.items() if step <= 66_000]
    lots = [statistics.fmean(until[i : i + 10]) for i in range(0, len(until) - 9, 10)]
    return _rms(lots), _rms(until), _rms([log for step, log in logs.items() if step > 66_000])


def _between(values: list[float], at: float) -> float:
    share = at - int(at)
    return (1 - share) * values[int(at)] + share * values[int(at) + 1]


def _rms(values: list[float]) -> float:
    return math.sqrt(statistics.fmean(value * value for value in values))


def _range_of(shares: tuple[float, ...]) -> str:
    """Whole percent from ten on, one digit after the point below."""
    low, high = (f"{100 * end:.{0 if end > 0.1 else 1}f}" for end in (min(shares), max(shares)))
    return f"{low} %" if len(shares) == 1 else f"{low} to {high} %"
