"""Compiled loops of `simulate` behind what arrives: which neurons fire, and the lists of them.

A population sends vectors of channels of which some neuron fires, line by line; the log gets neurons in the
order of their numbers.
"""

from typing import Any

import numpy as np

from nrf.backends.lowering.pattern_kernels import LINE, VECTOR, split
from nrf.backends.speck.neuron import fire, fire_once
from nrf.kernels import compiled
from nrf.lanes import LANES, bits_of, largest, put, take, where
from nrf.vectors import BLOCK, bit_count, copy, highest_bit, lowest_bit

ONE = np.uint64(1)


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
def write(c: Any, own: Any, vectors: Any, sent: Any, scratch: Any, order: Any, ordered: Any) -> Any:
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
