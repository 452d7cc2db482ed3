"""Thresholds to integers: one scale per core.

    W = round(weight s)    B = round(bias s)    T = round(s)    F = round(floor s)    s integers per threshold

Weights and biases have 8 bits, states 16. Sinabs takes the largest s at which nothing overflows (`as_sinabs`
to the bit, `largest_scale` in general); `grid_scale` finds an s at which nothing is rounded, if there is one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.backends.lowering.layers import Floats
from nrf.backends.speck.neuron import HIGHEST, LOWEST
from nrf.backends.speck.structure import Normal


@dataclass(frozen=True)
class Integers:
    """The numbers of one core."""

    weight: NDArray[np.int8]
    bias: NDArray[np.int8]
    threshold: int
    floor: int


def as_sinabs(weight: Floats, bias: Floats, threshold: float, floor: float | None) -> Integers:
    """Exactly what Sinabs 3.1.3 makes of a layer in volts, in its own single precision.

    Without a floor Sinabs takes -2^15 volts for it, which forces a scale of 1.
    """
    bounds = np.array([LOWEST if floor is None else floor, threshold], np.float32)
    w, b = np.asarray(weight, np.float32), np.asarray(bias, np.float32)
    scale = min(_room(w, 8), _room(b, 8), _room(bounds, 16))
    low, high = np.round(bounds * scale)
    return Integers(
        np.round(w * scale).astype(np.int8), np.round(b * scale).astype(np.int8), int(high), int(low)
    )


def largest_scale(layer: Normal) -> float:
    """The largest scale at which nothing overflows."""
    floor = layer.floor if np.isfinite(layer.floor) else -1.0
    bounds = np.array([floor, 1.0])
    return float(min(_room(layer.weight, 8), _room(layer.bias, 8), _room(bounds, 16)))


def _room(values: NDArray[Any], bits: int) -> Any:
    """How far values can be scaled up inside `bits` bits; the sign with less room decides."""
    lowest, highest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    low, high = values.min(), values.max()
    if not (low or high):
        return values.dtype.type(np.inf)
    if abs(low) <= abs(high) * values.dtype.type(abs(lowest / highest)):
        return abs(highest / high)
    return abs(lowest / low)


def grid_scale(layer: Normal) -> float | None:
    """A scale (1, 2, 4 ... 2^14) at which weights, biases, threshold and floor are integers, or None."""
    for exponent in range(15):
        scale = 2.0**exponent
        values = np.concatenate([layer.weight.ravel(), layer.bias]) * scale
        floor = layer.floor * scale if np.isfinite(layer.floor) else 0.0
        if values.max(initial=0) > 127.5 or values.min(initial=0) < -128.5 or floor < LOWEST:
            return None
        if np.allclose(values, np.round(values), rtol=0, atol=1e-5) and abs(floor - round(floor)) < 1e-5:
            return scale
    return None


def rounded(layer: Normal, scale: float) -> Integers:
    """Integers at a scale, half to even, clipped where the scale is larger than `largest_scale`."""
    floor = LOWEST if not np.isfinite(layer.floor) else max(round(layer.floor * scale), LOWEST)
    return Integers(
        np.clip(np.round(layer.weight * scale), -128, 127).astype(np.int8),
        np.clip(np.round(layer.bias * scale), -128, 127).astype(np.int8),
        min(max(round(scale), 1), HIGHEST),
        floor,
    )
