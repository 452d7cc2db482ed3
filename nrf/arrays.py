"""Arrays by the type of their numbers, and numbers that repeat held once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Int32s = NDArray[np.int32]  # what is 32 bit on a chip
Int64s = NDArray[np.int64]  # and what counts past it
Float32s = NDArray[np.float32]  # what networks are trained in
Floats = NDArray[np.float64]
CACHE_LINE = 64  # bytes
LARGE = 1 << 16  # numbers of an array from which it matters whether they repeat


def compact(values: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in the same shape; where a channel has one value, only that is in memory.

    Parameters of neurons have the shape of their population, and differ by channel at most in most networks.

    >>> compact(np.ones((4, 100, 100))).base.shape
    (4, 1, 1)
    """
    first = values[:, *(slice(1) for _ in values.shape[1:])] if values.ndim > 1 else values[:1]
    return np.broadcast_to(first.copy(), values.shape) if np.all(values == first) else values


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """Without what a compact array repeats: sides along which it does are 1."""
    return values[tuple(slice(1 if stride == 0 else None) for stride in values.strides)]


def aligned(size: int, dtype: Any) -> NDArray[Any]:
    """Zeros that begin where a cache line does: no vector of them lies in two, which takes twice as long.

    >>> aligned(3, np.int16)
    array([0, 0, 0], dtype=int16)
    """
    kind = np.dtype(dtype)
    room = np.zeros(size * kind.itemsize + CACHE_LINE, np.uint8)
    first = -room.ctypes.data % CACHE_LINE
    return room[first : first + size * kind.itemsize].view(kind)
