"""The process that trains all trials of one card: ``python -m worker.card_sharing.process``.

It holds the data sets, the compiled kernels and the memory of the card, and runs each trial on a
stream of its own (``worker.card_sharing.round_robin``). Trials connect over a local socket
(``worker.card_sharing.client``); if one disconnects, its run ends. Without a client for
``--idle`` seconds the process ends.
"""

import argparse
import contextlib
import logging
import os
import signal
import socket
import sys
from pathlib import Path

from worker.card_sharing.protocol import address_lock
from worker.card_sharing.stall_watchdog import TURN_LIMIT

#: Seconds without a client before a host ends: between two trials of a sweep there are fewer.
IDLE = 20.0


def main(arguments: list[str] | None = None) -> int:
    """Start the host of an address; return when it listens, and leave it running."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--address", type=Path, required=True, help="path of the socket")
    parser.add_argument("--device", choices=["cpu", "cuda"], required=True)
    parser.add_argument("--idle", type=float, default=IDLE, help="seconds without a client")
    parser.add_argument(
        "--turn-limit",
        type=float,
        default=TURN_LIMIT,
        help="seconds that a trial may keep the turn",
    )
    options = parser.parse_args(arguments)
    listener = _listen(options.address)
    # As a child or in the process group of its starter the host would be ended with it, and with it
    # everybody's trials. It stays in the session of the cluster, which ends with all that is in it.
    if os.fork() > 0:
        return 0
    os.setpgid(0, 0)
    inode = options.address.stat().st_ino
    _speak_to(options.address.with_suffix(".log"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        # Not before the fork: it loads torch, and a card cannot be shared across one.
        from worker.card_sharing.server import serve

        code = serve(listener, options.device, options.idle, options.turn_limit)
    except SystemExit:
        # The cluster ends, and with it every client.
        code = 0
    listener.close()
    _leave(options.address, inode, code)
    logging.shutdown()
    # At once: a card that gave up could keep torch's own end waiting.
    os._exit(code)


def _listen(address: Path) -> socket.socket:
    """A socket that listens before it can be found."""
    hidden = address.with_suffix(f".{os.getpid()}")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(hidden))
    listener.listen(64)
    hidden.replace(address)
    return listener


def _leave(address: Path, inode: int, code: int) -> None:
    """Give an address up, with the log of a host that ended well."""
    with contextlib.suppress(FileNotFoundError), address_lock(address):
        # Another host may have taken it over, and none does before it is gone.
        if address.stat().st_ino == inode:
            address.unlink()
            if code == 0:
                address.with_suffix(".log").unlink(missing_ok=True)


def _speak_to(path: Path) -> None:
    """Let go of the starter's standard streams; what is printed goes to a file."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for stream, to in ((0, nothing), (1, output), (2, output)):
        os.dup2(to, stream)


if __name__ == "__main__":
    sys.exit(main())
