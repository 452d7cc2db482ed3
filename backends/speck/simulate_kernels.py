"""The compiled loop of `simulate`: one core over many steps, drive and neurons of a step in one go."""

from typing import Any

import numpy as np

from nrf.backends.lowering.scatter_kernels import BLOCK, in_order, scatter
from nrf.backends.speck.neuron import fire
from nrf.kernels import compiled


@compiled()
def advance(
    given: Any, wirings: Any, bias: Any, neuron: Any, bounds: Any, v: Any, awake: Any, scratch: Any,
    channels: Any, size: Any, log: Any, fired: Any, trace: Any,
) -> Any:  # fmt: skip
    """All steps of `fired`, which gets how many neurons fire; `v` and `awake` are advanced in place.

    `given` are neurons and counts of what arrives, and where each step begins; `bias`, empty or one per
    neuron, comes every step. `neuron` is threshold, floor, whether to reset to zero, and most spikes per
    step; `bounds` are the lowest and highest state. `scratch` is room to work in: drive and touched blocks,
    all 0, and spikes. `log` (four rows of neurons times steps) gets neuron and count of
    all spikes, in order and by place; the trace is filled if it has rows. Returns how often the chip's
    state would have been too narrow.
    """
    arriving, counts, begins = given
    table, weights, rows, starts = wirings
    drive, touched, spikes = scratch
    logged = saturated = 0
    for step in range(len(fired)):
        first, last = begins[step], begins[step + 1]
        if last > first:
            scatter(drive, touched, arriving[first:last], counts[first:last], table[0], weights, rows, starts)
        if len(bias):
            for k in range(len(v)):
                drive[k] += bias[k]
            touched[:] = True
        count, over = scan(drive, touched, awake, v, neuron, bounds, spikes)
        in_order(spikes[0, :count], spikes[1], channels, size // channels, log[0][logged:], log[1][logged:])
        log[2][logged : logged + count] = spikes[0, :count]
        log[3][logged : logged + count] = spikes[1, :count]
        logged += count
        fired[step] = count
        saturated += over
        if len(trace):
            trace[step] = v[:size]
    return saturated


@compiled()
def scan(drive: Any, touched: Any, awake: Any, v: Any, neuron: Any, bounds: Any, spikes: Any) -> Any:
    """One step of all neurons of a core; `drive` and `touched` are 0 afterwards. Spikes and overflows.

    Blocks of neurons that no drive reaches stay as they are, unless a reset by subtraction left one at its
    threshold (`awake`). `spikes` are places in memory and counts.
    """
    threshold, floor, zero_reset, most = neuron
    lowest, highest = bounds
    count, saturated = 0, np.int64(0)
    times, fires = np.empty(BLOCK, np.int32), np.empty(BLOCK, np.bool_)
    words = fires.view(np.uint64)  # eight neurons each: where none fires is seen at once
    for block in range(len(touched)):
        if not (awake[block] or touched[block]):
            continue
        first = block * BLOCK
        cells, more = v[first : first + BLOCK], drive[first : first + BLOCK]
        beyond = np.int32(0)  # most neurons stay between floor and threshold; asking for all at once is quick
        for k in range(BLOCK):
            cells[k] += more[k]
            more[k] = 0
            beyond |= np.int32((cells[k] >= threshold) | (cells[k] < floor))
        awake[block] = touched[block] = False
        if not beyond:
            continue
        over = again = np.int32(0)
        for k in range(BLOCK):  # any higher floor would stop the chip's state before it can overflow
            over += np.int32((cells[k] > highest) | ((cells[k] < lowest) & (floor == lowest)))
        if most == 1:  # a constant, so that many neurons are taken at once
            for k in range(BLOCK):
                cells[k], times[k] = fire(cells[k], threshold, floor, zero_reset, 1)
                fires[k] = times[k] != 0
                again |= np.int32(cells[k] >= threshold)
        else:
            for k in range(BLOCK):
                cells[k], times[k] = fire(cells[k], threshold, floor, zero_reset, most)
                fires[k] = times[k] != 0
                again |= np.int32(cells[k] >= threshold)
        awake[block] = again != 0
        saturated += over
        for word in range(len(words)):
            if words[word]:
                for k in range(word * 8, word * 8 + 8):
                    if fires[k]:
                        spikes[0, count], spikes[1, count] = first + k, times[k]
                        count += 1
    return count, saturated
