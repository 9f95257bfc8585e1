"""The order of the data: the augmented batch of every step of a run."""

import torch
from torch import Tensor

from worker.config.train_config import TrainConfig
from worker.data.augment import Draws, Pixels, augment, draw_epoch
from worker.data.run_length import Length

#: Float32 values of augmented images kept ready. One gather for several batches costs the same as
#: one for a single batch; more values than this exceed a CPU core's cache.
_CHUNK_VALUES = 1 << 19


class BatchStream:
    """Returns the batch of any step; consecutive steps are cheap.

    The batch of a step depends on (seed, step) alone, so a resumed run sees the same data.
    """

    def __init__(
        self, config: TrainConfig, pixels: Pixels, indices: Tensor, length: Length
    ) -> None:
        self._pixels = pixels
        self._indices = indices
        self._length = length
        self._seed, self._flip = config.seed, config.flip
        values = length.batch_size * pixels.images[0].numel()
        self._batches_per_chunk = max(1, _CHUNK_VALUES // values)
        self._epoch = -1
        self._chunk = -1

    def batch(
        self, step: int
    ) -> tuple[Tensor, Tensor]:  # (B, C, H, W) float32 channels last, (B,) int64
        """Return images and labels of one step."""
        epoch, index = divmod(step, self._length.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._chunk = epoch, -1
            self._draws = draw_epoch(
                self._indices,
                self._pixels.pad,
                self._flip,
                seed=self._seed,
                epoch=epoch,
                device=self._pixels.device,
            )
        chunk, within = divmod(index, self._batches_per_chunk)
        if chunk != self._chunk:
            self._chunk = chunk
            self._ready = self._prepare(chunk)
        return self._ready[within]

    def _prepare(self, chunk: int) -> list[tuple[Tensor, Tensor]]:
        size = self._length.batch_size
        start = chunk * self._batches_per_chunk * size
        stop = min(start + self._batches_per_chunk * size, self._length.num_train)
        part = slice(start, stop)
        draws = self._draws
        drawn = Draws(draws.order[part], draws.down[part], draws.right[part], draws.flip[part])
        images = augment(self._pixels, drawn)
        labels = self._pixels.labels.index_select(0, drawn.order)
        return list(zip(torch.split(images, size), torch.split(labels, size), strict=True))
