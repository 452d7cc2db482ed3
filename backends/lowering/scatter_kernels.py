"""The compiled loops of `scatter`: what one event adds to the drive of the neurons around it."""

from typing import Any

import numpy as np

from nrf.kernels import compiled, reach

BLOCK = 64  # neurons that a scan can pass over together where nothing reaches them


@compiled()
def scatter_conv(drive: Any, touched: Any, t: Any, i: Any, n: Any, weight: Any, geometry: Any) -> None:
    """Add events (step, flat pixel, count) to drive (steps, outputs); see `geometry_of` and `phases`."""
    height, width, channels, out_height, out_width = geometry[:5]
    stride_y, stride_x, pad_y, pad_x, groups = geometry[5:]
    taps_y, taps_x, per_group = weight.shape[3:]
    in_per_group = weight.shape[0] // groups
    lines = weight.reshape((*weight.shape[:4], taps_x * per_group))
    for event in range(len(t)):
        channel, pixel = divmod(i[event], height * width)
        phase_y, top, first_y, last_y = reach(pixel // width, pad_y, stride_y, taps_y, out_height)
        phase_x, left, first_x, last_x = reach(pixel % width, pad_x, stride_x, taps_x, out_width)
        if first_x >= last_x:
            continue
        taps = lines[channel, phase_y, phase_x]
        value = np.int32(n[event])
        row, marks = drive[t[event]], touched[t[event]]
        group = (channel // in_per_group) * per_group
        # without groups, the taps of a line and their outputs are one run; else one per pixel
        runs, length = (1, (last_x - first_x) * channels) if groups == 1 else (last_x - first_x, per_group)
        for j in range(first_y, last_y):
            line = ((top + j) * out_width + left) * channels + group
            for k in range(first_x, first_x + runs):
                cells = row[line + k * channels : line + k * channels + length]
                tap = taps[j, k * per_group : k * per_group + length]
                for o in range(length):
                    cells[o] += tap[o] * value
            low, high = line + first_x * channels, line + (last_x - 1) * channels + per_group - 1
            marks[low // BLOCK : high // BLOCK + 1] = True


@compiled()
def scatter_matrix(
    drive: Any, touched: Any, t: Any, i: Any, n: Any, entries: Any, rows: Any, starts: Any
) -> None:
    """The same for a matrix whose entries lie column by column."""
    for event in range(len(t)):
        row, marks = drive[t[event]], touched[t[event]]
        value = np.int32(n[event])
        for k in range(starts[i[event]], starts[i[event] + 1]):
            row[rows[k]] += entries[k] * value
            marks[rows[k] // BLOCK] = True
