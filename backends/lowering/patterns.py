"""Convolutions of spikes from many channels: one row of sums for every pattern of four channels at a place.

    row[group, pattern] = sum over channels c of the group with bit c in the pattern of  weight[c]

A place then adds as many rows as it has groups in which something fires: one for a lone spike, and never more
than a quarter of its channels where all of them do. Sums are exact, so that nothing depends on how they are
grouped. Rows are laid out as `phases` does: all outputs that a spike reaches in one line lie side by side.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nrf.backends.lowering.operators import Conv
from nrf.backends.lowering.scatter import phases

GROUP = 4  # channels
PATTERNS = 2**GROUP


@dataclass(frozen=True)
class Patterns:
    """A convolution in the form that `pattern_kernels` reads; outputs lie as (row, column, channel)."""

    weights: NDArray[np.int16]  # (groups, patterns, phases, taps and channels), flat
    step: int  # from pattern to pattern
    line: int  # from one line of taps to the next
    pitch: int  # from one line of outputs to the next
    rows: NDArray[np.int32]  # (rows of the source, 3): see `_reach`
    columns: NDArray[np.int32]


def patterns(conv: Conv, channels: int, source: tuple[int, int], pool: int = 1) -> Patterns:
    """Lay out a convolution (of one group) into a map of so many `channels`, 0 beyond its own.

    Its spikes come from a map of the size `source`, and are pooled by summing on the way; what lies beyond
    the map that the convolution takes is dropped.
    """
    kernels = phases(conv)  # (in, row phase, column phase, rows, columns, out)
    kernels = np.pad(
        kernels, [(0, -len(kernels) % (2 * GROUP)), *[(0, 0)] * 4, (0, channels - len(conv.weight))]
    )
    grouped = kernels.astype(np.int16).reshape(-1, GROUP, kernels[0].size)
    sums = np.zeros((len(grouped), PATTERNS, kernels[0].size), np.int16)
    for channel in range(GROUP):  # those with this bit as their highest are those below it, and its weights
        bit = 1 << channel
        np.add(sums[:, :bit], grouped[:, channel, None], out=sums[:, bit : 2 * bit])
    _, height, width = conv.output_shape
    phases_x, taps_y, taps_x = kernels.shape[2:5]
    line, pitch = taps_x * channels, width * channels
    kernel = taps_y * line
    return Patterns(
        sums.ravel(), step=kernels[0].size, line=line, pitch=pitch,
        rows=_reach(source[0], pool, conv, 0, height, taps_y, (phases_x * kernel, line, pitch, 1)),
        columns=_reach(source[1], pool, conv, 1, width, taps_x, (kernel, channels, channels, channels)),
    )  # fmt: skip


def _reach(
    size: int, pool: int, conv: Conv, axis: int, outputs: int, taps: int, lengths: tuple[int, int, int, int]
) -> NDArray[np.int32]:
    """Of every place along an axis: where its taps begin, its first output, and its extent.

    Places, taps and outputs are related as in `kernels.reach`. `lengths` are those of a phase and of a tap
    among the weights, of an output, and of the extent of one tap.
    """
    place = np.arange(size) // pool
    shifted = place + conv.padding[axis]
    phase, first = shifted % conv.stride[axis], shifted // conv.stride[axis] - (taps - 1)
    begin, end = np.maximum(0, -first), np.minimum(taps, outputs - first)
    extent = np.where(place < conv.input_shape[1 + axis], np.maximum(end - begin, 0), 0)
    columns = phase * lengths[0] + begin * lengths[1], (first + begin) * lengths[2], extent * lengths[3]
    return np.stack(columns, axis=1).astype(np.int32)
