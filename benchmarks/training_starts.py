"""What ``benchmarks.train`` times of starts: new processes, and a second trial in them."""

import cProfile
import json
import os
import pstats
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

#: Functions of a profile that are reported.
_LARGEST = 12


def starts(network: str, dataset: str, home: Path, cache: Path) -> dict[str, Any]:
    """Start times with an empty ``cache`` of what is compiled, with a full one, and in a profile.

    Seconds of a process each: ``imports`` from its start, ``build`` of the run (CUDA, images,
    network, optimizer), ``first_step``; ``step_1`` is the sum of the last two, ``replaying`` until
    steps are replayed; both for a second trial, too.
    """
    found = {name: _start_in_new_process(network, dataset, home, cache) for name in _CACHES}
    profiled = _start_in_new_process(network, dataset, home, cache, profiled=True)
    return {"network": network, **found, "largest": profiled["largest"]}


#: Of compiled kernels, in this order: what the first leaves is what the second finds.
_CACHES = ("cold", "warm")


def _start_in_new_process(
    network: str, dataset: str, home: Path, cache: Path, *, profiled: bool = False
) -> dict[str, Any]:
    environment = os.environ | {
        "TRITON_CACHE_DIR": str(cache),
        "NDSWEEP_DATA": str(home),
        # Of two thousand modules, which any installation keeps compiled; a container may not.
        "PYTHONPYCACHEPREFIX": str(cache / "python"),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    call = [network, dataset, str(home), "profiled" if profiled else "timed", repr(time.time())]
    command = [sys.executable, "-m", "benchmarks.training_starts", *call]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the start of {network} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _start(network: str, dataset: str, home: Path, process_began: float) -> dict[str, float]:
    import torch

    from benchmarks.training.times import WARM_UP, make_config
    from worker.steps.device import arithmetic, choose_device
    from worker.training.run import Run

    def first_steps(seed: int, lr: float) -> dict[str, float]:
        marks = [time.perf_counter()]

        def mark() -> None:
            torch.cuda.synchronize()
            marks.append(time.perf_counter())

        config = make_config("cuda", network, "sgd", dataset, lr=lr, seed=seed)
        device = choose_device(config)
        with arithmetic(config, device):
            run = Run(config, home, device, None, lambda: False, replay_steps=True)
            mark()
            run.take_step()
            mark()
            for _ in range(WARM_UP["cuda"]):
                run.take_step()
            mark()
        began, built, stepped, replaying = marks
        return {
            "build": built - began,
            "first_step": stepped - built,
            "step_1": stepped - began,
            "replaying": replaying - began,
        }

    imports = time.time() - process_began
    found = first_steps(0, 0.1)
    found |= {"imports": imports, "process": imports + found["step_1"]}
    second = first_steps(1, 0.05)
    return found | {f"second_trial_{name}": seconds for name, seconds in second.items()}


def _profiled_start(*arguments: Any) -> dict[str, Any]:
    """A start with the functions in which most of its time goes by, and those seconds."""
    with cProfile.Profile() as profile:
        found: dict[str, Any] = _start(*arguments)
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    largest = sorted(stats.items(), key=lambda item: -item[1][2])[:_LARGEST]
    lines = {pstats.func_std_string(name): numbers[2] for name, numbers in largest}
    return found | {"largest": lines}


if __name__ == "__main__":
    _, _network, _images, _folder, _how, _at = sys.argv
    _call = (_network, _images, Path(_folder), float(_at))
    print(json.dumps(_profiled_start(*_call) if _how == "profiled" else _start(*_call)))
