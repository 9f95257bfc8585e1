"""A store in a file, and a way to look at what was imported."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeps.store.store import Store


@pytest.fixture
def store(tmp_path: Path, empty_database: Path) -> Iterator[Store]:
    shutil.copy(empty_database, tmp_path / "store.db")
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    yield store
    store.close()
