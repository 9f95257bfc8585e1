"""What workers run in tests instead of training: quick, steered by fields of the config.

``batch_size`` is the milliseconds between reports, ``steps`` the number of reports. ``gamma_c``
chooses a fate: 1 = well, 2 = raises, 3 = its process dies, 4 = diverges, 5 = reports nonsense,
6 = hangs in its first step, where nothing is heard.

While a file ``hold`` lies in the home, trials from the number on that it holds go no further than
their first report. They hear when they are told to stop.
"""

import os
import time
from pathlib import Path
from typing import Any

from ray import tune

from worker.checkpoints.report_journal import ReportJournal
from worker.checkpoints.stop_file import StopFile
from worker.report import Report


def quick(params: dict[str, Any]) -> None:
    """Report a loss with its best at alpha_v = 0.05; go on from where it was stopped."""
    task = params["task"]
    config, folder = task["config"], Path(task["checkpoint_dir"])
    stop = StopFile(folder, task["stopped_by"])
    folder.mkdir(parents=True, exist_ok=True)
    done = int((folder / "done").read_text()) if (folder / "done").exists() else 0
    with (folder.parent / "starts").open("a") as starts:
        starts.write(f"{folder.name} from {done}\n")
    journal = ReportJournal(folder)
    for report in journal.replay():
        tune.report({"report": report.model_dump(mode="json")})
    for step in range(done + 1, config["steps"] + 1):
        end = time.monotonic() + config["batch_size"] / 1000
        while time.monotonic() < end or (step > 1 and _is_held(folder)):
            if stop():
                return
            time.sleep(0.002)
        result = _result(config, step)
        if config["gamma_c"] < 4:
            journal.append(Report.model_validate(result["report"]))
        part = folder / "done.part"
        part.write_text(str(step))
        part.replace(folder / "done")
        tune.report(result)


def _is_held(folder: Path) -> bool:
    try:
        return int(folder.name) >= int((folder.parents[2] / "hold").read_text())
    except (FileNotFoundError, ValueError):
        return False


def _result(config: dict[str, Any], step: int) -> dict[str, Any]:
    fate = config["gamma_c"]
    if fate == 2:
        raise ValueError("this trial raises")
    if fate == 6:
        time.sleep(1000)
    if fate == 3:
        os._exit(1)
    if fate == 5:
        return {"report": "nonsense"}
    is_last = step == config["steps"]
    report: dict[str, Any] = {
        "step": step,
        "num_steps": config["steps"],
        "status": "complete" if is_last else "running",
        "metrics": {"validation_error": abs(config["alpha_v"] - 0.05) + 1 / step},
    }
    if fate == 4:
        report |= {"status": "diverged", "diverged_at_step": step, "metrics": {}}
    return {"report": report}
