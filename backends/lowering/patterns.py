"""Convolutions of spikes from many channels: one row of sums for every pattern of four channels at a place.

    row[group, pattern] = sum over channels c of the group with bit c in the pattern of  weight[c]

A place then adds a row for each of its groups in which something fires: never more than a quarter of its
channels. Sums are exact, so that nothing depends on how they are grouped. Rows are laid out as `phases` does:
all outputs that a spike reaches in one line lie side by side.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.arrays import Int64s
from nrf.backends.lowering.operators import Conv
from nrf.backends.lowering.pattern_kernels import FIELDS, GROUP, PATTERNS, WAY, fill_reaches
from nrf.backends.lowering.scatter import phases
from nrf.lanes import LANES
from nrf.vectors import BLOCK


@dataclass(frozen=True)
class Map:
    """Neurons of a map in memory: line by line in whole blocks, channels of one place together.

    Channels are filled up to whole vectors, with silent ones: what one spike writes is then read by the next
    in the very same pieces, which processors hand on at once, and others only after a dozen cycles. Where
    channels are few, waiting costs less than many short pieces: a line of taps is added in whole vectors.
    """

    features: int
    height: int
    width: int

    @cached_property
    def lanes(self) -> int:
        """Of a vector."""
        return 4 if self.features <= 4 else 8 if self.features <= 8 else 16

    @cached_property
    def parts(self) -> int:
        """Vectors of a place."""
        return -(-self.features // self.lanes)

    @cached_property
    def channels(self) -> int:
        """With the silent ones."""
        return self.parts * self.lanes

    @cached_property
    def pitch(self) -> int:
        """From line to line."""
        return -(-self.width * self.channels // BLOCK) * BLOCK

    @cached_property
    def size(self) -> int:
        """All neurons, and what fills up."""
        return self.height * self.pitch

    def outside(self, values: NDArray[Any]) -> NDArray[Any]:
        """From (steps, size) in memory to (steps, neurons) as everyone counts."""
        used = values.reshape(-1, self.height, self.pitch)[..., : self.width * self.channels]
        places = used.reshape(-1, self.height * self.width, self.channels)[..., : self.features]
        neurons = self.features * self.height * self.width
        return np.ascontiguousarray(places.swapaxes(1, 2)).reshape(len(values), neurons)


@dataclass(frozen=True)
class Patterns:
    """A convolution in the form that `pattern_kernels` reads."""

    weights: NDArray[np.int16]  # (groups, patterns, phases, taps and channels), flat
    reaches: Int64s  # see `fill_reaches`: of every line of the source, then of every vector of a line
    way: NDArray[np.void]  # see `WAY`


def patterns(conv: Conv, source: Map, target: Map, pool: int = 1) -> Patterns:
    """Lay out a convolution (of one group).

    Its spikes are pooled by summing on the way; what lies beyond the map that it takes is dropped.
    """
    kernels = phases(conv)  # (in, row phase, column phase, rows, columns, out)
    inputs, _, phases_x, taps_y, taps_x, features = kernels.shape
    used = taps_x * target.channels
    line = -(-used // LANES) * LANES
    filled = np.zeros((source.channels, *kernels.shape[1:4], line), np.int16)
    taps = filled[:inputs, ..., :used].reshape(*kernels.shape[:-1], target.channels)  # the same memory
    taps[..., :features] = kernels
    grouped = filled.reshape(-1, GROUP, filled[0].size)
    sums = np.zeros((len(grouped), PATTERNS, filled[0].size), np.int16)
    for channel in range(GROUP):  # those with this bit as their highest are those below it, and its weights
        bit = 1 << channel
        np.add(sums[:, :bit], grouped[:, channel, None], out=sums[:, bit : 2 * bit])

    reaches = np.empty((source.height + source.width * source.parts, 4), np.int64)
    kernel, part = taps_y * line, source.lanes // GROUP * PATTERNS * filled[0].size
    rows, columns = (
        (target.pitch, 1, phases_x * kernel, line),
        (target.channels, target.parts, kernel, target.channels),
    )
    fill_reaches(reaches[: source.height], pool, _axis(conv, 0), rows, 0)
    for k in range(source.parts):
        own = reaches[source.height + k :: source.parts]
        fill_reaches(own, pool, _axis(conv, 1), columns, k * part)
    way = {
        "places": source.height * source.width, "width": source.width, "parts": source.parts,
        "shift": source.lanes.bit_length() - 1, "pooled": pool**2, "step": filled[0].size, "line": line,
        "taps": taps_x * target.parts, "row": 0, "column": source.height,
        "lanes": target.lanes, "pitch": target.pitch,
    }  # fmt: skip
    return Patterns(sums.ravel(), reaches, np.array([tuple(way[name] for name in FIELDS)], WAY))


def _axis(conv: Conv, axis: int) -> tuple[int, int, int, int, int]:
    """Inputs, padding, stride, taps that a place meets and outputs along an axis."""
    inputs, outputs, stride = conv.input_shape[1 + axis], conv.output_shape[1 + axis], conv.stride[axis]
    return inputs, conv.padding[axis], stride, -(-conv.weight.shape[2 + axis] // stride), outputs
