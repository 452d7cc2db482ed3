"""The compiled loop that simulators share: what spikes add to the drive of one step."""

from typing import Any

import numpy as np

from nrf.kernels import compiled, reach
from nrf.vectors import BLOCK

FIELDS = (
    "height", "width", "channels", "out_height", "out_width",  # of a convolution; channels 0 is a matrix
    "stride_y", "stride_x", "pad_y", "pad_x", "taps_y", "taps_x", "in_per_group", "out_per_group",
    "weight", "row", "start", "blocks",  # where its weights, rows and starts begin; blocks of its outputs
)  # fmt: skip
WIRING = np.dtype([(name, np.int64) for name in FIELDS])


@compiled(allocates=False)
def scatter(
    drive: Any, touched: Any, i: Any, n: Any, wiring: Any, weights: Any, rows: Any, starts: Any, total: Any
) -> None:
    """Add spikes (flat neuron index, count) of one step to `drive` (outputs in memory); mark touched blocks.

    `wiring` is one row of the table that `wire` makes, the next three hold what it points to; `total` is room
    for the largest kernel.
    """
    if wiring.channels:
        _scatter_conv(drive, touched, i, n, wiring, weights, total)
    else:
        _scatter_matrix(drive, touched, i, n, wiring, weights, rows, starts)


@compiled(error_model="numpy", allocates=False)
def _scatter_conv(drive: Any, touched: Any, i: Any, n: Any, wiring: Any, weights: Any, total: Any) -> None:
    """Spikes of several channels at one place, if they follow each other, are added up before they spread.

    Sums are as wide as the weights, and may wrap on the way if the drive in the end does not.
    """
    width, places = np.uint32(wiring.width), np.uint32(wiring.height * wiring.width)
    out_height, out_width, channels = wiring.out_height, wiring.out_width, wiring.channels
    stride_y, stride_x, pad_y, pad_x = wiring.stride_y, wiring.stride_x, wiring.pad_y, wiring.pad_x
    taps_y, taps_x, per_group = wiring.taps_y, wiring.taps_x, wiring.out_per_group
    line, kernel = taps_x * per_group, taps_y * taps_x * per_group
    total = total[:kernel]
    event = 0
    while event < len(i):
        number = np.uint32(i[event])  # divisions of few bits without a sign are quick
        channel = number // places
        place = number - channel * places
        y, x = np.int64(place // width), np.int64(place % width)
        phase_y, top, first_y, last_y = reach(y, pad_y, stride_y, taps_y, out_height)
        phase_x, left, first_x, last_x = reach(x, pad_x, stride_x, taps_x, out_width)
        group = np.int64(channel) // wiring.in_per_group * per_group
        phases = stride_y * stride_x
        begin = wiring.weight + (channel * phases + phase_y * stride_x + phase_x) * kernel
        taps, count = weights[begin : begin + kernel], np.int32(n[event])
        phase = wiring.weight + (phase_y * stride_x + phase_x) * kernel
        first, event = event, event + 1
        while event < len(i) and per_group == channels and _place(i[event], places) == place:
            event += 1
        if event > first + 1:
            for k in range(kernel):
                total[k] = taps[k] * count
            first += 1
            while first + 4 <= event and (n[first] & n[first + 1] & n[first + 2] & n[first + 3]) == 1 == (
                n[first] | n[first + 1] | n[first + 2] | n[first + 3]
            ):  # four at once spare the sums three ways to memory and back
                a = phase + np.int64(np.uint32(i[first]) // places) * phases * kernel
                b = phase + np.int64(np.uint32(i[first + 1]) // places) * phases * kernel
                c = phase + np.int64(np.uint32(i[first + 2]) // places) * phases * kernel
                d = phase + np.int64(np.uint32(i[first + 3]) // places) * phases * kernel
                _add_four(total, weights[a:], weights[b:], weights[c:], weights[d:])
                first += 4
            while first < event:
                begin = phase + np.int64(np.uint32(i[first]) // places) * phases * kernel
                _add(total, weights[begin : begin + kernel], np.int32(n[first]))
                first += 1
            taps, count = total, np.int32(1)
        pixels = last_x - first_x
        if pixels <= 0:
            continue
        tap = first_y * line + first_x * per_group
        cell = ((top + first_y) * out_width + left + first_x) * channels + group
        end = (pixels - 1) * channels + per_group
        for _ in range(first_y, last_y):
            if per_group == channels:  # the taps of a line and their outputs are one run
                _add(drive[cell : cell + end], taps[tap : tap + end], count)
            else:
                for pixel in range(pixels):
                    to, by = cell + pixel * channels, tap + pixel * per_group
                    _add(drive[to : to + per_group], taps[by : by + per_group], count)
            for block in range(cell // BLOCK, (cell + end - 1) // BLOCK + 1):
                touched[block] = True
            cell += out_width * channels
            tap += line


@compiled(inline="always", allocates=False)
def _place(number: Any, places: Any) -> Any:
    """Of a neuron, on its map."""
    return np.uint32(number) - np.uint32(number) // places * places


@compiled(inline="always", allocates=False)
def _add_four(cells: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    """cells += a + b + c + d."""
    for k in range(len(cells)):
        cells[k] += (a[k] + b[k]) + (c[k] + d[k])


@compiled(inline="always", allocates=False)
def _add(cells: Any, taps: Any, count: Any) -> None:
    """cells += count taps; nearly all counts are 1, and a product costs more than a sum."""
    if count == 1:
        for k in range(len(cells)):
            cells[k] += taps[k]
    else:
        for k in range(len(cells)):
            cells[k] += taps[k] * count


@compiled(allocates=False)
def _scatter_matrix(
    drive: Any, touched: Any, i: Any, n: Any, wiring: Any, weights: Any, rows: Any, starts: Any
) -> None:
    for event in range(len(i)):
        column, count = wiring.start + i[event], np.int32(n[event])
        first, last = starts[column], starts[column + 1]
        for k in range(first, last):
            drive[rows[wiring.row + k]] += weights[wiring.weight + k] * count
        if last - first > wiring.blocks:  # it reaches nearly all of them
            touched[: wiring.blocks] = True
        else:
            for k in range(first, last):
                touched[rows[wiring.row + k] // BLOCK] = True
