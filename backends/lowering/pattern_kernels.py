"""The compiled loops of `patterns`: spikes as words of eight neurons, and what they add to the drive."""

from typing import Any

import numpy as np

from nrf.backends.lowering.scatter_kernels import BLOCK
from nrf.backends.lowering.vector_kernels import add_1, add_8, add_16
from nrf.kernels import compiled

WORD = 8  # neurons whose spikes are the bits of one byte
PATTERN_BITS = 4

FIELDS = (
    "words", "height", "width", "pooled",  # of the source: words of a place, its map, neurons that are pooled
    "weight", "step", "line", "pitch", "row", "column",  # see `Patterns`, and where its parts begin
)  # fmt: skip
WAY = np.dtype([(name, np.int64) for name in FIELDS])  # one connection


@compiled(error_model="numpy")
def scatter_words(
    drive: Any, touched: Any, words: Any, masks: Any, way: Any, weights: Any, reaches: Any, rows: Any
) -> None:
    """Add the spikes of one step, as words in the order in memory, to `drive`, and mark touched blocks.

    `rows` is room for two numbers per word of a place.
    """
    per_place, width = np.uint32(way.words), np.uint32(way.width)
    base, step, event = way.weight, way.step, 0
    while event < len(words):
        place = np.uint32(words[event]) // per_place
        first, number = np.int64(place * per_place), 0
        while event < len(words) and words[event] < first + way.words:
            pattern = base + (words[event] - first) * (2 << PATTERN_BITS) * step
            low, high = np.int64(masks[event] & 15), np.int64(masks[event] >> 4)
            rows[number] = pattern + low * step
            number += low != 0
            rows[number] = pattern + (16 + high) * step
            number += high != 0
            event += 1
        y = np.int64(place // width)
        x = np.int64(place) - y * way.width
        _spread(drive, touched, y, x, rows, number, np.int16(1), way, weights, reaches)


@compiled(error_model="numpy")
def scatter_list(
    drive: Any, touched: Any, neurons: Any, counts: Any, way: Any, weights: Any, reaches: Any, rows: Any
) -> None:
    """The same for a list of neurons as everyone counts them, channel by channel, and how often each did."""
    width, places = np.uint32(way.width), np.uint32(way.height * way.width)
    for event in range(len(neurons)):
        channel = np.uint32(neurons[event]) // places
        place = np.uint32(neurons[event]) - channel * places
        y = np.int64(place // width)
        x = np.int64(place) - y * way.width
        group, bit = np.int64(channel) >> 2, np.int64(channel) & 3
        rows[0] = way.weight + ((group << PATTERN_BITS) + (1 << bit)) * way.step
        _spread(drive, touched, y, x, rows, 1, counts[event], way, weights, reaches)


@compiled(inline="always")
def _spread(
    drive: Any, touched: Any, y: Any, x: Any, rows: Any, number: Any, count: Any, way: Any, weights: Any,
    reaches: Any,
) -> None:  # fmt: skip
    """Add rows of weights (where each begins) to all outputs that a place reaches."""
    row, column = way.row + y, way.column + x
    shift = reaches[row, 0] + reaches[column, 0]
    cell = np.int64(reaches[row, 1] + reaches[column, 1])
    lanes = np.int64(reaches[column, 2])
    if lanes == 0:
        return
    for _ in range(reaches[row, 2]):
        first = 0
        while first + 4 <= number:
            a, b, c, d = rows[first], rows[first + 1], rows[first + 2], rows[first + 3]
            _add_line(drive, cell, lanes, weights, (shift + a, shift + b, shift + c, shift + d))
            first += 4
        if first + 2 <= number:
            _add_line(drive, cell, lanes, weights, (shift + rows[first], shift + rows[first + 1]))
            first += 2
        if first < number and count == 1:
            _add_line(drive, cell, lanes, weights, (shift + rows[first],))
        elif first < number:
            for k in range(lanes):
                drive[cell + k] += weights[shift + rows[first] + k] * count
        for block in range(cell // BLOCK, (cell + lanes - 1) // BLOCK + 1):
            touched[block] = True
        cell += way.pitch
        shift += way.line


@compiled(inline="always")
def _add_line(drive: Any, cell: Any, lanes: Any, weights: Any, rows: Any) -> None:
    """Add rows to as many lanes from a cell on; sums of four patterns of 8-bit weights fit 16 bits."""
    k = 0
    while k + 16 <= lanes:
        add_16(drive, cell, weights, rows, k)
        k += 16
    if k + 8 <= lanes:
        add_8(drive, cell, weights, rows, k)
        k += 8
    while k < lanes:
        add_1(drive, cell, weights, rows, k)
        k += 1
