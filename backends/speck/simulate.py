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
from nrf.backends.lowering.scatter import Layout, scatter, wire
from nrf.backends.speck.chip import Bits, signed
from nrf.backends.speck.neuron import scan
from nrf.backends.speck.program import Core, Shape, SpeckProgram

PIECE = 2**20  # neurons times steps that are in work at once: what a second-level cache holds

Integers = NDArray[np.int32]


@dataclass(frozen=True)
class Trace:
    """What a run saw, in integers."""

    spikes: dict[str, Spikes]  # sorted by step; within a step as they came
    saturated: int  # updates for which the chip's state is too narrow
    membranes: dict[str, Integers] = field(default_factory=dict)  # (steps, neurons), where asked for
    operations: dict[str, int] = field(default_factory=dict)  # synaptic, event by event


class CoreSimulator:
    """One core with its membranes, which start at 0."""

    def __init__(self, core: Core, bits: Bits) -> None:
        self.core, self.bounds = core, signed(bits.state)
        self.layout = Layout(prod(core.shape), core.shape[0])
        self.wiring = wire(core.conv, self.layout)
        self.v = np.zeros(self.layout.size, np.int32)

    def advance(self, arriving: Spikes, steps: int, record: bool = False) -> tuple[Spikes, Integers, int]:
        """Its spikes, membranes (steps, neurons) if they are to be recorded, and the number of overflows."""
        core, layout = self.core, self.layout
        trace = np.zeros((steps if record else 0, layout.size), np.int32)
        parts, saturated = [Spikes.none()], 0
        length = max(1, PIECE // layout.size)
        for start in range(0, steps, length):
            stop = min(start + length, steps)
            drive, touched = scatter(self.wiring, arriving.between(start, stop), stop - start)
            if core.bias.any():
                drive.reshape(stop - start, -1, layout.channels)[:] += core.bias
                touched[:] = True
            neuron = core.threshold, core.floor, int(core.zero_reset), core.max_spikes
            (t, i, n), over = scan(drive, touched, self.v, neuron, self.bounds, trace[start:stop])
            parts.append(Spikes(t + start, layout.numbers(i), n))
            saturated += over
        return Spikes.joined(parts), layout.outside(trace), saturated


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
            own, membranes, over = simulator.advance(arriving, steps, core.node in record)
            trace.spikes[core.node] = own
            if core.node in record:
                trace.membranes[core.node] = membranes
            heard[core.node] = (teacher or {}).get(core.node, own)
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
