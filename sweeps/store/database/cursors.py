"""Sort keys and cursors of a listing, as text. A cursor holds the last row's key, never an offset,
so rows that arrive meanwhile move nothing.
"""

import base64
import binascii
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sweeps.errors import InvalidCursor, InvalidLimit, InvalidSort

MAX_LIMIT = 500
_INT64 = 2**63


@dataclass(frozen=True)
class Sort:
    """``-created_at`` taken apart."""

    key: str
    descending: bool

    def __str__(self) -> str:
        return f"-{self.key}" if self.descending else self.key


@dataclass(frozen=True)
class Position:
    """The last row of a page: its sort value (None: among rows without one) and its tie."""

    value: float | int | str | None
    tie: int | str


def parse_sort(sort: str, allowed: Iterable[str]) -> Sort:
    """Read ``field`` or ``-field``. Raises InvalidSort for a key that is not allowed."""
    keys = sorted(allowed)
    key = sort.removeprefix("-")
    if key not in keys:
        raise InvalidSort(sort, keys)
    return Sort(key, sort.startswith("-"))


def check_limit(limit: int, most: int = MAX_LIMIT) -> int:
    """Return ``limit``. Raises InvalidLimit unless it is 1 to ``most``."""
    if not 1 <= limit <= most:
        raise InvalidLimit(limit, most)
    return limit


def write_cursor(sort: Sort, position: Position) -> str:
    """Make the cursor of the page that follows ``position``."""
    text = json.dumps([str(sort), position.value, position.tie], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(cursor: str, sort: Sort, *, value: type, tie: type) -> Position:
    """Read a cursor back. Raises InvalidCursor if it was not made for this sort and these types."""
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        parts = json.loads(raw)
        made_for, at, last = parts
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise InvalidCursor("cannot be read") from None
    if made_for != str(sort):
        raise InvalidCursor(f"was not made for sort {str(sort)!r}")
    if not (at is None or _is(at, value)) or not _is(last, tie):
        raise InvalidCursor("cannot be read")
    return Position(at, last)


def _is(value: Any, kind: type) -> bool:
    """Whether a decoded JSON value can be compared with a column of this type."""
    if isinstance(value, bool):
        return False
    if kind is str:
        return isinstance(value, str) and "\x00" not in value
    if isinstance(value, int):
        return -_INT64 <= value < _INT64
    # NaN and infinities are not JSON, but Python's reader takes them.
    return kind is float and isinstance(value, float) and abs(value) < float("inf")
