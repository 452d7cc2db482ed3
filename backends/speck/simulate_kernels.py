"""The compiled loop of `simulate`: all populations of a program, step by step, on flat tables."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nrf.backends.lowering.pattern_kernels import WORD, scatter_list, scatter_words
from nrf.backends.lowering.scatter_kernels import BLOCK, in_order
from nrf.backends.speck.neuron import fire
from nrf.kernels import compiled

FIELDS = (
    "channels", "places", "blocks", "state",  # its map in memory, and where its states begin, in whole blocks
    "first", "last",  # its connections
    "threshold", "floor", "zero_reset", "most", "biased",  # the largest bias, 0 for none
    "each", "drive",  # largest weight; largest drive if every neuron of its sources fires once
    "given",  # row of spikes from outside that are heard in its place, or -1
    "trace",  # where recorded states go, or -1
)  # fmt: skip
POPULATION = np.dtype([(name, np.int64) for name in FIELDS])
DENSE = 8  # above a spike in as many neurons, looking at all of them is quicker than sorting
MULTIPLIER = np.uint64(0x0102040810204080)  # gathers the lowest bits of eight bytes in the highest byte
LOWEST = np.array([0, *((mask & -mask).bit_length() - 1 for mask in range(1, 256))], np.int64)
ONES = np.array([mask.bit_count() for mask in range(256)], np.int64)


class Tables(NamedTuple):
    """What never changes."""

    populations: NDArray[np.void]  # see `POPULATION`
    ways: NDArray[np.void]  # all connections, see `WAY`
    sources: NDArray[np.int64]  # of each: a population, or -1 for the input
    weights: NDArray[np.int16]
    reaches: NDArray[np.int32]
    bias: NDArray[np.int32]  # of every neuron, like states
    lowest: np.int32  # of the chip's state
    highest: np.int32


class States(NamedTuple):
    """What one step leaves to the next, population after population."""

    v: NDArray[np.int32]
    awake: NDArray[np.bool_]  # blocks that may fire though nothing reaches them
    bound: NDArray[np.int64]  # of each population: no |v| is above


class Sent(NamedTuple):
    """Spikes of the step in work; those of a population begin where its states do."""

    words: NDArray[np.int32]  # eight neurons each of which some fire, in the order in memory
    masks: NDArray[np.uint8]  # and which of them
    more: NDArray[np.int32]  # neurons that fired more than once
    times: NDArray[np.int32]  # and how often more
    held: NDArray[np.int64]  # of each population: how many words,
    extra: NDArray[np.int64]  # how many that fired more than once,
    total: NDArray[np.int64]  # (populations, 2) how many spikes, and how many of one neuron at most


class Scratch(NamedTuple):
    """Room to work in, for the largest population; the first three and the last are 0 in between."""

    narrow: NDArray[np.int16]  # drive, where 16 bits are enough
    wide: NDArray[np.int32]  # drive
    touched: NDArray[np.bool_]  # blocks that some drive reaches
    rows: NDArray[np.int64]
    spikes: NDArray[np.int32]
    often: NDArray[np.int32]  # how often each neuron fires, if it does
    fires: NDArray[np.uint8]


@compiled(error_model="numpy")
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
    populations = tables.populations
    logged = np.zeros(len(populations), np.int64)
    for step in range(steps):
        for c in range(len(populations)):
            if logged[c] + populations[c].channels * populations[c].places > log[0].shape[1]:
                return step
        for c in range(len(populations)):
            own = populations[c]
            arriving, most = np.int64(0), np.int64(0)
            for k in range(own.first, own.last):
                number, largest = _arriving(tables.sources[k], populations, given, step, sent.total)
                arriving += number
                most += largest * tables.ways[k].pooled
            more = arriving * own.each + own.biased  # no membrane moves further
            if states.bound[c] + more >= 2**31:
                states.bound[c] = np.abs(states.v[own.state : own.state + own.blocks * BLOCK]).max()
                if states.bound[c] + more >= 2**31:
                    meter[1], meter[2], meter[3] = c, arriving, states.bound[c]
                    return step
            states.bound[c] += more
            if own.drive * most + own.biased < 2**15:
                found = _step(c, step, scratch.narrow, tables, given, states, sent, scratch, meter)
            else:
                found = _step(c, step, scratch.wide, tables, given, states, sent, scratch, meter)
            words, masks = sent.words[own.state :], sent.masks[own.state :]
            order, ordered = log[0][c, logged[c] :], log[1][c, logged[c] :]
            _write(own, found, words[: sent.held[c]], masks, scratch, order, ordered)
            fired[c, step] = found
            logged[c] += found
            if own.trace >= 0:
                size = own.channels * own.places
                trace[step, own.trace : own.trace + size] = states.v[own.state : own.state + size]
    return steps


@compiled(inline="always")
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


@compiled(error_model="numpy")
def _step(
    c: Any, step: Any, drive: Any, tables: Any, given: Any, states: Any, sent: Any, scratch: Any, meter: Any
) -> Any:
    """One step of a population: what arrives, then all neurons that it reaches. Returns how many fire."""
    neurons, counts, begins = given
    own, touched, rows = tables.populations[c], scratch.touched, scratch.rows
    weights, reaches = tables.weights, tables.reaches
    for k in range(own.first, own.last):
        way, source = tables.ways[k], tables.sources[k]
        row = 0 if source < 0 else tables.populations[source].given
        if row >= 0:
            begin, end = begins[row, step], begins[row, step + 1]
            scatter_list(drive, touched, neurons[begin:end], counts[begin:end], way, weights, reaches, rows)
        else:
            begin = tables.populations[source].state
            words, masks = sent.words[begin : begin + sent.held[source]], sent.masks[begin:]
            scatter_words(drive, touched, words, masks, way, weights, reaches, rows)
            if sent.extra[source]:
                more = sent.more[begin : begin + sent.extra[source]]
                scatter_list(drive, touched, more, sent.times[begin:], way, weights, reaches, rows)
    if own.biased:
        for k in range(own.blocks * BLOCK):
            drive[k] += tables.bias[own.state + k]
        touched[: own.blocks] = True
    return scan(c, own, drive, tables, states, sent, scratch, meter)


@compiled(error_model="numpy")
def scan(c: Any, own: Any, drive: Any, tables: Any, states: Any, sent: Any, scratch: Any, meter: Any) -> Any:
    """All neurons of a population; `drive` and `touched` are 0 afterwards. Returns how many fire.

    Blocks of neurons that no drive reaches stay as they are, unless a reset by subtraction left one at its
    threshold.
    """
    membranes, awake = states.v[own.state :], states.awake[own.state // BLOCK :]
    words, masks = sent.words[own.state :], sent.masks[own.state :]
    threshold, floor = np.int32(own.threshold), np.int32(own.floor)
    zero_reset, most = own.zero_reset == 1, np.int32(own.most)
    held = extra = found = total = peak = np.int64(0)
    for block in range(own.blocks):
        if not (awake[block] or scratch.touched[block]):
            continue
        first = block * BLOCK
        cells, arriving = membranes[first : first + BLOCK], drive[first : first + BLOCK]
        high = low = np.int32(0)
        for k in range(BLOCK):
            v = np.int32(cells[k] + arriving[k])
            high, low = max(high, v), min(low, v)
            cells[k] = v
            arriving[k] = 0
        awake[block] = scratch.touched[block] = False
        if high < threshold and low >= floor:  # so it is for most blocks while little happens
            continue
        if high > tables.highest or low < tables.lowest:
            for k in range(BLOCK):  # any higher floor would stop the chip's state before it can overflow
                below = (cells[k] < tables.lowest) & (floor == tables.lowest)
                meter[0] += (cells[k] > tables.highest) | below
        often, fires = scratch.often[first : first + BLOCK], scratch.fires[first : first + BLOCK]
        left = np.int32(0)
        if most == 1:  # a constant, so that many neurons are taken at once
            for k in range(BLOCK):
                after, spikes = fire(cells[k], threshold, floor, zero_reset, 1)
                cells[k], fires[k] = after, spikes
                left = max(left, np.int32(after))
        else:
            for k in range(BLOCK):
                cells[k], often[k] = fire(cells[k], threshold, floor, zero_reset, most)
                fires[k] = often[k] != 0
                left = max(left, cells[k])
        awake[block] = left >= threshold
        eights = fires.view(np.uint64)
        for word in range(BLOCK // WORD):
            mask = np.uint8((eights[word] * MULTIPLIER) >> np.uint64(56))
            words[held], masks[held] = block * (BLOCK // WORD) + word, mask
            held += mask != 0
            found += ONES[mask]
        if most != 1:
            for k in range(BLOCK):
                if fires[k]:
                    total += often[k]
                    peak = max(peak, often[k])
                    if often[k] > 1:
                        place = np.int32(first + k) // np.int32(own.channels)
                        channel = np.int32(first + k) - place * np.int32(own.channels)
                        sent.more[own.state + extra] = channel * own.places + place
                        sent.times[own.state + extra] = often[k] - 1
                        extra += 1
    sent.held[c], sent.extra[c] = held, extra
    sent.total[c, 0], sent.total[c, 1] = (found, found > 0) if most == 1 else (total, peak)
    return found


@compiled(error_model="numpy")
def _write(own: Any, found: Any, words: Any, masks: Any, scratch: Any, order: Any, ordered: Any) -> None:
    """Write the neurons that fired, and how often, in the order of their numbers; `fires` is 0 afterwards.

    Counts are left out where nothing can fire more than once.
    """
    channels, places, fires, often = own.channels, own.places, scratch.fires, scratch.often
    if found * DENSE > channels * places:
        written = np.uint64(0)  # without a sign, so that no index is asked whether it counts from the end
        for channel in range(channels):
            cell, neuron = np.uint64(channel), np.int32(channel * places)
            for _ in range(places):  # without a branch: what did not fire is written over
                order[written] = neuron
                written += np.uint64(fires[cell])
                cell += np.uint64(channels)
                neuron += np.int32(1)
    else:
        number, spikes = 0, scratch.spikes
        for k in range(len(words)):
            mask = masks[k]
            while mask:
                spikes[number] = words[k] * WORD + LOWEST[mask]
                mask &= mask - np.uint8(1)
                number += 1
        in_order(spikes[:found], often, channels, places, order, ordered)  # counts follow
    if own.most != 1:
        for k in range(found):
            channel = order[k] // places
            ordered[k] = often[(order[k] - channel * places) * channels + channel]
    eights = fires.view(np.uint64)
    for k in range(len(words)):
        eights[words[k]] = 0
