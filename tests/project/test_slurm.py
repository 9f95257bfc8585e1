"""The scripts of ``deploy/slurm``, with programs in place of Slurm, Ray and the service that say
how they were called."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.project.documents import ROOT

SLURM = ROOT / "deploy/slurm"
#: What Slurm sets; two machines.
JOB = {
    "SLURM_JOB_ID": "4321",
    "SLURM_JOB_NODELIST": "gpu[1-2]",
    "SLURM_NNODES": "2",
    "SLURM_CPUS_PER_TASK": "32",
    "SLURM_GPUS_ON_NODE": "4",
}
PROGRAMS = {
    "scontrol": 'echo gpu1; echo gpu2; echo "scontrol $*" >>"$CALLS"',
    # Runs the task of every machine here, and hands a signal on, as srun does.
    "srun": """
        while [ "$1" != bash ]; do shift; done
        for SLURM_PROCID in 0 1; do SLURM_PROCID=$SLURM_PROCID "$@" & tasks+=($!); done
        trap 'kill -TERM "${tasks[@]}"' TERM
        wait; wait; wait; echo "srun ended" >>"$CALLS"
    """,
    "ray": 'echo "ray $* auth=$RAY_AUTH_MODE" >>"$CALLS"; exec sleep 60',
    "ndsweep": """
        echo "ndsweep $* ray=${RAY_ADDRESS:-} host=${NDSWEEP_HOST:-}" >>"$CALLS"
        case $1 in
          token) echo secret >"$NDSWEEP_TOKEN_FILE" ;;
          agent) exec sleep 60 ;;
          serve) if [ -n "${FAILS:-}" ]; then
                   until [ "$(grep -c "^ray start" "$CALLS")" = 2 ]; do sleep 0.05; done; exit 3
                 fi
                 sleep 60 >/dev/null 2>&1 & asleep=$!
                 trap 'kill "$asleep"; echo "serve ended" >>"$CALLS"; exit 0' TERM; wait ;;
        esac
    """,
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name, text in PROGRAMS.items():
        (binaries / name).write_text(f"#!/bin/bash\n{text}\n")
        (binaries / name).chmod(0o755)
    kept = {name: text for name, text in os.environ.items() if name[:8] != "NDSWEEP_"}
    own = {
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "NDSWEEP_HOME": str(tmp_path / "home"),
        "NDSWEEP_URL": "https://sweeps.example.org",
    }
    return kept | JOB | own


def calls(environment: dict[str, str]) -> list[str]:
    path = Path(environment["CALLS"])
    return path.read_text().splitlines() if path.exists() else []


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def started(script: str, *arguments: str, env: dict[str, str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([SLURM / script, *arguments], env=env, stderr=subprocess.PIPE)


def ends(process: "subprocess.Popen[bytes]") -> tuple[int, str]:
    _, said = process.communicate(timeout=60)
    return process.returncode, said.decode()


def test_a_service_has_a_node_on_each_machine_and_ends_before_them(
    environment: dict[str, str],
) -> None:
    process = started("service.sbatch", env=environment)
    until(lambda: sum(" start " in call or " serve " in call for call in calls(environment)) == 3)

    offer = "--num-cpus=32 --num-gpus=4 --object-store-memory=200000000 --disable-usage-stats"
    head = f"ray start --head --port=24321 --include-dashboard=false {offer} --block auth=token"
    assert head in calls(environment)
    assert f"ray start --address=gpu1:24321 {offer} --block auth=token" in calls(environment)
    assert "ndsweep serve ray=gpu1:24321 host=0.0.0.0" in calls(environment)

    process.send_signal(signal.SIGTERM)
    assert ends(process)[0] == 0
    assert calls(environment)[-2:] == ["serve ended", "srun ended"]
    home = Path(environment["NDSWEEP_HOME"])
    assert {path.name for path in home.iterdir()} == {"ray-token", "token"}


def test_secrets_are_made_once(environment: dict[str, str]) -> None:
    home = Path(environment["NDSWEEP_HOME"])
    home.mkdir()
    for name in ("ray-token", "token"):
        (home / name).write_text("kept\n")

    assert ends(started("service.sbatch", env=environment | {"FAILS": "1"}))[0] == 3

    assert not any("token --create" in call for call in calls(environment))
    assert (home / "token").read_text() == "kept\n"


def test_a_job_fails_with_the_service(environment: dict[str, str]) -> None:
    assert ends(started("service.sbatch", env=environment | {"FAILS": "1"}))[0] == 3


@pytest.mark.parametrize(
    ("script", "missing"),
    [
        ("service.sbatch", "NDSWEEP_HOME"),
        ("service.sbatch", "SLURM_JOB_NODELIST"),
        ("agents.sbatch", "NDSWEEP_URL"),
    ],
)
def test_what_is_missing_is_named(environment: dict[str, str], script: str, missing: str) -> None:
    del environment[missing]

    code, said = ends(started(script, "abc", "--", "train", env=environment))

    assert code != 0
    assert missing in said
    assert not calls(environment)


def test_an_agent_takes_the_place_of_its_script(environment: dict[str, str]) -> None:
    array = {"SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "5"}
    arguments = ["abc", "--", "python", "train.py", "{args}"]
    process = started("agents.sbatch", *arguments, env=environment | array)
    until(lambda: bool(calls(environment)))

    assert calls(environment) == [
        "ndsweep agent abc --name slurm-77-5 -- python train.py {args} ray= host="
    ]
    process.send_signal(signal.SIGTERM)
    assert ends(process)[0] == -signal.SIGTERM


@pytest.mark.parametrize("arguments", [[], ["abc"], ["abc", "--"], ["abc", "python", "train.py"]])
def test_an_agent_without_a_command_says_how_it_is_called(
    environment: dict[str, str], arguments: list[str]
) -> None:
    code, said = ends(started("agents.sbatch", *arguments, env=environment))

    assert (code, said[:6]) == (2, "usage:")


@pytest.mark.parametrize("script", ["agents.sbatch", "service.sbatch"])
def test_slurm_warns_the_script_before_the_end(script: str) -> None:
    """``B:``, or the signal would go to the steps alone."""
    lines = (SLURM / script).read_text().splitlines()
    assert lines[0] == "#!/bin/bash"
    assert any(line.startswith("#SBATCH --signal=B:TERM@") for line in lines)
