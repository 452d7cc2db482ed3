"""What synapses deliver to their neurons, in two ways that agree to the bit.

    a[t, target] = sum over spikes of source at step t - 1 - delay of  weight n << exponent

By events, cost follows the number of spikes; by correlation over all steps at once, the number of pixels.
Exponents shift the sum, not the weights: up, then convolutions wrap at 24 bit, or down, rounded down.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from nrf.backends.layers import Conv
from nrf.backends.loihi.neuron import LIMIT, Integers
from nrf.backends.loihi.program import Synapses
from nrf.backends.recording import Spikes


@dataclass(frozen=True)
class Wiring:
    """Synapses with their weights laid out for delivery by events."""

    synapses: Synapses
    geometry: tuple[int, ...]  # of a convolution; empty for a matrix
    weight: Integers  # see `_phases`; of a matrix the entries, column by column
    rows: NDArray[np.int32]  # row of each entry of a matrix
    starts: NDArray[np.int64]  # where each column of a matrix begins


def wire(synapses: Synapses) -> Wiring:
    """Lay out synapses for `deliver`."""
    operator = synapses.operator
    none = np.zeros(0, np.int64)
    if isinstance(operator, Conv):
        pairs = (*operator.stride, *operator.padding)
        geometry = (*operator.input_shape[1:], *operator.output_shape[1:], *pairs, operator.groups)
        return Wiring(synapses, geometry, _phases(operator), none.astype(np.int32), none)
    csc = sparse.csc_array(operator.weight)
    entries = csc.data.astype(np.int32)
    return Wiring(synapses, (), entries, csc.indices.astype(np.int32), csc.indptr.astype(np.int64))


def _phases(conv: Conv) -> Integers:
    """Kernels as spikes see them: (in, row phase, column phase, out of the group, rows, columns).

    With stride s, a pixel meets only every s-th tap, which ones depends on its position modulo s; seen from
    the pixel, taps run backwards. So these are turned round, and contiguous where the outputs are.
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
    order = parts.transpose(0, 2, 4, 6, 1, 3, 5)
    return np.ascontiguousarray(order.reshape(conv.input_shape[0], *order.shape[2:]))


def deliver(wiring: Wiring, spikes: Spikes, steps: int, neurons: int, dense: bool) -> tuple[Integers, int]:
    """Drive (steps, neurons) from spikes whose step counts from the first of these steps (earlier: negative).

    Also returns how many sums wrapped.
    """
    synapses = wiring.synapses
    late = spikes.t + 1 + synapses.delay
    now = (late >= 0) & (late < steps)
    t, i, n = late[now], spikes.i[now], spikes.n[now]
    if dense:
        drive = _correlate(synapses, t, i, n, steps)
    else:
        drive = np.zeros((steps, neurons), np.int32)
        if wiring.geometry:
            _scatter_conv(drive, t, i, n, wiring.weight, wiring.geometry)
        else:
            _scatter_matrix(drive, t, i, n, wiring.weight, wiring.rows, wiring.starts)
    wraps = 0
    if synapses.exponent or isinstance(synapses.operator, Conv):
        wraps = _shift_and_wrap(drive, synapses.exponent, isinstance(synapses.operator, Conv))
    return drive, wraps


@njit(cache=True)
def _scatter_conv(drive: Any, t: Any, i: Any, n: Any, weight: Any, geometry: Any) -> None:
    height, width, out_height, out_width, stride_y, stride_x, pad_y, pad_x, groups = geometry
    per_group, taps_y, taps_x = weight.shape[3:]
    in_per_group = weight.shape[0] // groups
    for event in range(len(t)):
        channel, place = divmod(i[event], height * width)
        y, x = place // width + pad_y, place % width + pad_x
        taps = weight[channel, y % stride_y, x % stride_x]
        top, left = y // stride_y - (taps_y - 1), x // stride_x - (taps_x - 1)
        first, last = max(0, -left), min(taps_x, out_width - left)
        value = np.int32(n[event])
        row = drive[t[event]]
        plane = (channel // in_per_group) * per_group * out_height * out_width
        for o in range(per_group):
            for j in range(max(0, -top), min(taps_y, out_height - top)):
                line = plane + (top + j) * out_width + left
                for k in range(first, last):
                    row[line + k] += taps[o, j, k] * value
            plane += out_height * out_width


@njit(cache=True)
def _scatter_matrix(drive: Any, t: Any, i: Any, n: Any, data: Any, rows: Any, starts: Any) -> None:
    for event in range(len(t)):
        row = drive[t[event]]
        value = np.int32(n[event])
        for k in range(starts[i[event]], starts[i[event] + 1]):
            row[rows[k]] += data[k] * value


@njit(cache=True)
def _shift_and_wrap(drive: Any, exponent: Any, wrap: Any) -> Any:
    """In place; how many sums lay beyond 24 bit."""
    wraps = 0
    flat = drive.reshape(-1)
    for k in range(len(flat)):
        x = np.int64(flat[k])
        if x == 0:
            continue
        x = x << max(exponent, 0)
        if wrap and (x >= LIMIT or x < -LIMIT):
            wraps += 1
            x = (x + LIMIT) % (2 * LIMIT) - LIMIT
        flat[k] = np.int32(x >> max(-exponent, 0))
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
