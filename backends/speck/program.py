"""The Speck program: what the cores would get, as integers, and how to read them back as volts."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border import FanOut, Lowered, Placement
from nrf.backends.border.program import StoredProgram, load_program
from nrf.backends.lowering.fan_out import placed_fan_out
from nrf.backends.lowering.operators import Conv
from nrf.backends.lowering.readout import HostReadout, check_readout
from nrf.backends.speck.chip import Bits, signed
from nrf.errors import InputError
from nrf.export.contract import Contract
from nrf.files import require_memory

STATE = 64  # bytes of memory per neuron or pixel
Shape = tuple[int, int, int]  # channels, height, width


@dataclass(frozen=True)
class Kernel(Conv):
    """A convolution that is told the size of its output map, as a core is."""

    map: tuple[int, int] = (1, 1)

    @property
    def output_shape(self) -> Shape:
        """(channels, height, width) of the result."""
        return len(self.weight), *self.map


def map_shape(shape: tuple[int, ...]) -> Shape:
    """Any node's shape as (channels, height, width)."""
    match shape:
        case (channels,):
            return channels, 1, 1
        case (channels, width):
            return channels, 1, width
        case (channels, height, width):
            return channels, height, width
    raise InputError(f"shape {shape} is not supported on Speck, expected (channels, height, width) or less")


@dataclass(frozen=True)
class PooledSource:
    """Where a population's input comes from, and the sum pooling on the way."""

    name: str  # a population, or the program's input
    pool: int = 1


@dataclass(frozen=True)
class Population:
    """Pooled sources, one kernel, neurons. One core holds them all, or several some channels each.

    v <- v + sum of weights of arriving spikes (+ bias once per step, which is a tick of the slow clock)
    spike if v >= threshold, then v <- v - threshold, or v <- 0 with `zero_reset`
    v <- max(v, floor)

    Step by step it fires `min(max_spikes, floor(v / threshold))` times at once, where that is not 1.
    """

    node: str  # the neurons' name in the graph
    core: int  # its number on the chip; of several, the one with the first channels
    sources: tuple[PooledSource, ...]
    input_shape: Shape  # after pooling
    shape: Shape
    node_shape: tuple[int, ...]  # as in the graph
    stride: tuple[int, int]
    padding: tuple[int, int]
    threshold: int
    floor: int  # threshold_low
    zero_reset: bool
    weight: NDArray[np.int8] = field(repr=False)  # (out, in, k, k)
    bias: NDArray[np.int8] = field(repr=False)  # (out,)
    volts: NDArray[np.float64] = field(repr=False)  # (out,) volts per integer
    max_spikes: int = 1  # per neuron and step, 0 for any number; event by event there is one per event
    # further cores, each with its first channel: `core` has those before
    more: tuple[tuple[int, int], ...] = ()

    @property
    def conv(self) -> Kernel:
        """Its kernel as an operator from the pooled input to the neurons."""
        return Kernel(self.weight, self.input_shape, self.stride, self.padding, map=self.shape[1:])


@dataclass(frozen=True, eq=False, repr=False)
class SpeckProgram(StoredProgram):
    """Integers for the chip, with the contract that they answer to."""

    target: str
    contract: Contract
    bits: Bits  # widths of all numbers
    input_shape: Shape
    populations: tuple[Population, ...]  # topological order
    outputs: tuple[str, ...]  # populations, or what the host makes of some
    input: str = "input"  # as the graph calls it, so that no population can have the same name
    readout: HostReadout | None = None  # what the host computes behind the populations
    lowered: Lowered = field(default=Lowered(Placement((), 0), ()), repr=False)
    early: dict[str, int] = field(default_factory=dict)  # steps of Delay nodes before a population

    @property
    def shapes(self) -> dict[str, Shape]:
        """Of the input and all populations, as maps."""
        return {self.input: self.input_shape} | {each.node: each.shape for each in self.populations}

    @cached_property
    def node_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of all populations, as in the graph."""
        return {each.node: each.node_shape for each in self.populations}

    @cached_property
    def latencies(self) -> dict[str, int]:
        """The chip adds no steps; against one per connection or neuron, and Delay nodes, it is early."""
        depth = {self.input: 0}
        for population in self.populations:
            depth[population.node] = 1 + max(depth[source.name] for source in population.sources)
        steps = int(self.contract.delay or self.contract.emit == "late")
        return {
            each.node: -depth[each.node] * steps - self.early.get(each.node, 0) for each in self.populations
        }

    @property
    def read(self) -> tuple[str, ...]:
        """Populations that the host reads."""
        own = {each.node for each in self.populations}
        sources = (*self.outputs, *(self.readout.sources if self.readout else ()))
        return tuple(name for name in dict.fromkeys(sources) if name in own)


def fan_outs(program: SpeckProgram) -> list[FanOut]:
    """All synapses; a spike is pooled first, and reaches what its pooled place does."""
    shapes, found = program.shapes, []
    for population in program.populations:
        pooled = placed_fan_out("", population.node, population.conv, program.lowered.placement).synapses
        places = pooled.reshape(-1, *population.input_shape)
        for source in population.sources:
            channel, y, x = np.indices(shapes[source.name])
            y, x = y // source.pool, x // source.pool
            inside = (y < population.input_shape[1]) & (x < population.input_shape[2])  # the rest is dropped
            kept = places[:, channel, y * inside, x * inside] * inside
            found.append(FanOut(source.name, population.node, kept.reshape(len(kept), -1)))
    return found


def load(path: str | Path) -> SpeckProgram:
    """Read a program file; everything in it is checked."""
    return load_program(path, SpeckProgram, check_program)


def check_program(program: SpeckProgram) -> None:
    """Refuse what types cannot say: shapes that do not agree, sources that come later, numbers too wide."""
    shapes = {program.input: program.input_shape}
    if not program.populations or min(program.input_shape) < 1:
        number = len(program.populations)
        raise InputError(f"{number} populations and an input of shape {program.input_shape}")
    sizes = (prod(shape) for shape in (program.input_shape, *(each.shape for each in program.populations)))
    require_memory("the program", sum(sizes) * STATE, "its pixels and neurons")
    for population in program.populations:
        for complaint in _complaints(population, shapes, program.bits):
            raise InputError(f"node '{population.node}': {complaint}; lower again")
        shapes[population.node] = population.shape
    numbers = [
        number for each in program.populations for number in (each.core, *(part[0] for part in each.more))
    ]
    if len(set(numbers)) < len(numbers) or min(numbers) < 0:
        raise InputError(f"its populations are on the cores {numbers}, expected one of its own for each")
    entries = (source for each in program.populations for source in each.sources)
    if len({source.pool for source in entries if source.name == program.input}) != 1:
        raise InputError("its input must be read, and be pooled in one way only")
    for name, steps in program.early.items():
        if name not in shapes or not 0 <= steps < 2**16:
            raise InputError(f"'{name}' would be {steps} steps early; lower again")
    check_readout(program, {each.node: each.node_shape for each in program.populations})


def _complaints(population: Population, shapes: dict[str, Shape], bits: Bits) -> Iterator[str]:
    """What is wrong with a population, the first thing first; `shapes` are of all that comes before it."""
    shape, before, weight = population.shape, population.input_shape, population.weight
    stride, padding, volts = population.stride, population.padding, population.volts
    channels, features = before[0], shape[0]
    if population.node in shapes:
        yield "another population has the same name"
    if not population.sources:
        yield "it has no source"
    for source in population.sources:
        if source.name not in shapes:
            yield f"its source '{source.name}' does not come before it"
        depth, *sides = shapes[source.name]
        room = zip(before[1:], sides, strict=True)
        if (
            source.pool < 1
            or depth != channels
            or any(not 1 <= side <= of // source.pool for side, of in room)
        ):
            yield f"input {before} does not fit '{source.name}' pooled by {source.pool}"
    if weight.ndim != 4 or weight.shape != (features, channels, *2 * weight.shape[2:3]):
        yield f"weights have shape {weight.shape}, expected ({features}, {channels}, side, side)"
    if min(stride) < 1 or min(padding) < 0:
        yield f"stride {stride} and padding {padding}, expected at least 1 and at least 0"
    given = Conv(weight, before, stride, padding).output_shape
    # Zeros around a kernel make one line too many, or hang over the end of the map (`kernel_made_square`).
    used = [np.flatnonzero(np.abs(weight).max(axis=(0, 1, axis))) for axis in (3, 2)]  # rows, columns
    zeros = [weight.shape[2] - 1 - max(lines, default=-1) for lines in used]  # behind the last of them
    ends = zip(shape[1:], given[1:], stride, zeros, strict=True)
    sound = all(side >= 1 and -over <= (of - side) * step <= step for side, of, step, over in ends)
    if shape != map_shape(population.node_shape) or not sound:
        yield f"shape {shape} as {population.node_shape}, its convolution gives {given}"
    firsts = [0, *(first for _, first in population.more), features]
    if any(first >= then for first, then in pairwise(firsts)):
        yield f"its {features} channels are split at {firsts[1:-1]}"
    if population.bias.shape != (features,) or volts.shape != (features,) or not np.isfinite(volts).all():
        yield "bias or volts are not one finite number per channel"
    for key in ("weight", "bias"):
        lowest, highest = signed(getattr(bits, key))
        if getattr(population, key).min() < lowest or getattr(population, key).max() > highest:
            yield f"{key} is not within {lowest} to {highest}"
    lowest, highest = signed(bits.state)
    threshold, floor, most = population.threshold, population.floor, population.max_spikes
    if not (1 <= threshold <= highest and lowest <= floor <= 0) or most < 0:
        yield (
            f"threshold {threshold}, floor {floor} and at most {most} spikes, expected "
            f"1 to {highest}, {lowest} to 0 and no less than 0"
        )
