"""What synapses deliver to their neurons, in two ways that agree to the bit.

    a[t, target] = sum over spikes of source at step t - 1 - delay of  weight n << exponent

By events, cost follows the number of spikes; by correlation over all steps at once, the number of pixels.
Exponents shift the sum, not the weights: up, then convolutions wrap at 24 bit, or down, rounded down.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from nrf.backends.border.recording import Spikes
from nrf.backends.loihi.neuron import BLOCK, LIMIT, Integers
from nrf.backends.loihi.program import Synapses
from nrf.backends.lowering.layers import Conv

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
        return np.ascontiguousarray(values.reshape(*shape, self.channels, -1).swapaxes(-1, -2)).reshape(
            *shape, self.size
        )

    def outside(self, values: NDArray[Any]) -> NDArray[Any]:
        """Back again."""
        shape = values.shape[:-1]
        return np.ascontiguousarray(values.reshape(*shape, -1, self.channels).swapaxes(-1, -2)).reshape(
            *shape, self.size
        )

    def numbers(self, inside: NDArray[np.int64]) -> NDArray[np.int64]:
        """As everyone counts, from places in memory."""
        places, channels = np.divmod(inside, self.channels)
        return channels * (self.size // self.channels) + places


def layout_of(size: int, synapses: Iterable[Synapses]) -> Layout:
    """The layout that suits the synapses into a population."""
    channels = {one.operator.weight.shape[0] for one in synapses if isinstance(one.operator, Conv)}
    return Layout(size, channels.pop() if len(channels) == 1 else 1)


@dataclass(frozen=True)
class Wiring:
    """Synapses with their weights laid out for delivery by events."""

    synapses: Synapses
    layout: Layout  # of the target
    geometry: tuple[int, ...]  # of a convolution; empty for a matrix
    weight: Integers  # see `_phases`; of a matrix the entries, column by column
    rows: NDArray[np.int64]  # place in memory of each entry of a matrix
    starts: NDArray[np.int64]  # where each column of a matrix begins


def wire(synapses: Synapses, layout: Layout) -> Wiring:
    """Lay out synapses for `deliver`."""
    operator = synapses.operator
    if isinstance(operator, Conv) and layout.channels == operator.weight.shape[0]:
        pairs = (*operator.stride, *operator.padding)
        geometry = (*operator.input_shape[1:], *operator.output_shape, *pairs, operator.groups)
        none = np.zeros(0, np.int64)
        return Wiring(synapses, layout, geometry, _phases(operator), none, none)
    csc = sparse.csc_array(operator.matrix())
    places = layout.inside(np.arange(layout.size))
    place_of = np.argsort(places)
    entries = csc.data.astype(np.int32)
    return Wiring(synapses, layout, (), entries, place_of[csc.indices], csc.indptr.astype(np.int64))


def _phases(conv: Conv) -> Integers:
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


def deliver(wiring: Wiring, spikes: Spikes, steps: int, dense: bool) -> tuple[Integers, Flags, int]:
    """Drive (steps, neurons in memory) from spikes whose steps count from the first of these, or before it.

    Also returns which blocks it touches (steps, blocks), and how many sums wrapped.
    """
    synapses = wiring.synapses
    late = spikes.t + 1 + synapses.delay
    now = (late >= 0) & (late < steps)
    t, i, n = late[now], spikes.i[now], spikes.n[now]
    blocks = -(-wiring.layout.size // BLOCK)
    if dense:
        drive = wiring.layout.inside(_correlate(synapses, t, i, n, steps))
        touched = np.ones((steps, blocks), np.bool_)
    else:
        drive = np.zeros((steps, wiring.layout.size), np.int32)
        touched = np.zeros((steps, blocks), np.bool_)
        if wiring.geometry:
            _scatter_conv(drive, touched, t, i, n, wiring.weight, wiring.geometry)
        else:
            _scatter_matrix(drive, touched, t, i, n, wiring.weight, wiring.rows, wiring.starts)
    wraps = 0
    if synapses.exponent or isinstance(synapses.operator, Conv):
        wraps = _shift_and_wrap(drive, touched, synapses.exponent, isinstance(synapses.operator, Conv))
    return drive, touched, wraps


@njit(cache=True)
def _scatter_conv(drive: Any, touched: Any, t: Any, i: Any, n: Any, weight: Any, geometry: Any) -> None:
    height, width, channels, out_height, out_width = geometry[:5]
    stride_y, stride_x, pad_y, pad_x, groups = geometry[5:]
    taps_y, taps_x, per_group = weight.shape[3:]
    in_per_group = weight.shape[0] // groups
    for event in range(len(t)):
        channel, place = divmod(i[event], height * width)
        y, x = place // width + pad_y, place % width + pad_x
        taps = weight[channel, y % stride_y, x % stride_x]
        top, left = y // stride_y - (taps_y - 1), x // stride_x - (taps_x - 1)
        start, stop = max(0, -left), min(taps_x, out_width - left)
        if start >= stop:
            continue
        value = np.int32(n[event])
        row, marks = drive[t[event]], touched[t[event]]
        first = (channel // in_per_group) * per_group
        for j in range(max(0, -top), min(taps_y, out_height - top)):
            line = ((top + j) * out_width + left) * channels + first
            for k in range(start, stop):
                base = line + k * channels
                some, tap = row[base : base + per_group], taps[j, k]
                for o in range(per_group):
                    some[o] += tap[o] * value
            low, high = line + start * channels, line + (stop - 1) * channels + per_group - 1
            marks[low // BLOCK : high // BLOCK + 1] = True


@njit(cache=True)
def _scatter_matrix(
    drive: Any, touched: Any, t: Any, i: Any, n: Any, data: Any, rows: Any, starts: Any
) -> None:
    for event in range(len(t)):
        row, marks = drive[t[event]], touched[t[event]]
        value = np.int32(n[event])
        for k in range(starts[i[event]], starts[i[event] + 1]):
            row[rows[k]] += data[k] * value
            marks[rows[k] // BLOCK] = True


@njit(cache=True)
def _shift_and_wrap(drive: Any, touched: Any, exponent: Any, wrap: Any) -> Any:
    """In place; how many sums lay beyond 24 bit."""
    wraps = 0
    steps, neurons = drive.shape
    for t in range(steps):
        for block in range(touched.shape[1]):
            if not touched[t, block]:
                continue
            for k in range(block * BLOCK, min(neurons, (block + 1) * BLOCK)):
                x = np.int64(drive[t, k]) << max(exponent, 0)
                if wrap and (x >= LIMIT or x < -LIMIT):
                    wraps += 1
                    x = (x + LIMIT) % (2 * LIMIT) - LIMIT
                drive[t, k] = np.int32(x >> max(-exponent, 0))
    return wraps


def _correlate(synapses: Synapses, t: NDArray[Any], i: NDArray[Any], n: NDArray[Any], steps: int) -> Integers:
    """All steps at once. Floating point is exact here: the sums are whole numbers below 2^24 or 2^53."""
    import torch

    operator = synapses.operator
    if not isinstance(operator, Conv):
        columns = operator.weight.shape[1]
        frames = np.zeros((steps, columns), np.int64)
        np.add.at(frames, (t, i), n)
        return np.asarray((operator.weight.astype(np.int64) @ frames.T).T, dtype=np.int32, order="C")
    largest = int(np.abs(n).max(initial=0)) * int(
        np.abs(operator.weight.astype(np.int64)).sum(axis=(1, 2, 3)).max(initial=0)
    )
    dtype = torch.float32 if largest < 2**24 else torch.float64
    plain = torch.zeros((steps, int(np.prod(operator.input_shape))), dtype=dtype)
    plain.index_put_(
        (torch.from_numpy(t), torch.from_numpy(i)), torch.from_numpy(n).to(dtype), accumulate=True
    )
    result = torch.nn.functional.conv2d(
        plain.reshape(steps, *operator.input_shape),
        torch.from_numpy(operator.weight.astype(np.int32)).to(dtype),
        None,
        operator.stride,
        operator.padding,
        operator.dilation,
        operator.groups,
    )
    return np.asarray(result.to(torch.int64).numpy().reshape(steps, -1), dtype=np.int32)
