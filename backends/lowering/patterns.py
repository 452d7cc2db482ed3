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
from nrf.backends.lowering.pattern_kernels import GROUP, PATTERNS
from nrf.backends.lowering.scatter import phases
from nrf.vectors import BLOCK


@dataclass(frozen=True)
class Map:
    """The outputs of a convolution in memory: line by line in whole blocks, channels of one place together.

    Channels are filled up to whole vectors, with silent ones: what one spike writes is then read by the next
    in the very same pieces, which processors hand on at once, and others only after a dozen cycles.
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
    def span(self) -> int:
        """Blocks of a line that share one of 64 bits."""
        return -(-self.pitch // BLOCK // 64)

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
    line: int  # from one line of taps to the next
    # of every row of the source: where its taps begin, its first output, how many lines and from which one
    rows: Int64s
    # of every vector of a row: where its sums begin, its first output, how many lanes, bits of their blocks
    columns: Int64s


def patterns(conv: Conv, source: Map, outputs: Map, pool: int = 1) -> Patterns:
    """Lay out a convolution (of one group).

    Its spikes are pooled by summing on the way; what lies beyond the map that it takes is dropped.
    """
    kernels = phases(conv)  # (in, row phase, column phase, rows, columns, out)
    inputs, _, phases_x, taps_y, taps_x, features = kernels.shape
    channels = outputs.channels
    filled = np.zeros((source.channels, *kernels.shape[1:-1], channels), np.int16)
    filled[:inputs, ..., :features] = kernels
    grouped = filled.reshape(-1, GROUP, filled[0].size)
    sums = np.zeros((len(grouped), PATTERNS, filled[0].size), np.int16)
    for channel in range(GROUP):  # those with this bit as their highest are those below it, and its weights
        bit = 1 << channel
        np.add(sums[:, :bit], grouped[:, channel, None], out=sums[:, bit : 2 * bit])
    line = taps_x * channels
    kernel = taps_y * line

    phase, begin, first, number = _reach(np.arange(source.height) // pool, conv, 0)
    rows = phase * phases_x * kernel + begin * line, first * outputs.pitch, number, first
    x, vector = np.divmod(np.arange(source.width * source.parts), source.parts)
    phase, begin, first, number = _reach(x // pool, conv, 1)
    unit = outputs.span * BLOCK
    low, high = first * channels // unit, (np.maximum(first + number, 1) * channels - 1) // unit
    marks = (np.uint64(2) << high.astype(np.uint64)) - (np.uint64(1) << low.astype(np.uint64))
    sums_before = vector * (source.lanes // GROUP * PATTERNS * filled[0].size)
    taps = sums_before + phase * kernel + begin * channels
    columns = taps, first * channels, number * channels, marks.view(np.int64)
    return Patterns(sums.ravel(), filled[0].size, line, np.stack(rows, axis=1), np.stack(columns, axis=1))


def _reach(place: Int64s, conv: Conv, axis: int) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Of places along an axis: phase, first tap that meets an output, that output, and how many do.

    Places, taps and outputs are related as in `kernels.reach`.
    """
    taps, outputs = -(-conv.weight.shape[2 + axis] // conv.stride[axis]), conv.output_shape[1 + axis]
    shifted = place + conv.padding[axis]
    first = shifted // conv.stride[axis] - (taps - 1)
    begin, end = np.maximum(0, -first), np.minimum(taps, outputs - first)
    number = np.where(place < conv.input_shape[1 + axis], np.maximum(end - begin, 0), 0)
    return shifted % conv.stride[axis], begin, np.where(number, first + begin, 0), number
