"""The numbers of docs/results/cifar10-follow are those of the runs that are kept."""

import json
import math
import re
import statistics
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "docs" / "results"
TENTH = 8000


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
