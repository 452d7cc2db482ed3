"""Step by step: all spikes of a step arrive, then every neuron is updated once, as quantised Sinabs does.

Cost follows the number of events: each deposits its kernel; then one pass over the neurons fires and resets.
A core sees all its steps in one call, since nothing flows back. States can be handed on, so that a stream in
pieces gives the same spikes as the whole.
"""

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from nrf.backends.speck.neuron import HIGHEST, LOWEST, fire, reach, window
from nrf.backends.speck.program import SpeckProgram
from nrf.backends.speck.tables import (
    BIAS,
    COLUMNS,
    FEATURES,
    FLOOR,
    KERNEL,
    LEAKS,
    PAD_X,
    PAD_Y,
    ROWS,
    STATE,
    STRIDE_X,
    STRIDE_Y,
    THRESHOLD,
    ZERO_RESET,
    Events,
    merged,
    pooled,
    tables,
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """Spikes of every core (sorted by step only), membranes in integers where asked for, 16-bit overflows."""

    spikes: dict[str, Events]
    membranes: dict[str, NDArray[np.int32]]  # (steps, *shape)
    saturated: int


def new_state(program: SpeckProgram) -> NDArray[np.int32]:
    """All membranes at 0."""
    return np.zeros(sum(int(np.prod(core.shape)) for core in program.cores), np.int32)


def simulate(
    program: SpeckProgram,
    events: Events,
    steps: int,
    state: NDArray[np.int32],
    teacher: dict[str, Events] | None = None,
    membranes: bool = False,
) -> Result:
    """Run events of the input through all cores; `state` is advanced in place."""
    flat = tables(program)
    seen = {program.input: events}
    spikes, traces, saturated = {}, {}, 0
    for row, core in zip(flat.core, program.cores, strict=True):
        arriving = merged(
            [pooled(seen[source.name], source.pool, *core.input_shape[1:]) for source in core.sources]
        )
        shape = core.shape
        trace = np.empty((steps if membranes else 0, shape[1], shape[2], shape[0]), np.int32)
        t, c, y, x, over = _run(row, flat.weight, flat.bias, arriving, steps, state, trace)
        spikes[core.node] = Events(t, c, y, x, np.ones_like(t))
        seen[core.node] = teacher[core.node] if teacher is not None else spikes[core.node]
        saturated += int(over)
        if membranes:
            traces[core.node] = trace.transpose(0, 3, 1, 2)
    return Result(spikes, traces, saturated)


@numba.njit(cache=True)
def _run(core, weights, biases, events, steps, states, trace):  # type: ignore[no-untyped-def]
    """All steps of one core: step, feature, row and column of every spike, and the number of overflows."""
    features, rows, columns, kernel = core[FEATURES], core[ROWS], core[COLUMNS], core[KERNEL]
    v = states[core[STATE] : core[STATE] + rows * columns * features]
    bias = biases[core[BIAS] : core[BIAS] + features]
    threshold, floor, zero_reset = np.int32(core[THRESHOLD]), np.int32(core[FLOOR]), core[ZERO_RESET] == 1
    out = np.empty((1024, 4), np.int64)
    found, next_event, saturated = 0, 0, 0
    for t in range(steps):
        while next_event < len(events.t) and events.t[next_event] == t:
            c, y, x = events.c[next_event], events.y[next_event], events.x[next_event]
            n = np.int32(events.n[next_event])
            top, bottom = window(y, core[PAD_Y], kernel, core[STRIDE_Y], rows)
            left, right = window(x, core[PAD_X], kernel, core[STRIDE_X], columns)
            length = (right - left + 1) * features
            for row in range(top, bottom + 1):
                weight, state = reach(core, c, y, x, row, left)
                taps, cells = weights[weight : weight + length], states[state : state + length]
                for i in range(length):
                    cells[i] += n * taps[i]
            next_event += 1
        for cell in range(rows * columns):
            here = v[cell * features : (cell + 1) * features]
            if core[LEAKS]:
                for i in range(features):
                    here[i] += bias[i]
            moved = 0  # most cells stay between floor and threshold; asking for all features at once is quick
            for i in range(features):
                moved |= (here[i] >= threshold) | (here[i] < floor)
            if not moved:
                continue
            for feature in range(features):
                if here[feature] > HIGHEST or (here[feature] < LOWEST and floor == LOWEST):
                    saturated += 1  # any higher floor would stop the chip's state before it can overflow
                here[feature], spiked = fire(here[feature], threshold, floor, zero_reset)
                if spiked:
                    if found == len(out):
                        larger = np.empty((2 * found, 4), np.int64)
                        larger[:found] = out
                        out = larger
                    out[found, 0], out[found, 1] = t, feature
                    out[found, 2], out[found, 3] = cell // columns, cell % columns
                    found += 1
        if len(trace):
            trace[t] = v.reshape((rows, columns, features))
    result = out[:found]
    return result[:, 0].copy(), result[:, 1].copy(), result[:, 2].copy(), result[:, 3].copy(), saturated
