"""What spikes add to the drive of the neurons that they reach: one event-driven convolution for every chip.

    drive[t, target] = sum over spikes of a source at step t of  weight n

Cost follows the number of spikes: each adds whole rows of weights.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nrf.arrays import Int32s, Int64s
from nrf.backends.border.recording import ONES, Spikes
from nrf.backends.lowering.operators import Conv, Operator
from nrf.backends.lowering.scatter_kernels import FIELDS, WIRING
from nrf.errors import InputError
from nrf.lazy import sparse
from nrf.vectors import BLOCK, find, spread_steps


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


def layout_of(size: int, operators: Iterable[Operator]) -> Layout:
    """The layout that suits the operators into a population."""
    channels = {operator.weight.shape[0] for operator in operators if isinstance(operator, Conv)}
    return Layout(size, channels.pop() if len(channels) == 1 else 1)


class Wirings(NamedTuple):
    """Operators laid out for `scatter_kernels.scatter`: a row of the table each."""

    table: NDArray[np.void]  # see `WIRING`
    weights: NDArray[np.signedinteger]  # of convolutions see `phases`; of matrices column by column
    rows: Int32s  # place in memory of each entry of a matrix
    starts: Int64s  # where each column of a matrix begins


def wire(operators: Sequence[tuple[Operator, Layout]], dtype: type[np.signedinteger] = np.int32) -> Wirings:
    """Lay out operators, each into a population of that layout; drives will be as wide as their weights."""
    table = np.zeros(len(operators), WIRING)
    weights: list[Int32s] = [np.zeros(0, np.int32)]
    rows, starts = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for row, (operator, layout) in zip(table, operators, strict=True):
        row["blocks"] = -(-layout.size // BLOCK)
        row["weight"], row["row"], row["start"] = (sum(map(len, parts)) for parts in (weights, rows, starts))
        if isinstance(operator, Conv) and layout.channels == operator.weight.shape[0]:
            kernels = phases(operator)
            out_channels, out_height, out_width = operator.output_shape
            sizes = *operator.input_shape[1:], out_channels, out_height, out_width
            groups = len(kernels) // operator.groups, out_channels // operator.groups
            geometry = *sizes, *operator.stride, *operator.padding, *kernels.shape[3:5], *groups
            for name, value in zip(FIELDS, geometry, strict=False):
                row[name] = value
            weights.append(kernels.ravel())
        else:
            csc = sparse.csc_array(operator.matrix())
            place_of = np.argsort(layout.inside(np.arange(layout.size)))
            weights.append(csc.data.astype(np.int32))
            rows.append(place_of[csc.indices].astype(np.int32))
            starts.append(csc.indptr.astype(np.int64))
    flat = np.concatenate(weights).astype(dtype, copy=False)
    return Wirings(table, flat, np.concatenate(rows), np.concatenate(starts))


def counted(frames: NDArray[Any]) -> tuple[Spikes, bool, int, int]:
    """Frames (steps, *shape) as spikes, as `Spikes.from_dense` does.

    Then whether all are whole numbers, and the lowest and highest of them and 0.
    """
    values = np.ascontiguousarray(frames).ravel()
    room, size = 1 + len(values) // 32, max(1, prod(frames.shape[1:]))  # of sparse frames, as nearly always
    firsts, masks = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.uint64)
    while True:
        t, i, n = (np.empty(room, np.int64) for _ in range(3))
        found, *rest = find(values, size, t, i, n, firsts, masks)
        if found <= room:
            return Spikes(t[:found], i[:found], n[:found]), *rest
        room = found


def recorded(counts: Int64s, i: NDArray[np.integer], n: NDArray[np.integer] | None = None) -> Spikes:
    """Spikes of the neurons `i`, so many (`counts`) in every step; one each, or `n`."""
    times = ONES[: len(i)] if n is None else n.astype(np.int64)
    if len(counts) == 1:
        return Spikes(np.zeros(len(i), np.int64), i.astype(np.int64), times)
    t, neurons = np.empty(len(i), np.int64), np.empty(len(i), np.int64)
    spread_steps(counts, i, t, neurons)
    return Spikes(t, neurons, times)


def check_teacher(node: str, spikes: Spikes, neurons: int) -> None:
    """Refuse spikes of neurons that a population does not have: compiled loops look at no bounds."""
    if len(spikes.i) and not 0 <= spikes.i.min() <= spikes.i.max() < neurons:
        raise InputError(
            f"node '{node}': the teacher has spikes of neurons {spikes.i.min()} to {spikes.i.max()}, the "
            f"population has {neurons}; give a recording of the same graph"
        )


def by_step(spikes: Spikes, steps: int) -> tuple[Int32s, Int32s, Int64s]:
    """Neuron and count of spikes, and where those of each step begin, with the end of the last."""
    if steps == 1 and (len(spikes.t) == 0 or spikes.t[-1] == 0):  # as in a stream
        first = np.array([0, len(spikes.t)])
    else:
        first = np.searchsorted(spikes.t, np.arange(steps + 1))
    return spikes.i.astype(np.int32, copy=False), spikes.n.astype(np.int32, copy=False), first


def by_steps(parts: Sequence[Spikes], steps: int) -> tuple[Int32s, Int32s, Int64s]:
    """Neurons and counts of all parts, and where those of each part and step begin."""
    if len(parts) == 1:
        neurons, counts, first = by_step(parts[0], steps)
        return neurons, counts, first[None]
    many, times, starts = zip(*(by_step(part, steps) for part in parts), strict=True)
    return (
        np.concatenate(many),
        np.concatenate(times),
        np.stack(starts) + begins(list(map(len, many)))[:, None],
    )


def begins(sizes: Sequence[int] | Int64s) -> Int64s:
    """Where each part begins of parts laid end to end."""
    lengths: Int64s = np.asarray(sizes, np.int64)
    return np.cumsum(lengths) - lengths


def phases(conv: Conv) -> Int32s:
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
