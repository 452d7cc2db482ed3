"""A program as flat integer tables, the form that compiled code reads, and events in the same form."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nrf.backends.speck.program import SpeckProgram
from nrf.backends.speck.structure import map_shape
from nrf.errors import InputError

Integers = NDArray[np.int64]

# Columns of `Tables.core`. Numba keeps them in its cache of compiled code and looks only at the file of the
# function: after a change here, touch synchronous.py and asynchronous.py, or they read the old columns.
CHANNELS, HEIGHT, WIDTH, FEATURES, ROWS, COLUMNS, KERNEL = range(7)
STRIDE_Y, STRIDE_X, PAD_Y, PAD_X, THRESHOLD, FLOOR, ZERO_RESET = range(7, 14)
WEIGHT, STATE, BIAS, LEAKS, TAPS = range(14, 19)  # offsets into the flat arrays; any bias; see `_laid_out`


class Tables(NamedTuple):
    """All cores. States lie as (row, column, feature), weights in the same order (see `_laid_out`)."""

    core: Integers  # (cores, columns as above)
    reader: Integers  # (1 + cores, 2) core that the input (row 0) or a core feeds, or -1
    pool: Integers  # (1 + cores, 2) sum pooling on that way
    weight: NDArray[np.int32]
    bias: NDArray[np.int32]
    states: int  # number of neurons


class Events(NamedTuple):
    """Spikes of one map, sorted by step: step, place and count."""

    t: Integers
    c: Integers
    y: Integers
    x: Integers
    n: Integers


def tables(program: SpeckProgram) -> Tables:
    """Lay a program out flat."""
    rows, weights, biases = [], [], []
    weight_at = state_at = bias_at = 0
    for core in program.cores:
        laid_out = _laid_out(core.weight, core.stride[1])
        sizes = (*core.input_shape, *core.shape, core.weight.shape[2], *core.stride, *core.padding)
        numbers = (core.threshold, core.floor, int(core.zero_reset))
        places = (weight_at, state_at, bias_at, int(np.any(core.bias)), laid_out.shape[3])
        rows.append((*sizes, *numbers, *places))
        weights.append(laid_out.ravel())
        biases.append(core.bias.astype(np.int32))
        weight_at += laid_out.size
        state_at += int(np.prod(core.shape))
        bias_at += len(core.bias)
    reader, pool = np.full((1 + len(rows), 2), -1), np.ones((1 + len(rows), 2), np.int64)
    for row, source in enumerate([program.input, *(core.node for core in program.cores)]):
        for column, (index, size) in enumerate(program.readers(source)):
            reader[row, column], pool[row, column] = index, size
    return Tables(
        np.array(rows, np.int64), reader, pool, np.concatenate(weights), np.concatenate(biases), state_at
    )


def _laid_out(weight: NDArray[np.int8], stride: int) -> NDArray[np.int32]:
    """Weights as (channel, tap y, phase, place, feature), so that an event adds one run to each row.

    An event at x reaches column q, q - 1, ... with tap x = phase, phase + stride, ... where x + padding =
    q stride + phase; `place` counts the taps of a phase backwards, as columns grow.
    """
    features, channels, kernel, _ = weight.shape
    taps = -(-kernel // stride)
    laid_out = np.zeros((channels, kernel, stride, taps, features), np.int32)
    for tap in range(kernel):
        laid_out[:, :, tap % stride, taps - 1 - tap // stride] = weight[:, :, :, tap].transpose(1, 2, 0)
    return laid_out


def counts_of(program: SpeckProgram, frames: NDArray[Any]) -> NDArray[np.int64]:
    """Frames as spike counts; refuses what no spike can carry. A vector is a map of one pixel."""
    if frames.ndim > 1 and map_shape(frames.shape[1:]) == program.input_shape:
        frames = frames.reshape(-1, *program.input_shape)
    else:
        wanted = ", ".join(map(str, program.input_shape))
        raise InputError(f"frames have shape {frames.shape}, the program takes (T, {wanted})")
    counts = np.asarray(frames).astype(np.int64, copy=False)
    exact = counts.dtype == frames.dtype or np.array_equal(counts, frames)
    if not exact or counts.min(initial=0) < 0:
        raise InputError("frames must hold counts of events (0, 1, 2 ...): the chip takes events only")
    return counts


def events_of(counts: NDArray[np.int64]) -> Events:
    """Sparse events of a dense map (T, channels, height, width)."""
    flat = counts.ravel()
    place = np.flatnonzero(flat != 0)
    t, c, y, x = np.unravel_index(place, counts.shape)
    return Events(t, c, y, x, flat[place])


def pooled(events: Events, size: int, height: int, width: int) -> Events:
    """Events after sum pooling into a map of this size; what lies beyond it is dropped, as on the chip."""
    y, x = events.y // size, events.x // size
    keep = (y < height) & (x < width)
    return Events(events.t[keep], events.c[keep], y[keep], x[keep], events.n[keep])


def merged(parts: list[Events]) -> Events:
    """Events of several sources as one list, sorted by step."""
    if len(parts) == 1:
        return parts[0]
    joined = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
    order = np.argsort(joined[0], kind="stable")
    return Events(*(array[order] for array in joined))
