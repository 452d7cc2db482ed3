"""From the network's last population to pixel coordinates, or to a class. Runs on the host, never on a chip.

    h[t] = h[t-1] + leak (m[t] - h[t-1])                     h[-1] = 0
    c[t, s] = sum_p softmax_p(gain h[t, s, p]) position(p)
    position(column, row) = offset + stride (column, row)    pixels of the sensor

`m` is the membrane (or spike count) of the output population, shape (T, shapes, rows, columns).

    score[c] = sum of m[t, c, ...] over the last `window` steps;   class = argmax score, the first of equals
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.arrays import Floats


@dataclass(frozen=True)
class Readout:
    """How the host reads coordinates from the output map."""

    gain: float = 1.0  # per volt (or per spike)
    stride: float = 1.0  # sensor pixels from one map cell to the next
    offset: float = 0.0  # sensor pixels, centre of the first cell
    leak: float = 1.0  # dt / tau of the host's leaky integrator; 1 means none


def leaky(drive: NDArray[Any], keep: NDArray[Any] | float, before: NDArray[Any] | float) -> Floats:
    """h[t] = keep h[t-1] + drive[t], with `before` for h[-1]: every integrator of the host.

    >>> leaky(np.array([1.0, 0.0, 0.0]), 0.5, 0.0)
    array([1.  , 0.5 , 0.25])
    """
    h = np.array(drive, dtype=np.float64)
    for step in range(len(h)):
        before = keep * before + h[step]
        h[step] = before
    return h


def integrated(maps: NDArray[Any], readout: Readout, before: NDArray[Any] | float = 0.0) -> Floats:
    """h of all steps; the last one is `before` for the next piece of a recording."""
    drive = readout.leak * np.asarray(maps, dtype=np.float64)
    return drive if readout.leak == 1 else leaky(drive, 1 - readout.leak, before)


def coordinates(maps: NDArray[Any], readout: Readout) -> Floats:
    """Pixel coordinates (T, shapes, 2) as (x, y) from output maps (T, shapes, rows, columns).

    >>> coordinates(np.eye(4).reshape(1, 1, 4, 4)[..., ::-1] * 0, Readout())
    array([[[1.5, 1.5]]])
    """
    return positions(integrated(maps, readout), readout)


def positions(h: Floats, readout: Readout) -> Floats:
    """The same of maps that the host has integrated."""
    weight = np.multiply(readout.gain, h, order="C")  # pieces and wholes have the same bits
    weight -= weight.max(axis=2, keepdims=True).max(axis=3, keepdims=True)
    np.exp(weight, out=weight)
    each = weight.sum(axis=2)  # sums along rows are slow: they come last, when there are few
    rows, columns = np.arange(h.shape[2])[:, None], np.arange(h.shape[3])
    x, y = (each * columns).sum(axis=-1), (weight * rows).sum(axis=2).sum(axis=-1)
    places: Floats = np.stack([x, y], axis=-1) / each.sum(axis=-1)[..., None]
    return readout.offset + readout.stride * places


def scores(maps: NDArray[Any], window: int = 0) -> NDArray[np.float64]:
    """One score per class from outputs (T, classes, ...): their sum over the last `window` steps, 0 for all.

    Axes of 1 do not count; a map per class is added up.

    >>> scores(np.array([[1, 0], [0, 2], [3, 0]])), scores(np.array([[1, 0], [0, 2], [3, 0]]), 1)
    (array([4., 2.]), array([3., 0.]))
    """
    return np.asarray(step_scores(maps)[-window:].sum(0))


def step_scores(maps: NDArray[Any]) -> NDArray[np.float64]:
    """What each step adds to them, (T, classes)."""
    sides = [size for size in np.shape(maps)[1:] if size != 1] or [1]
    flat = np.asarray(maps, np.float64).reshape(len(maps), sides[0], int(np.prod(sides[1:])))
    return np.asarray(flat.sum(2))
