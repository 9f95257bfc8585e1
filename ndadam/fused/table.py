"""Where the rows of each parameter lie in memory, and the device table that a kernel reads it from.

A weight vector can be updated in place by the fused step when it is one dense run of memory. That
holds for dimension 0 of contiguous and of channels_last weights; the order inside the run does not
matter as long as weight, gradient and first moment share it. So can the columns of a matrix, in
which neighbouring vectors lie side by side.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ndadam.cuda import is_capturing
from ndadam.fused import column_kernels, kernels

# Rows a program of the aligned, and of the unaligned, tile holds, by the longest row it takes.
_ALIGNED = (
    (384, kernels.TILE_16x384.value, 16),
    (768, kernels.TILE_8x768.value, 8),
    (1536, kernels.TILE_4x1536.value, 4),
    (3072, kernels.TILE_2x3072.value, 2),
    (6144, kernels.TILE_1x6144.value, 1),
)
_UNALIGNED = (
    (384, kernels.TILE_16x384_UNALIGNED.value, 16),
    (6144, kernels.TILE_1x6144_UNALIGNED.value, 1),
)
_COLUMNS = (
    (192, column_kernels.TILE_128x192.value, 128),
    (768, column_kernels.TILE_32x768.value, 32),
    (1536, column_kernels.TILE_16x1536.value, 16),
    (3072, column_kernels.TILE_8x3072.value, 8),
    (6144, column_kernels.TILE_4x6144.value, 4),
)
_UNALIGNED_COLUMNS = (
    (768, column_kernels.TILE_32x768_UNALIGNED.value, 32),
    (6144, column_kernels.TILE_4x6144_UNALIGNED.value, 4),
)
_SWEEPS = (kernels.TILE_SWEEPS.value, 1)
_SCALARS = (kernels.TILE_SCALARS.value, kernels.SCALARS.value)
ALIGNMENT = 16  # bytes

_KEPT_COLUMNS = 8  # sets of gradient addresses remembered outside of captures
_SPARES = 16  # captures with new gradients between two steps outside of a capture


class Rows(NamedTuple):
    """The rows of a parameter: ``number`` dense runs of ``length`` elements, ``stride`` apart.

    As columns they are side by side, and ``stride`` is from one element of a row to the next.
    """

    number: int
    length: int
    stride: int
    are_columns: bool = False


def rows_of(p: Tensor, vector_dim: int | None) -> Rows | None:
    """The rows of ``p``, None when they are neither dense runs nor columns that registers hold.

    Without ``vector_dim`` the parameter holds scalars: as many rows as elements, of length 1.
    """
    if vector_dim is None:
        return Rows(p.numel(), 1, 1) if _is_dense(p, range(p.dim())) else None
    kept = vector_dim % p.dim()
    if not _is_dense(p, [d for d in range(p.dim()) if d != kept]):
        return _columns_of(p, kept)
    length = p.numel() // p.shape[kept]
    return Rows(p.shape[kept], length, p.stride(kept) if p.shape[kept] > 1 else length)


def _columns_of(p: Tensor, kept: int) -> Rows | None:
    """The columns of a matrix, whatever dimensions of size 1 it has beside its two."""
    others = [d for d in range(p.dim()) if d != kept and p.shape[d] > 1]
    if len(others) != 1 or p.stride(kept) != 1:
        return None
    number, length, stride = p.shape[kept], p.shape[others[0]], p.stride(others[0])
    is_whole = stride == number and p.numel() < 1 << 31
    return Rows(number, length, stride, True) if is_whole and length <= _COLUMNS[-1][0] else None


def same_strides(a: Tensor, b: Tensor) -> bool:
    """Whether elements of equally shaped tensors lie in the same order; size 1 does not count."""
    strides = zip(a.shape, a.stride(), b.stride(), strict=True)
    return all(x == y or size == 1 for size, x, y in strides)


def _is_dense(p: Tensor, dims: Sequence[int]) -> bool:
    expected = 1
    for stride, size in sorted((p.stride(d), p.shape[d]) for d in dims if p.shape[d] > 1):
        if stride != expected:
            return False
        expected *= size
    return True


class Operands(NamedTuple):
    """One parameter with what its update reads and writes; all but the gradient outlive a step."""

    weight: Tensor
    exp_avg: Tensor  # float32, strides of the weight
    exp_avg_sq: Tensor  # float32; one number per row, or strides of the weight for scalars
    step: Tensor  # float32 scalar on the same device
    vector_dim: int | None

    def addresses(self) -> tuple[int, int, int, int]:
        return (
            self.weight.data_ptr(),
            self.exp_avg.data_ptr(),
            self.exp_avg_sq.data_ptr(),
            self.step.data_ptr(),
        )


class Table:
    """The device tables of one launch.

    Args:
        operands: Parameters of one device and one type.
        gradients_aligned: Whether every gradient starts on 16 bytes.
    """

    def __init__(self, operands: Sequence[Operands], *, gradients_aligned: bool) -> None:
        device = operands[0].weight.device
        rows = [_rows_or_raise(o) for o in operands]
        tiles = [_tile(o, r, gradients_aligned) for o, r in zip(operands, rows, strict=True)]
        self.records: list[slice] = []  # of each parameter in a record of the rows of all
        self.recorded_rows = 0
        columns = []
        for o, r, (tile, _) in zip(operands, rows, tiles, strict=True):
            start = self.recorded_rows
            columns.append([*o.addresses(), r.number, r.length, r.stride, tile, start, 0])
            self.recorded_rows += r.number if o.vector_dim is not None else 0
            self.records.append(slice(start, self.recorded_rows))
        self.addresses = torch.tensor(columns, dtype=torch.int64, device="cpu").to(device)
        #: What each program of ``update`` takes, and of ``update_columns``; None for no program.
        self.items, self.column_items = (
            None if items is None else items.to(device) for items in _items(rows, tiles)
        )

    def set_sums(self, starts: Sequence[int]) -> None:
        """Set where the rows of each parameter begin in the sums of a step."""
        column = torch.tensor(starts, dtype=torch.int64, device="cpu")
        self.addresses[:, kernels.SUMS.value] = column.to(self.addresses.device)


def _rows_or_raise(operands: Operands) -> Rows:
    rows = rows_of(operands.weight, operands.vector_dim)
    if rows is None:
        raise ValueError(
            "the fused step needs weight vectors that are dense runs of memory or columns, got "
            "strides "
            f"{operands.weight.stride()} for shape {tuple(operands.weight.shape)} and "
            f"vector_dim {operands.vector_dim}"
        )
    return rows


def _tile(operands: Operands, rows: Rows, gradients_aligned: bool) -> tuple[int, int]:
    """The tile for a parameter and how many of its rows one program takes."""
    if operands.vector_dim is None:
        return _SCALARS
    aligned = gradients_aligned and _is_aligned(operands, rows)
    if rows.are_columns:
        tiles = _COLUMNS if aligned else _UNALIGNED_COLUMNS
        return next((tile, count) for longest, tile, count in tiles if rows.length <= longest)
    for longest, tile, count in _ALIGNED if aligned else _UNALIGNED:
        if rows.length <= longest:
            return tile, count
    return _SWEEPS


def _is_aligned(operands: Operands, rows: Rows) -> bool:
    """Whether every row of weight and moment starts on 16 bytes; of columns, each element's."""
    bases = (operands.weight.data_ptr(), operands.exp_avg.data_ptr())
    row_bytes = rows.stride * operands.weight.element_size()
    run = rows.number if rows.are_columns else rows.length
    return run % 4 == 0 and all(x % ALIGNMENT == 0 for x in (*bases, row_bytes))


def _items(
    rows: Sequence[Rows], tiles: Sequence[tuple[int, int]]
) -> tuple[Tensor | None, Tensor | None]:
    """(programs, 2): parameter and first row of each program, the most work first.

    Of parameters with rows, and of those with columns; None where there are none.
    """
    order = sorted(range(len(rows)), key=lambda i: -rows[i].length * tiles[i][1])
    parts: tuple[list[Tensor], list[Tensor]] = [], []
    for i in order:
        first = torch.arange(0, rows[i].number, tiles[i][1], dtype=torch.int32, device="cpu")
        parts[rows[i].are_columns].append(torch.stack([torch.full_like(first, i), first], dim=1))
    of_rows, of_columns = (torch.cat(part) if part else None for part in parts)
    return of_rows, of_columns


class AddressColumns:
    """Device copies of gradient addresses, one for each set of addresses seen.

    A column is never written again, so a captured graph that reads one stays valid whatever steps
    are taken between its replays.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        self._device = device
        self._columns: dict[tuple[int, ...], Tensor] = {}
        self._captured: dict[tuple[int, ...], tuple[Tensor, Tensor | None]] = {}
        self._count = count
        self._spares: list[Tensor] = []
        self._add_spares()

    def column(self, addresses: tuple[int, ...]) -> Tensor:
        """(T,) int64 on the device, of the gradients' ``addresses``."""
        if is_capturing(self._device):
            return self._captured_column(addresses)
        column = self._columns.get(addresses)
        if column is None:
            self._add_spares()
            host = torch.tensor(
                addresses, dtype=torch.int64, device="cpu", pin_memory=self._is_cuda
            )
            column = host.to(self._device, non_blocking=True)
            if len(self._columns) == _KEPT_COLUMNS:
                del self._columns[next(iter(self._columns))]
            self._columns[addresses] = column
        return column

    @property
    def _is_cuda(self) -> bool:
        return self._device.type == "cuda"

    def _captured_column(self, addresses: tuple[int, ...]) -> Tensor:
        """A column that a graph keeps for good: known, or filled by the graph itself."""
        if addresses in self._captured:
            return self._captured[addresses][0]
        column, host = self._columns.get(addresses), None
        if column is None:
            if not self._spares:
                raise RuntimeError(
                    f"more than {_SPARES} captures with new gradients in a row: take a step "
                    "outside of a capture in between"
                )
            # Allocated before the capture: the graph reads this memory at each replay.
            host = self._spares.pop()
            host.copy_(torch.tensor(addresses, dtype=torch.int64, device="cpu"))
            column = torch.empty(self._count, dtype=torch.int64, device=self._device)
            column.copy_(host, non_blocking=True)
        self._captured[addresses] = (column, host)
        return column

    def _add_spares(self) -> None:
        while self._is_cuda and len(self._spares) < _SPARES:
            self._spares.append(
                torch.empty(self._count, dtype=torch.int64, device="cpu", pin_memory=True)
            )
