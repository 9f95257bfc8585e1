"""The log of a process: lines for people, or one JSON object a line for programs.

``NDSWEEP_LOG_FORMAT`` decides, ``text`` (the default) or ``json``. In JSON a record carries the ids
that hold where it was written: ``request``, ``token``, ``sweep``, ``trial``. The standard
library's logging is enough: what Ray, uvicorn, SQLAlchemy and MLflow write arrives there anyway,
and a worker on a machine without the service needs no further package.
"""

import json
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

#: Environment variable that every process of a service inherits.
FORMAT = "NDSWEEP_LOG_FORMAT"
#: Of a line for people.
TEXT = "%(asctime)s %(levelname)s %(message)s"
#: Logger of answered requests, which are written in JSON only.
REQUESTS = "ndsweep.requests"
#: Fields of a JSON record that a caller may add, by ``log_ids`` or ``extra``.
IDS = ("request", "token", "sweep", "trial", "attempt")
#: Fields of an answered request.
_ANSWER = ("method", "route", "status", "seconds")

Ids = dict[str, str | int]

_IDS: ContextVar[Ids | None] = ContextVar("log_ids", default=None)
#: Of every record of this process, in whatever thread.
_PROCESS_IDS: Ids = {}


def is_json() -> bool:
    """Whether this process writes its log as JSON."""
    return os.environ.get(FORMAT, "").strip() == "json"


@contextmanager
def log_ids(**ids: str | int) -> Iterator[None]:
    """Give every record written within the block these ids, beside those that hold already."""
    token = _IDS.set({**(_IDS.get() or {}), **ids})
    try:
        yield
    finally:
        _IDS.reset(token)


def add_ids(**ids: str | int) -> None:
    """Add ids to those of the innermost ``log_ids``, until it ends; without one, do nothing."""
    known = _IDS.get()
    if known is not None:
        known.update(ids)


def add_process_ids(**ids: str | int) -> None:
    """Give every record of this process these ids from now on: of a process for one sweep."""
    _PROCESS_IDS.update(ids)


def set_up(part: str) -> None:
    """Write the log of this process to standard error.

    In JSON every record carries ``part`` (api, runner, driver, …); warnings of Python, and
    exceptions that nobody caught, become records too.
    """
    if not is_json():
        logging.basicConfig(level=logging.INFO, format=TEXT)
        logging.getLogger(REQUESTS).setLevel(logging.WARNING)
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(part))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_of_thread


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON: time (UTC), level, part, logger, message, its ids."""

    def __init__(self, part: str, ids: Mapping[str, str | int] | None = None) -> None:
        """``ids`` are those of every record that is written with it."""
        super().__init__()
        self._about: dict[str, Any] = {"part": part, "pid": os.getpid()}
        self._ids = dict(ids or {})

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        given = record.__dict__
        found: dict[str, Any] = {
            "time": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z",
            "level": record.levelname,
            **self._about,
            "logger": record.name,
            "message": record.getMessage(),
            **self._ids,
            **_PROCESS_IDS,
            **(_IDS.get() or {}),
            **{name: given[name] for name in (*IDS, *_ANSWER) if name in given},
        }
        if record.exc_info and record.exc_info[0] is not None:
            found["exception"] = self.formatException(record.exc_info)
        # Whatever a message holds, a line stays one line that every reader of UTF-8 takes.
        return json.dumps(found, default=str)


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        logging.critical("%s: %s", kind.__name__, error, exc_info=(kind, error, trace))


def _log_uncaught_of_thread(found: threading.ExceptHookArgs) -> None:
    error = found.exc_value
    if error is not None and not isinstance(error, SystemExit):
        name = found.thread.name if found.thread else "a thread"
        exc_info = (found.exc_type, error, found.exc_traceback)
        logging.critical("%s: %s: %s", name, found.exc_type.__name__, error, exc_info=exc_info)
