"""All weight vectors of a model side by side in one flat buffer.

N vectors of all layers together hold P elements. Elementwise work on (P,) is one call however many
layers there are; sums over the elements of each vector give (N,).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ndadam.vectors.sharding import is_distributed
from ndadam.vectors.weight_vectors import WeightVectors

# Elements whose products are held at once: bounds the scratch memory of large models at 16 MB
# per quantity without adding calls for small ones.
_BUCKET_ELEMENTS = 1 << 22


class FlatBuffer:
    """Layout of the weight vectors of several parameters in flat buffers.

    Raises:
        ValueError: No parameters, sharded ones, or parameters on different devices.
    """

    def __init__(self, vectors: Sequence[WeightVectors]) -> None:
        if not vectors:
            raise ValueError("there are no weight vectors to measure: the list is empty")
        self.vectors = list(vectors)
        sharded = [v.name for v in vectors if is_distributed(v.parameter)]
        if sharded:
            raise ValueError(
                f"weight vectors are measured where all of them are on each process, but "
                f"{sharded[0]} is a DTensor; measure a run with DistributedDataParallel instead"
            )
        devices = {v.parameter.device for v in vectors}
        if len(devices) > 1:
            raise ValueError(
                f"weight vectors must be on one device, got {sorted(map(str, devices))}"
            )
        (self.device,) = devices
        double = any(v.parameter.dtype == torch.float64 for v in vectors)
        self.dtype = torch.float64 if double else torch.float32
        self.counts = [v.count for v in self.vectors]
        self.sizes = [v.parameter.numel() for v in self.vectors]
        self.num_vectors = sum(self.counts)
        self.num_elements = sum(self.sizes)
        self._buckets = _buckets(self.sizes)
        self._scratch: Tensor | None = None

    def elements(self) -> Tensor:
        """A buffer of zeros with a place for every element, (P,)."""
        return self._zeros(self.num_elements)

    def per_vector(self, *quantities: int) -> Tensor:
        """Zeros, (*quantities, N)."""
        return self._zeros(*quantities, self.num_vectors)

    def numbers(self, count: int) -> Tensor:
        """Zeros, (count,)."""
        return self._zeros(count)

    def views(self, buffer: Tensor) -> list[Tensor]:
        """One view per layer into ``buffer`` (P,), in the shape of the parameter, vectors first."""
        return [
            part.view(v.parameter.movedim(v.vector_dim, 0).shape)
            for v, part in zip(self.vectors, torch.split(buffer, self.sizes), strict=True)
        ]

    def row_dots(
        self,
        pairs: Sequence[tuple[Tensor, Tensor]],  # Q pairs of (P,)
    ) -> Tensor:
        """Inner products of each vector of one buffer with its place in another: (Q, N)."""
        if self._scratch is None:
            largest = max(sum(self.sizes[i] for i in bucket) for bucket in self._buckets)
            self._scratch = self._zeros(8, largest)
        sums = []
        start = 0
        for bucket in self._buckets:
            stop = start + sum(self.sizes[i] for i in bucket)
            products = self._scratch[: len(pairs), : stop - start]
            for out, (a, b) in zip(products, pairs, strict=True):
                torch.mul(a[start:stop], b[start:stop], out=out)
            parts = torch.split(products, [self.sizes[i] for i in bucket], 1)
            sums += [
                part.view(len(pairs), self.counts[i], -1).sum(2)
                for i, part in zip(bucket, parts, strict=True)
            ]
            start = stop
        return torch.cat(sums, 1)

    def spread(self, per_vector: Tensor) -> Tensor:
        """Repeat each of (N,) for the elements of its vector: (P,)."""
        return torch.cat(
            [
                part[:, None].expand(count, size // count).reshape(-1)
                for part, count, size in zip(
                    torch.split(per_vector, self.counts), self.counts, self.sizes, strict=True
                )
            ]
        )

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.dtype, device=self.device)


def _buckets(sizes: Sequence[int]) -> list[list[int]]:
    """Consecutive layers whose sizes sum to at most ``_BUCKET_ELEMENTS``; a larger one is alone."""
    buckets: list[list[int]] = [[]]
    held = 0
    for i, size in enumerate(sizes):
        if buckets[-1] and held + size > _BUCKET_ELEMENTS:
            buckets.append([])
            held = 0
        buckets[-1].append(i)
        held += size
    return buckets
