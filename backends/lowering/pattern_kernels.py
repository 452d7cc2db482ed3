"""The compiled loops of `patterns`: what the spikes of a step add to the neurons that they reach."""

from typing import Any

import numpy as np

from nrf.kernels import compiled
from nrf.vectors import BLOCK, add_4, add_8, add_16, lowest_bit

GROUP = 4  # channels whose spikes pick a row of sums
PATTERNS = 2**GROUP
LOWEST = np.uint64(0x1111)  # bit of every group

FIELDS = (
    "places", "width",  # of the source: its map;
    "bits", "parts",  # log2 of the lanes of a vector, and vectors of a place
    "pooled",  # neurons of the source that are pooled
    "weight", "step", "line", "row", "column",  # see `Patterns`, and where its parts begin
    "lanes", "pitch",  # of the target
)  # fmt: skip
WAY = np.dtype([(name, np.int64) for name in FIELDS])  # one connection


@compiled(error_model="numpy", allocates=False)
def scatter_masks(
    cells: Any, touched: Any, lines: Any, blocks: Any, masks: Any, way: Any, weights: Any, reaches: Any
) -> None:
    """Add the spikes of one step to all neurons that they reach.

    They come as blocks of lines, and which neurons of each fire; a vector of channels of one place is taken
    at once. `touched` gets the bits of what is reached in every line.
    """
    step, one, lanes = way.step, np.uint64(1), np.uint64(1) << np.uint64(way.bits)
    every = (one << lanes) - one
    for k in range(len(lines)):
        mask, row = masks[k], reaches[way.row + np.int64(lines[k])]
        first = way.column + (np.int64(blocks[k]) * BLOCK >> way.bits)
        while mask:
            vector = lowest_bit(mask) >> way.bits
            begin = np.uint64(vector << way.bits)
            bits = mask >> begin & every
            mask &= ~(every << begin)
            column = reaches[first + vector]
            groups = bits | bits >> one
            groups = (groups | groups >> np.uint64(2)) & LOWEST
            rest = groups & (groups - one)
            a = _row(bits, groups, step)
            if rest == 0:
                _spread(cells, touched, row, column, (a,), 1, way, weights)
                continue
            b = _row(bits, rest, step)
            rest &= rest - one
            if rest == 0:
                _spread(cells, touched, row, column, (a, b), 1, way, weights)
                continue
            c = _row(bits, rest, step)
            rest &= rest - one
            d = _row(bits, rest, step) if rest else 0  # the row of no spikes
            _spread(cells, touched, row, column, (a, b, c, d), 1, way, weights)


@compiled(inline="always", allocates=False)
def _row(bits: Any, groups: Any, step: Any) -> Any:
    """Where the sums of the group with the lowest bit of `groups` begin."""
    first = np.uint64(lowest_bit(groups)) & ~np.uint64(GROUP - 1)
    pattern = np.int64(bits >> first & np.uint64(PATTERNS - 1))
    return (np.int64(first) // GROUP * PATTERNS + pattern) * step


@compiled(error_model="numpy", allocates=False)
def scatter_list(
    cells: Any, touched: Any, neurons: Any, counts: Any, way: Any, weights: Any, reaches: Any
) -> None:
    """The same for a list of neurons as everyone counts them, channel by channel, and how often each did."""
    width, places = np.uint32(way.width), np.uint32(way.places)
    for event in range(len(neurons)):
        number = np.uint32(neurons[event])  # divisions of few bits without a sign are quick
        channel = number // places
        place = number - channel * places
        y, part = place // width, np.int64(channel) >> way.bits
        column = reaches[way.column + np.int64(place - y * width) * way.parts + part]
        row = reaches[way.row + np.int64(y)]
        spike = np.uint64(1) << np.uint64(np.int64(channel) - (part << way.bits))
        begin = _row(spike, spike, way.step)
        _spread(cells, touched, row, column, (begin,), counts[event], way, weights)


@compiled(inline="always", allocates=False)
def _spread(
    cells: Any, touched: Any, row: Any, column: Any, rows: Any, count: Any, way: Any, weights: Any
) -> None:
    """Add rows of weights (where each begins) to all outputs that a place reaches."""
    shift, cell, lanes = way.weight + row[0] + column[0], row[1] + column[1], column[2]
    marks, mark = touched[row[3] :], np.uint64(column[3])
    for line in range(row[2] if lanes else 0):
        marks[line] |= mark
        add_line(cells, cell, lanes, way.lanes, weights, rows, shift, count)
        cell += way.pitch
        shift += way.line


@compiled(inline="always", allocates=False)
def add_line(
    cells: Any, cell: Any, lanes: Any, width: Any, weights: Any, rows: Any, shift: Any, count: Any
) -> None:
    """Add rows to vectors of cells of that width; sums of four patterns of 8-bit weights fit 16 bits."""
    if width == 16:
        for k in range(0, lanes, 16):
            add_16(cells, cell + k, weights, rows, shift + k, count)
    elif width == 8:
        for k in range(0, lanes, 8):
            add_8(cells, cell + k, weights, rows, shift + k, count)
    else:
        for k in range(0, lanes, 4):
            add_4(cells, cell + k, weights, rows, shift + k, count)
