"""Lanes of arrays in compiled loops against NumPy."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nrf.kernels import compiled
from nrf.lanes import put, take, where
from nrf.vectors import count


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


@given(
    values=arrays(np.float32, st.integers(0, 200), elements=st.sampled_from([0.0, -0.0, 1.0, -2.5, np.nan]))
)
def test_a_count_of_what_is_not_0(values: Any) -> None:
    assert count(values) == np.count_nonzero(values)
