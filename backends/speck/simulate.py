"""Step by step: all spikes of a step arrive, then every neuron is updated once, as quantised Sinabs does.

Cost follows the number of events: each adds its kernel to the drive; then one pass over the neurons that it
reaches fires and resets. A core sees many steps in one call, since nothing flows back. Simulators keep their
state, so that a stream in pieces gives the same spikes as the whole.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border import Spikes
from nrf.backends.lowering.scatter import Layout, Wirings, by_step, wire
from nrf.backends.lowering.scatter_kernels import BLOCK
from nrf.backends.speck.chip import Bits, signed
from nrf.backends.speck.program import Core, Shape, SpeckProgram
from nrf.backends.speck.simulate_kernels import advance
from nrf.errors import InputError

PIECE = (
    2**20 - 1
)  # neurons times steps whose spikes are logged at once; NumPy asks for huge pages from 4 MB on

Integers = NDArray[np.int32]
Lanes = tuple[Wirings, tuple[NDArray[np.signedinteger], NDArray[np.bool_], Integers]]


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
        self.node, self.conv = core.node, core.conv
        weight = core.weight.astype(np.int64).reshape(len(core.weight), -1)
        sums = np.maximum(weight, 0).sum(1), np.maximum(-weight, 0).sum(1)
        self.largest, self.drive = (
            np.abs(weight).max(initial=0),
            max(map(np.max, sums)),
        )  # of one event, of all
        self.bounds = tuple(map(np.int32, signed(bits.state)))
        self.neuron = *map(np.int32, (core.threshold, core.floor)), core.zero_reset, np.int32(core.max_spikes)
        self.layout = Layout(prod(core.shape), core.shape[0])
        filled = -(-self.layout.size // BLOCK) * BLOCK  # whole blocks; the rest never hears anything
        self.v = np.zeros(filled, np.int32)
        self.awake = np.ones(filled // BLOCK, np.bool_)  # blocks that may fire though nothing reaches them
        self.highest = 0  # no |v| is above; looked up again when that comes near 32 bits
        self.log = _log(self.layout.size)  # of one step
        self.bias = np.zeros(0, np.int32)
        if core.bias.any():
            each = np.tile(core.bias.astype(np.int32), self.layout.size // len(core.bias))
            self.bias = np.pad(each, (0, filled - len(each)))
        self.biggest = int(np.abs(self.bias).max(initial=0))

    def advance(
        self, arriving: Spikes, steps: int, record: bool = False
    ) -> tuple[Spikes, Spikes, Integers, int]:
        """Its spikes, the same by place, membranes (steps, neurons) if recorded, and the number of overflows.

        Spikes of one place side by side are what the next core is fastest with.
        """
        layout, most = self.layout, int(arriving.n.max(initial=1))
        wirings, scratch = self.narrow if self.drive * most + self.biggest < 2**15 else self.wide
        trace = np.zeros((steps if record else 0, layout.size), np.int32)
        parts, saturated = [], 0
        i, n, begins = by_step(arriving, steps)
        start, stop = 0, -1
        while stop < steps:
            stop = self._stop(n, begins, most, start, min(start + max(1, PIECE // layout.size), steps))
            log = self.log if stop - start == 1 else _log(layout.size * (stop - start))
            fired = np.zeros(stop - start, np.int64)
            saturated += advance(
                (i, n, begins[start:]), wirings, self.bias, self.neuron, self.bounds, self.v, self.awake,
                scratch, layout.channels, layout.size, log, fired, trace[start:stop],
            )  # fmt: skip
            rows = [row[: fired.sum()] for row in log]
            if log is self.log:  # the others are read by `by_step` alone
                rows = [row.copy() for row in rows]
            own = Spikes.of_steps(fired, rows[0], start, rows[1])
            parts.append((own, Spikes(own.t, rows[2], rows[3])))  # type: ignore[arg-type]
            start = stop
        spikes, by_place = (Spikes.joined(pieces) for pieces in zip(*parts, strict=True))
        return spikes, by_place, layout.outside(trace) if record else trace, saturated

    def _stop(self, n: Integers, begins: NDArray[np.int64], most: int, start: int, stop: int) -> int:
        """Up to which step 32 bits are enough, at most `stop`; moves `highest`."""
        first, last = int(begins[start]), int(begins[stop])
        bound = (last - first) * most * int(self.largest) + (stop - start) * self.biggest
        if self.highest + bound >= 2**31:
            self.highest = int(np.abs(self.v).max())
            counts = np.concatenate([[0], np.cumsum(n[first:last], dtype=np.int64)])[
                begins[start : stop + 1] - first
            ]
            reach = counts * self.largest + np.arange(len(counts)) * self.biggest  # no membrane moves further
            within = int(np.searchsorted(reach, 2**31 - self.highest)) - 1
            if within < 1 <= stop - start:
                raise InputError(
                    f"node '{self.node}', step {start}: {counts[1]} events arrive and membranes are at up to "
                    f"{self.highest}, so that 32 bits may wrap; give frames with fewer events"
                )
            stop, bound = start + within, int(reach[within])
        self.highest += bound
        return stop

    @cached_property
    def narrow(self) -> Lanes:
        """Wiring and room for drives of 16 bits, half the work of 32."""
        return self._lanes(np.int16)

    @cached_property
    def wide(self) -> Lanes:
        """The same with 32 bits."""
        return self._lanes(np.int32)

    def _lanes(self, dtype: type[np.signedinteger]) -> Lanes:
        size = len(self.v)
        scratch = np.zeros(size, dtype), np.zeros(size // BLOCK, np.bool_), np.empty((2, size), np.int32)
        return wire([(self.conv, self.layout)], dtype), scratch


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


def _log(size: int) -> tuple[Integers, Integers, Integers, Integers]:
    """Room for spikes; untouched pages cost nothing."""
    return (
        np.empty(size, np.int32),
        np.empty(size, np.int32),
        np.empty(size, np.int32),
        np.empty(size, np.int32),
    )


def merged(ways: Sequence[tuple[Spikes, int, Shape]], after: Shape) -> Spikes:
    """What arrives at a core, sorted by step, of spikes, sum pooling and map of every source.

    What lies beyond the map that the core takes is dropped, as on the chip.
    """
    parts = []
    for spikes, size, before in ways:
        if before != after:
            places, all_inside = _pooled(before, size, after)
            spikes = Spikes(spikes.t, places[spikes.i], spikes.n)
            spikes = spikes if all_inside else spikes.where(spikes.i >= 0)
        parts.append(spikes)
    if len(parts) == 1:
        return parts[0]
    joined = Spikes.joined(parts)
    return Spikes.sorted(joined.t, joined.i, joined.n)


@lru_cache(256)
def _pooled(before: Shape, size: int, after: Shape) -> tuple[NDArray[np.int64], bool]:
    """Where each neuron of a map lies after sum pooling, -1 outside; and whether none is outside."""
    channel, y, x = np.indices(before).reshape(3, -1)
    y, x = y // size, x // size
    places = np.where((y < after[1]) & (x < after[2]), (channel * after[1] + y) * after[2] + x, -1)
    return places, bool((places >= 0).all())
