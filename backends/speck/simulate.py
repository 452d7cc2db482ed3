"""Step by step: all spikes of a step arrive, then every neuron is updated once, as quantised Sinabs does.

Cost follows the number of events while they are few: each adds its kernel to the membranes; then one pass
over the neurons that it reaches fires and resets. Where many channels of a place fire, sums of four of them
are added at once (`lowering.patterns`). All populations of a program are one compiled loop over the steps
(`simulate_kernels.py`). Simulators keep their state, so that a stream in pieces gives the same spikes as
the whole.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from nrf.arrays import Int32s, Int64s, aligned
from nrf.backends.border import Spikes
from nrf.backends.lowering.pattern_kernels import WAY
from nrf.backends.lowering.patterns import Map, patterns
from nrf.backends.lowering.scatter import begins, by_steps
from nrf.backends.speck.chip import Bits, signed
from nrf.backends.speck.program import PooledSource, Population, Shape, SpeckProgram
from nrf.backends.speck.simulate_kernels import ALL, POPULATION, Scratch, Sent, States, Tables, play
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
        self.once = [each.max_spikes == 1 for each in program.populations]  # or more often in a step
        self.maps = [Map(*each.shape) for each in program.populations]
        weights = [np.zeros(0, np.int16)]
        self.populations = self._populations(weights)
        number, sizes = len(self.nodes), [each.size for each in self.maps]
        ways, sources, reaches = self._connections(weights)
        neurons = [np.zeros((2, 0), np.uint32), *map(_first_line, self.maps)]
        bounds = map(np.int32, signed(program.bits.state))
        self.tables = Tables(
            self.populations, ways, sources, np.concatenate(weights), reaches,
            np.concatenate(neurons, axis=1), *bounds,
        )  # fmt: skip
        size, height = sum(sizes), sum(each.height for each in self.maps)
        self.states = States(
            aligned(size, np.int16), aligned(size, np.int32), np.zeros(number, np.bool_),
            np.full(height, ALL), self.populations["threshold"].copy(),
        )  # fmt: skip
        self.sent = Sent(  # untouched pages cost nothing
            lines=np.empty(size, np.int32), blocks=np.empty(size, np.int32), masks=np.empty(size, np.uint64),
            more=np.empty(size, np.int32), times=np.empty(size, np.int32),
            held=np.zeros(number, np.int64), extra=np.zeros(number, np.int64),
            total=np.zeros((number, 2), np.int64),
        )  # fmt: skip
        largest, channels = max(sizes, default=0), max((each.channels for each in self.maps), default=0)
        self.scratch = Scratch(
            np.empty(largest, np.int32), np.empty((2, largest), np.int32), np.empty(channels, np.uint64),
            np.empty(number, np.int64),
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
                each.size * (node in record) for node, each in zip(self.nodes, self.maps, strict=True)
            ]
            self.populations["given"] = [rows.get(node, -1) for node in self.nodes]
            self.populations["trace"] = np.where(self.kept, begins(self.kept), -1)
        neurons, counts, starts = by_steps([spikes, *forced.values()], steps)
        trace = np.zeros((steps, sum(self.kept)), np.int32)
        fired = np.zeros((len(self.nodes), steps), np.int64)
        meter = np.array([0, -1, 0, 0])
        parts: list[list[list[Int64s]]] = [[] for _ in self.nodes]
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
            logged = self.scratch.logged.tolist()
            for own, number, once, which, times in zip(parts, logged, self.once, *self.log, strict=True):
                kept = (which,) if once else (which, times)
                own.append([each[:number].astype(np.int64) for each in kept])  # the log is written again
            if done >= steps:
                break
        found = {
            node: _joined(number, own) for node, own, number in zip(self.nodes, parts, fired, strict=True)
        }
        return Trace(found, int(meter[0]), dict(self._membranes(trace)) if trace.shape[1] else {})

    def _populations(self, weights: list[NDArray[np.int16]]) -> NDArray[np.void]:
        """Rows of `POPULATION`; biases become `weights`."""
        populations = self.program.populations
        table = np.zeros(len(populations), POPULATION)
        for row, population, own in zip(table, populations, self.maps, strict=True):
            for key in ("channels", "height", "width", "pitch", "span", "lanes"):
                row[key] = getattr(own, key)
            for key in ("threshold", "floor", "zero_reset"):
                row[key] = getattr(population, key)
            row["most"], row["biased"] = population.max_spikes, np.abs(population.bias.astype(np.int64)).max()
            weight = population.weight.astype(np.int64)
            row["each"], total = np.abs(weight).max(initial=0), weight.sum((1, 2, 3))
            size = np.abs(weight).sum((1, 2, 3))
            row["drive"] = max((size + total).max(), (size - total).max()) // 2  # of one sign
            row["bias"] = sum(map(len, weights))
            biases = np.zeros(own.pitch, np.int16)
            places = biases[: own.width * own.channels].reshape(own.width, own.channels)
            places[:, : own.features] = population.bias
            weights.append(biases)
        counts = [len(each.sources) for each in populations]
        table["first"], table["last"] = begins(counts), np.cumsum(counts)
        table["state"] = begins([each.size for each in self.maps])
        table["line"] = begins([each.height for each in self.maps])
        table["cells"] = begins([each.pitch for each in self.maps])
        return table

    def _connections(self, weights: list[NDArray[np.int16]]) -> tuple[NDArray[np.void], Int64s, Int64s]:
        """Rows of `WAY`, the source of each, and all reaches; kernels become `weights`."""
        program, rows, sources = self.program, [], []
        maps = {program.input: Map(*program.input_shape)} | dict(zip(self.nodes, self.maps, strict=True))
        reaches = [np.zeros((0, 4), np.int64)]
        for population in program.populations:
            for source in population.sources:
                before, own = maps[source.name], maps[population.node]
                found = patterns(population.conv, before, own, source.pool)
                places = before.height * before.width, before.width
                vectors = before.lanes.bit_length() - 1, before.parts
                weight, row = sum(map(len, weights)), sum(map(len, reaches))
                begins = weight, found.step, found.line, row, row + len(found.rows)
                rows.append((*places, *vectors, source.pool**2, *begins, own.lanes, own.pitch))
                weights.append(found.weights)
                reaches += [found.rows, found.columns]
                sources.append(self.nodes.index(source.name) if source.name != program.input else -1)
        return np.array(rows, WAY), np.array(sources, np.int64), np.concatenate(reaches)

    def _membranes(self, trace: Int32s) -> Iterator[tuple[str, Int32s]]:
        """Recorded ones, in the order of neurons."""
        for population, own, begin, size in zip(
            self.program.populations, self.maps, self.populations["trace"], self.kept, strict=True
        ):
            if size:
                yield population.node, own.outside(trace[:, begin : begin + size])


def _first_line(own: Map) -> NDArray[np.uint32]:
    """Channel and number of each neuron in memory of the first line of a map."""
    x, channel = np.divmod(np.arange(own.pitch), own.channels)
    return np.stack([channel, channel * own.height * own.width + x]).astype(np.uint32)


def _joined(fired: Int64s, parts: list[list[Int64s]]) -> Spikes:
    """Spikes, so many in every step, of neurons and, where some fire more than once, counts of all parts."""
    if len(parts) == 1:
        return Spikes.of_steps(fired, *parts[0])
    return Spikes.of_steps(fired, *(np.concatenate(each) for each in zip(*parts, strict=True)))


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
