"""Writes the requests of many agents in one transaction each few milliseconds.

A commit costs an fsync however much is in it. Requests that arrive while one is written share the
next, so that answers take about as long and thousands a second fit on one disk.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextvars import Context
from pathlib import Path

from anyio.to_thread import run_sync

from sweeps.errors import StoreUnavailable
from sweeps.store.commands.agent_requests import AgentRequest, Answer
from sweeps.store.store import Store

log = logging.getLogger(__name__)

#: Seconds that a request waits for company. Other processes write in between as well.
GATHER_SECONDS = 0.004
#: Requests of one transaction.
MOST = 500


class GroupCommit:
    """Answers requests of agents. For the threads of one event loop."""

    def __init__(self, store: Store, home: Path) -> None:
        self._store = store
        #: Where logs of trials are.
        self.home = home
        self._queue: list[tuple[AgentRequest, asyncio.Future[Answer]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def send(self, request: AgentRequest) -> Answer:
        """Return the answer once it is committed. Raises SweepsError for a refused request."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._queue.append((request, answer))
        if self._writer is None:
            # In a context of its own: the batch is not the work of whoever came first.
            self._writer = loop.create_task(self._write_all(), context=Context())
        return await answer

    async def _write_all(self) -> None:
        try:
            while self._queue:
                await asyncio.sleep(GATHER_SECONDS)
                batch, self._queue = self._queue[:MOST], self._queue[MOST:]
                answers = await run_sync(self._serve, [request for request, _ in batch])
                for (_, waiting), answer in zip(batch, answers, strict=True):
                    if waiting.done():  # its client has gone
                        continue
                    if isinstance(answer, Exception):
                        waiting.set_exception(answer)
                    else:
                        waiting.set_result(answer)
        finally:
            self._writer = None

    def _serve(self, requests: Sequence[AgentRequest]) -> Sequence[Answer | Exception]:
        try:
            return self._store.serve_agents(requests)
        except StoreUnavailable as error:
            return [error] * len(requests)
        except Exception as error:
            if len(requests) == 1:
                return [error]
            # One of them is to blame, and none of the others may fail for it.
            log.exception("a transaction of %d requests failed; trying each alone", len(requests))
            return [self._serve([request])[0] for request in requests]
