"""Convolutions of spikes from many channels: one row of sums for every pattern of four channels at a place.

    row[group, pattern] = sum over channels c of the group with bit c in the pattern of  weight[c]

A place then adds as many rows as it has groups in which something fires: one for a lone spike, and never more
than a quarter of its channels where all of them do. Sums are exact, so that nothing depends on how they are
grouped. Rows are laid out as `phases` does: all outputs that a spike reaches in one line lie side by side.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.arrays import Int64s
from nrf.backends.lowering.operators import Conv
from nrf.backends.lowering.pattern_kernels import GROUP, PATTERNS, fill_reaches
from nrf.backends.lowering.scatter import phases
from nrf.lanes import LANES
from nrf.vectors import BLOCK


@dataclass(frozen=True)
class Map:
    """The outputs of a convolution in memory: line by line in whole blocks, channels of one place together.

    Channels are filled up to whole vectors, with silent ones: what one spike writes is then read by the next
    in the very same pieces, which processors hand on at once, and others only after a dozen cycles. Where
    channels are few, that costs less than many short pieces, and a line of taps is added in whole vectors.
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
    step: int  # from pattern to pattern
    line: int  # from one line of taps to the next: whole vectors, filled up with zeros
    taps: int  # vectors of the target's lanes in such a line
    rows: Int64s  # of every line of the source, see `fill_reaches`: its lines of taps
    columns: Int64s  # of every vector of a line: its sums, and the vectors of a line of taps


def patterns(conv: Conv, source: Map, outputs: Map, pool: int = 1) -> Patterns:
    """Lay out a convolution (of one group).

    Its spikes are pooled by summing on the way; what lies beyond the map that it takes is dropped.
    """
    kernels = phases(conv)  # (in, row phase, column phase, rows, columns, out)
    inputs, _, phases_x, taps_y, taps_x, features = kernels.shape
    channels, used = outputs.channels, taps_x * outputs.channels
    line = -(-used // LANES) * LANES
    filled = np.zeros((source.channels, *kernels.shape[1:4], line), np.int16)
    taps = filled[:inputs, ..., :used].reshape(*kernels.shape[:-1], channels)
    taps[..., :features] = kernels
    filled[:inputs, ..., :used] = taps.reshape(*kernels.shape[:-2], used)
    grouped = filled.reshape(-1, GROUP, filled[0].size)
    sums = np.zeros((len(grouped), PATTERNS, filled[0].size), np.int16)
    for channel in range(GROUP):  # those with this bit as their highest are those below it, and its weights
        bit = 1 << channel
        np.add(sums[:, :bit], grouped[:, channel, None], out=sums[:, bit : 2 * bit])
    kernel = taps_y * line

    rows = np.empty((source.height, 4), np.int64)
    columns = np.empty((source.width * source.parts, 4), np.int64)
    steps = outputs.pitch, 1, phases_x * kernel, line
    fill_reaches(rows, pool, *_axis(conv, 0), *steps, 0)
    every, steps = (
        source.lanes // GROUP * PATTERNS * filled[0].size,
        (channels, outputs.parts, kernel, channels),
    )
    for part in range(source.parts):
        fill_reaches(columns[part :: source.parts], pool, *_axis(conv, 1), *steps, part * every)
    return Patterns(sums.ravel(), filled[0].size, line, taps_x * outputs.parts, rows, columns)


def _axis(conv: Conv, axis: int) -> tuple[int, int, int, int, int]:
    """Inputs, padding, stride, taps that a place meets and outputs along an axis."""
    inputs, outputs, stride = conv.input_shape[1 + axis], conv.output_shape[1 + axis], conv.stride[axis]
    return inputs, conv.padding[axis], stride, -(-conv.weight.shape[2 + axis] // stride), outputs
