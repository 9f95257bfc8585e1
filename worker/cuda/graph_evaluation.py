"""Evaluation on a card by replaying one graph per set and size of batch."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from worker.cuda.graph_recorder import Graph, GraphRecorder
from worker.data.augment import Pixels, plain
from worker.steps.evaluation import errors


class GraphEvaluation:
    """Judges batches of held-out images; call it without gradients."""

    def __init__(
        self,
        logits_of: Callable[[Tensor], Tensor],  # of standardised images (N, C, H, W)
        recorder: GraphRecorder,
    ) -> None:
        self._logits_of, self._recorder = logits_of, recorder
        self._batches: dict[tuple[int, int], _Batch] = {}

    def judge(self, pixels: Pixels, part: Tensor, found: Tensor) -> None:
        """Add the errors on images ``part`` (N,) of a set that stays to ``found`` (2,)."""
        key = id(pixels), len(part)
        if key not in self._batches:
            self._batches[key] = _Batch(self._logits_of, pixels, len(part))
        self._batches[key].judge(part, found, self._recorder)


class _Batch:
    """Batches of one size from one set."""

    def __init__(self, logits_of: Callable[[Tensor], Tensor], pixels: Pixels, size: int) -> None:
        self._indices = torch.zeros(size, dtype=torch.int64, device=pixels.device)
        self._errors = torch.zeros(2, dtype=torch.int64, device=pixels.device)
        self._launches = partial(_launch, logits_of, pixels, self._indices, self._errors)
        self._is_warm = False
        self._graph: Graph | None = None

    def judge(self, part: Tensor, found: Tensor, recorder: GraphRecorder) -> None:
        self._indices.copy_(part)
        if self._is_warm and self._graph is None:
            self._graph = recorder.record(self._launches)
        if self._graph is not None:
            self._graph.replay()
        else:
            recorder.run_aside(self._launches)
            self._is_warm = True
        found.add_(self._errors)


def _launch(
    logits_of: Callable[[Tensor], Tensor], pixels: Pixels, indices: Tensor, found: Tensor
) -> None:
    labels = pixels.labels.index_select(0, indices)
    found.copy_(errors(logits_of(plain(pixels, indices)), labels))
