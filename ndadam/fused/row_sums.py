"""What EffectiveLR sums of every weight vector around a step, in one launch before and one after.

Before the step the weights are copied, and w . w and g . w are summed while they are read; after it
the step is what has changed. Nothing is read back, and both launches can be captured.

Shapes: N vectors of all parameters together; R rows (weight vectors) of K elements each.
"""

# Triton compiles some of these functions; the types of their arguments are those of a launch.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ndadam.cuda import is_capturing
from ndadam.fused.launch import ELEMENT_TYPES, DirectLaunches, on_device
from ndadam.fused.table import AddressColumns, same_strides

#: Rows of a record, (4, N): |dw|^2, |w|^2, dw . w, g . w, with w from before the step.
NUM_SUMS = 4

# Columns of the table, (T, TABLE_COLUMNS) int64.
WEIGHT = tl.constexpr(0)  # address of the first element
ROWS = tl.constexpr(1)
LENGTH = tl.constexpr(2)  # elements of a row
STRIDE = tl.constexpr(3)  # elements from a row to the next
RUN = tl.constexpr(4)  # neighbours in memory that belong to one row
LEAP = tl.constexpr(5)  # elements from one run of a row to the next
TILE = tl.constexpr(6)
OUT = tl.constexpr(7)  # where the parameter's rows begin in a record
SAVED = tl.constexpr(8)  # where its elements begin among the copies
TABLE_COLUMNS = tl.constexpr(9)

# Tiles: how many rows of how many elements a program reads at a time, and how rows lie in memory.
DENSE = tl.constexpr(0)  # one run each
COLUMNS = tl.constexpr(1)  # neighbouring rows side by side, as in a weight of shape (in, out)
RUNS = tl.constexpr(2)  # several runs each, as filters of a transposed convolution
TILE_1x2048 = tl.constexpr(0)
TILE_4x512 = tl.constexpr(1)
TILE_16x128 = tl.constexpr(2)
TILE_64x32 = tl.constexpr(3)
TILE_COLUMNS = tl.constexpr(4)
TILE_RUNS = tl.constexpr(5)
_TILES = (
    (32, TILE_64x32.value, 64),
    (128, TILE_16x128.value, 16),
    (1024, TILE_4x512.value, 4),
    (1 << 62, TILE_1x2048.value, 1),
)
_ROWS_OF_COLUMNS = 64
_ROWS_OF_RUNS = 16
_OPTIONS = {"num_warps": 8}


@triton.jit
def before_step(items, table, grads, saved, out, num_rows, ELEMENT: tl.constexpr):
    """Copy the weights of some rows; write |w|^2 and g . w. A gradient at address 0 is none."""
    item = tl.program_id(0)
    parameter = tl.load(items + 2 * item).to(tl.int64)
    first = tl.load(items + 2 * item + 1).to(tl.int64)
    row = table + parameter * TABLE_COLUMNS
    address = tl.load(grads + parameter)
    w = tl.load(row + WEIGHT).to(tl.pointer_type(ELEMENT))
    g = address.to(tl.pointer_type(ELEMENT))
    has_grad = address != 0
    s = saved + tl.load(row + SAVED)
    o = out + tl.load(row + OUT)
    tile = tl.load(row + TILE)
    if tile == TILE_1x2048:
        _before(w, g, s, o, row, first, num_rows, has_grad, 1, 2048, DENSE)
    elif tile == TILE_4x512:
        _before(w, g, s, o, row, first, num_rows, has_grad, 4, 512, DENSE)
    elif tile == TILE_16x128:
        _before(w, g, s, o, row, first, num_rows, has_grad, 16, 128, DENSE)
    elif tile == TILE_64x32:
        _before(w, g, s, o, row, first, num_rows, has_grad, 64, 32, DENSE)
    elif tile == TILE_COLUMNS:
        _before(w, g, s, o, row, first, num_rows, has_grad, 64, 32, COLUMNS)
    else:
        _before(w, g, s, o, row, first, num_rows, has_grad, 16, 128, RUNS)


@triton.jit
def _before(
    weights,
    grads,
    saved,
    out,
    entry,
    first,
    num_rows,
    has_grad,
    TILE_ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    row = first + tl.arange(0, TILE_ROWS)[:, None]
    present = row < tl.load(entry + ROWS)
    length = tl.load(entry + LENGTH).to(tl.int32)
    ww = tl.zeros((TILE_ROWS, WIDTH), tl.float32)
    gw = tl.zeros((TILE_ROWS, WIDTH), tl.float32)
    for start in range(0, length, WIDTH):
        column = start + tl.arange(0, WIDTH)[None, :]
        inside = present & (column < length)
        at = _place(entry, row, column, LAYOUT)
        w = tl.load(weights + at, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(grads + at, mask=inside & has_grad, other=0.0).to(tl.float32)
        tl.store(saved + at, w, mask=inside)
        ww += w * w
        gw += g * w
    tl.store(out + num_rows + row, tl.sum(ww, axis=1)[:, None], mask=present)
    tl.store(out + 3 * num_rows + row, tl.sum(gw, axis=1)[:, None], mask=present)


@triton.jit
def after_step(items, table, saved, out, num_rows, ELEMENT: tl.constexpr):
    """Write |dw|^2 and dw . w of some rows, from the weights and their copies."""
    item = tl.program_id(0)
    parameter = tl.load(items + 2 * item).to(tl.int64)
    first = tl.load(items + 2 * item + 1).to(tl.int64)
    row = table + parameter * TABLE_COLUMNS
    w = tl.load(row + WEIGHT).to(tl.pointer_type(ELEMENT))
    s = saved + tl.load(row + SAVED)
    o = out + tl.load(row + OUT)
    tile = tl.load(row + TILE)
    if tile == TILE_1x2048:
        _after(w, s, o, row, first, num_rows, 1, 2048, DENSE)
    elif tile == TILE_4x512:
        _after(w, s, o, row, first, num_rows, 4, 512, DENSE)
    elif tile == TILE_16x128:
        _after(w, s, o, row, first, num_rows, 16, 128, DENSE)
    elif tile == TILE_64x32:
        _after(w, s, o, row, first, num_rows, 64, 32, DENSE)
    elif tile == TILE_COLUMNS:
        _after(w, s, o, row, first, num_rows, 64, 32, COLUMNS)
    else:
        _after(w, s, o, row, first, num_rows, 16, 128, RUNS)


@triton.jit
def _after(
    weights,
    saved,
    out,
    entry,
    first,
    num_rows,
    TILE_ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    row = first + tl.arange(0, TILE_ROWS)[:, None]
    present = row < tl.load(entry + ROWS)
    length = tl.load(entry + LENGTH).to(tl.int32)
    qq = tl.zeros((TILE_ROWS, WIDTH), tl.float32)
    qw = tl.zeros((TILE_ROWS, WIDTH), tl.float32)
    for start in range(0, length, WIDTH):
        column = start + tl.arange(0, WIDTH)[None, :]
        inside = present & (column < length)
        at = _place(entry, row, column, LAYOUT)
        old = tl.load(saved + at, mask=inside, other=0.0)
        moved = tl.load(weights + at, mask=inside, other=0.0).to(tl.float32) - old
        qq += moved * moved
        qw += moved * old
    tl.store(out + row, tl.sum(qq, axis=1)[:, None], mask=present)
    tl.store(out + 2 * num_rows + row, tl.sum(qw, axis=1)[:, None], mask=present)


@triton.jit
def _place(entry, row, column, LAYOUT: tl.constexpr):
    """Where an element of a row lies, from the first element of the parameter."""
    if LAYOUT == DENSE:
        return row * tl.load(entry + STRIDE) + column
    if LAYOUT == COLUMNS:
        return row + column * tl.load(entry + LEAP)
    run = tl.load(entry + RUN)
    return row * tl.load(entry + STRIDE) + column // run * tl.load(entry + LEAP) + column % run


class Layout(NamedTuple):
    """Where the rows of a parameter lie: ``length`` elements each, in runs, ``stride`` apart."""

    number: int
    length: int
    stride: int
    run: int
    leap: int


def layout_of(p: Tensor, vector_dim: int) -> Layout | None:
    """The rows of ``p``, None where there is something else between them."""
    if p.numel() == 0:
        return None
    kept = vector_dim % p.dim()
    number, length = p.shape[kept], p.numel() // p.shape[kept]
    others = [(p.stride(d), p.shape[d]) for d in range(p.dim()) if d != kept and p.shape[d] > 1]
    run, leap, expected = 1, 0, 1
    for stride, size in sorted(others):
        if stride == expected and leap == 0:
            run *= size
        elif leap == 0:
            leap = stride
            expected = stride
        elif stride != expected:
            return None
        expected *= size
    stride = p.stride(kept) if number > 1 else length
    last = (number - 1) * stride + run - 1 + (length // run - 1) * leap
    return Layout(number, length, stride, run, leap) if last + 1 == p.numel() else None


class RowSums:
    """The sums of some parameters of one device and one type, with the device tables for them.

    Args:
        params: Parameters, with the dimension that indexes the rows of each.
    """

    def __init__(self, params: Sequence[tuple[Tensor, int]]) -> None:
        #: Parameters, with the dimension that indexes the rows of each.
        self.params = params
        self._params = [p for p, _ in params]
        self._dims = [dim for _, dim in params]
        self._device = self._params[0].device
        self._element = ELEMENT_TYPES[self._params[0].dtype]
        self._columns = AddressColumns(len(self._params), self._device)
        self._launches = DirectLaunches()
        self._saved = torch.empty(sum(p.numel() for p in self._params), device=self._device)
        self.num_rows = sum(p.shape[dim] for p, dim in params)
        self._addresses: list[int] = []
        self._strides: list[tuple[int, ...]] = []
        self._kinds = {(self._params[0].dtype, torch.strided)}

    @staticmethod
    def takes(params: Sequence[tuple[Tensor, int]]) -> bool:
        """Whether the kernels can read these: of one type that they know, without gaps."""
        types = {p.dtype for p, _ in params}
        return (
            len(types) == 1
            and types <= ELEMENT_TYPES.keys()
            and all(layout_of(p, dim) is not None for p, dim in params)
        )

    def before(self, out: Tensor) -> bool:
        """Take in weights and gradients before a step, into a record (4, N); False if it cannot.

        It cannot where gradients have another type or other strides than their parameters, or
        parameters have moved to where the kernels cannot read them.
        """
        grads = [p.grad for p in self._params]
        if not self._is_ready() or not self._can_read(grads):
            return False
        addresses = tuple([0 if grad is None else grad.data_ptr() for grad in grads])
        with on_device(self._device):
            self._launches.run(
                before_step,
                _OPTIONS,
                "before",
                len(self._items),
                self._items,
                self._table,
                self._columns.column(addresses),
                self._saved,
                out,
                self.num_rows,
                self._element,
            )
        return True

    def after(self, out: Tensor) -> None:
        """Write what the step has changed into the record that ``before`` has begun."""
        with on_device(self._device):
            self._launches.run(
                after_step,
                _OPTIONS,
                "after",
                len(self._items),
                self._items,
                self._table,
                self._saved,
                out,
                self.num_rows,
                self._element,
            )

    def _can_read(self, grads: list[Tensor | None]) -> bool:
        """Whether gradients lie in memory as their parameters do, and have their type."""
        dense = [grad for grad in grads if grad is not None]
        if {(grad.dtype, grad.layout) for grad in dense} - self._kinds:
            return False
        if [grad.stride() for grad in dense] == self._strides:  # as it usually is, all at once
            return True
        pairs = zip(self._params, grads, strict=True)
        return all(grad is None or same_strides(p, grad) for p, grad in pairs)

    def _is_ready(self) -> bool:
        """Whether the tables fit the parameters; they are built anew where these have moved."""
        addresses = [p.data_ptr() for p in self._params]
        if addresses == self._addresses:
            return True
        if is_capturing(self._device) or not self.takes(
            list(zip(self._params, self._dims, strict=True))
        ):
            return False
        self._addresses = addresses
        self._strides = [p.stride() for p in self._params]
        columns, items, out, saved = [], [], 0, 0
        for index, (p, dim) in enumerate(zip(self._params, self._dims, strict=True)):
            layout = layout_of(p, dim)
            assert layout is not None
            tile, rows = _tile(layout)
            columns.append([p.data_ptr(), *layout, tile, out, saved])
            first = torch.arange(0, layout.number, rows, dtype=torch.int32, device="cpu")
            items.append(torch.stack([torch.full_like(first, index), first], dim=1))
            out, saved = out + layout.number, saved + p.numel()
        table = torch.tensor(columns, dtype=torch.int64, device="cpu")
        self._table = table.to(self._device)
        self._items = torch.cat(items).to(self._device)
        return True


def _tile(layout: Layout) -> tuple[int, int]:
    """The tile for a parameter, and how many of its rows one program takes."""
    if layout.run == layout.length:
        return next((tile, rows) for most, tile, rows in _TILES if layout.length <= most)
    if layout.run == 1 and layout.stride == 1:
        return TILE_COLUMNS.value, _ROWS_OF_COLUMNS
    return TILE_RUNS.value, _ROWS_OF_RUNS
