"""The built-in simulator: Loihi 2 programs at the speed of their events, identical to Lava bit by bit.

Every synapse takes at least one step, so populations of one step do not wait for each other, and a chain of
populations can run many steps at once. Three paths give the same bits:

    events   each spike adds its row of weights (the default)
    dense    one correlation over all steps of a piece
    steps    one step at a time, as recurrent programs must
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border.recording import Spikes
from nrf.backends.loihi.delivery import Flags, Wiring, deliver, layout_of, wire
from nrf.backends.loihi.neuron import Integers, effective_bias, lif_scan
from nrf.backends.loihi.program import LoihiProgram, Neurons
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


def initial_state(program: LoihiProgram) -> State:
    """The state before the first step."""
    none = Spikes(*(np.zeros(0, np.int64) for _ in range(3)))
    sources = {program.input, *program.neurons, *(one.source for one in program.synapses)}
    layouts = {name: layout_of(one.size, program.into(name)) for name, one in program.neurons.items()}

    def first(key: str) -> dict[str, Integers]:
        return {
            name: layouts[name].inside(one.each(getattr(one, key)).ravel()).astype(np.int32)
            for name, one in program.neurons.items()
        }

    return State(u=first("u0"), v=first("v0"), under_way=dict.fromkeys(sources, none))


def simulate(
    program: LoihiProgram,
    frames: NDArray[Any],
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

    >>> trace, state = simulate(program, frames[:50])
    >>> trace, state = simulate(program, frames[50:], state=state)
    """
    outside = {program.input: input_spikes(program, frames), **(teacher or {})}
    order, loop = _order(program, outside)
    engine = engine or Engine(program)
    state = initial_state(program) if state is None else state
    state = State(_copies(state.u), _copies(state.v), dict(state.under_way))
    largest = max(one.size for one in program.neurons.values())
    piece = 1 if path == "steps" or loop else max(1, PIECE // largest)
    parts = []
    for start in range(0, max(len(frames), 1), piece):
        length = min(piece, len(frames) - start)
        given = {name: cut(spikes, start, start + length) for name, spikes in outside.items()}
        parts.append(engine.advance(state, length, given, record, order, path == "dense"))
    return _joined(parts, program), state


class Engine:
    """A program laid out for running."""

    def __init__(self, program: LoihiProgram) -> None:
        groups = program.neurons.items()
        self.layouts = {name: layout_of(one.size, program.into(name)) for name, one in groups}
        self.wiring: dict[str, list[Wiring]] = {
            name: [wire(one, self.layouts[name]) for one in program.into(name)] for name in self.layouts
        }
        self.parameters = {name: self._parameters(one) for name, one in groups}
        self.reach = 1 + max((one.delay for one in program.synapses), default=0)

    def _parameters(self, one: Neurons) -> Integers:
        """Rows du, dv, bias, vth; a column per channel where that says it all, else per neuron in memory."""
        layout = self.layouts[one.name]
        values = np.stack([one.du, one.dv, effective_bias(one.bias_mant, one.bias_exp), one.vth])
        if values.shape[1] == layout.channels:
            return values
        return layout.inside(np.stack([one.each(row).ravel() for row in values]))

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
            name: _join(spikes, given[name]) if name in given else spikes
            for name, spikes in state.under_way.items()
        }
        for name in order:
            layout = self.layouts[name]
            drive, touched, wraps = self._drive(name, heard, steps, dense)
            rows = steps if name in record else 0
            trace_u, trace_v = (np.zeros((rows, layout.size), np.int32) for _ in range(2))
            spike_t, spike_i, more_wraps, trace.saturated[name] = lif_scan(
                drive, touched, state.u[name], state.v[name], self.parameters[name], trace_u, trace_v
            )
            trace.wrapped[name] = wraps + more_wraps
            trace.spikes[name] = _sorted(spike_t, layout.numbers(spike_i), layout.size)
            if rows:
                trace.u[name], trace.v[name] = layout.outside(trace_u), layout.outside(trace_v)
            if name not in given:
                heard[name] = _join(heard[name], trace.spikes[name])
        for name, spikes in heard.items():
            keep = spikes.t >= steps - self.reach
            state.under_way[name] = Spikes(spikes.t[keep] - steps, spikes.i[keep], spikes.n[keep])
        return trace

    def _drive(
        self, name: str, heard: dict[str, Spikes], steps: int, dense: bool
    ) -> tuple[Integers, Flags, int]:
        """What all synapses into a population deliver, the blocks they touch, and how many sums wrapped."""
        parts = [deliver(wiring, heard[wiring.synapses.source], steps, dense) for wiring in self.wiring[name]]
        total, touched, wraps = parts[0]
        for drive, more, count in parts[1:]:
            total, touched, wraps = total + drive, touched | more, wraps + count
        return total, touched, wraps


def input_spikes(program: LoihiProgram, frames: NDArray[Any]) -> Spikes:
    """Frames as graded spikes; Loihi 2 takes whole numbers."""
    if tuple(frames.shape[1:]) != program.input_shape:
        raise InputError(
            f"frames have shape {tuple(frames.shape[1:])} per step, the program takes {program.input_shape}"
        )
    spikes = Spikes.from_dense(frames)
    flat = frames.reshape(len(frames), -1)[spikes.t, spikes.i]
    if np.any(flat != spikes.n):
        raise InputError(
            f"frames hold {flat[flat != spikes.n][0]}; Loihi 2 takes whole numbers, scale them to integers"
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
            if all(one.source in outside or one.source not in rest for one in program.into(name))
        ]
        loop = loop or not ready
        order += ready or rest[:1]
        rest = [name for name in rest if name not in order]
    return order, loop


def _copies(arrays: dict[str, Integers]) -> dict[str, Integers]:
    return {name: array.copy() for name, array in arrays.items()}


def cut(spikes: Spikes, start: int, stop: int) -> Spikes:
    """Spikes from `start` up to `stop`, counted from `start`."""
    first, last = np.searchsorted(spikes.t, (start, stop))
    return Spikes(spikes.t[first:last] - start, spikes.i[first:last], spikes.n[first:last])


def _sorted(t: NDArray[np.int64], i: NDArray[np.int64], neurons: int) -> Spikes:
    order = np.argsort(t * neurons + i)
    return Spikes(t[order], i[order], np.ones(len(t), np.int64))


def _join(one: Spikes, other: Spikes) -> Spikes:
    return Spikes(*(np.concatenate([getattr(one, key), getattr(other, key)]) for key in "tin"))


def _joined(parts: list[Trace], program: LoihiProgram) -> Trace:
    """Pieces of a run as one."""
    starts = np.cumsum([0, *(part.steps for part in parts)])
    names, kept = parts[0].spikes, parts[0].v

    def whole(key: str, name: str) -> Integers:
        return np.concatenate([getattr(part, key)[name] for part in parts]).reshape(
            -1, *program.neurons[name].shape
        )

    def spikes(name: str) -> Spikes:
        late = [part.spikes[name].t + start for part, start in zip(parts, starts, strict=False)]
        same = ([getattr(part.spikes[name], key) for part in parts] for key in "in")
        return Spikes(*(np.concatenate(arrays) for arrays in (late, *same)))

    return Trace(
        steps=int(starts[-1]),
        spikes={name: spikes(name) for name in names},
        u={name: whole("u", name) for name in kept},
        v={name: whole("v", name) for name in kept},
        wrapped={name: sum(part.wrapped[name] for part in parts) for name in names},
        saturated={name: sum(part.saturated[name] for part in parts) for name in names},
    )
