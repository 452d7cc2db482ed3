"""The chip's integer arithmetic, written once; every simulator and the fit of a leak use these functions.

    v <- v + drive                             saturating at the ends of the state on the chip
    z = 1 if v >= threshold, else 0            or, step by step, floor(v / threshold) up to `most` (0: any)
    v <- v - z threshold, or v <- 0            where it fired
    v <- max(v, floor)

An update is one event on the chip (one time step in synchronous simulation, where Sinabs does not saturate).
"""

from typing import Any

import numpy as np

from nrf.backends.lowering.scatter_kernels import BLOCK
from nrf.kernels import compiled


@compiled(inline="always")
def fire(v: Any, threshold: Any, floor: Any, zero_reset: Any, most: Any) -> Any:
    """State after the update, and how often it spiked."""
    spikes = 0
    if v >= threshold:
        spikes = 1 if most == 1 else int(v // threshold)
        spikes = min(spikes, most) if most else spikes
        v = 0 if zero_reset else v - spikes * threshold
    if v < floor:
        v = floor
    return v, spikes


@compiled()
def scan(drive: Any, touched: Any, v: Any, neuron: Any, bounds: Any, trace: Any) -> Any:
    """All neurons of a core over the steps of `drive` (steps, neurons); `v` is advanced in place.

    `neuron` is threshold, floor, whether to reset to zero, and most spikes per step; `bounds` are the lowest
    and highest state. Blocks of neurons that no drive reaches (`touched`, by step and block) stay as they
    are, unless a reset by subtraction left one at its threshold. The trace is filled if it has rows. Returns
    step, index and count of spikes, and how often the chip's state would have been too narrow.
    """
    steps, neurons = drive.shape
    threshold, floor, zero_reset = np.int32(neuron[0]), np.int32(neuron[1]), neuron[2] != 0
    most = np.int32(neuron[3])
    lowest, highest = bounds
    spikes = np.empty((3, steps * neurons), np.int64)  # untouched pages cost nothing
    count = saturated = 0
    awake = np.ones(touched.shape[1], np.bool_)
    for t in range(steps):
        for block in range(touched.shape[1]):
            if not (awake[block] or touched[t, block]):
                continue
            first = block * BLOCK
            cells, more = v[first : first + BLOCK], drive[t, first : first + BLOCK]
            beyond = 0  # most neurons stay between floor and threshold; asking for all at once is quick
            for i in range(len(cells)):
                cells[i] += more[i]
                beyond |= (cells[i] >= threshold) | (cells[i] < floor)
            awake[block] = False
            if not beyond:
                continue
            for i in range(len(cells)):
                if cells[i] > highest or (cells[i] < lowest and floor == lowest):
                    saturated += 1  # any higher floor would stop the chip's state before it can overflow
                cells[i], fired = fire(cells[i], threshold, floor, zero_reset, most)
                if fired:
                    spikes[0, count], spikes[1, count], spikes[2, count] = t, first + i, fired
                    count += 1
                    awake[block] |= cells[i] >= threshold
        if len(trace):
            trace[t] = v
    return spikes[:, :count].copy(), saturated


@compiled()
def agreement(drive: Any, wanted: Any, leak: Any, zero_reset: Any, most: Any) -> Any:
    """Linearly leaking neurons in units of their threshold, with the floor at 0, against spikes `wanted`.

    `drive` and `wanted` are (steps, channels, places). Returns spikes in common and all of both, per channel.
    """
    steps, channels, places = drive.shape
    common, total = np.zeros(channels), np.zeros(channels)
    v = np.zeros((channels, places))
    for t in range(steps):
        for c in range(channels):
            for i in range(places):
                v[c, i], fired = fire(v[c, i] + drive[t, c, i] - leak, 1.0, 0.0, zero_reset, most)
                common[c] += min(fired, wanted[t, c, i])
                total[c] += fired + wanted[t, c, i]
    return common, total
