"""Event by event, as the chip works: every spike runs through the whole network before the next event comes.

An event updates the neurons that its kernel reaches, each at most once; those that fire send their spikes on
depth first. The slow clock adds every core's bias once per step, before the step's events. Within a step the
order of events is not defined: it is drawn from a seed, so that repeats show the spread that order causes.
"""

from math import prod

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border import Spikes
from nrf.backends.lowering.scatter import Layout, phases
from nrf.backends.speck.asynchronous_kernels import CORE, play
from nrf.backends.speck.chip import signed
from nrf.backends.speck.program import SpeckProgram
from nrf.backends.speck.simulate import Integers, Trace

CHUNK = 64  # steps whose spike counts are held densely at a time


def simulate(
    program: SpeckProgram, spikes: Spikes, steps: int, rng: np.random.Generator | None, state: Integers
) -> Trace:
    """Run spikes of the input through the chip; `state`, all membranes core after core, is advanced in place.

    `rng` draws the order of events within each step; None keeps the order given.
    """
    t, i = np.repeat(spikes.t, spikes.n), np.repeat(spikes.i, spikes.n)  # n spikes are n events
    if rng is not None:
        order = np.lexsort((rng.random(len(t)), t))
        t, i = t[order], i[order]
    cores, weights, biases = _tables(program)
    maps = np.array([program.input_shape[1:], *(core.shape[1:] for core in program.cores)])
    readers = _readers(program)
    neurons = [prod(core.shape) for core in program.cores]
    waiting = readers.shape[1] * (1 + sum(neurons))  # at most: spikes of one update of each core
    stack = np.empty((waiting, 2), np.int64)
    fired = np.empty(max(neurons), np.int64)
    meter = np.zeros(1 + len(neurons), np.int64)
    parts: dict[str, list[Spikes]] = {core.node: [] for core in program.cores}
    for start in range(0, max(steps, 1), CHUNK):
        stop = min(start + CHUNK, steps)
        first, last = np.searchsorted(t, [start, stop])
        counts = np.zeros((stop - start, sum(neurons)), np.int32)
        events = t[first:last] - start, i[first:last]
        play(cores, maps, readers, weights, biases, *events, state, counts, stack, fired, meter)
        for core, size, begin in zip(program.cores, neurons, cores["state"], strict=True):
            log = Layout(size, core.shape[0]).outside(counts[:, begin : begin + size])
            parts[core.node].append(Spikes.from_dense(log).later(start))
    return Trace(
        spikes={node: Spikes.joined(pieces) for node, pieces in parts.items()},
        saturated=int(meter[0]),
        operations={core.node: int(n) for core, n in zip(program.cores, meter[1:], strict=True)},
    )


def new_state(program: SpeckProgram) -> Integers:
    """All membranes at 0; those of one place side by side, see `Layout`."""
    return np.zeros(sum(prod(core.shape) for core in program.cores), np.int32)


def _tables(program: SpeckProgram) -> tuple[NDArray[np.void], Integers, Integers]:
    """All cores in the form that compiled code reads, and all their weights and biases."""
    rows, weights = [], [phases(core.conv) for core in program.cores]
    begin = np.zeros(3, np.int64)  # of its weights, states and biases
    for core, weight in zip(program.cores, weights, strict=True):
        sizes = *core.input_shape[1:], *core.shape, core.weight.shape[2], *core.stride, *core.padding
        numbers = core.threshold, core.floor, core.zero_reset, *signed(program.bits.state)
        rows.append((*sizes, *weight.shape[3:5], *numbers, *begin, core.bias.any()))
        begin += weight.size, prod(core.shape), len(core.bias)
    biases = np.concatenate([core.bias for core in program.cores])
    flat = np.concatenate([weight.ravel() for weight in weights])
    return np.array(rows, CORE), flat, biases.astype(np.int32)


def _readers(program: SpeckProgram) -> NDArray[np.int64]:
    """(core or -1, pooling) of all that the input and each core feed."""
    lists = [program.readers(name) for name in (program.input, *(core.node for core in program.cores))]
    table = np.full((len(lists), max(map(len, lists)), 2), -1, np.int64)
    for row, readers in zip(table, lists, strict=True):
        row[: len(readers)] = readers or row[:0]
    return table
