"""Trains what matches and grids ask for, run by run in files, so that a part can be gone on with.

Each run leaves ``OUT/runs/KEY.json``: what lies there is not trained again. Needs torch, numpy and
pydantic only; no Ray, no store.
"""

import json
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.lockstep import TrainedRun
from sweeps.proposals import Proposal
from worker.config import TrainConfig
from worker.measurement import Measurement

#: Digits of a stored record: far below its noise.
_DIGITS = 6


@dataclass(frozen=True)
class Workshop:
    """Where runs are kept, and how many are trained at once."""

    out: Path
    data_home: Path
    processes: int = 1

    def train(self, wanted: Sequence[tuple[int, Proposal]]) -> list[TrainedRun]:
        """Runs of proposals, in order; trained only where no file holds them."""
        return self.runs([(p.config, p.measurement) for _, p in wanted])

    def runs(self, wanted: Sequence[tuple[TrainConfig, Measurement | None]]) -> list[TrainedRun]:
        paths = [self._path(config, measurement) for config, measurement in wanted]
        missing = {
            path: (config, measurement)
            for path, (config, measurement) in zip(paths, wanted, strict=True)
            if not path.is_file()
        }
        jobs = [
            (str(path), str(self.data_home), config.model_dump_json(exclude_unset=True), measured)
            for path, (config, measurement) in missing.items()
            for measured in (measurement.model_dump_json() if measurement else None,)
        ]
        (self.out / "runs").mkdir(parents=True, exist_ok=True)
        if self.processes > 1 and len(jobs) > 1:
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(self.processes, mp_context=context) as pool:
                for i, path in enumerate(pool.map(_job, jobs), 1):
                    print(f"  {i} of {len(jobs)} runs: {Path(path).name}", flush=True)
        else:
            for i, job in enumerate(jobs, 1):
                print(f"  {i} of {len(jobs)} runs: {Path(_job(job)).name}", flush=True)
        return [TrainedRun(**json.loads(path.read_text(encoding="utf-8"))) for path in paths]

    def _path(self, config: TrainConfig, measurement: Measurement | None) -> Path:
        what = json.dumps(
            [config.stored(), measurement.model_dump(mode="json") if measurement else None],
            sort_keys=True,
        )
        return self.out / "runs" / f"{sha256(what.encode()).hexdigest()[:20]}.json"


def _job(job: tuple[str, str, str, str | None]) -> str:
    """Train one run and write its file. In a process of its own where several are at work."""
    import torch

    from worker import train

    path, home, config_json, measured = job
    torch.set_num_threads(1)
    config = TrainConfig.model_validate_json(config_json)
    measurement = Measurement.model_validate_json(measured) if measured else None
    began = time.perf_counter()
    series: dict[str, list[float]] = {}
    diverged: int | None = None
    probe: dict[str, Any] = {}
    metrics: dict[str, float] = {}
    for report in train(config, data_home=home, measurement=measurement):
        for name, piece in report.series.items():
            series.setdefault(name, []).extend(float(f"{v:.{_DIGITS}g}") for v in piece.values)
        metrics, diverged = report.metrics, report.diverged_at_step
        probe = report.provenance.get("probe", probe)
    run = TrainedRun(
        series=series,
        every=measurement.every if measurement else 1,
        metrics=metrics,
        probe=probe,
        seconds=time.perf_counter() - began,
        diverged_at_step=diverged,
    )
    temporary = Path(f"{path}.part")
    temporary.write_text(json.dumps(asdict(run)), encoding="utf-8")
    temporary.replace(path)
    return path
