"""``import ndsweep`` costs little, and its names are there."""

import subprocess
import sys

import pytest

import ndsweep

HEAVY = {"torch", "pandas", "plotly", "numpy", "pydantic", "httpx2", "service", "sweeps"}
TIMED = (
    "import sys, time; began = time.perf_counter(); import ndsweep; "
    "print(time.perf_counter() - began); "
    "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
)


def imported():
    asked = [sys.executable, "-c", TIMED]
    found = subprocess.run(asked, capture_output=True, text=True, check=True)
    seconds, names = found.stdout.splitlines()
    return float(seconds), set(names.split())


def test_importing_it_takes_less_than_50_ms_and_loads_nothing_heavy():
    """The best of five: other processes run beside this one."""
    times = []
    for _ in range(5):
        seconds, names = imported()
        assert not names & HEAVY
        times.append(seconds)

    assert min(times) < 0.05


def test_connecting_loads_no_torch():
    code = "import sys, ndsweep; ndsweep.connect, ndsweep.Sweep; print('torch' in sys.modules)"

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout == "False\n"


def test_every_name_is_listed_and_says_what_it_is():
    assert set(ndsweep.__all__) == set(ndsweep._HOME)
    for name in ndsweep.__all__:
        assert getattr(ndsweep, name).__doc__
    assert set(ndsweep.__all__) <= set(dir(ndsweep))


def test_public_methods_say_what_they_do():
    for kind in (ndsweep.Client, ndsweep.Sweep, ndsweep.Best):
        for name, found in vars(kind).items():
            if not name.startswith("_") and (callable(found) or isinstance(found, property)):
                assert found.__doc__, f"{kind.__name__}.{name}"


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = ndsweep.nope
