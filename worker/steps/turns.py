"""How several runs share one process: each is a generator that hands the turn on between steps.

What torch keeps once per process (random generators, precision switches, threads) is a run's own
while it has the turn, so that a run computes what it would alone.
"""

from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from functools import cache
from typing import TypeVar

import torch

from worker.config.train_config import TrainConfig
from worker.steps.device import arithmetic

Item = TypeVar("Item")

#: Steps of one turn. A turn must be long beside the few dozen microseconds of changing over, and
#: several of them short beside what a person notices.
STEPS_PER_TURN = 10


class Turn(Enum):
    """What a run wants when it hands on the turn."""

    #: Go on at any time; there is more to put into the queue of the device.
    NEXT = "next"
    #: Go on when the device has done what is in the queue: the run would only wait for it.
    SETTLE = "settle"


def isolated(
    turns: Generator[Item, None, None], config: TrainConfig, device: torch.device, threads: int = 0
) -> Generator[Item, None, None]:
    """Iterate ``turns`` with a process state of its own; between two items everybody else's stands.

    ``config`` is resolved. ``threads`` of torch on the CPU, 0 = as many as there are.
    """
    own = _ProcessState(config, device, threads)
    try:
        while True:
            with own.installed():
                try:
                    item = next(turns)
                except StopIteration:
                    return
            yield item
    finally:
        with own.installed():
            turns.close()


class _ProcessState:
    """What one run sees of the state that torch keeps per process."""

    def __init__(self, config: TrainConfig, device: torch.device, threads: int) -> None:
        self._config, self._device, self._threads = config, device, threads
        self._generators = _generators(device)
        self._random = self._random_states()

    @contextmanager
    def installed(self) -> Iterator[None]:
        others = self._random_states()
        with ExitStack() as stack:
            stack.enter_context(_own_stream(self._device))
            stack.enter_context(arithmetic(self._config, self._device))
            stack.enter_context(_torch_threads(self._threads))
            self._set_random_states(self._random)
            try:
                yield
            finally:
                self._random = self._random_states()
                self._set_random_states(others)

    def _random_states(self) -> list[torch.Tensor]:
        return [generator.get_state() for generator in self._generators]

    def _set_random_states(self, states: list[torch.Tensor]) -> None:
        for generator, state in zip(self._generators, states, strict=True):
            generator.set_state(state)


def _generators(device: torch.device) -> list[torch.Generator]:
    """Torch's default generators that a run on ``device`` can draw from."""
    if device.type != "cuda":
        return [torch.default_generator]
    # Once: ``torch.cuda.get_rng_state`` and its like count the machine's cards in every call.
    torch.cuda.init()  # type: ignore[no-untyped-call]
    index = torch.cuda.current_device() if device.index is None else device.index
    return [torch.default_generator, torch.cuda.default_generators[index]]


@contextmanager
def _own_stream(device: torch.device) -> Iterator[None]:
    """Launch on another stream than the default one, unless somebody has chosen one.

    A graph cannot be captured on the default stream. Memory that was used on a stream is kept for
    it, so all that a run launches, captured or not, and all runs of a process had better share one.
    """
    if device.type != "cuda" or torch.cuda.current_stream(device) != torch.cuda.default_stream(
        device
    ):
        yield
        return
    with torch.cuda.stream(_stream_of_runs(torch.cuda.current_device())):
        yield


@cache
def _stream_of_runs(_card: int) -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    if count in (0, before):
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
