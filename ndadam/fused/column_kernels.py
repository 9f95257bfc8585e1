"""Triton kernel of the fused ND-Adam step for weight vectors that are columns of a matrix.

As in a weight of shape (in, out): the elements of a vector lie a row of the matrix apart, so a
program takes several neighbouring columns, to use all of what each access brings. A kernel of its
own, so that ``kernels.update`` keeps the registers that it has. Numerics as there.
"""

# Triton compiles these functions; the types of their arguments are those of a launch.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import triton
import triton.language as tl

from ndadam.fused.kernels import (
    CONTROL_COLUMNS,
    EXP_AVG,
    EXP_AVG_SQ,
    GRAD_FACTOR,
    LENGTH,
    LERP1,
    LERP2,
    LIVE,
    OUT,
    ROWS,
    SKIPPED,
    STRIDE,
    SUMS,
    TABLE_COLUMNS,
    TILE,
    WEIGHT,
    _dots,
    _from_unit,
    _has_unit_norm,
    _is_finite,
    _step_scale,
    _stored,
    _tangent_square,
    _to_unit,
    _within,
)

# Tiles: how many columns of how many elements one program holds, in three parts.
TILE_4x6144 = tl.constexpr(0)
TILE_8x3072 = tl.constexpr(1)
TILE_16x1536 = tl.constexpr(2)
TILE_32x768 = tl.constexpr(3)
TILE_128x192 = tl.constexpr(4)
# Matrices whose rows do not start on 16 bytes.
TILE_32x768_UNALIGNED = tl.constexpr(5)
TILE_4x6144_UNALIGNED = tl.constexpr(6)

OPTIONS = {"num_warps": 32, "maxnreg": 64}


@triton.jit
def update_columns(
    items,  # (grid, 2) int32: parameter, its first column for this program
    table,  # (T, TABLE_COLUMNS) int64; STRIDE is from one element of a column to the next
    grads,  # (T,) int64 addresses
    controls,  # (T, CONTROL_COLUMNS)
    effective_lr,  # (all rows,) float32: length of each column's step, or None
    sums,  # (4, num_sums) float32, as ``row_sums`` has them, or None
    num_sums,
    ELEMENT: tl.constexpr,  # type of weights and gradients
):
    """Update one tile of parameters whose weight vectors are columns."""
    item = tl.program_id(0)
    parameter = tl.load(items + 2 * item).to(tl.int64)
    first = tl.load(items + 2 * item + 1).to(tl.int64)
    row = table + parameter * TABLE_COLUMNS
    tile = tl.load(row + TILE)
    w = tl.load(row + WEIGHT).to(tl.pointer_type(ELEMENT))
    g = tl.load(grads + parameter).to(tl.pointer_type(ELEMENT))
    m = tl.load(row + EXP_AVG).to(tl.pointer_type(tl.float32))
    v = tl.load(row + EXP_AVG_SQ).to(tl.pointer_type(tl.float32))
    length = tl.load(row + LENGTH).to(tl.int32)
    step = tl.load(row + STRIDE).to(tl.int32)
    control = controls + parameter * CONTROL_COLUMNS
    live = tl.load(control + LIVE)
    rows = tl.where(live == 0, 0, tl.load(row + ROWS))
    out = effective_lr
    if effective_lr is not None:
        out = effective_lr + tl.load(row + OUT)
    s = sums
    if sums is not None:
        s = sums + tl.load(row + SUMS)
    n = num_sums

    if tile == TILE_4x6144:
        _turn_columns(w, g, m, v, out, s, n, row, control, first, rows, length, step, 4, 2048, True)
    elif tile == TILE_8x3072:
        _turn_columns(w, g, m, v, out, s, n, row, control, first, rows, length, step, 8, 1024, True)
    elif tile == TILE_16x1536:
        _turn_columns(w, g, m, v, out, s, n, row, control, first, rows, length, step, 16, 512, True)
    elif tile == TILE_32x768:
        _turn_columns(w, g, m, v, out, s, n, row, control, first, rows, length, step, 32, 256, True)
    elif tile == TILE_128x192:
        _turn_columns(w, g, m, v, out, s, n, row, control, first, rows, length, step, 128, 64, True)
    elif tile == TILE_32x768_UNALIGNED:
        _turn_columns(
            w, g, m, v, out, s, n, row, control, first, rows, length, step, 32, 256, False
        )
    else:
        _turn_columns(
            w, g, m, v, out, s, n, row, control, first, rows, length, step, 4, 2048, False
        )


@triton.jit
def _turn_columns(  # noqa: PLR0915 - one row's algorithm, three times side by side
    weights,
    grads,
    moments,
    squares,
    out,
    sums,
    num_sums,
    entry,
    control,
    first,
    rows,
    length,
    stride,
    TILE_COLUMNS: tl.constexpr,
    THIRD: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    """One ND-Adam step of TILE_COLUMNS weight vectors (Algorithm 1).

    Weights and gradients stay in registers. Moments are read twice, the second time mostly from
    the cache, so that a tile is twice as wide. ``stride`` is from one element to the next.
    """
    # As the compiler has to see, to find neighbours that one access of 16 bytes takes.
    first = first // TILE_COLUMNS * TILE_COLUMNS
    row = first + tl.arange(0, TILE_COLUMNS)[:, None]
    present = _within(row, rows, ALIGNED)
    a = tl.arange(0, THIRD)[None, :]
    b = THIRD + a
    c = 2 * THIRD + a
    in_a = present & (a < length)
    in_b = present & (b < length)
    in_c = present & (c < length)
    at_a, at_b, at_c = a * stride, b * stride, c * stride
    w_row = weights + row
    g_row = grads + row
    m_row = moments + row
    wa = _load(w_row, at_a, in_a, ALIGNED)
    wb = _load(w_row, at_b, in_b, ALIGNED)
    wc = _load(w_row, at_c, in_c, ALIGNED)
    ga = _load(g_row, at_a, in_a, ALIGNED)
    gb = _load(g_row, at_b, in_b, ALIGNED)
    gc = _load(g_row, at_c, in_c, ALIGNED)
    v = tl.load(squares + row, mask=present, other=0.0)

    # From here on w is the direction, and g the gradient with respect to it.
    norm2 = _dots(wa, wa, wb, wb, wc, wc)
    is_unit = _has_unit_norm(norm2, weights.dtype.element_ty)
    to_unit = _to_unit(norm2, is_unit, weights.dtype.element_ty)
    wa *= to_unit
    wb *= to_unit
    wc *= to_unit
    factor = tl.load(control + GRAD_FACTOR) * tl.where(is_unit, 1.0, tl.sqrt_rn(norm2))
    dots = _dots(ga, wa, gb, wb, gc, wc)
    radial = factor * dots
    if sums is not None:
        from_unit = _from_unit(norm2, to_unit)
        tl.store(sums + num_sums + row, norm2, mask=present)
        tl.store(sums + 3 * num_sums + row, dots * from_unit, mask=present)
    ga = factor * ga - radial * wa
    gb = factor * gb - radial * wb
    gc = factor * gc - radial * wc
    square = _tangent_square(_dots(ga, ga, gb, gb, gc, gc), radial, weights.dtype.element_ty)
    v += tl.load(control + LERP2) * (square - v)
    lerp1 = tl.load(control + LERP1)
    scale = _step_scale(control, v)
    # Read once more, or every place would stay in registers until it is used again.
    stride = tl.load(entry + STRIDE, volatile=True).to(tl.int32)
    at_a, at_b, at_c = a * stride, b * stride, c * stride
    da = wa - scale * _moment(m_row, at_a, in_a, ga, lerp1, ALIGNED)
    db = wb - scale * _moment(m_row, at_b, in_b, gb, lerp1, ALIGNED)
    dc = wc - scale * _moment(m_row, at_c, in_c, gc, lerp1, ALIGNED)
    norm2 = _dots(da, da, db, db, dc, dc)

    finite = _is_finite(square) & _is_finite(norm2)
    tl.store(squares + row, v, mask=present & finite)
    stride = tl.load(entry + STRIDE, volatile=True).to(tl.int32)
    at_a, at_b, at_c = a * stride, b * stride, c * stride
    broken = tl.sum(tl.where(present & (finite == 0), 1.0, 0.0))
    tl.atomic_add(control + SKIPPED, broken, mask=broken > 0)
    moves = finite & (norm2 > 0) & ((v > 0) | (is_unit == 0))
    inverse = tl.div_rn(1.0, tl.sqrt_rn(norm2))
    if tl.sum(tl.where(present & (moves == 0), 1.0, 0.0)) == 0:
        ga = _move(w_row, m_row, at_a, in_a, in_a, in_a, wa, ga, lerp1, scale, inverse, ALIGNED)
        gb = _move(w_row, m_row, at_b, in_b, in_b, in_b, wb, gb, lerp1, scale, inverse, ALIGNED)
        gc = _move(w_row, m_row, at_c, in_c, in_c, in_c, wc, gc, lerp1, scale, inverse, ALIGNED)
    else:
        ga = _move(
            w_row,
            m_row,
            at_a,
            in_a & finite,
            in_a & moves,
            in_a,
            wa,
            ga,
            lerp1,
            scale,
            inverse,
            ALIGNED,
        )
        gb = _move(
            w_row,
            m_row,
            at_b,
            in_b & finite,
            in_b & moves,
            in_b,
            wb,
            gb,
            lerp1,
            scale,
            inverse,
            ALIGNED,
        )
        gc = _move(
            w_row,
            m_row,
            at_c,
            in_c & finite,
            in_c & moves,
            in_c,
            wc,
            gc,
            lerp1,
            scale,
            inverse,
            ALIGNED,
        )
    if out is not None:
        step2 = _dots(ga - wa, ga - wa, gb - wb, gb - wb, gc - wc, gc - wc)
        tl.store(out + row, tl.sqrt_rn(tl.where(moves, step2, 0.0)), mask=present)
    if sums is not None:
        # What memory holds now, less what it held.
        wa = _stored(wa * from_unit, weights.dtype.element_ty)
        wb = _stored(wb * from_unit, weights.dtype.element_ty)
        wc = _stored(wc * from_unit, weights.dtype.element_ty)
        ga = _stored(ga, weights.dtype.element_ty) - wa
        gb = _stored(gb, weights.dtype.element_ty) - wb
        gc = _stored(gc, weights.dtype.element_ty) - wc
        qq = tl.where(moves, _dots(ga, ga, gb, gb, gc, gc), 0.0)
        qw = tl.where(moves, _dots(ga, wa, gb, wb, gc, wc), 0.0)
        tl.store(sums + row, qq, mask=present)
        tl.store(sums + 2 * num_sums + row, qw, mask=present)


@triton.jit
def _moment(row, column, inside, g, lerp1, ALIGNED: tl.constexpr):
    """The first moment with a gradient taken in, of a part of each row."""
    m = tl.load(_places(row, column, ALIGNED), mask=inside, other=0.0)
    return m + lerp1 * (g - m)


@triton.jit
def _move(
    w_row,
    m_row,
    column,
    keeps_m,
    keeps_w,
    inside,
    w,
    g,
    lerp1,
    scale,
    inverse,
    ALIGNED: tl.constexpr,
):
    """Write moment and weight of a part of each row; return the weight in single precision."""
    m = _moment(m_row, column, inside, g, lerp1, ALIGNED)
    moved = (w - scale * m) * inverse
    _store(m_row, column, m, keeps_m, ALIGNED)
    _store(w_row, column, moved, keeps_w, ALIGNED)
    return moved


@triton.jit
def _places(row, column, ALIGNED: tl.constexpr):
    """Where elements lie; said of neighbouring columns that they allow accesses of 16 bytes."""
    at = row + column
    if ALIGNED:
        at = tl.multiple_of(at, (16, 1))
    return at


@triton.jit
def _load(row, column, inside, ALIGNED: tl.constexpr):
    """A part of each column in single precision, 0 outside."""
    at = _places(row, column, ALIGNED)
    return tl.load(at, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)


@triton.jit
def _store(row, column, value, inside, ALIGNED: tl.constexpr):
    at = _places(row, column, ALIGNED)
    value = value.to(row.dtype.element_ty)
    tl.store(at, value, mask=inside, eviction_policy="evict_first")
