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

from nrf.arrays import Floats
from nrf.backends.speck.chip import Bits, signed
from nrf.backends.speck.layers import Normal


@dataclass(frozen=True)
class Quantised:
    """The numbers of one core."""

    weight: NDArray[np.int8]
    bias: NDArray[np.int8]
    threshold: int
    floor: int


def as_sinabs(layer: Normal, bits: Bits) -> Quantised:
    """Exactly what Sinabs 3.1.3 makes of a layer in volts, in its own single precision.

    Without a floor Sinabs takes the lowest state in volts for it, which forces a scale of 1.
    """
    threshold = float(layer.volts[0])
    floor = layer.floor * threshold if np.isfinite(layer.floor) else signed(bits.state)[0]
    weight, bias, bounds = (
        np.asarray(values, np.float32)
        for values in (layer.weight * threshold, layer.bias * threshold, [floor, threshold])
    )
    scale = _scale(weight, bias, bounds, bits)
    low, high = np.round(bounds * scale)
    w, b = (np.round(values * scale).astype(np.int8) for values in (weight, bias))
    return Quantised(w, b, int(high), int(low))


def largest_scale(layer: Normal, bits: Bits) -> float:
    """The largest scale at which nothing overflows."""
    bounds = np.array([layer.floor if np.isfinite(layer.floor) else -1.0, 1.0])
    return float(_scale(layer.weight, layer.bias, bounds, bits))


def _scale(weight: NDArray[Any], bias: NDArray[Any], bounds: NDArray[Any], bits: Bits) -> Any:
    return min(_room(weight, bits.weight), _room(bias, bits.bias), _room(bounds, bits.state))


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


def rounded(layer: Normal, scale: float, bits: Bits) -> Quantised:
    """A layer at a scale, half to even, clipped where the scale is larger than `largest_scale`."""
    lowest, highest = signed(bits.state)
    return Quantised(
        clipped(layer.weight * scale, bits.weight).astype(np.int8),
        clipped(layer.bias * scale, bits.bias).astype(np.int8),
        min(max(round(scale), 1), highest),
        max(round(layer.floor * scale), lowest) if np.isfinite(layer.floor) else lowest,
    )


def clipped(values: Floats, width: int) -> Floats:
    """Rounded to integers of a width, half to even."""
    return np.clip(np.round(values), *signed(width))
