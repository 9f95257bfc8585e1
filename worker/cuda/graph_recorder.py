"""Launches for the card, recorded once as a CUDA graph and replayed."""

from collections.abc import Callable
from typing import Any, Protocol

import torch


class Graph(Protocol):
    """Recorded launches."""

    def replay(self) -> None:
        """Put them into the queue of the current stream."""


class GraphRecorder:
    """Records the graphs of one run, which share their memory.

    They may, in any order, since each writes what it reads before it reads it.
    """

    def __init__(self, calm: Callable[[], object]) -> None:
        """``calm`` is called before a recording: other threads must leave the run's stream alone.

        One that frees memory which the stream has copied to would put an event into the recording.
        """
        self._calm = calm
        self._stream: torch.cuda.Stream | None = None
        self._pool: Any = None  # torch's stubs have no public name for it

    def run_aside(self, launches: Callable[[], None]) -> None:
        """Launch outside of a graph, on the stream that records.

        Before a recording: what compiles a kernel or chooses a convolution cannot be recorded.
        """
        current = torch.cuda.current_stream()
        if self._stream is None:
            # A graph cannot be captured on the default stream. A run that was given a stream of its
            # own stays on it, since memory once used on a stream is kept for that stream.
            is_own = current != torch.cuda.default_stream()
            self._stream = current if is_own else torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            launches()
        current.wait_stream(self._stream)

    def record(self, launches: Callable[[], None]) -> Graph:
        """Record without launching. Waits for the card."""
        self._calm()
        return self._capture(launches)

    def _capture(self, launches: Callable[[], None]) -> Graph:
        graph = torch.cuda.CUDAGraph()
        # Only this thread must not disturb the capture: others may train on the card as well.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        ):
            launches()
        self._pool = graph.pool()
        return graph
