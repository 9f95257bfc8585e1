"""Makes ``home_of_VERSION.tar.xz`` and ``home_of_VERSION.json`` with the version that is installed.

    python make_home.py OUT

A real ``ndsweep serve`` trains three things on the digits, on a CPU: a complete sweep of two points
on two seeds, whose best network goes to MLflow; a trial that is paused between two reports; and a
measured match. What a later version may be asked for goes into the archive: the store, checkpoints,
models, and MLflow without its figures. The json holds what this version says of it over HTTP, what
the network answers, and how the trial ends when this version goes on with it.

It asks the service over HTTP alone, so that it runs on every version as it is. About two minutes
on two cores. Ids, times and the step of the pause differ from one run to the next: always replace
both files.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2

#: Answers the body of a route below /api/v1.
Get = Callable[[str], Any]

#: Seconds that anything here may take.
PATIENCE = 300.0
#: Lists that are longer, such as the curves of a match, are represented by their last value.
LONGEST = 12
#: What depends on the moment or the port and not on the home.
PASSING = {"url", "behind_seconds", "eta_seconds"}

#: A network of 2, 4 and 8 channels. Fixed BN scales and BN-Softmax are classes of the product.
NETWORK: dict[str, Any] = {
    "dataset": "digits",
    "depth": 10,
    "widen_factor": 0.125,
    "recipe": "paper-wrn",
    "bn_scale": "fixed",
    "gamma_c": 2.5,
    "flip": False,
    "crop_pad": 1,
    "last_batch": "drop",
}
COMPLETE: dict[str, Any] = {
    "name": "complete",
    "base": NETWORK
    | {"batch_size": 64, "steps": 60, "report_every": 20, "validation_fraction": 0.2},
    "space": {"optimizer": {"kind": "choice", "values": ["sgd", "ndadam"]}},
    "sampler": "grid",
    "replicates": 2,
    "tags": ["kept"],
    "notes": "A home that a later version opens.",
}
#: Large batches take long, so that a pause comes near the step where it is wanted.
PAUSED: dict[str, Any] = {
    "name": "paused",
    "base": NETWORK
    | {
        "optimizer": "ndadam",
        "batch_size": 288,
        "steps": 160,
        "report_every": 10,
        "warmup_steps": 10,
        "validation_fraction": 0.2,
    },
    "space": {"alpha_v": {"kind": "choice", "values": [0.04]}},
    "sampler": "grid",
}
PAUSE_AT, LATEST_PAUSE = 60, 140
MATCH: dict[str, Any] = {
    "name": "match",
    "base": NETWORK
    | {
        "network": "mlp",
        "depth": 1,
        "widen_factor": 0.25,
        "batch_size": 32,
        "steps": 600,
        "report_every": 300,
        "lr_schedule": "constant",
    },
    "source": {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    "target": {"optimizer": "ndadam", "betas": [0.9, 0.9], "alpha_s": 0.01},
    "replicates": 2,
    "max_corrections": 1,
}


# --- What a version says of a home ------------------------------------------------------------


def answers(get: Get) -> dict[str, Any]:
    """Route -> what the service answers, of every sweep and match of a home."""
    found = {}
    for sweep in get("/sweeps")["items"]:
        one = f"/sweeps/{sweep['id']}"
        seen = f"/matches/{sweep['id']}" if sweep["kind"] == "match" else one
        found |= {seen: kept(get(seen)), f"{one}/analysis": kept(get(f"{one}/analysis"))}
        for trial in get(f"{one}/trials")["items"]:
            route = f"{one}/trials/{trial['number']}"
            curves = get(f"{route}/metrics")["metrics"]
            found[route] = kept(get(route))
            found[f"{route}/metrics"] = {
                name: {"points": len(points), "last": points[-1]} for name, points in curves.items()
            }
    return dict(sorted(found.items()))


def kept(answer: Any) -> Any:
    """An answer without what passes, and with long lists cut to their last value."""
    if isinstance(answer, dict):
        return {name: kept(value) for name, value in answer.items() if name not in PASSING}
    if isinstance(answer, list):
        return [kept(value) for value in (answer[-1:] if len(answer) > LONGEST else answer)]
    return answer


def id_of(expected: dict[str, Any], name: str) -> str:
    """The id of the sweep or match that is called so."""
    found: str = next(one["id"] for one in expected.values() if one.get("name") == name)
    return found


# --- A service that is used -------------------------------------------------------------------


def until(condition: Callable[[], Any], what: str) -> Any:
    """What a condition answers once that is true of it."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > end:
            raise SystemExit(f"not in {PATIENCE:g} s: {what}")
        time.sleep(0.05)
    return found


@contextlib.contextmanager
def serving(home: Path, data: Path) -> Iterator[httpx2.Client]:
    """``ndsweep serve`` on a home, stopped as Ctrl-C stops it when the block has ended."""
    environment = os.environ | {
        "NDSWEEP_HOME": str(home),
        "NDSWEEP_DATA": str(data),
        "NDSWEEP_PORT": str(free_port()),
        "NDSWEEP_MLFLOW_PORT": str(free_port()),
    }
    process = subprocess.Popen([sys.executable, "-m", "service", "serve"], env=environment)
    try:
        endpoints = home / "endpoints.json"
        until(lambda: process.poll() is not None or endpoints.exists(), "addresses")
        url = json.loads(endpoints.read_text())["url"]
        with httpx2.Client(base_url=f"{url}/api/v1", timeout=60) as client:
            yield client
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def asking(client: httpx2.Client) -> Get:
    return lambda route: client.get(route).raise_for_status().json()


def send(client: httpx2.Client, route: str, body: Any = None) -> Any:
    return client.post(route, json=body).raise_for_status().json()


def wait_for(client: httpx2.Client, sweep_id: str, state: str) -> None:
    """Until a sweep is in a state and MLflow has all of it."""

    def look() -> bool:
        sweep = asking(client)(f"/sweeps/{sweep_id}")
        if sweep["state"] in ("complete", "failed", "cancelled") and sweep["state"] != state:
            raise SystemExit(f"sweep {sweep_id} is {sweep['state']}: {sweep['reason']}")
        mirror = sweep["mirror"] or {"behind_seconds": 1.0}
        return bool(sweep["state"] == state and mirror["behind_seconds"] == 0.0)

    until(look, f"sweep {sweep_id} is {state}")


# --- The home ---------------------------------------------------------------------------------


def train(home: Path, data: Path) -> dict[str, Any]:
    """Train all of it; what the service says of it."""
    with serving(home, data) as client:
        get = asking(client)
        paused = send(client, "/sweeps", PAUSED)["id"]

        def has_come_far() -> bool:
            trials = get(f"/sweeps/{paused}/trials")["items"]
            return bool(trials and trials[0]["step"] >= PAUSE_AT)

        until(has_come_far, "the steps before the pause")
        send(client, f"/sweeps/{paused}/pause")
        wait_for(client, paused, "paused")
        wait_for(client, send(client, "/sweeps", COMPLETE)["id"], "complete")
        wait_for(client, send(client, "/matches", MATCH)["id"], "complete")
        found = answers(get)
    (checkpoint,) = (home / "checkpoints" / paused).rglob("*.ckpt")
    step = int(checkpoint.stem.removeprefix("step-"))
    if step > LATEST_PAUSE or step % PAUSED["base"]["report_every"] == 0:
        raise SystemExit(f"the pause came at step {step}; try again")
    return found


def keep(home: Path, small: Path) -> None:
    """Copy what a later version opens: no logs, no figures, nothing of Ray's."""
    for part in ("checkpoints", "models", "mlflow"):
        shutil.copytree(home / part, small / part, ignore=shutil.ignore_patterns("figures"))
    shutil.copy(home / "store.db", small)


def finish(home: Path, data: Path, sweep_id: str) -> dict[str, Any]:
    """Go on with the paused sweep; what the service says of it at its end."""
    with serving(home, data) as client:
        send(client, f"/sweeps/{sweep_id}/resume")
        wait_for(client, sweep_id, "complete")
        found = answers(asking(client))
    return {route: answer for route, answer in found.items() if f"{sweep_id}/trials" in route}


def ask_model(expected: dict[str, Any], home: Path) -> dict[str, Any]:
    """What the network of the complete sweep answers, from the folder of its run."""
    run = expected[f"/sweeps/{id_of(expected, 'complete')}"]["mirror"]["run_id"]
    (folder,) = (home / "mlflow" / "artifacts").glob(f"*/{run}/artifacts/model")
    command = [sys.executable, Path(__file__).with_name("ask_model.py"), folder]
    said: dict[str, Any] = json.loads(subprocess.check_output(command))
    return said


def pack(small: Path, archive: Path) -> None:
    """A .tar.xz that names nobody."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return info

    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for path in sorted(small.iterdir()):
            tar.add(path, path.name, filter=plain)


def main(out: Path) -> None:
    """Make both files in a folder."""
    of = version("ndadam-sweeps")
    name = f"home_of_{of.replace('.', '_')}"
    with tempfile.TemporaryDirectory() as folder:
        home, data, small = (Path(folder, part) for part in ("home", "data", "small"))
        fetch = ["data", "fetch", "digits", "--data-home", data]
        subprocess.run([sys.executable, "-m", "service", *fetch], check=True)
        found = train(home, data)
        keep(home, small)
        pack(small, out / f"{name}.tar.xz")
        copy = shutil.copytree(small, Path(folder, "copy"))
        expected = {
            "version": of,
            "answers": found,
            "model": ask_model(found, small),
            "finished": finish(copy, data, id_of(found, "paused")),
        }
    (out / f"{name}.json").write_text(lines(expected), "utf-8")


def lines(expected: dict[str, Any]) -> str:
    """As JSON with a line for each answer."""

    def dump(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    parts = []
    for name, part in expected.items():
        text = dump(part)
        if isinstance(part, dict):
            inside = ",\n".join(f"{dump(key)}: {dump(value)}" for key, value in part.items())
            text = f"{{\n{inside}\n}}"
        parts.append(f"{dump(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
