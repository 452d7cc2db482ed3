"""The compiled loop of `simulate`: all populations of a program, step by step, on flat tables.

What arrives is added to the membranes themselves, in 16 bits wherever no sum of the step can need more; then
all neurons from the first line that something reaches to the last are compared with their thresholds, a block
at once.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nrf.backends.lowering.pattern_kernels import scatter, scatter_list
from nrf.backends.speck.firing_kernels import scan, write
from nrf.kernels import compiled
from nrf.lanes import LANES
from nrf.vectors import add_rows, copy

FIELDS = (
    "channels", "height", "width", "pitch", "lanes", "shift",  # its map in memory, see `Map`
    "state",  # where its states begin
    "vectors",  # where those of a line begin in `vectors`
    "first", "last",  # its connections
    "threshold", "floor", "zero_reset", "most",
    "biased", "bias",  # the largest bias, 0 for none, and where biases of a line begin among the weights
    "each", "drive",  # largest weight; largest drive if every neuron of its sources fires once
    "given",  # row of spikes from outside that are heard in its place, or -1
    "trace",  # where recorded states go, or -1
)  # fmt: skip
POPULATION = np.dtype([(name, np.int64) for name in FIELDS])


class Tables(NamedTuple):
    """What never changes."""

    populations: NDArray[np.void]  # see `POPULATION`
    ways: NDArray[np.void]  # all connections, see `WAY`
    sources: NDArray[np.int64]  # of each: a population, or -1 for the input
    weights: NDArray[np.int16]
    reaches: NDArray[np.int64]
    vectors: NDArray[np.int64]  # (2, any) column and first channel of each vector of a line
    lowest: np.int32  # of the chip's state
    highest: np.int32


class States(NamedTuple):
    """What one step leaves to the next, population after population."""

    narrow: NDArray[np.int16]  # membranes
    wide: NDArray[np.int32]  # membranes of those that need it
    widened: NDArray[np.bool_]  # which of the two counts
    reached: NDArray[np.int64]  # (populations, 2) lines that may fire though nothing reaches them
    top: NDArray[np.int64]  # of each population: no membrane is above


class Sent(NamedTuple):
    """Spikes of the step in work; those of a population begin where its states do."""

    fired: NDArray[np.uint64]  # vectors of channels, line by line, see `pattern_kernels`
    more: NDArray[np.int32]  # neurons that fired more than once
    times: NDArray[np.int32]  # and how often more
    held: NDArray[np.int64]  # of each population: how many vectors,
    extra: NDArray[np.int64]  # how many neurons that fired more than once,
    total: NDArray[np.int64]  # (populations, 2) how many spikes, and how many of one neuron at most


class Scratch(NamedTuple):
    """Room to work in, for the largest population."""

    often: NDArray[np.int32]  # how often each neuron fires, if it does
    sorted: NDArray[np.int32]  # (2, any) places that fired, channel by channel, and how often
    number: NDArray[np.int64]  # where those of each channel go
    blocks: NDArray[np.uint64]  # blocks of which some neuron fires, as their first vector
    masks: NDArray[np.uint64]  # and which of them
    room: NDArray[np.uint64]  # for spikes from outside
    logged: NDArray[np.int64]  # of each population


@compiled(error_model="numpy", allocates=False)
def play(
    first: Any, steps: Any, tables: Any, given: Any, states: Any, sent: Any, scratch: Any, log: Any,
    counts: Any, trace: Any, meter: Any,
) -> Any:  # fmt: skip
    """Run from a step to the last of so many, or as long as the log has room; returns the next.

    `given` are neurons, counts, and by row and step where those from outside begin; row 0 is the input. `log`
    (neurons, counts) gets a row per population, `counts` (populations, steps) how many neurons fired. `meter`
    counts updates for which the chip's state is too narrow; then it tells which population would need
    more than 32 bits, how many events arrive there, and where its membranes are.

    What is called for every population is compiled into this (`forceinline`): a call hands over all fields of
    all arrays, which in a quiet step takes longer than the step.
    """
    populations, highest = tables.populations, min(tables.highest, np.int32(2**15 - 1))
    logged = scratch.logged
    logged[:] = 0
    for step in range(first, steps):
        for c in range(len(populations)):
            size = populations[c].channels * populations[c].height * populations[c].width
            if logged[c] + size + LANES > log[0].shape[1]:
                return step
        for c in range(len(populations)):
            own = populations[c]
            arriving, most = np.int64(0), np.int64(0)
            for k in range(own.first, own.last):
                number, often = _arriving(tables.sources[k], populations, given, step, sent.total)
                arriving += number
                most += often * tables.ways[k].pooled
            bound = max(states.top[c], -own.floor)
            if bound + arriving * own.each + own.biased >= 2**31:
                meter[1], meter[2], meter[3] = c, arriving, bound
                return step
            end = own.state + own.height * own.pitch
            narrow, wide = states.narrow[own.state : end], states.wide[own.state : end]
            wider = bound + own.drive * max(most, 1) + own.biased > highest  # silence changes nothing
            if wider and not states.widened[c]:
                copy(narrow, wide)
            elif states.widened[c] and not wider:
                copy(wide, narrow)
            states.widened[c] = wider
            if wider:
                levels = np.int32(own.threshold), np.int32(own.floor)
                _step(c, step, wide, levels, tables, given, states, sent, scratch, meter)
            else:
                lower = np.int16(own.threshold), np.int16(own.floor)
                _step(c, step, narrow, lower, tables, given, states, sent, scratch, meter)
            order, ordered = log[0][c, logged[c] :], log[1][c, logged[c] :]
            counts[c, step] = write(c, own, tables.vectors, sent, scratch, order, ordered)
            logged[c] += counts[c, step]
            if own.trace >= 0:
                if wider:
                    copy(wide, trace[step, own.trace :])
                else:
                    copy(narrow, trace[step, own.trace :])
    return steps


@compiled(inline="always", allocates=False)
def _arriving(source: Any, populations: Any, given: Any, step: Any, total: Any) -> Any:
    """How many spikes a source sends in a step, and how many of them at most come from one neuron."""
    row = 0 if source < 0 else populations[source].given
    if row < 0:
        return total[source, 0], total[source, 1]
    begin, end = given[2][row, step], given[2][row, step + 1]
    return _counted(given[0][begin:end], given[1][begin:end])


@compiled(allocates=False)
def _counted(neurons: Any, counts: Any) -> Any:
    """How many spikes a list has, and how many at most of one neuron, whose spikes may come in parts."""
    number, often, same, last = np.int64(0), np.int64(0), np.int64(0), np.int64(-1)
    for k in range(len(neurons)):
        same = same + counts[k] if neurons[k] == last else np.int64(counts[k])
        last = np.int64(neurons[k])
        number += counts[k]
        often = max(often, same)
    return number, often


@compiled(error_model="numpy", allocates=False, forceinline=True)
def _step(
    c: Any, step: Any, cells: Any, levels: Any, tables: Any, given: Any, states: Any, sent: Any, scratch: Any,
    meter: Any,
) -> None:  # fmt: skip
    """One step of a population: what arrives, then all neurons that it reaches."""
    neurons, counts, begins = given
    own, weights, reaches = tables.populations[c], tables.weights, tables.reaches
    reached = states.reached[c]
    for k in range(own.first, own.last):
        way, source = tables.ways[k], tables.sources[k]
        row = 0 if source < 0 else tables.populations[source].given
        if row >= 0:
            begin, end = begins[row, step], begins[row, step + 1]
            spikes = neurons[begin:end], counts[begin:end]
            scatter_list(cells, reached, spikes, scratch.room, way, weights, reaches)
        else:
            begin = tables.populations[source].state
            fired = sent.fired[begin : begin + sent.held[source]]
            scatter(cells, reached, fired, way, weights, reaches)
            if sent.extra[source]:
                end = begin + sent.extra[source]
                spikes = sent.more[begin:end], sent.times[begin:end]
                scatter_list(cells, reached, spikes, scratch.room, way, weights, reaches)
    if own.biased:
        size = own.height, own.pitch // LANES
        add_rows(cells, (0, own.pitch), weights, (own.bias,), (0, 0), size, LANES, None)
        reached[0], reached[1] = 0, own.height
    scan(c, own, cells, reached, levels[0], levels[1], tables, states, sent, scratch, meter)
