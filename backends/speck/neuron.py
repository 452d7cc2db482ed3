"""The chip's integer arithmetic, written once; both simulators use these functions.

    v <- v + drive                             saturating at 16 bits on the chip
    spike if v >= threshold                    at most one per update
    v <- v - threshold, or v <- 0              where it fired
    v <- max(v, floor)

An update is one event on the chip (one time step in synchronous simulation, where Sinabs does not saturate).
"""

import numba

from nrf.backends.speck.tables import (
    COLUMNS,
    FEATURES,
    KERNEL,
    PAD_X,
    PAD_Y,
    STATE,
    STRIDE_X,
    STRIDE_Y,
    TAPS,
    WEIGHT,
)  # fmt: skip

HIGHEST = 2**15 - 1
LOWEST = -(2**15)


@numba.njit(inline="always", cache=True)
def fire(v, threshold, floor, zero_reset):  # type: ignore[no-untyped-def]
    """State after the update, and whether it spiked."""
    spiked = v >= threshold
    if spiked:
        v = 0 if zero_reset else v - threshold
    if v < floor:
        v = floor
    return v, spiked


@numba.njit(inline="always", cache=True)
def saturate(v):  # type: ignore[no-untyped-def]
    """Clip to 16 bits."""
    return min(max(v, LOWEST), HIGHEST)


@numba.njit(inline="always", cache=True)
def window(place, padding, kernel, stride, size):  # type: ignore[no-untyped-def]
    """First and last output place that an input place reaches:  place = output * stride - padding + tap."""
    shifted = place + padding
    first = (shifted - kernel + stride) // stride  # ceil((shifted - kernel + 1) / stride)
    return max(first, 0), min(shifted // stride, size - 1)


@numba.njit(inline="always", cache=True)
def reach(core, c, y, x, row, left):  # type: ignore[no-untyped-def]
    """Where weights and states begin that an event at (c, y, x) joins in an output row, from `left` on."""
    shifted = x + core[PAD_X]
    line = (c * core[KERNEL] + y + core[PAD_Y] - row * core[STRIDE_Y]) * core[STRIDE_X] + shifted % core[
        STRIDE_X
    ]
    tap = core[TAPS] - 1 - shifted // core[STRIDE_X] + left
    weight = core[WEIGHT] + (line * core[TAPS] + tap) * core[FEATURES]
    return weight, core[STATE] + (row * core[COLUMNS] + left) * core[FEATURES]
