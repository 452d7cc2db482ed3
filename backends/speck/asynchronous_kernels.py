"""The compiled loops of `asynchronous`: one event after the other, depth first, on flat tables of all cores.

States lie as (row, column, feature) core after core, weights as `phases` lays them out.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nrf.backends.speck.neuron import fire_once
from nrf.kernels import compiled, reach
from nrf.lanes import LANES, bits_of, put, take, where
from nrf.vectors import BLOCK, bit_count, in_order, lowest_bit

FIELDS = (
    "height", "width", "features", "rows", "columns", "kernel",
    "stride_y", "stride_x", "pad_y", "pad_x", "taps_y", "taps_x",
    "threshold", "floor", "zero_reset", "lowest", "highest",
    "weight", "state", "bias",  # where its weights, states and biases begin
    "leaks", "tick_fires", "shuffles",  # has it biases, can they fire, do its spikes leave in any order
)  # fmt: skip
CORE = np.dtype([(name, np.int64) for name in FIELDS])


class Log(NamedTuple):
    """Which neurons fired."""

    counts: NDArray[np.int32]  # how often each neuron did, core after core; 0 between steps
    bits: NDArray[np.uint64]  # those that did, see `_bits`; 0 between steps
    inside: NDArray[np.int32]  # (2, any) room for one core's
    channel: NDArray[np.int64]  # room for its channels
    logged: NDArray[np.int64]  # of each core: how many are written
    neurons: NDArray[np.int32]  # (neurons times steps), core after core, sorted in each step
    times: NDArray[np.int32]  # and how often
    fired: NDArray[np.int64]  # (cores, steps) how many


@compiled(allocates=False)
def play(
    cores: Any, maps: Any, readers: Any, weights: Any, biases: Any, leaks: Any, i: Any, bounds: Any,
    ticks: Any, states: Any, log: Any, stack: Any, fired: Any, meter: Any, noise: Any,
) -> None:  # fmt: skip
    """All steps of `ticks`: their events, and one tick of the slow clock each.

    `maps` are rows, columns and first channel, `readers` (core or -1, pooling) of what is fed by the input
    (first) and each core. `leaks` are the cores with biases, the last to send first. Step n has the events
    `bounds[n]` to `bounds[n + 1]`, its tick comes before event `ticks[n]`. `log` see there; `stack`
    and `fired` are room to work in; `meter` counts saturated updates, then the synaptic operations of every
    core.
    """
    logged = log.logged
    logged[:] = 0
    for step in range(len(ticks)):
        for event in range(bounds[step], bounds[step + 1] + 1):
            if event == ticks[step] and len(leaks):
                waiting = 0
                for index in leaks:
                    spikes = _tick(index, cores[index], biases, states, log, fired, meter)
                    waiting = _send(
                        cores, maps[index + 1], readers[index + 1], fired[:spikes], stack, waiting
                    )
                _drain(cores, maps, readers, weights, states, log, stack, waiting, fired, meter, noise)
            if event < bounds[step + 1]:
                waiting = _send(cores, maps[0], readers[0], i[event : event + 1], stack, 0)
                _drain(cores, maps, readers, weights, states, log, stack, waiting, fired, meter, noise)
        for index in range(len(cores)):
            logged[index] += _write(index, cores[index], step, logged[index], log)


@compiled(inline="always", allocates=False)
def _bits(index: Any, core: Any) -> Any:
    """Where the bits of a core begin."""
    return core.state // BLOCK + index


@compiled(allocates=False)
def _write(index: Any, core: Any, step: Any, logged: Any, log: Any) -> Any:
    """Write what a core did in a step behind what it `logged` before, in the order of neurons; how much."""
    number, places = 0, core.rows * core.columns
    counts, bits = log.counts[core.state :], log.bits[_bits(index, core) :]
    inside, times = log.inside[0], log.inside[1]
    for block in range((places * core.features + BLOCK - 1) // BLOCK):
        mask, bits[block] = bits[block], np.uint64(0)
        while mask:
            cell = block * BLOCK + lowest_bit(mask)
            mask &= mask - np.uint64(1)
            inside[number], times[number], counts[cell] = cell, counts[cell], 0
            number += 1
    begin = core.state * len(log.fired[0]) + logged
    to = log.neurons[begin:], log.times[begin:]
    in_order(inside[:number], times, core.features, places, to[0], to[1], log.channel)
    log.fired[index, step] = number
    return number


@compiled(allocates=False)
def _drain(
    cores: Any, maps: Any, readers: Any, weights: Any, states: Any, log: Any, stack: Any, waiting: Any,
    fired: Any, meter: Any, noise: Any,
) -> None:  # fmt: skip
    """Work off the stack, depth first: the spikes of an update go before whatever waited already."""
    while waiting:
        waiting -= 1
        index = stack[waiting, 0]
        spikes = _update(index, cores[index], stack[waiting, 1], weights, states, log, fired, meter)
        if spikes > 1 and cores[index].shuffles:
            _shuffle(fired[:spikes], noise)
        waiting = _send(cores, maps[index + 1], readers[index + 1], fired[:spikes], stack, waiting)


@compiled(inline="always", allocates=False)
def _update(
    index: Any, core: Any, pixel: Any, weights: Any, states: Any, log: Any, fired: Any, meter: Any
) -> Any:
    """One event at one core. Its spikes go to `fired`; returns their number."""
    features, columns = core.features, core.columns
    channel, pixel = divmod(pixel, core.height * core.width)
    y, x = divmod(pixel, core.width)
    phase_y, top, first_y, last_y = _window(y, core.pad_y, core.stride_y, core.kernel, core.taps_y, core.rows)
    phase_x, left, first_x, last_x = _window(x, core.pad_x, core.stride_x, core.kernel, core.taps_x, columns)
    length = max(last_x - first_x, 0) * features
    kernel = ((channel * core.stride_y + phase_y) * core.stride_x + phase_x) * core.taps_y
    spikes = 0
    for j in range(first_y, last_y):
        first = core.weight + ((kernel + j) * core.taps_x + first_x) * features
        cell = (top + j) * columns + left + first_x
        spikes = _add(index, core, cell, weights[first : first + length], states, log, fired, spikes, meter)
    meter[1 + index] += max(last_y - first_y, 0) * length
    return spikes


@compiled(allocates=False)
def _tick(index: Any, core: Any, biases: Any, states: Any, log: Any, fired: Any, meter: Any) -> Any:
    """One tick of the slow clock at one core: every neuron gets its channel's bias, and fires if it can."""
    spikes, drive = 0, biases[core.bias : core.bias + core.features]
    if not core.tick_fires:
        for cell in range(core.rows * core.columns * core.features):
            wanted = states[core.state + cell] + drive[cell % core.features]
            reached = min(max(wanted, core.lowest), core.highest)
            meter[0] += reached != wanted
            states[core.state + cell] = max(reached, core.floor)
        return 0
    for cell in range(core.rows * core.columns):
        spikes = _add(index, core, cell, drive, states, log, fired, spikes, meter)
    return spikes


@compiled(inline="always", allocates=False)
def _add(
    index: Any, core: Any, cell: Any, drive: Any, states: Any, log: Any, fired: Any, spikes: Any, meter: Any
) -> Any:
    """Update neurons from a cell on, one value of `drive` each. Adds to `fired`; returns the new number."""
    first, features = core.state + cell * core.features, core.features
    levels = (
        np.int32(core.threshold), np.int32(core.floor), core.zero_reset == 1, np.int32(core.lowest),
        np.int32(core.highest),
    )  # fmt: skip
    k = 0
    while k < len(drive):
        if k + LANES <= len(drive):
            lanes, firing = LANES, _settle(LANES, states, first + k, drive, k, levels, meter)
        elif k + 4 <= len(drive):
            lanes, firing = 4, _settle(4, states, first + k, drive, k, levels, meter)
        else:
            lanes, firing = 1, _settle(1, states, first + k, drive, k, levels, meter)
        while firing:
            lane = k + lowest_bit(firing)
            firing &= firing - np.uint64(1)
            inside = first + lane - core.state
            log.bits[_bits(index, core) + inside // BLOCK] |= np.uint64(1) << np.uint64(inside % BLOCK)
            log.counts[first + lane] += 1
            fired[spikes] = lane % features * core.rows * core.columns + cell + lane // features
            spikes += 1
        k += lanes
    return spikes


@compiled(inline="always", allocates=False)
def _settle(lanes: int, states: Any, first: Any, drive: Any, k: Any, levels: Any, meter: Any) -> Any:
    """Add to so many neurons, within the limits of the state; the bits of those that fire."""
    threshold, floor, zero_reset, lowest, highest = levels
    wanted = take(states, first, lanes) + take(drive, k, lanes)
    meter[0] += bit_count(bits_of((wanted < lowest) | (wanted > highest)))
    v, spikes = fire_once(where(wanted > highest, highest, wanted), threshold, floor, zero_reset)
    put(states, first, v)  # the floor lies no lower than the lowest state
    return bits_of(spikes)


@compiled(inline="always", allocates=False)
def _window(place: Any, padding: Any, stride: Any, kernel: Any, taps: Any, size: Any) -> Any:
    """What `reach` says, without the tap that only fills up a phase: its neuron is not updated."""
    phase, output, first, last = reach(place, padding, stride, taps, size)
    return phase, output, max(first, 1) if (taps - 1) * stride + phase >= kernel else first, last


@compiled(inline="always", allocates=False)
def _send(cores: Any, size: Any, readers: Any, spikes: Any, stack: Any, waiting: Any) -> Any:
    """Put spikes of a map on the stack for the cores that read it, the first on top."""
    rows, columns, first = size
    for k in range(len(spikes) - 1, -1, -1):
        channel, pixel = divmod(spikes[k], rows * columns)
        for way in range(len(readers) - 1, -1, -1):
            index, pool = readers[way]
            if index >= 0:
                core = cores[index]
                row, column = pixel // columns // pool, pixel % columns // pool
                if row < core.height and column < core.width:
                    stack[waiting, 0] = index
                    stack[waiting, 1] = ((first + channel) * core.height + row) * core.width + column
                    waiting += 1
    return waiting


@compiled(allocates=False)
def _shuffle(values: Any, noise: Any) -> None:
    """Any order, by Fisher and Yates; `noise` is the state of an xorshift generator."""
    for k in range(len(values) - 1, 0, -1):
        x = noise[0]
        x ^= x << np.uint64(13)
        x ^= x >> np.uint64(7)
        x ^= x << np.uint64(17)
        noise[0] = x
        other = np.int64(x % np.uint64(k + 1))
        values[k], values[other] = values[other], values[k]
