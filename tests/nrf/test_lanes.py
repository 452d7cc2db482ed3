"""Lanes of arrays in compiled loops against NumPy."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nrf.kernels import compiled
from nrf.lanes import bits_of, largest, put, take, where
from nrf.vectors import count, highest_bit, lowest_bit


@compiled(inline="always")
def _write(lanes: int, first: int, a: Any, b: Any, factor: Any, to: Any) -> None:
    x, y = take(a, first, lanes), take(b, first, lanes)
    put(to[0], first, x + y)
    put(to[1], first, x - factor)
    put(to[2], first, factor * y)
    put(to[3], first, abs(x) / factor)
    put(to[4], first, where(x > y, x, factor))
    put(to[5], first, where(y > factor, factor, y - x))


@compiled()
def _ones(first: int, a: Any, b: Any, factor: Any, to: Any) -> None:
    _write(1, first, a, b, factor, to)


@compiled()
def _fours(first: int, a: Any, b: Any, factor: Any, to: Any) -> None:
    _write(4, first, a, b, factor, to)


@compiled()
def _sixteens(first: int, a: Any, b: Any, factor: Any, to: Any) -> None:
    _write(16, first, a, b, factor, to)


@settings(deadline=None)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(("lanes", "run"), [(1, _ones), (4, _fours), (16, _sixteens)])
@given(data=st.data(), first=st.integers(0, 3))
def test_lanes_are_reckoned_with_like_numbers(kind: Any, lanes: int, run: Any, data: Any, first: int) -> None:
    numbers = st.floats(-1e6, 1e6, width=32)
    a, b = (data.draw(arrays(kind, 20, elements=numbers)) for _ in range(2))
    factor = kind(data.draw(st.floats(0.5, 8, width=32)))
    to = np.full((6, 20), 7, kind)
    run(first, a, b, factor, to)
    wanted = [a + b, a - factor, factor * b, abs(a) / factor]
    wanted += [np.where(a > b, a, factor), np.where(b > factor, factor, b - a)]
    inside = slice(first, first + lanes)
    for ours, theirs in zip(to, wanted, strict=True):
        np.testing.assert_array_equal(ours[inside], theirs[inside])
        assert (np.delete(ours, np.r_[inside]) == 7).all()  # the others are left alone


EIGHT = arrays(np.int32, 8, elements=st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 3))


@compiled()
def _whole(a: Any, b: Any, number: Any, to: Any) -> tuple[int, int, int]:
    x, y = take(a, 0, 8), take(b, 0, 8)
    put(to[0], 0, x + y)
    put(to[1], 0, number - x)
    put(to[2], 0, x * y)
    put(to[3], 0, x & y)
    put(to[4], 0, x | number)
    put(to[5], 0, (x << 3) + (y >> 2))
    put(to[6], 0, abs(x))
    put(to[7], 0, where((x <= y) | (x != number), y, 0))
    return bits_of(x >= y), bits_of(x < number), bits_of((x > 0) & (y > 0))


@settings(deadline=None)
@given(
    *[arrays(np.int32, 8, elements=st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 3))] * 2,
    st.integers(-3, 3),
)
def test_whole_numbers_wrap_as_numpys_do(a: Any, b: Any, number: int) -> None:
    number, to = np.int32(number), np.full((8, 8), 7, np.int32)
    bits = _whole(a, b, number, to)
    with np.errstate(over="ignore"):
        wanted = [a + b, number - a, a * b, a & b, a | number, (a << 3) + (b >> 2), abs(a)]
    wanted.append(np.where((a <= b) | (a != number), b, 0))
    np.testing.assert_array_equal(to, wanted)
    for mask, truths in zip(bits, (a >= b, a < number, (a > 0) & (b > 0)), strict=True):
        np.testing.assert_array_equal([mask >> k & 1 for k in range(8)], truths)


@compiled()
def _compared(a: Any, b: Any) -> tuple[int, ...]:
    x, y = take(a, 0, 8), take(b, 0, 8)
    return bits_of(x != y), bits_of(x < y), bits_of(x <= y), bits_of(x > y), bits_of(x >= y)


SOME = arrays(np.float32, 8, elements=st.sampled_from([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan]))


@given(SOME, SOME)
def test_what_is_no_number_compares_as_in_numpy(a: Any, b: Any) -> None:
    for mask, truths in zip(_compared(a, b), (a != b, a < b, a <= b, a > b, a >= b), strict=True):
        np.testing.assert_array_equal([mask >> k & 1 for k in range(8)], truths)


@given(
    values=arrays(np.float32, st.integers(0, 200), elements=st.sampled_from([0.0, -0.0, 1.0, -2.5, np.nan]))
)
def test_a_count_of_what_is_not_0(values: Any) -> None:
    assert count(values) == np.count_nonzero(values)


@compiled()
def _extremes(a: Any, mask: Any) -> tuple[int, int, int]:
    return largest(take(a, 0, 8)), lowest_bit(mask), highest_bit(mask)


@given(EIGHT, st.integers(1, 2**64 - 1))
def test_the_largest_lane_and_the_ends_of_a_mask(a: Any, mask: int) -> None:
    assert _extremes(a, np.uint64(mask)) == (a.max(), (mask & -mask).bit_length() - 1, mask.bit_length() - 1)
