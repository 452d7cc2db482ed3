"""Signals as lists of what is not 0, and convolutions of them that wait for the neurons behind them.

Most maps of spikes are nearly empty: their lists are short, and quick to write, to pool and to convolve. What
knows no lists asks for `dense` maps.
"""

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from nrf.backends.border.recording import ONES, Spikes
from nrf.backends.reference.kernels import (
    Array,
    Drive,
    Listed,
    Taps,
    in_order,
    listed,
    pooled,
    unlisted,
)
from nrf.lanes import LANES
from nrf.model.convolution import convolve

MAX_DENSITY = 0.25  # share of inputs that are not 0 above which torch's dense convolution is faster
FEATURES = 16  # that torch computes at once: fewer take it as long


class Sides(NamedTuple):
    """How a signal lies in memory: as maps with channels last, or as one row."""

    steps: int
    rows: int
    columns: int
    channels: int


@dataclass(frozen=True)
class Events:
    """What is not 0 of a signal (T, *shape)."""

    shape: tuple[int, ...]
    sides: Sides
    listed: Listed
    count: int

    @classmethod
    def of(cls, x: Tensor, room: int | None = None) -> "Events":
        """Of a signal. Where there is less room than needed, the list ends early and counts one more."""
        flat, last = in_memory(x)
        room = flat.size if room is None else room
        sides = sides_of(x.shape, x.ndim == 4)
        to = room_for(sides, np.empty(room, flat.dtype))
        return cls(tuple(x.shape), sides, to, listed(flat.reshape(-1), sides, last, to))

    @property
    def are_maps(self) -> bool:
        """Whether rows and columns are those of maps."""
        return len(self.shape) == 4 and self.sides == sides_of(self.shape, True)

    def dense(self) -> Tensor:
        """The signal."""
        maps = np.zeros(self.sides, self.listed.value.dtype)
        unlisted(self.listed, maps.reshape(-1), self.sides)
        tensor = torch.as_tensor(maps)
        return tensor.movedim(-1, 1) if self.are_maps else tensor.reshape(self.shape)

    def spikes(self) -> Spikes:
        """Of events that are spikes, one each."""
        steps, neurons, room = (
            np.empty(n, np.int64) for n in (self.count, self.count, self.sides.channels + 1)
        )
        in_order(self.listed, self.sides.columns, room, steps, neurons)
        return Spikes(steps, neurons, ONES[: self.count])

    def later(self, steps: int) -> "Events":
        """The same some steps later, without the last ones."""
        nothing = np.zeros((min(steps, self.sides.steps), self.sides.rows), np.int64)
        first, last = (
            np.concatenate([nothing, rows])[: self.sides.steps]
            for rows in (self.listed.first, self.listed.last)
        )
        moved = self.listed._replace(first=first, last=last)
        return Events(self.shape, self.sides, moved, int((last - first).sum()))

    def pooled(self, down: int, across: int, divisor: int) -> "Events":
        """Sums over windows side by side, divided."""
        steps, rows, columns, channels = self.sides
        sides = Sides(steps, rows // down, columns // across, channels)
        kind = self.listed.value.dtype
        to, room = room_for(sides, np.empty(self.count, kind)), np.zeros(sides.columns * channels, kind)
        count = pooled(self.listed, sides, down, across, kind.type(divisor), room, to)
        return Events((steps, channels, *sides[1:3]), sides, to, count)


def sides_of(shape: tuple[int, ...], maps: bool) -> Sides:
    """Of a signal (T, channels, rows, columns), or (T, ...) in one row."""
    return Sides(shape[0], *(shape[2], shape[3], shape[1]) if maps else (1, prod(shape[1:]), 1))


def room_for(sides: Sides, value: Array, each: int = 1) -> Listed:
    """Room for events, with one value each or one for all; what is not used is not touched."""
    first, last = np.empty((2, sides.steps, sides.rows), np.int64)
    column, channel = np.empty((2, len(value) if each else prod(sides)), np.int32)
    return Listed(first, last, column, channel, value, each)


def in_memory(x: Tensor) -> tuple[Array, bool]:
    """(T, neurons) in the order of memory, and whether channels come last there."""
    last = x.ndim == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)
    return (x.movedim(1, -1) if last else x.contiguous()).flatten(1).numpy(), last


@dataclass(frozen=True)
class Convolution:
    """A convolution with a square kernel that visits every place, zeros around."""

    weight: Tensor  # (features, channels, K, K)
    bias: Tensor | None
    padding: int
    taps: Taps

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, padding: int) -> "Convolution":
        """With its taps in the order of an event's outputs."""
        features, channels, side, _ = weight.shape
        length = side * features
        lanes = LANES if length <= LANES else 2 * LANES
        parts = -(-length // lanes)
        rows = weight.permute(1, 2, 3, 0).flip(1, 2).reshape(channels, side, length)
        rows = functional.pad(rows, (0, parts * lanes - length)).reshape(channels, side, parts, lanes)
        values = rows.permute(2, 0, 1, 3).flatten().numpy()
        return cls(weight, bias, padding, Taps(values, parts, lanes, channels, features, side, padding))

    def __call__(self, x: "Signal") -> "Signal":
        """Of a signal: what neurons may ask for themselves, or maps where they are not sparse."""
        if isinstance(x, Convolved):
            x = x.dense()
        most = int(min(1, MAX_DENSITY * max(1, FEATURES / len(self.weight))) * prod(x.shape))
        events = Events.of(x, most) if isinstance(x, Tensor) else x
        if events.are_maps and events.count <= most:
            return Convolved(events, self)
        return convolve(dense(x), self.weight, self.bias, stride=1, padding=self.padding, sparse=False)


@dataclass(frozen=True)
class Convolved:
    """A convolution of events that nobody has done yet."""

    events: Events
    convolution: Convolution

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the maps (T, features, rows, columns)."""
        (steps, rows, columns, _), taps = self.events.sides, self.convolution.taps
        more = 2 * taps.padding - taps.side + 1
        return steps, taps.features, rows + more, columns + more

    def dense(self) -> Tensor:
        """The maps."""
        given = self.convolution
        return convolve(self.events.dense(), given.weight, given.bias, stride=1, padding=given.padding)

    def drive(self) -> Drive:
        """For neurons that do it themselves."""
        bias, taps = self.convolution.bias, self.convolution.taps
        margin = max(0, taps.side - 1 - taps.padding)
        start = self.convolution.weight.new_zeros(self.shape[3] + 2 * margin, taps.features)
        start = start if bias is None else start + bias
        none = np.empty((0, 0), taps.values.dtype)
        return Drive(none, self.events.listed, taps, start.flatten().numpy(), margin * taps.features)


def heard(like: Tensor) -> Drive:
    """Nothing, in the precision of a tensor: for a drive in full to take the place of its `x`."""
    one = like.new_ones(1).numpy()
    taps = Taps(one[:0], 0, 0, 0, 0, 0, 0)
    return Drive(one[:0].reshape(0, 0), room_for(Sides(0, 0, 0, 0), one, each=0), taps, one[:0], 0)


Signal = Tensor | Events | Convolved


def dense(x: Signal) -> Tensor:
    """A signal in full."""
    return x if isinstance(x, Tensor) else x.dense()
