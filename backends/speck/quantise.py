"""Thresholds to integers: one scale per core.

    W = round(weight s)    B = round(bias s)    T = round(s)    F = round(floor s)    s integers per threshold

Weights, biases and states have the widths of the chip. Sinabs takes the largest s at which nothing overflows
(`as_sinabs` to the bit, `largest_scale` in general); `grid_scale` finds an s at which nothing is rounded, if
there is one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.backends.lowering.layers import Floats
from nrf.backends.speck.chip import Bits, signed
from nrf.backends.speck.structure import Normal


@dataclass(frozen=True)
class Integers:
    """The numbers of one core."""

    weight: NDArray[np.int8]
    bias: NDArray[np.int8]
    threshold: int
    floor: int


def as_sinabs(weight: Floats, bias: Floats, threshold: float, floor: float | None, bits: Bits) -> Integers:
    """Exactly what Sinabs 3.1.3 makes of a layer in volts, in its own single precision.

    Without a floor Sinabs takes the lowest state in volts for it, which forces a scale of 1.
    """
    bounds = np.array([signed(bits.state)[0] if floor is None else floor, threshold], np.float32)
    w, b = np.asarray(weight, np.float32), np.asarray(bias, np.float32)
    scale = min(_room(w, bits.weight), _room(b, bits.bias), _room(bounds, bits.state))
    low, high = np.round(bounds * scale)
    return Integers(
        np.round(w * scale).astype(np.int8), np.round(b * scale).astype(np.int8), int(high), int(low)
    )


def largest_scale(layer: Normal, bits: Bits) -> float:
    """The largest scale at which nothing overflows."""
    bounds = np.array([layer.floor if np.isfinite(layer.floor) else -1.0, 1.0])
    parts = (layer.weight, bits.weight), (layer.bias, bits.bias), (bounds, bits.state)
    return float(min(_room(values, width) for values, width in parts))


def _room(values: NDArray[Any], width: int) -> Any:
    """How far values can be scaled up inside so many bits; the sign with less room decides."""
    lowest, highest = signed(width)
    low, high = values.min(), values.max()
    if not (low or high):
        return values.dtype.type(np.inf)
    if abs(low) <= abs(high) * values.dtype.type(abs(lowest / highest)):
        return abs(highest / high)
    return abs(lowest / low)


def grid_scale(layer: Normal, bits: Bits) -> float | None:
    """A scale (1, 2, 4 ...) at which weights, biases, threshold and floor are integers, or None."""
    for exponent in range(bits.state - 1):
        scale = 2.0**exponent
        floor = layer.floor * scale if np.isfinite(layer.floor) else 0.0
        parts = [layer.weight * scale, layer.bias * scale, np.array([floor])]
        if any(
            np.any(clipped(part, width) != np.round(part))
            for part, width in zip(parts, (bits.weight, bits.bias, bits.state), strict=True)
        ):
            return None
        if all(np.allclose(part, np.round(part), rtol=0, atol=1e-5) for part in parts):
            return scale
    return None


def rounded(layer: Normal, scale: float, bits: Bits) -> Integers:
    """Integers at a scale, half to even, clipped where the scale is larger than `largest_scale`."""
    lowest, highest = signed(bits.state)
    return Integers(
        clipped(layer.weight * scale, bits.weight).astype(np.int8),
        clipped(layer.bias * scale, bits.bias).astype(np.int8),
        min(max(round(scale), 1), highest),
        max(round(layer.floor * scale), lowest) if np.isfinite(layer.floor) else lowest,
    )


def clipped(values: Floats, width: int) -> Floats:
    """Rounded to integers of a width, half to even."""
    return np.clip(np.round(values), *signed(width))
