"""Domains: their grids lie inside their bounds, end to end."""

from hypothesis import given
from hypothesis import strategies as st

from sweeps.spec.domains import Choice, FloatRange, IntRange, same


@given(
    low=st.floats(-1e6, 1e6),
    step=st.floats(1e-6, 1e3),
    count=st.integers(1, 2000),
    data=st.data(),
)
def test_a_float_grid_reaches_from_low_to_high(
    low: float, step: float, count: int, data: st.DataObject
) -> None:
    high = low + step * count
    # Bounds so large that a step is lost in their rounding are refused, see the spec's tests.
    if abs(low) * 1e-9 > step:
        return
    domain = FloatRange(kind="float", low=low, high=high, step=step)

    index = data.draw(st.integers(0, count))

    assert domain.size() == count + 1
    assert low <= domain.value(index) <= high
    assert domain.holds(domain.value(index))
    assert abs(domain.value(index) - (low + index * step)) <= 1e-6 * step + 1e-14 * abs(high)


def test_a_tenth_is_written_as_people_write_it() -> None:
    domain = FloatRange(kind="float", low=0.0, high=0.3, step=0.1)

    assert [domain.value(i) for i in range(4)] == [0.0, 0.1, 0.2, 0.3]


def test_a_stepped_int_range_never_leaves_its_bounds() -> None:
    domain = IntRange(kind="int", low=1, high=10, step=3)

    assert [domain.value(i) for i in range(domain.size())] == [1, 4, 7, 10]
    assert not domain.holds(0)
    assert not domain.holds(2)
    assert not domain.holds(True)


def test_membership_tells_kinds_of_values_apart() -> None:
    domain = Choice(kind="choice", values=[1, None, "1", [0.9, 0.99]])

    assert domain.holds(1.0)
    assert domain.holds((0.9, 0.99))
    assert not domain.holds(True)
    assert not domain.holds([0.9])
    assert same(True) != same(1)


def test_a_log_range_whose_ends_have_no_finite_ratio_is_tried_inside_it() -> None:
    domain = FloatRange(kind="float", low=1e-300, high=1e308, log=True)

    low, inside, high = domain.corners()

    assert (low, high) == (1e-300, 1e308)
    assert isinstance(inside, float)
    assert low < inside < high
