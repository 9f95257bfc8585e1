"""Triton kernels of the fused ND-Adam step: rows of a weight are turned while in registers.

A step is two kinds of launch. ``advance`` counts the step of every parameter of a group and writes
its bias corrections; ``update`` then updates all parameters of all groups in one launch. Both read
a device table of addresses, so neither a new learning rate nor a new gradient compiles anything,
and both can be captured in a CUDA graph.

Numerics: a row of another length than 1 is stepped from its direction, with |w| times its gradient;
|w|^2 is summed while the row is there for g . w. The gradient is projected first and squared after.
Deriving the length of the projected gradient from dot products in one pass loses every digit when
the gradient is nearly radial.

Shapes: T parameters; R rows (weight vectors) of K elements each.
"""

# Triton compiles these functions; the types of their arguments are those of a launch.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import triton
import triton.language as tl

# Columns of the address table, (T, TABLE_COLUMNS) int64.
WEIGHT = tl.constexpr(0)  # address of the first element
EXP_AVG = tl.constexpr(1)
EXP_AVG_SQ = tl.constexpr(2)
STEP = tl.constexpr(3)
ROWS = tl.constexpr(4)  # number of rows R; of elements for a parameter of scalars
LENGTH = tl.constexpr(5)  # elements of a row K
STRIDE = tl.constexpr(6)  # elements from a row to the next
TILE = tl.constexpr(7)  # which of the tiles below
OUT = tl.constexpr(8)  # where the parameter's rows begin in the record of effective learning rates
SUMS = tl.constexpr(9)  # and in the sums that EffectiveLR asks for
TABLE_COLUMNS = tl.constexpr(10)

# Columns of the controls, (T, CONTROL_COLUMNS) float32, written by ``advance``.
STEP_SIZE = tl.constexpr(0)  # lr / (1 - beta1^t)
ROOT = tl.constexpr(1)  # 1 / sqrt(1 - beta2^t)
LERP1 = tl.constexpr(2)  # 1 - beta1
LERP2 = tl.constexpr(3)  # 1 - beta2
EPS = tl.constexpr(4)
DECAY = tl.constexpr(5)
GRAD_FACTOR = tl.constexpr(6)  # -1 when maximising, over the loss scale
LIVE = tl.constexpr(7)  # 0 when the step is skipped because the gradients are not finite
SKIPPED = tl.constexpr(8)  # counts rows left alone so far; ``advance`` does not write it
CONTROL_COLUMNS = tl.constexpr(9)

# Tiles: how many rows of how many elements one program holds, in three parts. 5,760 numbers of p, g
# and m (the longest row of WRN-28-10) then take 36 registers a thread on 16 warps, and two programs
# share a processor, so that one loads while the other sums.
TILE_1x6144 = tl.constexpr(0)
TILE_2x3072 = tl.constexpr(1)
TILE_4x1536 = tl.constexpr(2)
TILE_16x384 = tl.constexpr(3)
TILE_1x6144_UNALIGNED = tl.constexpr(4)  # rows that do not start on 16 bytes
TILE_16x384_UNALIGNED = tl.constexpr(5)
TILE_SWEEPS = tl.constexpr(6)  # rows too long for registers: four sweeps, mostly from the caches
TILE_SCALARS = tl.constexpr(7)  # plain Adam, SCALARS elements
TILE_8x768 = tl.constexpr(8)
SCALARS = tl.constexpr(2048)
SWEEP = tl.constexpr(4096)

ADVANCE_OPTIONS = {"num_warps": 4}
# Without the cap the compiler takes more registers, and one program fills a processor.
UPDATE_OPTIONS = {"num_warps": 16, "maxnreg": 64}

# |w|^2 of unit vectors is off by this much at most: 64 rounding errors of |w|, or one unit in
# the last place of weights in half precision.
LENGTH_ERROR = tl.constexpr(2 * 64 * 2.0**-23)
LENGTH_ERROR_BF16 = tl.constexpr(2 * 2.0**-7)
LENGTH_ERROR_FP16 = tl.constexpr(2 * 2.0**-10)
SMALLEST = tl.constexpr(2.0**-126)  # squares of vectors that have no direction are below

# Tangents shorter than 16 rounding errors of the projection are rounding errors; so are those of
# gradients in half precision that are within its rounding.
PROJECTION_ERROR = tl.constexpr(16 * 2.0**-23)
PROJECTION_ERROR_BF16 = tl.constexpr(2.0**-8)
PROJECTION_ERROR_FP16 = tl.constexpr(2.0**-11)


@triton.jit(
    do_not_specialize=["first", "count"],
    do_not_specialize_on_alignment=["lr", "grad_scale", "found_inf"],
)
def advance(
    table,  # (T, TABLE_COLUMNS)
    controls,  # (T, CONTROL_COLUMNS)
    first,  # of the group's parameters in the table
    count,
    lr,  # a number, or a device scalar
    lerp1,
    lerp2,
    log_beta1,
    log_beta2,
    eps,
    weight_decay,
    sign,
    grad_scale,  # device scalar or None
    found_inf,  # device scalar or None; not 0 when a gradient is not finite
    LR_ON_DEVICE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Count the step of a group's parameters and write their controls."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    row = table + (first + index) * TABLE_COLUMNS
    step_at = tl.load(row + STEP, mask=inside, other=0).to(tl.pointer_type(tl.float32))
    step = tl.load(step_at, mask=inside, other=0.0)
    live = 1.0
    if found_inf is not None:
        live = tl.where(tl.load(found_inf) == 0, 1.0, 0.0)
    step += live
    tl.store(step_at, step, mask=inside)

    factor = sign
    if grad_scale is not None:
        factor = sign / tl.load(grad_scale).to(tl.float32)
    rate = lr
    if LR_ON_DEVICE:
        rate = tl.load(lr)
    # In double: 1 - 0.999 has only four digits left of seven in single precision.
    steps = tl.maximum(step, 1.0).to(tl.float64)
    correction1 = 1.0 - _power(log_beta1, steps)
    correction2 = 1.0 - _power(log_beta2, steps)
    out = controls + (first + index) * CONTROL_COLUMNS
    tl.store(out + STEP_SIZE, (rate / correction1).to(tl.float32), mask=inside)
    tl.store(out + ROOT, (1.0 / tl.sqrt(correction2)).to(tl.float32), mask=inside)
    tl.store(out + LERP1, lerp1, mask=inside)
    tl.store(out + LERP2, lerp2, mask=inside)
    tl.store(out + EPS, eps, mask=inside)
    tl.store(out + DECAY, weight_decay, mask=inside)
    tl.store(out + GRAD_FACTOR, factor, mask=inside)
    tl.store(out + LIVE, live, mask=inside)


@triton.jit
def _power(log_base, exponent):
    """exp(log_base * exponent) in double; 0 for a base of 0, whose logarithm is -inf."""
    return tl.exp(exponent * log_base)


@triton.jit
def update(  # noqa: C901 - a branch for each tile
    items,  # (grid, 2) int32: parameter, its first row for this program
    table,  # (T, TABLE_COLUMNS) int64
    grads,  # (T,) int64 addresses
    controls,  # (T, CONTROL_COLUMNS)
    effective_lr,  # (all rows,) float32: length of each row's step, or None
    sums,  # (4, num_sums) float32, as ``row_sums`` has them, or None
    num_sums,
    ELEMENT: tl.constexpr,  # type of weights and gradients
):
    """Update one tile: rows of weight vectors, or scalars."""
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
    stride = tl.load(row + STRIDE)
    control = controls + parameter * CONTROL_COLUMNS
    live = tl.load(control + LIVE)
    rows = tl.where(live == 0, 0, tl.load(row + ROWS))
    out = effective_lr
    if effective_lr is not None:
        out = effective_lr + tl.load(row + OUT)
    s = sums
    if sums is not None:
        s = sums + tl.load(row + SUMS)

    if tile == TILE_1x6144:
        _turn(w, g, m, v, out, s, num_sums, control, first, rows, length, stride, 1, 2048, True)
    elif tile == TILE_2x3072:
        _turn(w, g, m, v, out, s, num_sums, control, first, rows, length, stride, 2, 1024, True)
    elif tile == TILE_4x1536:
        _turn(w, g, m, v, out, s, num_sums, control, first, rows, length, stride, 4, 512, True)
    elif tile == TILE_16x384:
        _turn(w, g, m, v, out, s, num_sums, control, first, rows, length, stride, 16, 128, True)
    elif tile == TILE_8x768:
        _turn(w, g, m, v, out, s, num_sums, control, first, rows, length, stride, 8, 256, True)
    elif tile == TILE_1x6144_UNALIGNED:
        _turn(w, g, m, v, out, s, num_sums, control, first, rows, length, stride, 1, 2048, False)
    elif tile == TILE_16x384_UNALIGNED:
        _turn(w, g, m, v, out, s, num_sums, control, first, rows, length, stride, 16, 128, False)
    elif tile == TILE_SWEEPS:
        _turn_in_sweeps(w, g, m, v, out, s, num_sums, control, first, rows, length, stride)
    else:
        _adam(w, g, m, v, control, first, rows)


@triton.jit
def _turn(  # noqa: PLR0915 - one row's algorithm, three times side by side
    weights,
    grads,
    moments,
    squares,
    out,
    sums,
    num_sums,
    control,
    first,
    rows,
    length,
    stride,
    TILE_ROWS: tl.constexpr,
    THIRD: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    """One ND-Adam step of TILE_ROWS weight vectors (Algorithm 1) that stay in registers.

    ``stride`` is from one vector to the next.
    """
    row = first + tl.arange(0, TILE_ROWS)[:, None]
    present = row < rows
    a = tl.arange(0, THIRD)[None, :]
    b = THIRD + a
    c = 2 * THIRD + a
    in_a = present & _within(a, length, ALIGNED)
    in_b = present & _within(b, length, ALIGNED)
    in_c = present & _within(c, length, ALIGNED)
    w_row = weights + row * stride
    g_row = grads + row * stride
    m_row = moments + row * stride
    wa = _load(w_row, a, in_a, ALIGNED)
    wb = _load(w_row, b, in_b, ALIGNED)
    wc = _load(w_row, c, in_c, ALIGNED)
    ga = _load(g_row, a, in_a, ALIGNED)
    gb = _load(g_row, b, in_b, ALIGNED)
    gc = _load(g_row, c, in_c, ALIGNED)
    ma = _load(m_row, a, in_a, ALIGNED)
    mb = _load(m_row, b, in_b, ALIGNED)
    mc = _load(m_row, c, in_c, ALIGNED)
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
    ma += lerp1 * (ga - ma)
    mb += lerp1 * (gb - mb)
    mc += lerp1 * (gc - mc)
    scale = _step_scale(control, v)
    # The gradient is not needed any more: its registers hold the moved weights.
    ga = wa - scale * ma
    gb = wb - scale * mb
    gc = wc - scale * mc
    norm2 = _dots(ga, ga, gb, gb, gc, gc)

    finite = _is_finite(square) & _is_finite(norm2)
    _store(m_row, a, ma, in_a & finite, ALIGNED)
    _store(m_row, b, mb, in_b & finite, ALIGNED)
    _store(m_row, c, mc, in_c & finite, ALIGNED)
    tl.store(squares + row, v, mask=present & finite)
    broken = tl.sum(tl.where(present & (finite == 0), 1.0, 0.0))
    tl.atomic_add(control + SKIPPED, broken, mask=broken > 0)
    moves = finite & (norm2 > 0) & ((v > 0) | (is_unit == 0))
    inverse = tl.div_rn(1.0, tl.sqrt_rn(norm2))
    ga *= inverse
    gb *= inverse
    gc *= inverse
    _store(w_row, a, ga, in_a & moves, ALIGNED)
    _store(w_row, b, gb, in_b & moves, ALIGNED)
    _store(w_row, c, gc, in_c & moves, ALIGNED)
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
def _from_unit(norm2, to_unit):
    """What the direction is multiplied by to get w; exactly 1 where w is its own direction."""
    return tl.where(to_unit == 1.0, 1.0, tl.where(to_unit > 0, tl.sqrt_rn(norm2), 0.0))


@triton.jit
def _stored(x, ELEMENT: tl.constexpr):
    """A value as memory holds it; what a direction was made of comes back to the bit."""
    return x.to(ELEMENT).to(tl.float32)


@triton.jit
def _within(column, length, ALIGNED: tl.constexpr):
    """The columns of a row; for aligned rows said so that four neighbours share one answer."""
    if ALIGNED:
        return column // 4 < length // 4
    return column < length


@triton.jit
def _load(row, column, inside, ALIGNED: tl.constexpr):
    """A part of each row in single precision, 0 outside."""
    at = row + column
    if ALIGNED:  # allows accesses of 16 bytes
        at = tl.multiple_of(at, (1, 16))
    # Nothing is read twice, and a step is larger than the cache.
    return tl.load(at, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)


@triton.jit
def _store(row, column, value, inside, ALIGNED: tl.constexpr):
    at = row + column
    if ALIGNED:
        at = tl.multiple_of(at, (1, 16))
    value = value.to(row.dtype.element_ty)
    tl.store(at, value, mask=inside, eviction_policy="evict_first")


@triton.jit
def _dots(a, x, b, y, c, z):
    """Dot product of each row with another, both in three parts; (rows, 1)."""
    return tl.sum(a * x + b * y + c * z, axis=1)[:, None]


@triton.jit
def _has_unit_norm(norm2, ELEMENT: tl.constexpr):
    """Whether |w|^2 is 1 up to rounding; so is what has no direction, where no |w| is applied."""
    if ELEMENT == tl.bfloat16:
        error = LENGTH_ERROR_BF16
    elif ELEMENT == tl.float16:
        error = LENGTH_ERROR_FP16
    else:
        error = LENGTH_ERROR
    return (tl.abs(norm2 - 1.0) <= error) | (norm2 <= SMALLEST)


@triton.jit
def _to_unit(norm2, is_unit, ELEMENT: tl.constexpr):
    """What w is multiplied by to get its direction; 1 where it is that already."""
    to_unit = tl.where(norm2 > 0, tl.div_rn(1.0, tl.sqrt_rn(norm2)), 0.0)
    if ELEMENT == tl.float32:
        to_unit = tl.where(is_unit, 1.0, to_unit)
    # Rounding to half precision has moved the norm: there all are projected with exact ones.
    return to_unit


@triton.jit
def _turn_in_sweeps(  # noqa: PLR0915 - the same algorithm, sweep by sweep
    weights, grads, moments, squares, out, sums, num_sums, control, first, rows, length, stride
):
    """The same step for one row too long for registers."""
    weights += first * stride
    grads += first * stride
    moments += first * stride
    present = first < rows
    length = tl.where(present, length, 0)
    column = tl.arange(0, SWEEP)
    factor = tl.load(control + GRAD_FACTOR)
    lerp1 = tl.load(control + LERP1)

    dots = tl.zeros((SWEEP,), tl.float32)
    squares_of_w = tl.zeros((SWEEP,), tl.float32)
    for start in range(0, length, SWEEP):
        inside = start + column < length
        w = tl.load(weights + start + column, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(grads + start + column, mask=inside, other=0.0).to(tl.float32)
        dots += factor * g * w
        squares_of_w += w * w
    norm2 = tl.sum(squares_of_w)
    is_unit = _has_unit_norm(norm2, weights.dtype.element_ty)
    unit = _to_unit(norm2, is_unit, weights.dtype.element_ty)
    stretch = tl.where(is_unit, 1.0, tl.sqrt_rn(norm2))
    factor *= stretch
    norm2_before = norm2
    radial = tl.sum(dots) * unit * stretch
    if sums is not None:
        tl.store(sums + num_sums + first, norm2, mask=present)
        inner = tl.sum(dots) / tl.load(control + GRAD_FACTOR)
        tl.store(sums + 3 * num_sums + first, inner, mask=present)

    total = tl.zeros((SWEEP,), tl.float32)
    for start in range(0, length, SWEEP):
        inside = start + column < length
        w = unit * tl.load(weights + start + column, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(grads + start + column, mask=inside, other=0.0).to(tl.float32)
        g = factor * g - radial * w
        total += g * g
    square = _tangent_square(tl.sum(total), radial, weights.dtype.element_ty)
    v = tl.load(squares + first, mask=present, other=0.0)
    v += tl.load(control + LERP2) * (square - v)
    scale = _step_scale(control, v)

    total = tl.zeros((SWEEP,), tl.float32)
    for start in range(0, length, SWEEP):
        inside = start + column < length
        w = unit * tl.load(weights + start + column, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(grads + start + column, mask=inside, other=0.0).to(tl.float32)
        m = tl.load(moments + start + column, mask=inside, other=0.0)
        moved = w - scale * (m + lerp1 * (factor * g - radial * w - m))
        total += moved * moved
    norm2 = tl.sum(total)
    finite = present & _is_finite(square) & _is_finite(norm2)
    moves = finite & (norm2 > 0) & ((v > 0) | (is_unit == 0))
    inverse = tl.div_rn(1.0, tl.sqrt_rn(norm2))
    tl.store(squares + first, v, mask=finite)
    tl.atomic_add(control + SKIPPED, 1.0, mask=present & (finite == 0))

    total = tl.zeros((SWEEP,), tl.float32)
    qq = tl.zeros((SWEEP,), tl.float32)
    qw = tl.zeros((SWEEP,), tl.float32)
    for start in range(0, length, SWEEP):
        inside = (start + column < length) & finite
        w = unit * tl.load(weights + start + column, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(grads + start + column, mask=inside, other=0.0).to(tl.float32)
        m = tl.load(moments + start + column, mask=inside, other=0.0)
        m += lerp1 * (factor * g - radial * w - m)
        new = (w - scale * m) * inverse
        tl.store(moments + start + column, m, mask=inside)
        tl.store(weights + start + column, new.to(weights.dtype.element_ty), mask=inside & moves)
        step = tl.where(inside & moves, new - w, 0.0)
        total += step * step
        if sums is not None:
            was = _stored(w * _from_unit(norm2_before, unit), weights.dtype.element_ty)
            moved = tl.where(inside & moves, _stored(new, weights.dtype.element_ty) - was, 0.0)
            qq += moved * moved
            qw += moved * was
    if sums is not None:
        tl.store(sums + first, tl.sum(qq), mask=present)
        tl.store(sums + 2 * num_sums + first, tl.sum(qw), mask=present)
    if out is not None:
        tl.store(out + first, tl.sqrt_rn(tl.sum(total)), mask=present)


@triton.jit
def _tangent_square(square, radial, ELEMENT: tl.constexpr):
    """||tangent||^2; 0 where the tangent is what rounding left of a gradient parallel to w."""
    if ELEMENT == tl.bfloat16:
        noise = PROJECTION_ERROR_BF16 * radial
    elif ELEMENT == tl.float16:
        noise = PROJECTION_ERROR_FP16 * radial
    else:
        noise = PROJECTION_ERROR * radial
    return tl.where(_is_finite(square) & (square <= noise * noise), 0.0, square)


@triton.jit
def _step_scale(control, v):
    """alpha / (1 - beta1^t) / (sqrt(v_hat) + eps); 0 where v is 0, also without eps."""
    root = tl.sqrt_rn(v) * tl.load(control + ROOT) + tl.load(control + EPS)
    return tl.where(v > 0, tl.load(control + STEP_SIZE) / root, 0.0)


@triton.jit
def _is_finite(x):
    return tl.abs(x) < float("inf")  # a NaN compares false


@triton.jit
def _adam(weights, grads, moments, squares, control, first, count):
    """One Adam step of SCALARS elements."""
    at = first + tl.arange(0, SCALARS)
    inside = at < count
    w = tl.load(weights + at, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(grads + at, mask=inside, other=0.0).to(tl.float32)
    m = tl.load(moments + at, mask=inside, other=0.0)
    v = tl.load(squares + at, mask=inside, other=0.0)
    g = g * tl.load(control + GRAD_FACTOR) + tl.load(control + DECAY) * w
    m += tl.load(control + LERP1) * (g - m)
    v += tl.load(control + LERP2) * (g * g - v)
    w -= _step_scale(control, v) * m
    tl.store(moments + at, m, mask=inside)
    tl.store(squares + at, v, mask=inside)
    tl.store(weights + at, w.to(weights.dtype.element_ty), mask=inside)
