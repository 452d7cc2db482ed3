"""Event by event, as the chip works: every spike runs through the whole network before the next event comes.

An event updates the neurons that its kernel reaches, each at most once; those that fire send their spikes on
depth first. The slow clock adds every core's bias once per step, at all cores at once; the spikes of that
follow, core by core. Within a step the order of events is not defined: it is drawn from a seed, so that
repeats show the spread that order causes. What else is not documented is one of `Choices`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import prod
from typing import Literal, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from nrf.arrays import Int32s, Int64s
from nrf.backends.border import Spikes
from nrf.backends.lowering.scatter import phases
from nrf.backends.speck.asynchronous_kernels import CORE, Log, play
from nrf.backends.speck.chip import signed
from nrf.backends.speck.parts import Part, destinations, parts_of
from nrf.backends.speck.program import SpeckProgram
from nrf.backends.speck.simulate import Trace
from nrf.vectors import BLOCK

CHUNK = 64  # steps whose spike counts are held densely at a time
STOCHASTIC = (0, 1)  # cores that work in parallel inside (Sinabs, issue 186)
WHEN = {"start": 0.0, "middle": 0.5, "end": 1.0}  # share of a step's events that come before its tick


@dataclass(frozen=True)
class Choices:
    """What SynSense does not document; the defaults are choices too, not facts."""

    tick_fires: Literal["yes", "no"] = "yes"  # whether a tick of the leak can fire, or only a later event
    tick_at: Literal["start", "middle", "end"] = "start"  # when in a step it comes
    first_destination: Literal["first", "last"] = "first"  # which one of a core's list is served first
    first_event: Literal["kept", "lost"] = "kept"  # after a reset; one lab's board lost it
    jitter: Literal["no", "yes"] = "no"  # whether spikes of one update leave cores 0 and 1 in any order


CHOICES: Mapping[str, tuple[str, ...]] = {  # the default first
    field.name: get_args(get_type_hints(Choices)[field.name]) for field in fields(Choices)
}


def ordered(spikes: Spikes, rng: np.random.Generator | None) -> tuple[Int64s, Int64s]:
    """Step and place of every event, in the order in which they are played; n spikes are n events.

    `rng` draws the order within each step; None keeps the order given.
    """
    t, i = np.repeat(spikes.t, spikes.n), np.repeat(spikes.i, spikes.n)
    if rng is None:
        return t, i
    order = np.lexsort((rng.random(len(t)), t))
    return t[order], i[order]


def simulate(
    program: SpeckProgram,
    spikes: Spikes,
    steps: int,
    rng: np.random.Generator | None,
    state: Int32s,
    choices: Choices = Choices(),
) -> Trace:
    """Run spikes of the input through the chip; `state`, all membranes core after core, is advanced in place.

    `rng` draws the order of events within each step; None keeps the order given.
    """
    t, i = ordered(spikes, rng)
    parts = parts_of(program)
    lost = len(t)  # the place of an event that is lost, or behind all
    if choices.first_event == "lost" and len(first := np.flatnonzero(_arrives(program, i))):
        lost = first[0]
        i = np.delete(i, lost)
    cores, weights, biases = _tables(program, parts, choices)
    readers, maps = _readers(program, parts, choices), _maps(program, parts)
    clocked = sorted(np.flatnonzero(cores["leaks"]), key=lambda index: -parts[index].number)
    leaks = np.array(clocked, np.int64)
    neurons = [part.neurons for part in parts]
    waiting = 2 * readers.shape[1] * (1 + sum(neurons))  # at most: spikes of a tick and of one update each
    stack = np.empty((waiting, 2), np.int64)
    fired = np.empty(max(neurons), np.int64)
    meter = np.zeros(1 + len(neurons), np.int64)
    room = (
        np.zeros(sum(neurons), np.int32),
        np.zeros(sum(neurons) // BLOCK + len(parts) + 1, np.uint64),
        np.empty((2, max(neurons)), np.int32),
        np.empty(1 + max(part.shape[0] for part in parts), np.int64),
        np.empty(len(parts), np.int64),
    )
    noise = np.array([1 if rng is None else rng.integers(1, 2**63)], np.uint64)
    pieces: dict[str, list[Spikes]] = {each.node: [] for each in program.populations}
    for start in range(0, max(steps, 1), CHUNK):
        stop = min(start + CHUNK, steps)
        bounds = np.searchsorted(t, np.arange(start, stop + 1))
        ticks = bounds[:-1] + (np.diff(bounds) * WHEN[choices.tick_at]).astype(np.int64)
        bounds, ticks = bounds - (bounds > lost), ticks - (ticks > lost)
        size = (stop - start) * sum(neurons)  # untouched pages cost nothing
        spiked = np.empty(size, np.int32), np.empty(size, np.int32), np.zeros((len(parts), stop - start), int)
        tables = cores, maps, readers, weights, biases, leaks
        log = Log(*room, *spiked)
        play(*tables, i, bounds, ticks, state, log, stack, fired, meter, noise)
        for part, begin, each in zip(parts, cores["state"] * (stop - start), spiked[2], strict=True):
            when = np.repeat(np.arange(start, stop), each)
            which, times = (values[begin : begin + len(when)].astype(np.int64) for values in spiked[:2])
            which += part.first * prod(part.shape[1:])
            pieces[part.population.node].append(Spikes(when, which, times))
    operations = dict.fromkeys(pieces, 0)
    for part, count in zip(parts, meter[1:], strict=True):
        operations[part.population.node] += int(count)
    joined = {node: Spikes.joined(own) for node, own in pieces.items()}
    for population in program.populations:
        if population.more:  # parts come one after the other
            spikes_by_part = joined[population.node]
            joined[population.node] = Spikes.sorted(spikes_by_part.t, spikes_by_part.i, spikes_by_part.n)
    return Trace(joined, saturated=int(meter[0]), operations=operations)


def new_state(program: SpeckProgram) -> Int32s:
    """All membranes at 0; those of one place side by side, see `Layout`."""
    return np.zeros(sum(prod(each.shape) for each in program.populations), np.int32)


def _arrives(program: SpeckProgram, i: Int64s) -> NDArray[np.bool_]:
    """Whether an event of the input reaches a core: some lie beyond the map that it takes."""
    rows, columns = program.input_shape[1:]
    y, x = np.divmod(i % (rows * columns), columns)
    entries = [
        (source.pool, *each.input_shape[1:])
        for each in program.populations
        for source in each.sources
        if source.name == program.input
    ]
    arrives = [(y // pool < height) & (x // pool < width) for pool, height, width in entries]
    return np.asarray(np.any(np.array(arrives), axis=0))


def _tables(
    program: SpeckProgram, parts: list[Part], choices: Choices
) -> tuple[NDArray[np.void], Int32s, Int32s]:
    """All cores in the form that compiled code reads, and all their weights and biases."""
    rows, weights = [], [phases(part.kernel) for part in parts]
    begin = np.zeros(3, np.int64)  # of its weights, states and biases
    for part, weight in zip(parts, weights, strict=True):
        population, shuffles = part.population, choices.jitter == "yes" and part.number in STOCHASTIC
        geometry = population.weight.shape[2], *population.stride, *population.padding
        sizes = *population.input_shape[1:], *part.shape, *geometry
        numbers = population.threshold, population.floor, population.zero_reset, *signed(program.bits.state)
        flags = part.bias.any(), choices.tick_fires == "yes", shuffles
        rows.append((*sizes, *weight.shape[3:5], *numbers, *begin, *flags))
        begin += weight.size, part.neurons, part.shape[0]
    biases = np.concatenate([part.bias for part in parts])
    flat = np.concatenate([weight.ravel() for weight in weights])
    return np.array(rows, CORE), flat, biases.astype(np.int32)


def _maps(program: SpeckProgram, parts: list[Part]) -> Int64s:
    """(rows, columns, first channel) of the input and of each core."""
    return np.array([(*program.input_shape[1:], 0), *((*part.shape[1:], part.first) for part in parts)])


def _readers(program: SpeckProgram, parts: list[Part], choices: Choices) -> Int64s:
    """(core or -1, pooling) of all that the input and each core feed, the one to be served first in front.

    What the input feeds is served in the order of the list: there the host decides.
    """
    lists = [destinations(parts, name) for name in (program.input, *(part.population.node for part in parts))]
    table = np.full((len(lists), max(map(len, lists)), 2), -1, np.int64)
    for index, readers in enumerate(lists):
        backwards = index > 0 and choices.first_destination == "last"
        table[index, : len(readers)] = readers[:: -1 if backwards else 1] or table[index, :0]
    return table
