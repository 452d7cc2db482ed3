"""The compiled loop of `simulate`: all populations of a program, step by step, on flat tables.

What arrives is added to the membranes themselves, in 16 bits wherever no sum of the step can need more; then
all neurons from the first line that something reaches to the last are compared with their thresholds, a block
at once.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nrf.backends.lowering.pattern_kernels import LINE, VECTOR, scatter, scatter_list, split
from nrf.backends.speck.neuron import fire, fire_once
from nrf.kernels import compiled
from nrf.lanes import LANES, bits_of, largest, put, take, where
from nrf.vectors import BLOCK, add_rows, bit_count, copy, highest_bit, lowest_bit

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
ONE = np.uint64(1)


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
            counts[c, step] = _write(c, own, tables.vectors, sent, scratch, order, ordered)
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


@compiled(error_model="numpy", allocates=False, forceinline=True)
def scan(
    c: Any, own: Any, cells: Any, reached: Any, threshold: Any, floor: Any, tables: Any, states: Any,
    sent: Any, scratch: Any, meter: Any,
) -> None:  # fmt: skip
    """All neurons of lines that something reaches, or in which a reset left one at its threshold."""
    begin, end, fired = reached[0], reached[1], sent.fired[own.state :]
    reached[0], reached[1] = own.height, 0
    sent.held[c], sent.extra[c], sent.total[c, 0], sent.total[c, 1] = 0, 0, 0, 0
    states.top[c] = own.threshold
    if begin >= end:
        return
    if own.most == 1:
        held, top = _fire_once(own, cells, (begin, end), threshold, floor, tables, scratch, meter)
    else:
        held, top = _fire_often(own, cells, (begin, end), threshold, floor, tables, scratch, meter)
    if top >= own.threshold:
        reached[0], reached[1], states.top[c] = begin, end, top
    sent.held[c] = _vectors(scratch.blocks[:held], scratch.masks, own.shift, fired)
    if own.most == 1:
        for k in range(held):
            sent.total[c, 0] += bit_count(scratch.masks[k])
        sent.total[c, 1] = min(sent.total[c, 0], 1)
    else:
        _count(c, own, tables.vectors, sent, scratch.often)


@compiled(error_model="numpy", allocates=False)
def _fire_once(
    own: Any, cells: Any, lines: Any, threshold: Any, floor: Any, tables: Any, scratch: Any, meter: Any
) -> Any:
    """Lines of neurons that fire once at most: how many blocks fire, and the highest membrane then."""
    blocks, masks, zero_reset = scratch.blocks, scratch.masks, own.zero_reset == 1
    per_line, next_block = own.pitch // BLOCK, np.uint64(BLOCK >> own.shift) << VECTOR
    held, first = np.uint64(0), lines[0] * own.pitch
    top = take(cells, first, BLOCK)
    top = top - top + floor
    for line in range(lines[0], lines[1]):
        block = np.uint64(line) << LINE
        for _ in range(per_line):
            v = take(cells, first, BLOCK)
            if cells.itemsize > 2:  # otherwise no sum is beyond the state
                _meet_ends(v, own, tables, meter)
            v, spikes = fire_once(v, threshold, floor, zero_reset)
            put(cells, first, v)
            top = where(v > top, v, top)
            blocks[held], masks[held] = block, bits_of(spikes)
            held += np.uint64(masks[held] != 0)  # without a branch
            first += BLOCK
            block += next_block
    return held, np.int64(largest(top))


@compiled(error_model="numpy", allocates=False)
def _fire_often(
    own: Any, cells: Any, lines: Any, threshold: Any, floor: Any, tables: Any, scratch: Any, meter: Any
) -> Any:
    """The same of neurons that may fire more than once."""
    per_line, next_block = own.pitch // BLOCK, np.uint64(BLOCK >> own.shift) << VECTOR
    held, first, top = np.uint64(0), lines[0] * own.pitch, np.int64(own.floor)
    for line in range(lines[0], lines[1]):
        block = np.uint64(line) << LINE
        for _ in range(per_line):
            v = take(cells, first, BLOCK)
            if cells.itemsize > 2:
                _meet_ends(v, own, tables, meter)
            scratch.blocks[held], scratch.masks[held] = block, bits_of(v >= threshold)
            held += np.uint64(scratch.masks[held] != 0)
            part, often = cells[first : first + BLOCK], scratch.often[first : first + BLOCK]
            for k in range(BLOCK):
                part[k], often[k] = fire(part[k], threshold, floor, own.zero_reset == 1, own.most)
            top = max(top, np.int64(largest(take(cells, first, BLOCK))))
            first += BLOCK
            block += next_block
    return held, top


@compiled(inline="always", allocates=False)
def _meet_ends(v: Any, own: Any, tables: Any, meter: Any) -> None:
    """Count updates for which the chip's state is too narrow."""
    beyond = bits_of(v > tables.highest)
    if own.floor == tables.lowest:  # any higher one would stop it before
        beyond |= bits_of(v < tables.lowest)
    meter[0] += bit_count(beyond)


@compiled(error_model="numpy", allocates=False)
def _vectors(blocks: Any, masks: Any, shift: Any, fired: Any) -> Any:
    """Take blocks apart into vectors of channels, and keep those of which some neuron fires."""
    held, lanes = np.uint64(0), ONE << np.uint64(shift)
    every, per_block = (ONE << lanes) - ONE, BLOCK >> shift
    for k in range(len(blocks)):
        vector, mask = blocks[k], masks[k]
        for _ in range(per_block):
            fired[held] = vector | mask & every
            held += np.uint64(mask & every != 0)  # without a branch
            mask >>= lanes
            vector += ONE << VECTOR
    return held


@compiled(error_model="numpy", allocates=False)
def _count(c: Any, own: Any, vectors: Any, sent: Any, often: Any) -> None:
    """How often neurons fired, and which did more than once."""
    total = peak = extra = np.int64(0)
    places = own.height * own.width
    for k in range(sent.held[c]):
        line, vector, bits = split(sent.fired[own.state + k])
        column, channel = vectors[0, own.vectors + vector], vectors[1, own.vectors + vector]
        while bits:
            lane = lowest_bit(bits)
            bits &= bits - ONE
            times = often[line * own.pitch + vector * own.lanes + lane]
            total += times
            peak = max(peak, np.int64(times))
            if times > 1:
                number = (channel + lane) * places + line * own.width + column
                sent.more[own.state + extra], sent.times[own.state + extra] = number, times - 1
                extra += 1
    sent.extra[c], sent.total[c, 0], sent.total[c, 1] = extra, total, peak


@compiled(error_model="numpy", allocates=False, forceinline=True)
def _write(c: Any, own: Any, vectors: Any, sent: Any, scratch: Any, order: Any, ordered: Any) -> Any:
    """Write the neurons that fired, and how often, in the order of their numbers; returns how many."""
    number, places, multiple = scratch.number, own.height * own.width, own.most != 1
    sorted_places, sorted_times = scratch.sorted[0], scratch.sorted[1]
    fired = sent.fired[own.state : own.state + sent.held[c]]
    columns, channels = vectors[0, own.vectors :], vectors[1, own.vectors :]
    for channel in range(own.channels):
        number[channel] = channel * (places + 1)
    for k in range(len(fired)):
        line, vector, bits = split(fired[k])
        place, first = line * own.width + columns[np.uint64(vector)], channels[np.uint64(vector)]
        if multiple:
            often = scratch.often[line * own.pitch + vector * own.lanes :]
            while bits:
                lane = lowest_bit(bits)
                bits &= bits - ONE
                slot = number[np.uint64(first + lane)]
                number[np.uint64(first + lane)] = slot + 1
                sorted_places[np.uint64(slot)], sorted_times[np.uint64(slot)] = place, often[lane]
            continue
        # Most have one or two: both are written without a branch, a lone one twice, where the next will go.
        low, high = lowest_bit(bits), highest_bit(bits)
        bits &= ~(ONE << np.uint64(low) | ONE << np.uint64(high))
        slot = np.uint64(number[np.uint64(first + low)])
        sorted_places[slot] = place
        number[np.uint64(first + low)] += 1
        slot = np.uint64(number[np.uint64(first + high)])
        sorted_places[slot] = place
        number[np.uint64(first + high)] += low != high
        while bits:
            lane = lowest_bit(bits)
            bits &= bits - ONE
            slot = np.uint64(number[np.uint64(first + lane)])
            sorted_places[slot] = place
            number[np.uint64(first + lane)] += 1
    total = np.int64(0)
    for channel in range(own.channels):
        begin, end = channel * (places + 1), number[channel]
        for k in range(0, end - begin, LANES):  # the next channel goes over what is too many
            put(order, total + k, take(sorted_places, begin + k, LANES) + channel * places)
        if multiple:
            copy(sorted_times[begin:end], ordered[total:])
        total += end - begin
    return total
