"""What every test starts from: threads, how Triton's kernels run, examples, order, a database.

Torch and Triton read their environment when they are imported, so that a test module would come
too late: one thread for each of the processes that share the cores, and kernels that are
interpreted without a CUDA device.
"""

import os
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from service.supervision.surroundings import complete_surroundings
from tests.browser import HELP, find_browser

complete_surroundings()
os.environ.setdefault("OMP_NUM_THREADS", "1")
# It would colour, and on a dumb terminal wrap, what the tests read.
os.environ.pop("FORCE_COLOR", None)
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")
# Ray ends workers where memory is short, and counts cached files: no test is about that.
os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")
# It gives parts of itself up that take long to start, beside everything else; in seconds.
os.environ.setdefault("RAY_DASHBOARD_STARTUP_TIMEOUT_S", "300")
os.environ.setdefault("RAY_worker_register_timeout_seconds", "300")

# The same examples in every run, however long a busy machine takes to make or to try one.
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")
# A value in twenty would be a constant of the product's modules that this process has loaded by
# then: others in every run, because files go to whichever process is free.
patch.object(providers, "_get_local_constants", Constants).start()


#: Files that take longest: a minute and more if they start processes, else half of one.
_LONGEST = (
    "faults/test_kills.py",
    "project/examples/test_service.py",
    "service/cli/test_quickstart.py",
    "sweeps/driver/test_driver.py",
)
_LONG = ("worker/cuda/test_graph_steps.py", "ndadam/matching/test_match.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that start processes come first: they take longest, and short ones fill the gaps."""
    tests = Path(__file__).parent
    place = {tests / name: place for names, place in ((_LONGEST, 0), (_LONG, 2)) for name in names}
    for item in items:
        if item.get_closest_marker("stack") or item.get_closest_marker("browser"):
            place.setdefault(item.path, 1)
    items.sort(key=lambda item: place.get(item.path, 3))
    nameless = sorted({item.location[2] for item in items if " at 0x" in item.nodeid})
    if nameless:
        raise pytest.UsageError(f"names that every process makes anew, give ids to: {nameless}")
    unmarked = sorted(
        item.nodeid
        for item in items
        if "browser" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("browser")
    )
    if unmarked:
        raise pytest.UsageError(f"these drive a browser and are not marked so: {unmarked}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without a browser its tests are skipped, all for one reason, so that one line counts them.

    In CI they fail: it would go quiet otherwise.
    """
    if item.get_closest_marker("browser") and find_browser() is None:
        if os.environ.get("CI") == "true":
            pytest.fail(HELP, pytrace=False)
        pytest.skip(HELP)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite database to copy: migrating takes longer than most tests."""
    from sweeps.store.store import Store

    path = tmp_path_factory.mktemp("database") / "store.db"
    store = Store(f"sqlite:///{path}")
    store.migrate()
    store.close()
    return path
