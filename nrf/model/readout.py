"""From the network's last map to pixel coordinates. Runs on the host, never on a chip.

    h[t] = h[t-1] + leak (m[t] - h[t-1])                     h[-1] = 0
    c[t, s] = sum_p softmax_p(gain h[t, s, p]) position(p)
    position(column, row) = offset + stride (column, row)    pixels of the sensor

`m` is the membrane (or spike count) of the output population, shape (T, shapes, rows, columns).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Readout:
    """How the host reads coordinates from the output map."""

    gain: float = 1.0  # per volt (or per spike)
    stride: float = 1.0  # sensor pixels from one map cell to the next
    offset: float = 0.0  # sensor pixels, centre of the first cell
    leak: float = 1.0  # dt / tau of the host's leaky integrator; 1 means none


def coordinates(maps: NDArray[Any], readout: Readout) -> NDArray[np.float64]:
    """Pixel coordinates (T, shapes, 2) as (x, y) from output maps (T, shapes, rows, columns).

    >>> coordinates(np.eye(4).reshape(1, 1, 4, 4)[..., ::-1] * 0, Readout())
    array([[[1.5, 1.5]]])
    """
    h = np.asarray(maps, dtype=np.float64)
    if readout.leak != 1.0:
        h = h.copy()
        state = np.zeros(h.shape[1:])
        for step in range(len(h)):
            state = state + readout.leak * (h[step] - state)
            h[step] = state
    steps, shapes, rows, columns = h.shape
    flat = readout.gain * h.reshape(steps, shapes, rows * columns)
    weight = np.exp(flat - flat.max(axis=-1, keepdims=True))
    weight = (weight / weight.sum(axis=-1, keepdims=True)).reshape(h.shape)
    x = (weight.sum(axis=2) * np.arange(columns)).sum(axis=-1)
    y = (weight.sum(axis=3) * np.arange(rows)).sum(axis=-1)
    return readout.offset + readout.stride * np.stack([x, y], axis=-1)
