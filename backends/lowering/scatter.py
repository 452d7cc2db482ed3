"""What spikes add to the drive of the neurons that they reach: one event-driven convolution for every chip.

    drive[t, target] = sum over spikes of a source at step t of  weight n

Cost follows the number of spikes: each adds whole rows of weights.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nrf.backends.border.recording import Spikes
from nrf.backends.lowering.layers import Conv, Operator
from nrf.backends.lowering.scatter_kernels import BLOCK, scatter_conv, scatter_matrix

Integers = NDArray[np.int32]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Layout:
    """The order of a population's neurons in memory: channels of one place side by side.

    A spike then adds whole rows of weights, one weight per channel, which is what processors are good at.
    """

    size: int
    channels: int = 1

    def inside(self, values: NDArray[Any]) -> NDArray[Any]:
        """From (..., channels, places) as everyone counts to the order in memory, flat."""
        shape = values.shape[:-1]
        swapped = values.reshape(*shape, self.channels, self.size // self.channels).swapaxes(-1, -2)
        return np.ascontiguousarray(swapped).reshape(*shape, self.size)

    def outside(self, values: NDArray[Any]) -> NDArray[Any]:
        """Back again."""
        return Layout(self.size, self.size // self.channels).inside(values)

    def numbers(self, inside: NDArray[np.int64]) -> NDArray[np.int64]:
        """As everyone counts, from places in memory."""
        places, channels = np.divmod(inside, self.channels)
        return channels * (self.size // self.channels) + places


def layout_of(size: int, operators: Iterable[Operator]) -> Layout:
    """The layout that suits the operators into a population."""
    channels = {operator.weight.shape[0] for operator in operators if isinstance(operator, Conv)}
    return Layout(size, channels.pop() if len(channels) == 1 else 1)


@dataclass(frozen=True)
class Wiring:
    """An operator with its weights laid out for scattering."""

    layout: Layout  # of the target
    geometry: tuple[int, ...]  # of a convolution, see `scatter_conv`; empty for a matrix
    weight: Integers  # see `phases`; of a matrix the entries, column by column
    rows: NDArray[np.int64]  # place in memory of each entry of a matrix
    starts: NDArray[np.int64]  # where each column of a matrix begins


def wire(operator: Operator, layout: Layout) -> Wiring:
    """Lay out an operator for `scatter`."""
    if isinstance(operator, Conv) and layout.channels == operator.weight.shape[0]:
        none = np.zeros(0, np.int64)
        return Wiring(layout, geometry_of(operator), phases(operator), none, none)
    csc = sparse.csc_array(operator.matrix())
    place_of = np.argsort(layout.inside(np.arange(layout.size)))
    entries = csc.data.astype(np.int32)
    return Wiring(layout, (), entries, place_of[csc.indices], csc.indptr.astype(np.int64))


def geometry_of(conv: Conv) -> tuple[int, ...]:
    """Rows and columns of the input, channels, rows and columns of the output, strides, paddings, groups."""
    return (*conv.input_shape[1:], *conv.output_shape, *conv.stride, *conv.padding, conv.groups)


def phases(conv: Conv) -> Integers:
    """Kernels as spikes see them: (in, row phase, column phase, rows, columns, out of the group).

    With stride s, a pixel meets only every s-th tap, which ones depends on its position modulo s; seen from
    the pixel, taps run backwards.
    """
    out, per_group, height, width = conv.weight.shape
    gap, stride = conv.dilation, conv.stride
    size = [gap[axis] * (n - 1) + 1 for axis, n in enumerate((height, width))]
    taps = [-(-size[axis] // stride[axis]) for axis in (0, 1)]
    spread = np.zeros((out, per_group, taps[0] * stride[0], taps[1] * stride[1]), np.int32)
    spread[:, :, : size[0] : gap[0], : size[1] : gap[1]] = conv.weight
    parts = spread.reshape(
        conv.groups, out // conv.groups, per_group, taps[0], stride[0], taps[1], stride[1]
    )[:, :, :, ::-1, :, ::-1]
    order = parts.transpose(0, 2, 4, 6, 3, 5, 1)
    return np.ascontiguousarray(order.reshape(conv.input_shape[0], *order.shape[2:]))


def silence(layout: Layout, steps: int) -> tuple[Integers, Flags]:
    """The drive of no spikes, and the blocks that it touches."""
    blocks = -(-layout.size // BLOCK)
    return np.zeros((steps, layout.size), np.int32), np.zeros((steps, blocks), np.bool_)


def scatter(wiring: Wiring, spikes: Spikes, steps: int) -> tuple[Integers, Flags]:
    """Drive (steps, neurons in memory) of spikes in these steps; which blocks it touches (steps, blocks)."""
    drive, touched = silence(wiring.layout, steps)
    if wiring.geometry:
        scatter_conv(drive, touched, spikes.t, spikes.i, spikes.n, wiring.weight, wiring.geometry)
    else:
        entries = (wiring.weight, wiring.rows, wiring.starts)
        scatter_matrix(drive, touched, spikes.t, spikes.i, spikes.n, *entries)
    return drive, touched
