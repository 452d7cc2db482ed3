"""The built-in simulator: Loihi 2 programs at the speed of their events, identical to Lava bit by bit.

Every synapse takes at least one step, so populations of one step do not wait for each other, and a chain of
populations can run many steps at once. Programs with loops advance step by step. Each spike adds its row of
weights.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import numpy as np

from nrf.backends.border import Frames, Spikes
from nrf.backends.loihi.neuron import Integers, Widths, lif_scan, shift_and_wrap
from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.lowering.layers import Conv
from nrf.backends.lowering.scatter import Flags, layout_of, scatter, silence, wire
from nrf.errors import InputError

PIECE = 2**20  # neurons times steps that are in work at once: what a second-level cache holds


@dataclass(frozen=True)
class Trace:
    """What a run saw, in integers."""

    steps: int
    spikes: dict[str, Spikes]
    u: dict[str, Integers]  # (steps, *shape), after the step; of the populations that were recorded
    v: dict[str, Integers]
    wrapped: dict[str, int]  # currents and sums beyond the state: always harmful
    saturated: dict[str, int]  # membranes at the upper end
    saturated_below: dict[str, int]  # and at the lower end, from where few come back in time to fire


class Simulator:
    """A program laid out for running, with everything that one step leaves to the next.

    >>> simulator = Simulator(program)  # doctest: +SKIP
    >>> simulator.run(frames[:50]), simulator.run(frames[50:])  # as one clip  # doctest: +SKIP
    """

    def __init__(self, program: LoihiProgram) -> None:
        self.program = program
        self.widths = Widths(program.bits.decay, program.bits.shift, program.bits.limit)
        self.reach = 1 + max((synapses.delay for synapses in program.synapses), default=0)
        self.layouts = {
            name: layout_of(neurons.size, [synapses.operator for synapses in program.into(name)])
            for name, neurons in program.neurons.items()
        }
        self.into = {
            name: [(synapses, wire(synapses.operator, layout)) for synapses in program.into(name)]
            for name, layout in self.layouts.items()
        }
        self.parameters = {name: self._parameters(name) for name in program.neurons}
        self.states = {name: self._in_memory(name, "u0", "v0") for name in program.neurons}
        # spikes not yet delivered everywhere; their steps are negative between two runs, -1 is the last
        self.under_way: defaultdict[str, Spikes] = defaultdict(Spikes.none)

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
        program, steps = self.program, len(frames)
        outside = {program.input: input_spikes(program, frames), **(teacher or {})}
        order, piece = self._order(outside)
        spikes = {name: [Spikes.none()] for name in program.neurons}
        overflows = {name: np.zeros(3, np.int64) for name in program.neurons}
        states = {
            name: np.zeros((2, steps if name in record else 0, layout.size), np.int32)
            for name, layout in self.layouts.items()
        }
        for start in range(0, steps, piece):
            stop = min(start + piece, steps)
            for name, given in outside.items():
                self._send(name, given.between(start, stop))
            for name in order:
                fired, counts = self._advance(name, stop - start, states[name][:, start:stop])
                spikes[name].append(fired.later(start))
                overflows[name] += counts
                if name not in outside:
                    self._send(name, fired)
            for name, sent in self.under_way.items():
                recent = sent.where(sent.t >= stop - start - self.reach)
                self.under_way[name] = recent.later(start - stop)
        kept = {
            name: self.layouts[name].outside(states[name]).reshape(2, steps, *program.neurons[name].shape)
            for name in record
        }
        return Trace(
            steps,
            spikes={name: Spikes.joined(pieces) for name, pieces in spikes.items()},
            u={name: state[0] for name, state in kept.items()},
            v={name: state[1] for name, state in kept.items()},
            wrapped={name: int(counts[0]) for name, counts in overflows.items()},
            saturated={name: int(counts[1]) for name, counts in overflows.items()},
            saturated_below={name: int(counts[2]) for name, counts in overflows.items()},
        )

    def _in_memory(self, name: str, *keys: str) -> Integers:
        """Integers of all neurons in the order in memory, one row for each key."""
        neurons = self.program.neurons[name]
        rows = np.stack([neurons.each(getattr(neurons, key)).ravel() for key in keys])
        return self.layouts[name].inside(rows).astype(np.int32)

    def _parameters(self, name: str) -> Integers:
        """Rows du, dv, bias, vth; a column per channel where that says it all, else per neuron."""
        channels, rows = self.layouts[name].channels, self._in_memory(name, "du", "dv", "bias", "vth")
        by_channel = len(self.program.neurons[name].dv) in (1, channels)
        return np.ascontiguousarray(rows[:, :channels]) if by_channel else rows

    def _order(self, outside: Collection[str]) -> tuple[list[str], int]:
        """Populations with their sources first, and how many steps they may run at once."""
        neurons = self.program.neurons
        inside = neurons.keys() - outside
        sources = {name: inside & {one.source for one, _ in self.into[name]} for name in neurons}
        try:
            order = list(TopologicalSorter(sources).static_order())
        except CycleError:
            return list(neurons), 1
        return order, max(1, PIECE // max(population.size for population in neurons.values()))

    def _send(self, name: str, spikes: Spikes) -> None:
        self.under_way[name] = Spikes.joined([self.under_way[name], spikes])

    def _advance(self, name: str, steps: int, trace: Integers) -> tuple[Spikes, tuple[int, int, int]]:
        """Run one population; its spikes, how often sums wrapped, and membranes saturated above and below."""
        (u, v), (trace_u, trace_v) = self.states[name], trace
        drive, touched, wraps = self._drive(name, steps)
        t, i, more_wraps, above, below = lif_scan(
            drive, touched, u, v, self.parameters[name], self.widths, trace_u, trace_v
        )
        fired = Spikes.sorted(t, self.layouts[name].numbers(i), np.ones_like(t))
        return fired, (wraps + more_wraps, above, below)

    def _drive(self, name: str, steps: int) -> tuple[Integers, Flags, int]:
        """What all synapses into a population deliver, the blocks they touch, and how many sums wrapped."""
        wraps, delivered = 0, []
        for synapses, wiring in self.into[name]:
            late = self.under_way[synapses.source].later(1 + synapses.delay)
            drive, touched = scatter(wiring, late.where((late.t >= 0) & (late.t < steps)), steps)
            convolved = isinstance(synapses.operator, Conv)
            if synapses.exponent or convolved:
                wraps += shift_and_wrap(drive, touched, synapses.exponent, convolved, self.widths.limit)
            delivered.append((drive, touched))
        drive, touched = delivered[0] if delivered else silence(self.layouts[name], steps)
        for more, marks in delivered[1:]:
            drive, touched = drive + more, touched | marks
        return drive, touched, wraps


def input_spikes(program: LoihiProgram, frames: Frames) -> Spikes:
    """Frames as graded spikes; Loihi 2 takes whole numbers."""
    if tuple(frames.shape[1:]) != program.input_shape:
        raise InputError(
            f"frames have shape {tuple(frames.shape[1:])} per step, the program takes {program.input_shape}"
        )
    spikes = Spikes.from_dense(frames)
    given = frames.reshape(len(frames), -1)[spikes.t, spikes.i]
    if np.any(given != spikes.n):
        raise InputError(
            f"frames hold {given[given != spikes.n][0]}; Loihi 2 takes whole numbers, scale them to integers"
        )
    return spikes
