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
from math import prod

import numpy as np
from numpy.typing import NDArray

from nrf.arrays import Int32s, Int64s, aligned
from nrf.backends.border import Spikes
from nrf.backends.lowering.pattern_kernels import WAY
from nrf.backends.lowering.patterns import Map, patterns
from nrf.backends.lowering.scatter import begins, by_steps, check_teacher, recorded
from nrf.backends.speck.chip import Bits, signed
from nrf.backends.speck.program import PooledSource, Population, Shape, SpeckProgram
from nrf.backends.speck.simulate_kernels import POPULATION, Scratch, Sent, States, Tables, play
from nrf.errors import InputError
from nrf.export.contract import Contract
from nrf.lanes import LANES
from nrf.vectors import BLOCK

ROOM_OUTSIDE = 256  # spikes from outside that are brought into the form of others at once
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
        vectors = [np.zeros((2, 0), np.int64), *map(_vectors, self.maps)]
        bounds = map(np.int32, signed(program.bits.state))
        self.tables = Tables(
            self.populations, ways, sources, np.concatenate(weights), reaches,
            np.concatenate(vectors, axis=1), *bounds,
        )  # fmt: skip
        size = sum(sizes)
        self.states = States(
            aligned(size + LANES, np.int16), aligned(size + LANES, np.int32), np.zeros(number, np.bool_),
            np.array([(each.height, 0) for each in self.maps], np.int64).reshape(-1, 2),
            self.populations["threshold"].copy(),
        )  # fmt: skip
        self.sent = Sent(  # untouched pages cost nothing
            fired=np.empty(size, np.uint64),
            more=np.empty(size, np.int32), times=np.empty(size, np.int32),
            held=np.zeros(number, np.int64), extra=np.zeros(number, np.int64),
            total=np.zeros((number, 2), np.int64),
        )  # fmt: skip
        largest, channels = max(sizes, default=0), max((each.channels for each in self.maps), default=0)
        self.scratch = Scratch(
            often=np.empty(largest, np.int32), sorted=np.empty((2, largest + channels + LANES), np.int32),
            number=np.empty(channels, np.int64), blocks=np.empty(largest // BLOCK, np.uint64),
            masks=np.empty(largest // BLOCK, np.uint64), room=np.empty(ROOM_OUTSIDE, np.uint64),
            logged=np.empty(number, np.int64),
        )  # fmt: skip
        room = number, ROOM + largest + LANES
        self.log = np.empty(room, np.int32), np.empty(room, np.int32)
        self.asked: tuple[str | None, ...] = ()
        self.refusal: InputError | None = None

    def advance(
        self,
        given: Spikes,
        steps: int,
        teacher: Mapping[str, Spikes] | None = None,
        record: Collection[str] = (),
    ) -> Trace:
        """Run spikes of the input through all populations. `record` names those whose membranes are kept.

        `teacher` gives spikes that take the place of a population's own for those who listen to it. After a
        refusal some populations have done a step that others have not, and every later call is refused too.
        """
        if self.refusal:
            raise self.refusal
        forced = {name: spikes for name, spikes in (teacher or {}).items() if name in self.nodes}
        for name, taught in forced.items():
            check_teacher(name, taught, prod(self.program.shapes[name]))
        if (asked := (*forced, None, *record)) != self.asked:  # of one step at a time only the first asks
            self.asked, rows = asked, {name: 1 + row for row, name in enumerate(forced)}
            self.kept = [
                each.size * (node in record) for node, each in zip(self.nodes, self.maps, strict=True)
            ]
            self.populations["given"] = [rows.get(node, -1) for node in self.nodes]
            self.populations["trace"] = np.where(self.kept, begins(self.kept), -1)
        neurons, counts, starts = by_steps([given, *forced.values()], steps)
        trace = np.zeros((steps, sum(self.kept)), np.int32)
        fired = np.zeros((len(self.nodes), steps), np.int64)
        meter = np.array([0, -1, 0, 0])
        parts: list[list[list[Int32s]]] = [[] for _ in self.nodes]  # of every population, which and how often
        done = 0
        while True:
            done = play(
                done, steps, self.tables, (neurons, counts, starts), self.states, self.sent, self.scratch,
                self.log, fired, trace, meter,
            )  # fmt: skip
            if meter[1] >= 0:
                row, events, highest = meter[1:]
                self.refusal = InputError(
                    f"node '{self.nodes[row]}', step {done}: {events} events arrive and membranes are at up "
                    f"to {highest}, so that 32 bits may wrap; give frames with fewer events"
                )
                raise self.refusal
            ended, logged = done >= steps, self.scratch.logged.tolist()
            for own, number, once, *log in zip(parts, logged, self.once, *self.log, strict=True):
                kept = [each[:number] for each in (log[:1] if once else log)]
                own.append(kept if ended else [each.copy() for each in kept])  # the log is written again
            if ended:
                break
        spikes = {
            node: recorded(number, *map(_joined, zip(*own, strict=True)))
            for node, number, own in zip(self.nodes, fired, parts, strict=True)
        }
        return Trace(spikes, int(meter[0]), dict(self._membranes(trace)) if trace.shape[1] else {})

    def _populations(self, weights: list[NDArray[np.int16]]) -> NDArray[np.void]:
        """Rows of `POPULATION`; biases become `weights`."""
        populations = self.program.populations
        table = np.zeros(len(populations), POPULATION)
        for name in ("channels", "height", "width", "pitch", "lanes"):
            table[name] = [getattr(each, name) for each in self.maps]
        for name in ("threshold", "floor", "zero_reset"):
            table[name] = [getattr(each, name) for each in populations]
        table["shift"] = [each.lanes.bit_length() - 1 for each in self.maps]
        table["most"] = [each.max_spikes for each in populations]
        drives = [_drives(each) for each in populations]
        table["biased"], table["each"], table["drive"] = np.reshape(drives, (-1, 3)).T
        for row, population, own in zip(table, populations, self.maps, strict=True):
            row["bias"] = sum(map(len, weights))
            biases = np.zeros(own.pitch, np.int16)
            places = biases[: own.width * own.channels].reshape(own.width, own.channels)
            places[:, : own.features] = population.bias
            weights.append(biases)
        counts = [len(each.sources) for each in populations]
        table["first"], table["last"] = begins(counts), np.cumsum(counts)
        table["state"] = begins([each.size for each in self.maps])
        table["vectors"] = begins([each.pitch // each.lanes for each in self.maps])
        return table

    def _connections(self, weights: list[NDArray[np.int16]]) -> tuple[NDArray[np.void], Int64s, Int64s]:
        """Rows of `WAY`, the source of each, and all reaches; kernels become `weights`."""
        program, ways, sources = self.program, [np.zeros(0, WAY)], []
        maps = {program.input: Map(*program.input_shape)} | dict(zip(self.nodes, self.maps, strict=True))
        reaches = [np.zeros((0, 4), np.int64)]
        for population in program.populations:
            for source in population.sources:
                before, own = maps[source.name], maps[population.node]
                found = patterns(population.conv, before, own, source.pool)
                found.reaches[: before.height, 0] += sum(map(len, weights))
                for name in ("row", "column"):
                    found.way[name] += sum(map(len, reaches))
                weights.append(found.weights)
                reaches.append(found.reaches)
                ways.append(found.way)
                sources.append(self.nodes.index(source.name) if source.name != program.input else -1)
        return np.concatenate(ways), np.array(sources, np.int64), np.concatenate(reaches)

    def _membranes(self, trace: Int32s) -> Iterator[tuple[str, Int32s]]:
        """Recorded ones, in the order of neurons."""
        for population, own, begin, size in zip(
            self.program.populations, self.maps, self.populations["trace"], self.kept, strict=True
        ):
            if size:
                yield population.node, own.outside(trace[:, begin : begin + size])


def _drives(population: Population) -> tuple[int, int, int]:
    """The largest bias and weight, and the largest drive if every neuron of its sources fires once."""
    weight = population.weight.reshape(len(population.weight), -1).astype(np.int64)
    rises = np.maximum(weight, 0).sum(1)
    falls = rises - weight.sum(1)
    bias = int(np.abs(population.bias.astype(np.int64)).max())
    return bias, int(np.abs(weight).max(initial=0)), int(max(rises.max(), falls.max()))


def _vectors(own: Map) -> Int64s:
    """Column and first channel of each vector of a line of a map."""
    column, part = np.divmod(np.arange(own.pitch // own.lanes), own.parts)
    return np.stack([column, part * own.lanes])


def _joined(parts: tuple[Int32s, ...]) -> Int32s:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


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
