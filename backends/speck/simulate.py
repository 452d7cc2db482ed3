"""Step by step: all spikes of a step arrive, then every neuron is updated once, as quantised Sinabs does.

Cost follows the number of events while they are few: each adds its kernel to the drive; then one pass over
the neurons that it reaches fires and resets. Where many channels of a place fire, sums of four of them are
added at once (`lowering.patterns`). All populations of a program are one compiled loop over the steps
(`simulate_kernels.py`). Simulators keep their state, so that a stream in pieces gives the same spikes as
the whole.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from nrf.arrays import Int32s, Int64s
from nrf.backends.border import Spikes
from nrf.backends.lowering.pattern_kernels import WAY, WORD
from nrf.backends.lowering.patterns import patterns
from nrf.backends.lowering.scatter import Layout, begins, by_steps
from nrf.backends.lowering.scatter_kernels import BLOCK
from nrf.backends.speck.chip import Bits, signed
from nrf.backends.speck.program import PooledSource, Population, Shape, SpeckProgram
from nrf.backends.speck.simulate_kernels import POPULATION, Scratch, Sent, States, Tables, play
from nrf.errors import InputError
from nrf.export.contract import Contract

ROOM = 2**18  # spikes of a population that are logged at once, beside those of a step in which all fire


@dataclass(frozen=True)
class Trace:
    """What a run saw, in integers."""

    spikes: dict[str, Spikes]
    saturated: int  # updates for which the chip's state is too narrow
    membranes: dict[str, Int32s] = field(default_factory=dict)  # (steps, neurons), where asked for
    operations: dict[str, int] = field(default_factory=dict)  # synaptic, event by event


class Simulator:
    """A program with its membranes, which start at 0; a call goes on where the last one ended.

    >>> simulator = Simulator(program)  # doctest: +SKIP
    >>> simulator.advance(Spikes.from_dense(frames), len(frames)).spikes["if1"].count  # doctest: +SKIP
    """

    def __init__(self, program: SpeckProgram) -> None:
        self.program, self.nodes = program, [each.node for each in program.populations]
        heard = {source.name for each in program.populations for source in each.sources}
        self.layouts = [_layout(each, each.node in heard) for each in program.populations]
        self.populations = self._populations()
        number, size = len(self.nodes), int(self.populations["blocks"].sum()) * BLOCK
        bias = np.zeros(size, np.int32)
        for row, population in zip(self.populations, program.populations, strict=True):
            padded = np.pad(population.bias, (0, row["channels"] - len(population.bias)))
            bias[row["state"] :][: row["channels"] * row["places"]] = np.tile(padded, row["places"])
        bounds = map(np.int32, signed(program.bits.state))
        self.tables = Tables(self.populations, *self._connections(), bias, *bounds)
        self.states = States(
            np.zeros(size, np.int32), np.ones(size // BLOCK, np.bool_), np.zeros(number, np.int64)
        )
        self.sent = Sent(  # untouched pages cost nothing
            words=np.empty(size, np.int32), masks=np.empty(size, np.uint8),
            more=np.empty(size, np.int32), times=np.empty(size, np.int32),
            held=np.zeros(number, np.int64), extra=np.zeros(number, np.int64),
            total=np.zeros((number, 2), np.int64),
        )  # fmt: skip
        largest = int(self.populations["blocks"].max(initial=0)) * BLOCK
        self.scratch = Scratch(
            np.zeros(largest, np.int16), np.zeros(largest, np.int32), np.zeros(largest // BLOCK, np.bool_),
            np.empty(2 + 2 * int(self.tables.ways["words"].max(initial=0)), np.int64),
            np.empty(largest, np.int32), np.empty(largest, np.int32), np.zeros(largest, np.uint8),
        )  # fmt: skip
        self.log = np.empty((number, ROOM + largest), np.int32), np.empty((number, ROOM + largest), np.int32)
        self.asked: tuple[str | None, ...] = ()

    def advance(
        self,
        spikes: Spikes,
        steps: int,
        teacher: Mapping[str, Spikes] | None = None,
        record: Collection[str] = (),
    ) -> Trace:
        """Run spikes of the input through all populations. `record` names those whose membranes are kept.

        `teacher` gives spikes that take the place of a population's own for those who listen to it.
        """
        forced = {name: given for name, given in (teacher or {}).items() if name in self.nodes}
        if (asked := (*forced, None, *record)) != self.asked:  # of one step at a time only the first asks
            self.asked, rows = asked, {name: 1 + row for row, name in enumerate(forced)}
            self.kept = [
                layout.size * (node in record) for node, layout in zip(self.nodes, self.layouts, strict=True)
            ]
            self.populations["given"] = [rows.get(node, -1) for node in self.nodes]
            self.populations["trace"] = np.where(self.kept, begins(self.kept), -1)
        neurons, counts, starts = by_steps([spikes, *forced.values()], steps)
        trace = np.zeros((steps, sum(self.kept)), np.int32)
        fired = np.zeros((len(self.nodes), steps), np.int64)
        meter = np.array([0, -1, 0, 0])
        parts: list[list[tuple[Int32s, Int32s]]] = [[] for _ in self.nodes]
        done = 0
        while True:
            start = done
            done += play(
                steps - start, self.tables, (neurons, counts, starts[:, start:]), self.states, self.sent,
                self.scratch, self.log, fired[:, start:], trace[start:], meter,
            )  # fmt: skip
            if meter[1] >= 0:
                row, events, highest = meter[1:]
                raise InputError(
                    f"node '{self.nodes[row]}', step {done}: {events} events arrive and membranes are at up "
                    f"to {highest}, so that 32 bits may wrap; give frames with fewer events"
                )
            for row, own in enumerate(parts):
                number = fired[row, start:done].sum()
                own.append((self.log[0][row, :number], self.log[1][row, :number]))
                if done < steps:  # the log will be written again
                    own[-1] = own[-1][0].copy(), own[-1][1].copy()
            if done >= steps:
                break
        found = {
            each.node: _joined(own, number, each.max_spikes == 1)
            for each, own, number in zip(self.program.populations, parts, fired, strict=True)
        }
        return Trace(found, int(meter[0]), dict(self._membranes(trace)))

    def _populations(self) -> NDArray[np.void]:
        """Rows of `POPULATION`."""
        populations = self.program.populations
        table = np.zeros(len(populations), POPULATION)
        for row, population, layout in zip(table, populations, self.layouts, strict=True):
            weight = population.weight.astype(np.int64).reshape(len(population.weight), -1)
            row["channels"], row["places"] = layout.channels, layout.size // layout.channels
            row["blocks"] = -(-layout.size // BLOCK)  # the rest of the last one never hears anything
            for key in ("threshold", "floor", "zero_reset"):
                row[key] = getattr(population, key)
            row["most"], row["biased"] = population.max_spikes, np.abs(population.bias.astype(np.int64)).max()
            row["each"] = np.abs(weight).max(initial=0)
            row["drive"] = max(np.maximum(sign * weight, 0).sum(1).max() for sign in (1, -1))
        counts = [len(each.sources) for each in populations]
        table["first"], table["last"] = begins(counts), np.cumsum(counts)
        table["state"] = begins(table["blocks"] * BLOCK)
        return table

    def _connections(self) -> tuple[NDArray[np.void], Int64s, NDArray[np.int16], Int32s]:
        """Rows of `WAY`, the source of each, and all weights and reaches."""
        program, shapes = self.program, self.program.shapes
        layouts = dict(zip(self.nodes, self.layouts, strict=True))
        rows, weights, reaches, sources = [], [np.zeros(0, np.int16)], [np.zeros((0, 3), np.int32)], []
        for population in program.populations:
            for source in population.sources:
                channels = layouts[population.node].channels
                found = patterns(population.conv, channels, shapes[source.name][1:], source.pool)
                words = layouts[source.name].channels // WORD if source.name in layouts else 0
                where = sum(map(len, weights)), sum(map(len, reaches))
                lengths = found.step, found.line, found.pitch
                tables = where[1], where[1] + len(found.rows)
                rows.append((words, *shapes[source.name][1:], source.pool**2, where[0], *lengths, *tables))
                weights.append(found.weights)
                reaches += [found.rows, found.columns]
                sources.append(self.nodes.index(source.name) if source.name in layouts else -1)
        flat = np.concatenate(weights), np.concatenate(reaches)
        return np.array(rows, WAY), np.array(sources, np.int64), *flat

    def _membranes(self, trace: Int32s) -> Iterator[tuple[str, Int32s]]:
        """Recorded ones, in the order of neurons."""
        for population, layout, begin, size in zip(
            self.program.populations, self.layouts, self.populations["trace"], self.kept, strict=True
        ):
            if size:
                membranes = layout.outside(trace[:, begin : begin + size])
                yield population.node, membranes[:, : prod(population.shape)]


def _layout(population: Population, heard: bool) -> Layout:
    """Channels of one place side by side, in whole words where somebody listens; what fills up is silent."""
    channels = population.shape[0] + (-population.shape[0] % WORD if heard else 0)
    return Layout(channels * prod(population.shape[1:]), channels)


def _joined(parts: list[tuple[Int32s, Int32s]], fired: Int64s, once: bool) -> Spikes:
    """Spikes of all parts; `once` says that nothing fires twice in a step."""
    which = _one([which for which, _ in parts])
    return Spikes.of_steps(fired, which, n=None if once else _one([times for _, times in parts]))


def _one(parts: list[Int32s]) -> Int64s:
    """One array of all parts, in memory of its own."""
    return parts[0].astype(np.int64) if len(parts) == 1 else np.concatenate(parts, dtype=np.int64)


def alone(population: Population, bits: Bits, arriving: Spikes, steps: int) -> Spikes:
    """Spikes of one population, of what arrives there after pooling."""
    single = replace(population, sources=(PooledSource(""),))
    program = SpeckProgram(
        "", Contract(), bits, population.input_shape, (single,), (population.node,), input=""
    )
    return Simulator(program).advance(arriving, steps).spikes[population.node]


def merged(ways: Sequence[tuple[Spikes, int, Shape]], after: Shape) -> Spikes:
    """What arrives at a population, sorted by step, of spikes, sum pooling and map of every source.

    What lies beyond the map that the population takes is dropped, as on the chip.
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
def _pooled(before: Shape, size: int, after: Shape) -> tuple[Int64s, bool]:
    """Where each neuron of a map lies after sum pooling, -1 outside; and whether none is outside."""
    channel, y, x = np.indices(before).reshape(3, -1)
    y, x = y // size, x // size
    places = np.where((y < after[1]) & (x < after[2]), (channel * after[1] + y) * after[2] + x, -1)
    return places, bool((places >= 0).all())
