"""How many questions and reports of agents the service takes, and what happens when agents die.

    python -m benchmarks.agents [--only rates|kills] [--store sqlite|postgresql] [--json FILE]
                                [--seconds 10] [--agents 32] [--kills 64]

The API and the driver of agents' sweeps are processes of their own; the load comes from this one
and shares the machine with them. Connections are kept open, as those of a client are.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.sweep.parts import Figure, answers, database, import_path, process, submit, wait
from sweeps.cluster.capacity import usable_cpus
from sweeps.cluster.free_port import free_port
from sweeps.spec.sweep_spec import SweepSpec
from sweeps.store.store import Store

ROOT = Path(__file__).parents[1]
#: Reports of one request, in turn.
BATCHES = (1, 10, 100)
ASKS, REPORTS = 300.0, 2000.0


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=("rates", "kills"))
    parser.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each rate")
    parser.add_argument("--agents", type=int, default=32)
    parser.add_argument("--kills", type=int, default=64)
    parser.add_argument("--trials", type=int, default=400, help="of the sweep with kills")
    parser.add_argument("--json", type=Path, help="file for the figures")
    asked = parser.parse_args()
    before, figures = os.getloadavg()[0], []
    with (
        tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder,
        database(asked.store, Path(folder)) as url,
        _service(url, Path(folder)) as service,
    ):
        if asked.only != "kills":
            figures += asyncio.run(_rates(service, asked))
        if asked.only != "rates":
            figures += _kills(service, asked, Path(folder))
    print("| part | store | figure | measured | target | |\n|---|---|---|---|---|---|")
    print("\n".join(figure.row() for figure in figures))
    print(f"\nload of the machine before: {before:.1f}, cores it may use: {usable_cpus()}")
    if asked.json:
        found = {"load_before": before, "cores": usable_cpus()}
        rows = [figure.to_json() for figure in figures]
        asked.json.write_text(json.dumps(found | {"figures": rows}, indent=1) + "\n")


@dataclass(frozen=True)
class _Service:
    """The API and the driver, at work over a store."""

    store: Store
    kind: str
    port: int
    pids: tuple[int, int]

    def submit(self, points: int) -> str:
        """Queue a sweep of agents; its id once trials wait."""
        spec = {
            "name": "agents",
            "training": "external",
            "base": {},
            "space": {"x": {"kind": "float", "low": 0.0, "high": 1.0}},
            "num_points": points,
            "objective": {"metric": "loss"},
        }
        sweep_id = submit(self.store, SweepSpec.model_validate(spec))
        wait(lambda: self.store.get_sweep(sweep_id).trials["waiting"], "trials wait")
        return sweep_id

    def cpu_seconds(self) -> tuple[float, float]:
        """What the API and the driver have taken of the processor."""
        api, driver = (psutil.Process(pid).cpu_times() for pid in self.pids)
        return api.user + api.system, driver.user + driver.system


@contextlib.contextmanager
def _service(url: str, folder: Path) -> Iterator[_Service]:
    port = free_port()
    settings = {
        "NDSWEEP_HOME": str(folder),
        "NDSWEEP_STORE_URL": url,
        "NDSWEEP_PORT": str(port),
    }
    api = [sys.executable, "-m", "service.api"]
    driver = [sys.executable, "-m", "sweeps.driver.external_driver"]
    driver += ["--store", url, "--home", str(folder)]
    with (
        process(api, folder / "api.log", **settings) as first,
        process(driver, folder / "driver.log") as second,
    ):
        wait(lambda: answers(f"http://127.0.0.1:{port}/readyz"), "the API answers")
        store = Store(url)
        yield _Service(store, url.partition(":")[0].partition("+")[0], port, (first, second))
        store.close()


# --- Rates ------------------------------------------------------------------------------------


class _Connection:
    """A connection that is kept open, with as little of a client as HTTP needs."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: Any) -> Any:
        """Post JSON; the answer's. Raises RuntimeError unless it is 200."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        content = json.dumps(body).encode()
        head = (
            f"POST /api/v1/sweeps/{path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        writer.write(head.encode() + content)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        size = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length"))
        answer = json.loads(await reader.readexactly(size))
        if " 200 " not in lines[0]:
            raise RuntimeError(f"{path}: {answer}")
        return answer


async def _rates(service: _Service, asked: argparse.Namespace) -> list[Figure]:
    figures = []
    figures += await _asks(service, asked)
    for count in BATCHES:
        figures += await _reports(service, asked, count)
    return figures


async def _asks(service: _Service, asked: argparse.Namespace) -> list[Figure]:
    """Each question leases one trial; nothing else happens."""
    sweep_id = service.submit(100_000)
    seen: Counter[int] = Counter()

    async def agent(number: int, connection: _Connection) -> int:
        body = {"agent": f"a{number}", "wait_seconds": 5}
        trials = (await connection.post(f"{sweep_id}/ask", body))["trials"]
        seen.update(trial["number"] for trial in trials)
        return len(trials)

    # Trials wait as many as were asked for of late: the first seconds tell how many.
    await _timed(service, asked.agents, 2.0, agent)
    figures = await _timed(
        service, asked.agents, asked.seconds, agent, "asks, one trial each", ASKS
    )
    twice = sum(count > 1 for count in seen.values())
    service.store.request(sweep_id, "cancel")
    return [*figures, Figure("agents", service.kind, "trials leased twice", twice, "", 0.0)]


async def _reports(service: _Service, asked: argparse.Namespace, count: int) -> list[Figure]:
    """Every agent reports of its trial, ``count`` steps a request."""
    sweep_id = service.submit(asked.agents)
    connection = _Connection(service.port)
    leases: list[dict[str, Any]] = []
    while len(leases) < asked.agents:
        body = {"agent": "a", "count": asked.agents, "wait_seconds": 5}
        leases += (await connection.post(f"{sweep_id}/ask", body))["trials"]
    steps = [0] * asked.agents

    async def agent(number: int, connection: _Connection) -> int:
        trial, first = leases[number], steps[number]
        steps[number] += count
        metrics = {"loss": 0.5, "accuracy": 0.5}
        reports = [{"step": first + i, "metrics": metrics} for i in range(count)]
        body = {"lease": trial["lease"]["token"], "reports": reports}
        await connection.post(f"{sweep_id}/trials/{trial['number']}/reports", body)
        return count

    name = f"reports, {count} a request"
    figures = await _timed(service, asked.agents, asked.seconds, agent, name, REPORTS)
    stored = sum(
        len(service.store.metrics(sweep_id, n, ["loss"], 10**9)["loss"])
        for n in range(asked.agents)
    )
    service.store.request(sweep_id, "cancel")
    lost = sum(steps) - stored
    return [*figures, Figure("agents", service.kind, f"{name}: lost", lost, "", 0.0)]


async def _timed(
    service: _Service,
    agents: int,
    seconds: float,
    work: Callable[[int, _Connection], Awaitable[int]],
    name: str = "",
    target: float | None = None,
) -> list[Figure]:
    """Let agents work beside each other; how much they did a second, and how long one took."""
    before, began = service.cpu_seconds(), time.perf_counter()
    counts, times = [0] * agents, []

    async def agent(number: int) -> None:
        connection = _Connection(service.port)
        while time.perf_counter() - began < seconds:
            start = time.perf_counter()
            counts[number] += await work(number, connection)
            times.append(time.perf_counter() - start)

    await asyncio.gather(*(agent(number) for number in range(agents)))
    wall = time.perf_counter() - began
    after = service.cpu_seconds()
    api, driver = (b - a for a, b in zip(before, after, strict=True))
    slow = sorted(times)[int(0.95 * len(times))] * 1000
    part, kind, done = "agents", service.kind, sum(counts)
    return [
        Figure(part, kind, name, done / wall, "/s", target, "at least"),
        Figure(part, kind, f"{name}: p95 of a request", slow, "ms"),
        Figure(part, kind, f"{name}: per second of the API's processor", done / api, "/s"),
        Figure(part, kind, f"{name}: processor that the API had", 100 * api / wall, "% of a core"),
        Figure(part, kind, f"{name}: processor of the driver", 100 * driver / wall, "% of a core"),
    ]


# --- Kills ------------------------------------------------------------------------------------

#: An agent: trains for a while, reports, tells; a line in its log for each trial that it told.
_AGENT = """
import sys, time
from service.client import Agent, Client
url, sweep, log, seconds, lease = sys.argv[1:]
with Client(url) as client, open(log, "a", buffering=1) as told:
    agent = Agent(client, sweep, lease_seconds=float(lease))
    while (trial := agent.ask()) is not None:
        for step in range(1, 11):
            time.sleep(float(seconds) / 10)
            trial.report(step=step, metrics={"loss": trial.params["x"]})
        if trial.should_stop:
            trial.leave()
        else:
            told.write(f"{trial.number} {trial.tell()}\\n")
"""


def run_with_kills(
    url: str,
    sweep_id: str,
    folder: Path,
    *,
    agents: int,
    kills: int,
    seconds: float,
    lease: float,
) -> list[str]:
    """Let agents run a sweep to its end while some are killed; what they were answered.

    As many as die are started anew. A trial takes ``seconds``; kills are half a second apart and
    hit, with SIGKILL, one chosen at random of those that have told of a trial.
    """
    chance = random.Random(0)
    logs = [folder / f"agent-{number}.log" for number in range(agents)]
    running = [_start(url, sweep_id, log, seconds, lease) for log in logs]
    told = [0] * agents
    while any(one.poll() is None for one in running):
        time.sleep(0.5)
        sizes = [log.stat().st_size if log.exists() else 0 for log in logs]
        at_work = [n for n in range(agents) if sizes[n] > told[n] and running[n].poll() is None]
        if kills and at_work:
            kills -= 1
            number = chance.choice(at_work)
            told[number] = sizes[number]
            running[number].kill()
            running[number].wait()
            running[number] = _start(url, sweep_id, logs[number], seconds, lease)
    return [line for log in logs if log.exists() for line in log.read_text().splitlines()]


def _start(
    url: str, sweep_id: str, log: Path, seconds: float, lease: float
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _AGENT, url, sweep_id, str(log), str(seconds), str(lease)]
    environment = os.environ | {"PYTHONPATH": import_path()}
    with log.with_suffix(".err").open("ab") as errors:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=errors)


def told_once(store: Store, sweep_id: str, told: list[str]) -> dict[str, int]:
    """Count what must be zero where every point was told exactly once."""
    trials = [store.trial(sweep_id, trial.number) for trial in store.all_trials(sweep_id)]
    ends = Counter(line.split()[0] for line in told if line.endswith(" complete"))
    complete = [sum(a.state == "complete" for a in trial.attempts) for trial in trials]
    steps = [
        [step for step, _ in store.metrics(sweep_id, trial.number).get("loss", ())]
        for trial in trials
    ]
    for trial in trials:
        if trial.state != "complete":
            causes = [attempt.exit_cause for attempt in trial.attempts]
            print(f"trial {trial.number} is {trial.state}: {causes}", file=sys.stderr)
    return {
        "trials that did not complete": sum(trial.state != "complete" for trial in trials),
        "trials with other than one complete attempt": sum(count != 1 for count in complete),
        "trials that two agents were told complete": sum(count > 1 for count in ends.values()),
        "trials with other than ten steps": sum(one != list(range(1, 11)) for one in steps),
    }


def _kills(service: _Service, asked: argparse.Namespace, folder: Path) -> list[Figure]:
    sweep_id, began = service.submit(asked.trials), time.monotonic()
    told = run_with_kills(
        f"http://127.0.0.1:{service.port}",
        sweep_id,
        folder,
        agents=asked.agents,
        kills=asked.kills,
        seconds=2.0,
        # Long enough that only a kill makes an agent silent, on a busy machine too.
        lease=20.0,
    )
    wait(lambda: service.store.get_sweep(sweep_id).state.is_finished(), "the sweep ends")
    trials = [service.store.trial(sweep_id, number) for number in range(asked.trials)]
    lost = sum(len(trial.attempts) - 1 for trial in trials)
    part, kind = f"kills, {asked.agents} agents", service.kind
    return [
        Figure(part, kind, "agents killed", asked.kills, ""),
        Figure(part, kind, "attempts lost and made again", lost, ""),
        Figure(part, kind, f"{asked.trials} trials of 2 s", time.monotonic() - began, "s"),
        *(
            Figure(part, kind, name, count, "", 0.0)
            for name, count in told_once(service.store, sweep_id, told).items()
        ),
    ]


if __name__ == "__main__":
    main()
