"""The built-in simulator: Loihi 2 programs at the speed of their events, identical to Lava bit by bit.

Every synapse takes at least one step, so populations of one step do not wait for each other. Each spike adds
its rows of weights to the drive; a scan over the neurons, many at once, turns drive into spikes. All of it is
one compiled loop over the steps (`simulate_kernels.py`), loops in the program included.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from nrf.arrays import Int32s, Int64s
from nrf.backends.border import Frames, Spikes
from nrf.backends.loihi.neuron import Widths
from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.loihi.simulate_kernels import CONNECTION, POPULATION, SOURCE, play
from nrf.backends.lowering.operators import Conv
from nrf.backends.lowering.scatter import (
    Wirings,
    begins,
    by_steps,
    check_teacher,
    counted,
    layout_of,
    recorded,
    wire,
)
from nrf.errors import InputError
from nrf.vectors import BLOCK

PIECE = 2**24  # neurons times steps whose spikes are logged at once


@dataclass(frozen=True)
class Trace:
    """What a run saw, in integers."""

    steps: int
    spikes: dict[str, Spikes]
    u: dict[str, Int32s]  # (steps, *shape), after the step; of the populations that were recorded
    v: dict[str, Int32s]
    r: dict[str, Int32s]  # of those among them that reset by subtraction: what counts is v - r
    wrapped: dict[str, int]  # currents and sums beyond the state: always harmful
    saturated: dict[str, int]  # membranes at the upper end
    saturated_below: dict[str, int]  # and at the lower end, from where few come back in time to fire

    @property
    def membranes(self) -> dict[str, Int32s]:
        """What is compared with the threshold."""
        return {name: v - self.r[name] if name in self.r else v for name, v in self.v.items()}


class Simulator:
    """A program laid out for running, with everything that one step leaves to the next.

    >>> simulator = Simulator(program)  # doctest: +SKIP
    >>> simulator.run(frames[:50]), simulator.run(frames[50:])  # as one clip  # doctest: +SKIP
    """

    def __init__(self, program: LoihiProgram, like: "Simulator | None" = None) -> None:
        """`like` is a simulator whose wiring is taken over if its program has the very same synapses."""
        bits, self.populated = program.bits, list(program.neurons)
        names = self.populated
        self.program = program
        self.asked: tuple[str | None, ...] = ()
        self.widths = Widths(np.int32(bits.decay), np.int32(bits.shift), np.int32(bits.limit))
        self.layouts = {
            name: layout_of(neurons.size, [synapses.operator for synapses in program.into(name)])
            for name, neurons in program.neurons.items()
        }
        into = [program.into(name) for name in names]
        ends = np.cumsum([0, *map(len, into)])
        synapses = [one for group in into for one in group]
        same = like is not None and [*map(id, like.program.synapses)] == [*map(id, program.synapses)]
        made = [] if same else [(one.operator, self.layouts[one.target]) for one in synapses]
        self.wirings: Wirings = like.wirings if like is not None and same else wire(made)

        sizes = {name: neurons.size for name, neurons in program.neurons.items()}
        heard = {one.source: one.operator.inputs for one in synapses}  # a teacher may give what is not here
        sizes |= {name: size for name, size in heard.items() if name not in sizes}
        row_of = {name: row for row, name in enumerate(sizes)}
        self.names, self.sizes = list(sizes), sizes
        self.sources = np.zeros(len(sizes), SOURCE)  # the populations first
        self.sources["size"] = list(sizes.values())
        self.sources["reach"] = 1
        for one in synapses:
            reach = self.sources["reach"]
            reach[row_of[one.source]] = max(reach[row_of[one.source]], 2 + one.delay)
        self.sources["ring"] = begins(self.sources["size"] * self.sources["reach"])
        self.sources["held"] = begins(self.sources["reach"])
        remembered = int((self.sources["size"] * self.sources["reach"]).sum())
        rings = np.empty(remembered, np.int32), np.empty(remembered, np.int32)  # untouched pages cost nothing
        self.ring = *rings, np.zeros(self.sources["reach"].sum(), np.int64)

        self.connections = np.array(
            [
                (row_of[one.source], one.delay, one.exponent, isinstance(one.operator, Conv))
                for one in synapses
            ],
            CONNECTION,
        )
        parameters = [self._parameters(name) for name in names]
        self.neurons = sum(neurons.size for neurons in program.neurons.values())
        self.log = np.empty(self.neurons, np.int32)  # of one step
        self.begins = begins(self.sources["size"][: len(names)])
        self.populations = np.zeros(len(names), POPULATION)
        self.populations["source"] = np.arange(len(names))
        self.populations["channels"] = [self.layouts[name].channels for name in names]
        self.populations["blocks"] = -(-self.sources["size"][: len(names)] // BLOCK)
        self.populations["state"] = begins(self.populations["blocks"] * BLOCK)
        self.populations["parameter"] = begins([rows.shape[1] for rows in parameters])
        self.populations["stride"] = [BLOCK if rows.shape[1] > BLOCK else 0 for rows in parameters]
        self.populations["first"], self.populations["last"] = ends[:-1], ends[1:]
        self.parameters = np.concatenate(parameters, axis=1)
        self.first = np.concatenate([self._in_memory(name, "u0", "v0") for name in names], axis=1)
        self.populations["subtracts"] = [neurons.subtracts for neurons in program.neurons.values()]
        if self.populations["subtracts"].any():
            self.first = np.pad(self.first, ((0, 1), (0, 0)))  # r, 0 to begin with
        most = int(self.populations["blocks"].max())
        drives = [(np.zeros(most * BLOCK, np.int32), np.zeros(most, np.bool_)) for _ in range(2)]
        spikes = np.empty(most * BLOCK, np.int32), np.ones(most * BLOCK, np.int32)
        self.scratch = *drives, spikes, self._room()
        self.restart()

    def restart(self) -> None:
        """Go back to before the first step."""
        self.clock, self.states = 0, self.first.copy()
        self.awake = np.ones(self.populations["blocks"].sum(), np.bool_)
        self.ring[-1][:] = 0  # spikes that are remembered

    def run(
        self,
        frames: Frames,
        *,
        record: Collection[str] = (),
        teacher: Mapping[str, Spikes] | None = None,
    ) -> Trace:
        """Run the next frames (steps, *input shape); return what happened.

        `record` names populations whose u and v are kept. `teacher` gives spikes, in the chip's time, that
        take the place of a population's own for everyone who listens to it.
        """
        program, steps, names, populations = self.program, len(frames), self.populated, self.populations
        outside = {name: (teacher or {})[name] for name in self.names if name in (teacher or {})}
        for name, taught in outside.items():
            check_teacher(name, taught, self.sizes[name])
        if program.input in self.names or not outside:
            outside |= {program.input: input_spikes(program, frames)}
        if (asked := (*outside, None, *record)) != self.asked:  # of one step at a time only the first asks
            self.asked, rows = asked, {name: row for row, name in enumerate(outside)}
            self.sources["given"] = [rows.get(name, -1) for name in self.names]
            self.kept = [program.neurons[name].size if name in record else 0 for name in names]
            populations["trace"] = np.where(self.kept, begins(self.kept), -1)
        trace = np.zeros((len(self.states), steps, sum(self.kept)), np.int32)
        overflows = np.zeros((len(names), 3), np.int64)
        spikes: dict[str, list[Spikes]] = {name: [] for name in names}
        piece = max(1, PIECE // self.neurons)
        for start in range(0, max(steps, 1), piece):
            length = min(piece, steps - start)
            parts = list(outside.values())
            if length < steps:
                parts = [one.between(start, start + length) for one in parts]
            populations["log"] = self.begins * length
            log = (
                self.log if length == 1 else np.empty(self.neurons * length, np.int32)
            )  # untouched pages are free
            fired = np.zeros((len(names), length), np.int64)
            play(
                self.clock, length, (self.sources, populations, self.connections), self.wirings,
                self.parameters, self.widths, self.states, self.awake, by_steps(parts, length), self.ring,
                self.scratch, log, fired, trace[:, start : start + length], overflows,
            )  # fmt: skip
            self.clock += length
            ends = (populations["log"] + fired.sum(1)).tolist()
            for name, begin, end, counts in zip(names, populations["log"].tolist(), ends, fired, strict=True):
                found = recorded(counts, log[begin:end])
                spikes[name].append(found.later(start) if start else found)
        states = {
            name: self.layouts[name]
            .outside(trace[..., begin : begin + size])
            .reshape(-1, steps, *program.neurons[name].shape)
            for name, begin, size in zip(names, populations["trace"], self.kept, strict=True)
            if size
        }
        totals = [dict(zip(names, column, strict=True)) for column in overflows.T.tolist()]
        return Trace(
            steps,
            {name: Spikes.joined(pieces) for name, pieces in spikes.items()},
            {name: state[0] for name, state in states.items()},
            {name: state[1] for name, state in states.items()},
            {name: state[2] for name, state in states.items() if program.neurons[name].subtracts},
            *totals,
        )

    def _room(self) -> tuple[Int32s, Int64s, Int64s]:
        """For the largest kernel, channels, populations."""
        table, channels = self.wirings.table, self.populations["channels"]
        kernel = (table["taps_y"] * table["taps_x"] * table["out_per_group"]).max(initial=0)
        return (
            np.empty(kernel, np.int32),
            np.empty(1 + channels.max(), np.int64),
            np.empty(len(channels), np.int64),
        )

    def _in_memory(self, name: str, *keys: str) -> Int32s:
        """Integers of all neurons in the order in memory, one row for each key, filled up to whole blocks."""
        neurons = self.program.neurons[name]
        rows = np.stack([neurons.each(getattr(neurons, key)).ravel() for key in keys])
        return np.pad(self.layouts[name].inside(rows).astype(np.int32), ((0, 0), (0, -neurons.size % BLOCK)))

    def _parameters(self, name: str) -> Int32s:
        """Rows as `lif` takes them; of one block where all blocks are alike, for the sake of the cache."""
        du, dv, bias, vth = self._in_memory(name, "du", "dv", "bias", "vth")
        unity, channels = self.program.bits.unity, self.layouts[name].channels
        threshold = np.minimum(vth.astype(np.int64) << self.program.bits.shift, 2**31 - 1)
        rows = np.stack([unity - 1 - du, unity - dv, bias, threshold]).astype(np.int32)
        neurons = self.program.neurons[name]
        rows[3, neurons.size :] = 2**30  # what fills up a block never fires
        same = BLOCK % channels == 0 == neurons.size % BLOCK and len(neurons.dv) in (1, channels)
        return np.tile(rows[:, :channels], BLOCK // channels) if same else rows


def input_spikes(program: LoihiProgram, frames: Frames) -> Spikes:
    """Frames as graded spikes; Loihi 2 takes whole numbers."""
    if tuple(frames.shape[1:]) != program.input_shape:
        raise InputError(
            f"frames have shape {tuple(frames.shape[1:])} per step, the program takes {program.input_shape}"
        )
    spikes, whole, lowest, highest = counted(frames)
    if not whole:
        given = frames[frames != 0]
        wrong = given[given != spikes.n][0]
        raise InputError(f"frames hold {wrong}; Loihi 2 takes whole numbers, scale them to integers")
    if (most := max(-lowest, highest)) > program.bits.largest_message:
        largest = program.bits.largest_message
        raise InputError(f"frames hold {most}, a graded spike carries at most {largest}; scale them down")
    if most > 255:  # with few, no core has synapses enough
        for synapses in program.synapses:
            rows = abs(synapses.operator.matrix().astype(np.int64)).sum(axis=1)
            total = most * int(rows.max(initial=0)) << max(synapses.exponent, 0)
            if synapses.source == program.input and total >= 2**30:
                where = f"whose sums in '{synapses.target}' can pass 32 bits"
                raise InputError(f"frames hold {most}, {where}; scale them down")
    return spikes
