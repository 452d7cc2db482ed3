"""The built-in simulator: Loihi 2 programs at the speed of their events, identical to Lava bit by bit.

Every synapse takes at least one step, so populations of one step do not wait for each other, and a chain of
populations can run many steps at once. Three paths give the same bits:

    events   each spike adds its row of weights (the default)
    dense    one correlation over all steps of a piece
    steps    one step at a time, as recurrent programs must
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from nrf.backends.border import Frames, Spikes
from nrf.backends.loihi.neuron import Integers, lif_scan, shift_and_wrap
from nrf.backends.loihi.program import LoihiProgram, Synapses
from nrf.backends.lowering.layers import Conv
from nrf.backends.lowering.scatter import Flags, Layout, Wiring, correlate, layout_of, scatter, wire
from nrf.backends.lowering.scatter_kernels import BLOCK
from nrf.errors import InputError

Route = Literal["events", "dense", "steps"]
PIECE = 2**20  # neurons times steps that are in work at once: what a second-level cache holds


@dataclass(frozen=True)
class State:
    """Everything that one step leaves to the next: give it back to go on where a clip ended."""

    u: dict[str, Integers]  # in the order of `Layout`
    v: dict[str, Integers]
    under_way: dict[str, Spikes]  # spikes not yet delivered everywhere; steps are negative, -1 is the last


@dataclass(frozen=True)
class Trace:
    """What a run saw, in integers."""

    steps: int
    spikes: dict[str, Spikes]
    u: dict[str, Integers] = field(default_factory=dict)  # (steps, *shape), after the step
    v: dict[str, Integers] = field(default_factory=dict)
    wrapped: dict[str, int] = field(default_factory=dict)
    saturated: dict[str, int] = field(default_factory=dict)


def layouts(program: LoihiProgram) -> dict[str, Layout]:
    """The order in memory of every population."""
    return {
        name: layout_of(neurons.size, [synapses.operator for synapses in program.into(name)])
        for name, neurons in program.neurons.items()
    }


def initial_state(program: LoihiProgram) -> State:
    """The state before the first step."""
    sources = {program.input, *program.neurons, *(synapses.source for synapses in program.synapses)}
    order = layouts(program)

    def first(key: str) -> dict[str, Integers]:
        return {
            name: order[name].inside(neurons.each(getattr(neurons, key)).ravel()).astype(np.int32)
            for name, neurons in program.neurons.items()
        }

    return State(u=first("u0"), v=first("v0"), under_way=dict.fromkeys(sources, Spikes.none()))


def simulate(
    program: LoihiProgram,
    frames: Frames,
    *,
    state: State | None = None,
    path: Route = "events",
    record: Collection[str] = (),
    teacher: dict[str, Spikes] | None = None,
    engine: "Engine | None" = None,
) -> tuple[Trace, State]:
    """Run frames (steps, *input shape); return what happened, and the state at the end.

    `record` names populations whose u and v are kept. `teacher` gives spikes, in the chip's time, that take
    the place of a population's own for everyone who listens to it. An `engine` that is kept saves laying the
    program out again.

    >>> trace, state = simulate(program, frames[:50])  # doctest: +SKIP
    >>> trace, state = simulate(program, frames[50:], state=state)  # doctest: +SKIP
    """
    outside = {program.input: input_spikes(program, frames), **(teacher or {})}
    order, loop = _order(program, outside)
    engine = engine or Engine(program)
    state = initial_state(program) if state is None else state
    state = State(_copies(state.u), _copies(state.v), dict(state.under_way))
    largest = max(neurons.size for neurons in program.neurons.values())
    piece = 1 if path == "steps" or loop else max(1, PIECE // largest)
    parts = []
    for start in range(0, max(len(frames), 1), piece):
        length = min(piece, len(frames) - start)
        given = {name: spikes.between(start, start + length) for name, spikes in outside.items()}
        parts.append(engine.advance(state, length, given, record, order, path == "dense"))
    return _joined(parts, program), state


class Engine:
    """A program laid out for running."""

    def __init__(self, program: LoihiProgram) -> None:
        self.program, self.layouts, self.widths = program, layouts(program), program.widths
        self.into: dict[str, list[tuple[Synapses, Wiring]]] = {
            name: [(synapses, wire(synapses.operator, layout)) for synapses in program.into(name)]
            for name, layout in self.layouts.items()
        }
        self.parameters = {name: self._parameters(name) for name in program.neurons}
        self.reach = 1 + max((synapses.delay for synapses in program.synapses), default=0)

    def _parameters(self, name: str) -> Integers:
        """Rows du, dv, bias, vth; a column per channel where that says it all, else per neuron in memory."""
        layout, neurons = self.layouts[name], self.program.neurons[name]
        values = np.stack([neurons.du, neurons.dv, neurons.bias, neurons.vth])
        if values.shape[1] == layout.channels:
            return values
        return layout.inside(np.stack([neurons.each(row).ravel() for row in values]))

    def advance(
        self,
        state: State,
        steps: int,
        given: dict[str, Spikes],
        record: Collection[str],
        order: list[str],
        dense: bool,
    ) -> Trace:
        """Run all populations in order over some steps; `state` is updated in place."""
        trace = Trace(steps, {})
        heard = {
            name: Spikes.joined([spikes, given[name]]) if name in given else spikes
            for name, spikes in state.under_way.items()
        }
        for name in order:
            layout = self.layouts[name]
            drive, touched, wraps = self._drive(name, heard, steps, dense)
            rows = steps if name in record else 0
            trace_u, trace_v = (np.zeros((rows, layout.size), np.int32) for _ in range(2))
            spike_t, spike_i, more_wraps, trace.saturated[name] = lif_scan(
                drive, touched, state.u[name], state.v[name], self.parameters[name], self.widths,
                trace_u, trace_v,
            )  # fmt: skip
            trace.wrapped[name] = wraps + more_wraps
            trace.spikes[name] = Spikes.sorted(
                spike_t, layout.numbers(spike_i), np.ones(len(spike_t), np.int64)
            )
            if rows:
                trace.u[name], trace.v[name] = layout.outside(trace_u), layout.outside(trace_v)
            if name not in given:
                heard[name] = Spikes.joined([heard[name], trace.spikes[name]])
        for name, spikes in heard.items():
            state.under_way[name] = spikes.where(spikes.t >= steps - self.reach).later(-steps)
        return trace

    def _drive(
        self, name: str, heard: dict[str, Spikes], steps: int, dense: bool
    ) -> tuple[Integers, Flags, int]:
        """What all synapses into a population deliver, the blocks they touch, and how many sums wrapped."""
        blocks = -(-self.layouts[name].size // BLOCK)
        total = np.zeros((steps, self.layouts[name].size), np.int32)
        touched, wraps = np.zeros((steps, blocks), np.bool_), 0
        for number, (synapses, wiring) in enumerate(self.into[name]):
            late = heard[synapses.source].later(1 + synapses.delay)
            now = late.where((late.t >= 0) & (late.t < steps))
            drive, marks = (correlate if dense else scatter)(wiring, now, steps)
            convolved = isinstance(synapses.operator, Conv)
            if synapses.exponent or convolved:
                wraps += shift_and_wrap(drive, marks, synapses.exponent, convolved, self.widths.limit)
            total, touched = (total + drive, touched | marks) if number else (drive, marks)
        return total, touched, wraps


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


def _order(program: LoihiProgram, outside: Collection[str]) -> tuple[list[str], bool]:
    """Populations with their sources first, and whether a loop made that impossible."""
    order: list[str] = []
    rest, loop = list(program.neurons), False
    while rest:
        ready = [
            name
            for name in rest
            if all(
                synapses.source in outside or synapses.source not in rest for synapses in program.into(name)
            )
        ]
        loop = loop or not ready
        order += ready or rest[:1]
        rest = [name for name in rest if name not in order]
    return order, loop


def _copies(arrays: dict[str, Integers]) -> dict[str, Integers]:
    return {name: array.copy() for name, array in arrays.items()}


def _joined(parts: list[Trace], program: LoihiProgram) -> Trace:
    """Pieces of a run as one."""
    starts = np.cumsum([0, *(part.steps for part in parts)])
    names, kept = parts[0].spikes, parts[0].v

    def whole(key: str, name: str) -> Integers:
        shape = program.neurons[name].shape
        return np.concatenate([getattr(part, key)[name] for part in parts]).reshape(-1, *shape)

    return Trace(
        steps=int(starts[-1]),
        spikes={
            name: Spikes.joined(
                part.spikes[name].later(start) for part, start in zip(parts, starts, strict=False)
            )
            for name in names
        },
        u={name: whole("u", name) for name in kept},
        v={name: whole("v", name) for name in kept},
        wrapped={name: sum(part.wrapped[name] for part in parts) for name in names},
        saturated={name: sum(part.saturated[name] for part in parts) for name in names},
    )
