"""Event by event, as the chip works: every spike runs through the whole network before the next event comes.

An event updates the neurons that its kernel reaches, each at most once; those that fire send their spikes on
depth first. The slow clock adds every core's bias once per step, before the step's events. Within a step the
order of events is not defined: it is drawn from a seed, so that repeats show the spread that order causes.
"""

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from nrf.backends.speck.neuron import fire, reach, saturate, window
from nrf.backends.speck.program import SpeckProgram
from nrf.backends.speck.tables import (
    BIAS,
    COLUMNS,
    FEATURES,
    FLOOR,
    HEIGHT,
    KERNEL,
    LEAKS,
    PAD_X,
    PAD_Y,
    ROWS,
    STATE,
    STRIDE_X,
    STRIDE_Y,
    THRESHOLD,
    WIDTH,
    ZERO_RESET,
    Events,
    merged,
    tables,
)  # fmt: skip

CHUNK = 64  # steps whose spike counts are held densely at a time


@dataclass(frozen=True)
class Result:
    """Spikes of every core, how often 16 bits were not enough, and the synaptic operations of every core."""

    spikes: dict[str, Events]
    saturated: int
    operations: dict[str, int]


def simulate(
    program: SpeckProgram,
    events: Events,
    steps: int,
    state: NDArray[np.int32],
    rng: np.random.Generator | None,
) -> Result:
    """Run events of the input through the chip; `state` is advanced in place.

    `rng` draws the order of events within each step; None keeps the order given.
    """
    flat = tables(program)
    single = Events(*(np.repeat(array, events.n) for array in events))  # n spikes are n events
    order = np.lexsort((rng.random(len(single.t)), single.t)) if rng else np.arange(len(single.t))
    shuffled = np.stack([single.t, single.c, single.y, single.x])[:, order].T.copy()
    neurons = [int(np.prod(core.shape)) for core in program.cores]
    stack = np.empty((2 + 2 * sum(neurons), 4), np.int64)  # each core waits for at most one update's spikes
    fired = np.empty((max(neurons), 3), np.int64)
    meter = np.zeros(1 + len(neurons), np.int64)  # saturated, then operations of every core
    found: dict[str, list[Events]] = {core.node: [] for core in program.cores}
    for start in range(0, steps, CHUNK):
        stop = min(start + CHUNK, steps)
        begin, end = np.searchsorted(shuffled[:, 0], [start, stop])
        counts = np.zeros((stop - start, flat.states), np.int32)
        piece = shuffled[begin:end] - np.array([start, 0, 0, 0])
        _run(
            flat.core,
            flat.reader,
            flat.pool,
            flat.weight,
            flat.bias,
            piece,
            state,
            counts,
            stack,
            fired,
            meter,
        )
        for core, size, row in zip(program.cores, neurons, flat.core, strict=True):
            found[core.node].append(_sparse(counts[:, row[STATE] : row[STATE] + size], core.shape, start))
    return Result(
        {node: merged(parts) for node, parts in found.items()},
        int(meter[0]),
        {core.node: int(n) for core, n in zip(program.cores, meter[1:], strict=True)},
    )


def _sparse(counts: NDArray[np.int32], shape: tuple[int, int, int], start: int) -> Events:
    """Events, sorted by step and neuron, from counts (steps, row column feature)."""
    dense = counts.reshape(len(counts), shape[1], shape[2], shape[0]).transpose(0, 3, 1, 2)
    t, c, y, x = np.nonzero(dense)
    return Events(t + start, c, y, x, dense[t, c, y, x].astype(np.int64))


@numba.njit(cache=True)
def _run(cores, reader, pool, weights, biases, events, states, counts, stack, fired, meter):  # type: ignore[no-untyped-def]
    """All steps: for each, one tick of the slow clock, then its events one by one."""
    next_event = 0
    for t in range(len(counts)):
        for index in range(len(cores)):
            if cores[index, LEAKS]:
                found = _tick(cores[index], biases, states, counts[t], fired, meter)
                waiting = _send(index, fired[:found], stack, 0, cores, reader, pool)
                _drain(cores, reader, pool, weights, states, counts[t], stack, waiting, fired, meter)
        while next_event < len(events) and events[next_event, 0] == t:
            waiting = _send(-1, events[next_event : next_event + 1, 1:], stack, 0, cores, reader, pool)
            _drain(cores, reader, pool, weights, states, counts[t], stack, waiting, fired, meter)
            next_event += 1


@numba.njit(cache=True)
def _drain(cores, reader, pool, weights, states, counts, stack, waiting, fired, meter):  # type: ignore[no-untyped-def]
    """Work off the stack, depth first: the spikes of an update go before whatever waited already."""
    while waiting:
        waiting -= 1
        index, c, y, x = stack[waiting]
        found = _update(cores[index], c, y, x, weights, states, counts, fired, meter)
        meter[1 + index] += _reached(cores[index], y, x)
        waiting = _send(index, fired[:found], stack, waiting, cores, reader, pool)


@numba.njit(cache=True)
def _update(core, c, y, x, weights, states, counts, fired, meter):  # type: ignore[no-untyped-def]
    """One event at one core. Spikes go to `fired` as (feature, row, column); returns their number."""
    features, kernel = core[FEATURES], core[KERNEL]
    threshold, floor, zero_reset = core[THRESHOLD], core[FLOOR], core[ZERO_RESET] == 1
    top, bottom = window(y, core[PAD_Y], kernel, core[STRIDE_Y], core[ROWS])
    left, right = window(x, core[PAD_X], kernel, core[STRIDE_X], core[COLUMNS])
    found = 0
    for row in range(top, bottom + 1):
        weight, state = reach(core, c, y, x, row, left)
        length = (right - left + 1) * features
        taps, cells, log = (
            weights[weight : weight + length],
            states[state : state + length],
            counts[state : state + length],
        )
        for i in range(length):
            wanted = cells[i] + taps[i]
            v = saturate(wanted)
            meter[0] += v != wanted
            cells[i], spiked = fire(v, threshold, floor, zero_reset)
            if spiked:
                log[i] += 1
                fired[found, 0], fired[found, 1], fired[found, 2] = i % features, row, left + i // features
                found += 1
    return found


@numba.njit(cache=True)
def _tick(core, biases, states, counts, fired, meter):  # type: ignore[no-untyped-def]
    """One tick of the slow clock at one core: every neuron gets its channel's bias."""
    features, found = core[FEATURES], 0
    for cell in range(core[ROWS] * core[COLUMNS]):
        for feature in range(features):
            place = core[STATE] + cell * features + feature
            wanted = states[place] + biases[core[BIAS] + feature]
            v = saturate(wanted)
            meter[0] += v != wanted
            states[place], spiked = fire(v, core[THRESHOLD], core[FLOOR], core[ZERO_RESET] == 1)
            if spiked:
                counts[place] += 1
                fired[found, 0] = feature
                fired[found, 1], fired[found, 2] = cell // core[COLUMNS], cell % core[COLUMNS]
                found += 1
    return found


@numba.njit(cache=True)
def _send(index, spikes, stack, waiting, cores, reader, pool):  # type: ignore[no-untyped-def]
    """Put spikes of core `index` (-1: the input) on the stack for the cores that they reach, first on top."""
    for k in range(len(spikes) - 1, -1, -1):
        for way in (1, 0):
            target = reader[index + 1, way]
            if target >= 0:
                row, column = spikes[k, 1] // pool[index + 1, way], spikes[k, 2] // pool[index + 1, way]
                if row < cores[target, HEIGHT] and column < cores[target, WIDTH]:
                    stack[waiting, 0], stack[waiting, 1] = target, spikes[k, 0]
                    stack[waiting, 2], stack[waiting, 3] = row, column
                    waiting += 1
    return waiting


@numba.njit(cache=True)
def _reached(core, y, x):  # type: ignore[no-untyped-def]
    """Synaptic operations of one event."""
    top, bottom = window(y, core[PAD_Y], core[KERNEL], core[STRIDE_Y], core[ROWS])
    left, right = window(x, core[PAD_X], core[KERNEL], core[STRIDE_X], core[COLUMNS])
    return max(bottom - top + 1, 0) * max(right - left + 1, 0) * core[FEATURES]
