"""Step by step: all spikes of a step arrive, then every neuron is updated once, as quantised Sinabs does.

Cost follows the number of events: each adds its kernel to the drive; then one pass over the neurons that it
reaches fires and resets. A core sees many steps in one call, since nothing flows back. Simulators keep their
state, so that a stream in pieces gives the same spikes as the whole.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border import Spikes
from nrf.backends.lowering.scatter import Layout, by_step, wire
from nrf.backends.lowering.scatter_kernels import BLOCK
from nrf.backends.speck.chip import Bits, signed
from nrf.backends.speck.program import Core, Shape, SpeckProgram
from nrf.backends.speck.simulate_kernels import advance
from nrf.errors import InputError

PIECE = 2**24  # neurons times steps whose spikes are logged at once

Integers = NDArray[np.int32]


@dataclass(frozen=True)
class Trace:
    """What a run saw, in integers."""

    spikes: dict[str, Spikes]
    saturated: int  # updates for which the chip's state is too narrow
    membranes: dict[str, Integers] = field(default_factory=dict)  # (steps, neurons), where asked for
    operations: dict[str, int] = field(default_factory=dict)  # synaptic, event by event


class CoreSimulator:
    """One core with its membranes, which start at 0."""

    def __init__(self, core: Core, bits: Bits) -> None:
        self.node, self.largest = core.node, int(np.abs(core.weight.astype(int)).max(initial=0))
        self.bounds = tuple(map(np.int32, signed(bits.state)))
        self.neuron = *map(np.int32, (core.threshold, core.floor)), core.zero_reset, np.int32(core.max_spikes)
        self.layout = Layout(prod(core.shape), core.shape[0])
        self.wirings = wire([(core.conv, self.layout)])
        filled = -(-self.layout.size // BLOCK) * BLOCK  # whole blocks; the rest never hears anything
        self.v = np.zeros(filled, np.int32)
        self.bias = np.zeros(0, np.int32)
        if core.bias.any():
            each = np.tile(core.bias.astype(np.int32), self.layout.size // len(core.bias))
            self.bias = np.pad(each, (0, filled - len(each)))

    def advance(
        self, arriving: Spikes, steps: int, record: bool = False
    ) -> tuple[Spikes, Spikes, Integers, int]:
        """Its spikes, the same by place, membranes (steps, neurons) if recorded, and the number of overflows.

        Spikes of one place side by side are what the next core is fastest with.
        """
        layout = self.layout
        trace = np.zeros((steps if record else 0, layout.size), np.int32)
        parts, saturated = [], 0
        length = max(1, PIECE // layout.size)
        events = np.bincount(arriving.t, arriving.n, steps)
        each = events * self.largest + np.abs(self.bias).max(initial=0)  # no membrane moves further in a step
        reach = np.cumsum(each)
        start, stop = 0, -1
        while stop < steps:
            highest = int(np.abs(self.v).max())
            room = 2**31 - highest + (reach[start - 1] if start else 0)
            stop = min(start + length, steps, int(np.searchsorted(reach, room)))
            if stop == start < steps:
                raise InputError(
                    f"node '{self.node}', step {start}: {events[start]:.0f} events arrive and membranes are "
                    f"at up to {highest}, so that 32 bits may wrap; give frames with fewer events"
                )
            log = np.empty((4, layout.size * (stop - start)), np.int32)  # untouched pages cost nothing
            fired = np.zeros(stop - start, np.int64)
            saturated += advance(
                by_step(arriving.between(start, stop), stop - start), self.wirings, self.bias, self.neuron,
                self.bounds, self.v, layout.channels, layout.size, log, fired, trace[start:stop],
            )  # fmt: skip
            t = np.repeat(np.arange(start, stop), fired)
            i, n, i_by_place, n_by_place = log[:, : len(t)].astype(np.int64)
            parts.append((Spikes(t, i, n), Spikes(t, i_by_place, n_by_place)))
            start = stop
        spikes, by_place = (Spikes.joined(pieces) for pieces in zip(*parts, strict=True))
        return spikes, by_place, layout.outside(trace), saturated


class Simulator:
    """All cores of a program; every call goes on where the last one ended.

    >>> simulator = Simulator(program)  # doctest: +SKIP
    >>> simulator.advance(Spikes.from_dense(frames), len(frames)).spikes["if1"].count  # doctest: +SKIP
    """

    def __init__(self, program: SpeckProgram) -> None:
        self.program = program
        self.cores = [CoreSimulator(core, program.bits) for core in program.cores]

    def advance(
        self,
        spikes: Spikes,
        steps: int,
        teacher: Mapping[str, Spikes] | None = None,
        record: Collection[str] = (),
    ) -> Trace:
        """Run spikes of the input through all cores. `record` names populations whose membranes are kept.

        `teacher` gives spikes that take the place of a population's own for those who listen to it.
        """
        program, trace, saturated = self.program, Trace({}, 0), 0
        heard, shapes = {program.input: spikes}, {program.input: program.input_shape}
        for simulator, core in zip(self.cores, program.cores, strict=True):
            ways = [(heard[source.name], source.pool, shapes[source.name]) for source in core.sources]
            arriving = merged(ways, core.input_shape)
            own, sent, membranes, over = simulator.advance(arriving, steps, core.node in record)
            trace.spikes[core.node] = own
            if core.node in record:
                trace.membranes[core.node] = membranes
            heard[core.node] = (teacher or {}).get(core.node, sent)
            shapes[core.node] = core.shape
            saturated += over
        return Trace(trace.spikes, saturated, trace.membranes)


def merged(ways: Sequence[tuple[Spikes, int, Shape]], after: Shape) -> Spikes:
    """What arrives at a core, sorted by step, of spikes, sum pooling and map of every source.

    What lies beyond the map that the core takes is dropped, as on the chip.
    """
    parts = []
    for spikes, size, before in ways:
        if before != after:
            channel, pixel = np.divmod(spikes.i, before[1] * before[2])
            y, x = (side // size for side in np.divmod(pixel, before[2]))
            moved = Spikes(spikes.t, (channel * after[1] + y) * after[2] + x, spikes.n)
            spikes = moved.where((y < after[1]) & (x < after[2]))
        parts.append(spikes)
    if len(parts) == 1:
        return parts[0]
    joined = Spikes.joined(parts)
    return Spikes.sorted(joined.t, joined.i, joined.n)
