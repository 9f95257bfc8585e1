"""How many wrong tokens an address may show, so that guessing a token takes for ever.

A holder of the right token is never kept out by the guesses of others on this machine, or behind
the same address if it has shown the token from there within the hour. A program that repeats one
old token is no guesser and keeps nobody out.
"""

import hashlib
import ipaddress
import math
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from service.settings import is_loopback

#: Different wrong tokens that an address may show at once, and seconds until it may show another.
BURST = 10
SECONDS_EACH = 10.0
#: Seconds for which an address that has shown the right token is asked again whatever happens.
REMEMBERED = 3600.0
#: Addresses that are remembered; beyond it those that were quiet for longest go. About 1 MB.
MOST_ADDRESSES = 4096


@dataclass
class _Address:
    """What one address has shown."""

    #: Wrong tokens that it may still show, as of ``at``.
    left: float
    at: float
    known_until: float = 0.0
    #: Digests of its latest wrong tokens.
    seen: list[bytes] = field(default_factory=list)


class WrongTokens:
    """Counts wrong tokens by address; safe across threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._addresses: OrderedDict[str, _Address] = OrderedDict()
        self._lock = threading.Lock()
        # Digests are of no use to who reads this process's memory in another one.
        self._salt = secrets.token_bytes(16)

    def seconds_to_wait(self, host: str) -> int:
        """Seconds until a token of ``host`` is looked at again; 0 = now.

        Without looking nobody learns whether a guess was right.
        """
        with self._lock:
            found = self._addresses.get(_network(host))
            if found is None or is_loopback(host) or found.known_until > self._clock():
                return 0
            self._refill(found)
            return self._wait(found)

    def note_wrong(self, host: str, token: str) -> int:
        """Count a wrong token; return the seconds that its sender should wait, 0 for none."""
        digest = hashlib.blake2b(token.encode(), key=self._salt, digest_size=8).digest()
        with self._lock:
            found = self._of(host)
            if digest in found.seen:
                return 0
            wait = self._wait(found)
            if not wait:
                found.left -= 1
                found.seen = [*found.seen, digest][-BURST:]
            return wait

    def note_right(self, host: str) -> None:
        """Remember that somebody behind ``host`` holds the token."""
        with self._lock:
            found = self._addresses.get(_network(host))
            # Nobody else has a use for being known.
            if found is not None or not is_loopback(host):
                self._of(host).known_until = self._clock() + REMEMBERED

    def _of(self, host: str) -> _Address:
        name = _network(host)
        found = self._addresses.setdefault(name, _Address(BURST, self._clock()))
        self._addresses.move_to_end(name)
        while len(self._addresses) > MOST_ADDRESSES:
            self._addresses.popitem(last=False)
        self._refill(found)
        return found

    def _refill(self, found: _Address) -> None:
        now = self._clock()
        found.left = min(BURST, found.left + (now - found.at) / SECONDS_EACH)
        found.at = now

    def _wait(self, found: _Address) -> int:
        return max(0, math.ceil((1 - found.left) * SECONDS_EACH))


@lru_cache(maxsize=MOST_ADDRESSES)  # each request asks a few times, and parsing is what it costs
def _network(host: str) -> str:
    """What one holder of addresses has at least: of IPv6 that is a network of 2^64."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host[:64]
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or ipaddress.ip_network((host, 64), strict=False))
    return str(address)
