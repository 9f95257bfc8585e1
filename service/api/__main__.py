"""The API process: ``python -m service.api [--fd N]``."""

import argparse
import logging
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial

import uvicorn

from service.api.app import create_app
from service.api.http_protocol import Connection
from service.settings import DEFAULT_PORT, Settings, SettingsError
from service.submission import training_reader
from service.supervision.ports import listen
from sweeps.errors import StoreUnavailable
from sweeps.store.store import Store
from worker.process.logs import set_up
from worker.process.stop_signal import set_by_signals

log = logging.getLogger(__name__)

#: Seconds that open requests get after SIGTERM; event streams would never end by themselves.
GRACE_SECONDS = 2
RETRY_SECONDS = 2.0


def main(arguments: list[str] | None = None) -> int:
    """Answer requests until SIGTERM; 1 with one line on stderr when that cannot begin."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, help="a listening socket that was passed on")
    options = parser.parse_args(arguments)
    set_up("api")
    try:
        run(Settings(), options.fd)
    except SettingsError as error:
        print(f"ndsweep: {error}", file=sys.stderr)
        return 1
    return 0


def run(settings: Settings, fd: int | None) -> None:
    store = Store(settings.database_url())
    app = create_app(store, settings)
    server = (
        listen(settings.host, settings.port, DEFAULT_PORT)
        if fd is None
        else socket.socket(fileno=fd)
    )
    migrated = threading.Event()
    threading.Thread(
        target=_migrate, args=(partial(_prepare, store), migrated), daemon=True
    ).start()
    migrated.wait(5.0)  # a store that is away is answered with 503 until it is back
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the application reads them
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    # uvicorn stops cleanly and then raises the signal again: to have stopped is no failure.
    set_by_signals(threading.Event())
    training_reader.begin(settings.training_seconds)
    uvicorn.Server(config).run(sockets=[server])
    training_reader.end()
    store.close()


def _prepare(store: Store) -> None:
    """Bring the tables up to date, and give agents their time: nobody answered them before."""
    store.migrate()
    store.renew_leases()


def _migrate(migrate: Callable[[], None], done: threading.Event) -> None:
    """Bring the database up to date, as soon as it can be reached."""
    while True:
        try:
            migrate()
            done.set()
            return
        except StoreUnavailable as error:
            log.warning("the store is not ready: %s", error)
        except Exception:
            # Whatever it is may pass, and a thread that ends here would leave the store without
            # tables for good.
            log.exception("the store could not be brought up to date; trying again")
        done.wait(RETRY_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
