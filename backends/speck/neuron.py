"""The chip's integer arithmetic, written once; every simulator and the fit of a leak use these functions.

    v <- v + drive                             saturating at the ends of the state on the chip
    z = 1 if v >= threshold, else 0            or, step by step, floor(v / threshold) up to `most` (0: any)
    v <- v - z threshold, or v <- 0            where it fired
    v <- max(v, floor)

An update is one event on the chip (one time step in synchronous simulation, where Sinabs does not saturate).
"""

from typing import Any

import numpy as np

from nrf.kernels import compiled
from nrf.lanes import where


@compiled(inline="always", allocates=False)
def fire(v: Any, threshold: Any, floor: Any, zero_reset: Any, most: Any) -> Any:
    """State after the update, and how often it spiked."""
    if most == 1:
        spikes = 1 if v >= threshold else 0
        left = v - threshold
    else:
        spikes = int(max(v // threshold, 0))
        spikes = min(spikes, most) if most else spikes
        left = v - spikes * threshold
    left = v - v if zero_reset else left
    return left if spikes else max(v, floor), spikes  # what fired is left at 0 or above, and no floor is


@compiled(inline="always", allocates=False)
def fire_once(v: Any, threshold: Any, floor: Any, zero_reset: Any) -> Any:
    """The same of lanes of neurons that spike once at most: state after the update, and which spiked."""
    spikes = v >= threshold
    left = v - v if zero_reset else v - threshold
    return where(spikes, left, where(v > floor, v, floor)), spikes


@compiled()
def agreement(drive: Any, wanted: Any, leak: Any, floor: Any, zero_reset: Any, most: Any) -> Any:
    """Linearly leaking neurons in units of their threshold against spikes `wanted`.

    `drive` and `wanted` are (steps, channels, places). Returns spikes in common and all of both, per channel.
    """
    steps, channels, places = drive.shape
    common, total = np.zeros(channels), np.zeros(channels)
    v = np.zeros((channels, places))
    for t in range(steps):
        for c in range(channels):
            for i in range(places):
                v[c, i], fired = fire(v[c, i] + drive[t, c, i] - leak, 1.0, floor, zero_reset, most)
                common[c] += min(fired, wanted[t, c, i])
                total[c] += fired + wanted[t, c, i]
    return common, total
