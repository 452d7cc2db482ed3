"""The compiled loop of `simulate`: all populations of a program, step by step, on flat tables.

What arrives is added to the membranes themselves, in 16 bits wherever no sum of the step can need more; then
neurons are compared with their thresholds, a block at once, where something has arrived.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nrf.backends.lowering.pattern_kernels import add_line, scatter_list, scatter_masks
from nrf.backends.speck.neuron import fire, fire_once
from nrf.kernels import compiled
from nrf.lanes import bits_of, put, take
from nrf.vectors import BLOCK, bit_count, copy, lowest_bit

FIELDS = (
    "channels", "height", "width", "pitch", "span", "lanes",  # its map in memory, see `Map`
    "state",  # where its states begin
    "line",  # where its lines begin in `touched`
    "cells",  # where the neurons of a line begin in `neurons`
    "first", "last",  # its connections
    "threshold", "floor", "zero_reset", "most",
    "biased", "bias",  # the largest bias, 0 for none, and where biases of a line begin among the weights
    "each", "drive",  # largest weight; largest drive if every neuron of its sources fires once
    "given",  # row of spikes from outside that are heard in its place, or -1
    "trace",  # where recorded states go, or -1
)  # fmt: skip
POPULATION = np.dtype([(name, np.int64) for name in FIELDS])
ALL = np.uint64(2**64 - 1)
ONE = np.uint64(1)


class Tables(NamedTuple):
    """What never changes."""

    populations: NDArray[np.void]  # see `POPULATION`
    ways: NDArray[np.void]  # all connections, see `WAY`
    sources: NDArray[np.int64]  # of each: a population, or -1 for the input
    weights: NDArray[np.int16]
    reaches: NDArray[np.int64]
    neurons: NDArray[np.uint32]  # (2, any) channel and number of each neuron of a first line
    lowest: np.int32  # of the chip's state
    highest: np.int32


class States(NamedTuple):
    """What one step leaves to the next, population after population."""

    narrow: NDArray[np.int16]  # membranes
    wide: NDArray[np.int32]  # membranes of those that need it
    widened: NDArray[np.bool_]  # which of the two counts
    touched: NDArray[np.uint64]  # blocks of every line that may fire though nothing reaches them
    top: NDArray[np.int64]  # of each population: no membrane is above


class Sent(NamedTuple):
    """Spikes of the step in work; those of a population begin where its states do."""

    lines: NDArray[np.int32]  # of blocks of which some neuron fires, in the order in memory
    blocks: NDArray[np.int32]  # the block of the line
    masks: NDArray[np.uint64]  # and which of them
    more: NDArray[np.int32]  # neurons that fired more than once
    times: NDArray[np.int32]  # and how often more
    held: NDArray[np.int64]  # of each population: how many blocks,
    extra: NDArray[np.int64]  # how many that fired more than once,
    total: NDArray[np.int64]  # (populations, 2) how many spikes, and how many of one neuron at most


class Scratch(NamedTuple):
    """Room to work in, for the largest population."""

    often: NDArray[np.int32]  # how often each neuron fires, if it does
    sorted: NDArray[np.int32]  # (2, any) neurons that fired, by channel, and how often
    number: NDArray[np.uint64]  # where those of each channel go
    logged: NDArray[np.int64]  # of each population


@compiled(error_model="numpy", allocates=False)
def play(
    steps: Any, tables: Any, given: Any, states: Any, sent: Any, scratch: Any, log: Any, fired: Any,
    trace: Any, meter: Any,
) -> Any:  # fmt: skip
    """Run `steps`, or as many as the log has room for; returns how many.

    `given` are neurons, counts, and by row and step where those from outside begin; row 0 is the input. `log`
    (neurons, counts) gets a row per population, `fired` (populations, steps) how many neurons fired. `meter`
    counts updates for which the chip's state is too narrow; then it tells which population would need
    more than 32 bits, how many events arrive there, and where its membranes are.
    """
    populations, highest = tables.populations, min(tables.highest, np.int32(2**15 - 1))
    logged = scratch.logged
    logged[:] = 0
    for step in range(steps):
        for c in range(len(populations)):
            size = populations[c].channels * populations[c].height * populations[c].width
            if logged[c] + size > log[0].shape[1]:
                return step
        for c in range(len(populations)):
            own = populations[c]
            arriving, most = np.int64(0), np.int64(0)
            for k in range(own.first, own.last):
                number, largest = _arriving(tables.sources[k], populations, given, step, sent.total)
                arriving += number
                most += largest * tables.ways[k].pooled
            bound = max(states.top[c], -own.floor)
            if bound + arriving * own.each + own.biased >= 2**31:
                meter[1], meter[2], meter[3] = c, arriving, bound
                return step
            end = own.state + own.height * own.pitch
            narrow, wide = states.narrow[own.state : end], states.wide[own.state : end]
            wider = bound + own.drive * max(most, 1) + own.biased > highest
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
            fired[c, step] = _write(c, own, tables.neurons, sent, scratch, order, ordered)
            logged[c] += fired[c, step]
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
    number, largest = np.int64(0), np.int64(0)
    for k in range(given[2][row, step], given[2][row, step + 1]):
        number += given[1][k]
        largest = max(largest, given[1][k])
    return number, largest


@compiled(error_model="numpy", allocates=False)
def _step(
    c: Any, step: Any, cells: Any, levels: Any, tables: Any, given: Any, states: Any, sent: Any, scratch: Any,
    meter: Any,
) -> None:  # fmt: skip
    """One step of a population: what arrives, then all neurons that it reaches."""
    neurons, counts, begins = given
    own, weights, reaches = tables.populations[c], tables.weights, tables.reaches
    touched = states.touched[own.line : own.line + own.height]
    for k in range(own.first, own.last):
        way, source = tables.ways[k], tables.sources[k]
        row = 0 if source < 0 else tables.populations[source].given
        if row >= 0:
            begin, end = begins[row, step], begins[row, step + 1]
            scatter_list(cells, touched, neurons[begin:end], counts[begin:end], way, weights, reaches)
        else:
            begin = tables.populations[source].state
            lines, blocks = sent.lines[begin : begin + sent.held[source]], sent.blocks[begin:]
            scatter_masks(cells, touched, lines, blocks, sent.masks[begin:], way, weights, reaches)
            if sent.extra[source]:
                more = sent.more[begin : begin + sent.extra[source]]
                scatter_list(cells, touched, more, sent.times[begin:], way, weights, reaches)
    if own.biased:
        for line in range(own.height):
            add_line(cells, line * own.pitch, own.pitch, own.lanes, weights, (own.bias,), 0, 1)
        touched[:] = ALL >> np.uint64(64 - (own.pitch // BLOCK + own.span - 1) // own.span)
    scan(c, own, cells, touched, levels[0], levels[1], tables, states, sent, scratch, meter)


@compiled(error_model="numpy", allocates=False)
def scan(
    c: Any, own: Any, cells: Any, touched: Any, threshold: Any, floor: Any, tables: Any, states: Any,
    sent: Any, scratch: Any, meter: Any,
) -> None:  # fmt: skip
    """All neurons of a population that something reaches, or that a reset left at their threshold."""
    lines, blocks, masks = sent.lines[own.state :], sent.blocks[own.state :], sent.masks[own.state :]
    per_line = own.pitch // BLOCK
    zero_reset, top = own.zero_reset == 1, own.threshold
    held = total = np.int64(0)
    sent.extra[c] = 0
    for line in range(own.height):
        marks = touched[line]
        touched[line] = 0
        while marks:
            mark = marks & (~marks + ONE)
            bit = lowest_bit(marks)
            marks ^= mark
            for block in range(bit * own.span, min((bit + 1) * own.span, per_line)):
                first = line * own.pitch + block * BLOCK
                v = take(cells, first, BLOCK)
                mask = bits_of(v >= threshold)
                if cells.itemsize > 2:  # otherwise no sum is beyond the state
                    beyond = bits_of(v > tables.highest)
                    if own.floor == tables.lowest:  # any higher one would stop it before
                        beyond |= bits_of(v < tables.lowest)
                    meter[0] += bit_count(beyond)
                if own.most == 1:
                    v, _ = fire_once(v, threshold, floor, zero_reset)
                    put(cells, first, v)
                else:
                    part, often = cells[first : first + BLOCK], scratch.often[first : first + BLOCK]
                    for k in range(BLOCK):
                        part[k], often[k] = fire(part[k], threshold, floor, zero_reset, own.most)
                    v = take(cells, first, BLOCK)
                left = bits_of(v >= threshold)
                lines[held], blocks[held], masks[held] = line, block, mask  # without a branch
                held += mask != 0
                total += bit_count(mask)
                while left:
                    touched[line] |= mark
                    top = max(top, np.int64(cells[first + lowest_bit(left)]))
                    left &= left - ONE
    sent.held[c], states.top[c] = held, top
    sent.total[c, 0], sent.total[c, 1] = total, min(total, 1)
    if own.most != 1:
        _count(c, own, tables.neurons, sent, scratch.often)


@compiled(error_model="numpy", allocates=False)
def _count(c: Any, own: Any, neurons: Any, sent: Any, often: Any) -> None:
    """How often neurons fired, and which did more than once."""
    total = peak = extra = np.int64(0)
    for k in range(sent.held[c]):
        line, mask = np.int64(sent.lines[own.state + k]), sent.masks[own.state + k]
        first = np.int64(sent.blocks[own.state + k]) * BLOCK
        while mask:
            place = first + lowest_bit(mask)
            cell = line * own.pitch + place
            mask &= mask - ONE
            total += often[cell]
            peak = max(peak, np.int64(often[cell]))
            if often[cell] > 1:
                number = neurons[1, own.cells + place] + np.uint32(line * own.width)
                sent.more[own.state + extra], sent.times[own.state + extra] = number, often[cell] - 1
                extra += 1
    sent.extra[c], sent.total[c, 0], sent.total[c, 1] = extra, total, peak


@compiled(error_model="numpy", allocates=False)
def _write(c: Any, own: Any, neurons: Any, sent: Any, scratch: Any, order: Any, ordered: Any) -> Any:
    """Write the neurons that fired, and how often, in the order of their numbers; returns how many."""
    number, places = scratch.number, own.height * own.width
    for channel in range(own.channels):
        number[channel] = channel * places
    lines, blocks, masks = sent.lines[own.state :], sent.blocks[own.state :], sent.masks[own.state :]
    multiple = own.most != 1
    sorted_neurons, sorted_times = scratch.sorted[0], scratch.sorted[1]
    for k in range(sent.held[c]):
        line, begin, mask = np.int64(lines[k]), np.int64(blocks[k]) * BLOCK, masks[k]
        channels, numbers = neurons[0, own.cells + begin :], neurons[1, own.cells + begin :]
        often, first = scratch.often[line * own.pitch + begin :], np.uint32(line * own.width)
        while mask:
            bit = lowest_bit(mask)
            mask &= mask - ONE
            slot = number[channels[bit]]
            number[channels[bit]] = slot + ONE
            sorted_neurons[slot] = numbers[bit] + first
            if multiple:
                sorted_times[slot] = often[bit]
    total = np.int64(0)
    for channel in range(own.channels):
        begin, end = channel * places, np.int64(number[channel])
        copy(sorted_neurons[begin:end], order[total:])
        if multiple:
            copy(sorted_times[begin:end], ordered[total:])
        total += end - begin
    return total
