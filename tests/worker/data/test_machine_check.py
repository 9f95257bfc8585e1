"""What is otherwise on a machine than on its driver's, and how it is said."""

import pickle
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import ndadam
import worker
from worker.data import machine_check
from worker.data.fetch import prepare_digits
from worker.data.machine_check import (
    check_once,
    differences,
    found_here,
    library_versions,
    packages_here,
    sets_here,
)
from worker.errors import WrongMachine


@pytest.fixture
def proof(tmp_path: Path) -> Path:
    path = tmp_path / "home" / "tune" / "proof"
    path.parent.mkdir(parents=True)
    path.write_text("a word")
    return path


@pytest.fixture
def expected(proof: Path) -> dict[str, Any]:
    return found_here(proof.parents[1], proof)


#: Another machine: without this checkout, and without what .pth files of the environment add.
ELSEWHERE = """
import pickle, sys
sys.path[:0] = sys.argv[2:]
sys.path.append(sys.argv[1])
ask, expected = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(pickle.dumps(ask(expected)))
"""


def answer_of_machine(expected: dict[str, Any], *path: Path) -> list[tuple[str, str]]:
    """``differences`` as another process tells them, whose installed code is on ``path``."""
    cloudpickle.register_pickle_by_value(machine_check)
    try:
        question = cloudpickle.dumps((differences, expected))
    finally:
        cloudpickle.unregister_pickle_by_value(machine_check)
    libraries = Path(cloudpickle.__file__).parents[1]
    command = [sys.executable, "-S", "-E", "-c", ELSEWHERE, str(libraries)]
    done = subprocess.run(
        [*command, *map(str, path)], input=question, cwd="/", capture_output=True, check=True
    )
    found: list[tuple[str, str]] = pickle.loads(done.stdout)
    return found


def copied_code(folder: Path) -> Path:
    for package in (ndadam, worker):
        (source,) = package.__path__
        kept = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, folder / package.__name__, ignore=kept)
    return folder


def test_the_drivers_own_machine_differs_in_nothing(expected: dict[str, Any]) -> None:
    assert differences(expected) == []
    assert pickle.loads(pickle.dumps(expected)) == expected


def test_the_same_code_in_another_place_is_the_same(
    tmp_path: Path, expected: dict[str, Any]
) -> None:
    assert answer_of_machine(expected, copied_code(tmp_path / "code")) == []


def test_other_code_is_named_with_both_hashes(tmp_path: Path, expected: dict[str, Any]) -> None:
    code = copied_code(tmp_path / "code")
    (code / "worker" / "pauses.py").write_text("pass\n")

    ((kind, text),) = answer_of_machine(expected, code)

    assert kind == "code"
    assert text.startswith("its code is not the runner's (SHA-256 ")
    assert f"{expected['code'][:12]} here): install the same version of ndadam-sweeps" in text


def test_a_machine_without_the_package_can_be_asked(expected: dict[str, Any]) -> None:
    assert answer_of_machine(expected) == [
        ("code", "it has no ndadam-sweeps: install the version of the runner's machine there")
    ]


def test_other_versions_of_libraries_are_named(expected: dict[str, Any]) -> None:
    torch = library_versions()["torch"]
    expected["versions"] |= {"torch": "1.0"}

    assert differences(expected) == [
        ("code", f"it has torch {torch}, and the runner's machine 1.0")
    ]


def test_builds_of_one_version_of_torch_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    built = {"torch": "2.14.1+cpu", "ray": "2.60.0"}
    monkeypatch.setattr(machine_check, "version", built.__getitem__)

    assert library_versions()["torch"] == "2.14.1"


def test_another_home_under_the_same_path_is_noticed(proof: Path, expected: dict[str, Any]) -> None:
    home = proof.parents[1]
    other = [("home", f"{home} is not the runner's NDSWEEP_HOME there: mount that one")]
    proof.write_text("another word")
    assert differences(expected) == other
    proof.unlink()
    assert differences(expected) == other
    shutil.rmtree(home)
    assert differences(expected) == other


def test_a_home_that_cannot_be_written_is_noticed(
    proof: Path, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != proof.parent)

    ((kind, text),) = differences(expected)

    assert kind == "home"
    assert text.endswith("cannot be written there: mount it writable for this user")


def test_a_full_disk_is_no_other_home(tmp_path: Path) -> None:
    assert differences(found_here(tmp_path, None)) == []


def test_packages_must_have_the_version_of_the_sweep(expected: dict[str, Any]) -> None:
    numpy = version("numpy")

    assert differences(expected | {"packages": {"numpy": numpy}}) == []
    assert differences(expected | {"packages": {"numpy": "1.2", "no-such": "3"}}) == [
        (
            "packages",
            f"it has numpy {numpy}, and the sweep 1.2: run pip install numpy==1.2 there",
        ),
        (
            "packages",
            "it has no-such none, and the sweep 3: run pip install no-such==3 there",
        ),
    ]
    # What the driver's own machine lacks is said by the trials, wherever they are.
    assert packages_here({"numpy": numpy, "no-such": "3", "pytest": "0"}) == {"numpy": numpy}


def test_data_sets_must_have_the_same_images(tmp_path: Path, expected: dict[str, Any]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    sets = sets_here(["digits", "cifar10"], str(data))
    assert sets == {}
    prepare_digits(data)
    sets = sets_here(["digits", "cifar10"], str(data))
    assert list(sets) == ["digits"]

    here = expected | {"datasets": sets, "data_home": str(data)}
    assert differences(here) == []
    ((kind, text),) = differences(here | {"datasets": {"digits": "0" * 64}})
    assert kind == "data"
    assert "has other images there (checksum " in text
    assert f"{'0' * 12} here): copy digits.ndset of the runner's machine" in text
    (data / "digits.ndset").unlink()
    ((kind, text),) = differences(here)
    assert text.startswith(f"dataset 'digits' is not prepared in {data} (prepared: none)")


def test_data_are_not_read_by_other_code(expected: dict[str, Any], tmp_path: Path) -> None:
    here = {"code": "0" * 64, "datasets": {"digits": "1"}, "data_home": str(tmp_path)}

    assert [kind for kind, _ in differences(expected | here)] == ["code"]


def test_a_worker_asks_once_for_each_driver(proof: Path, expected: dict[str, Any]) -> None:
    check_once(expected, "machine1")
    proof.unlink()
    check_once(expected, "machine1")

    with pytest.raises(WrongMachine, match="is not the runner's NDSWEEP_HOME") as caught:
        check_once(expected | {"datasets": {}}, "machine1")

    # Ray hands it from process to process.
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.machine, again.differences) == ("machine1", caught.value.differences)
    assert str(again) == str(caught.value)
