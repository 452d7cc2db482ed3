<<<<<<< HEAD
"""Arrays: integers by the width that they have, and numbers that repeat held once."""

from typing import Any
=======
"""Arrays by the type of their numbers: the 32 bits of a chip and of training, and what is wider."""
>>>>>>> 2eade56 (Arrays of floats have the same home; drop a lookup that only a test used)

import numpy as np
from numpy.typing import NDArray

<<<<<<< HEAD
Int32s = NDArray[np.int32]  # what is 32 bit on a chip
Int64s = NDArray[np.int64]  # and what counts past it
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
=======
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Float32s = NDArray[np.float32]
Floats = NDArray[np.float64]
>>>>>>> 2eade56 (Arrays of floats have the same home; drop a lookup that only a test used)
