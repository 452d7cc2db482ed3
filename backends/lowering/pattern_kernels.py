"""The compiled loops of `patterns`: what the spikes of a step add to the neurons that they reach."""

from typing import Any

import numpy as np

from nrf.kernels import compiled, reach
from nrf.lanes import LANES
from nrf.vectors import add_rows, lowest_bit

GROUP = 4  # channels whose spikes pick a row of sums
PATTERNS = 2**GROUP
LOWEST = np.uint64(0x1111)  # bit of every group
ONE, TWO = np.uint64(1), np.uint64(2)

FIELDS = (
    "places", "width",  # of the source: its map;
    "shift", "parts",  # log2 of the lanes of a vector, and vectors of a place
    "pooled",  # neurons of the source that are pooled
    "step",  # from the weights of a pattern to the next
    "line",  # from a line of taps to the next: whole vectors, filled up with zeros
    "taps",  # vectors of the target's lanes in such a line
    "row", "column",  # where its tables begin among the reaches
    "lanes", "pitch",  # of the target
)  # fmt: skip
WAY = np.dtype([(name, np.int64) for name in FIELDS])  # one connection

# What fires of one vector of channels is a number: its line, which vector of the line it is, and 16 bits.
LINE, VECTOR = np.uint64(40), np.uint64(16)
BITS, VECTORS = np.uint64(0xFFFF), np.uint64(0xFFFFFF)


@compiled(inline="always", allocates=False)
def split(packed: Any) -> Any:
    """Line, vector and bits of what fires."""
    return np.int64(packed >> LINE), np.int64(packed >> VECTOR & VECTORS), packed & BITS


@compiled(error_model="numpy", allocates=False)
def fill_reaches(table: Any, pool: Any, axis: Any, steps: Any, begin: Any) -> None:
    """What each place of a source, pooled by summing, reaches along one axis, as a row of a table.

    Where its taps begin; its first output in memory; how many taps it meets, times `steps[1]`; its first
    output. The axis has inputs, padding, stride, taps and outputs; the other steps are those from output to
    output in memory, from phase to phase and from tap to tap. What lies beyond the inputs reaches nothing,
    behind the last output.
    """
    inputs, padding, stride, taps, outputs = axis
    output_step, per_tap, phase_step, tap_step = steps
    for place in range(len(table)):
        phase, first, low, high = reach(place // pool, padding, stride, taps, outputs)
        if place // pool >= inputs or high <= low:
            first, low, high = outputs, 0, 0
        table[place, 0] = begin + phase * phase_step + low * tap_step
        table[place, 1] = (first + low) * output_step
        table[place, 2] = (high - low) * per_tap
        table[place, 3] = first + low


@compiled(error_model="numpy", allocates=False)
def scatter(cells: Any, reached: Any, fired: Any, way: Any, weights: Any, reaches: Any) -> None:
    """Add what fires in a step, line by line, to all neurons that it reaches.

    `reached` are the first line of these and the one behind the last; it gets wider where it has to.
    """
    if len(fired):
        _mark(reached, split(fired[0])[0], split(fired[-1])[0], way, reaches)
        _add(cells, fired, way, weights, reaches)


@compiled(error_model="numpy", allocates=False)
def scatter_list(
    cells: Any, reached: Any, spikes: Any, room: Any, way: Any, weights: Any, reaches: Any
) -> None:
    """The same for a list of neurons as everyone counts them, channel by channel, and of how often each did.

    Those that fire once are brought into the form of `scatter`, as many at a time as there is room for.
    """
    neurons, counts = spikes
    width, places, shift = np.uint32(way.width), np.uint32(way.places), np.uint64(way.shift)
    held, top, bottom = 0, places, np.uint32(0)
    for event in range(len(neurons)):
        number = np.uint32(neurons[event])  # divisions of few bits without a sign are quick
        channel = number // places
        place = number - channel * places
        line = place // width
        top, bottom = min(top, line), max(bottom, line)
        part = np.uint64(channel) >> shift
        vector = np.uint64(place - line * width) * np.uint64(way.parts) + part
        lane = np.uint64(channel) - (part << shift)
        packed = np.uint64(line) << LINE | vector << VECTOR | ONE << lane
        if counts[event] != 1:
            _add_often(cells, packed, counts[event], way, weights, reaches)
            continue
        room[held] = packed
        held += 1
        if held == len(room):
            _add(cells, room, way, weights, reaches)
            held = 0
    _add(cells, room[:held], way, weights, reaches)
    if len(neurons):
        _mark(reached, np.int64(top), np.int64(bottom), way, reaches)


@compiled(inline="always", allocates=False)
def _mark(reached: Any, first: Any, last: Any, way: Any, reaches: Any) -> None:
    """Widen `reached` by what these lines of the source reach, and all between them."""
    top, bottom = reaches[way.row + first], reaches[way.row + last]
    reached[0], reached[1] = min(reached[0], top[3]), max(reached[1], bottom[3] + bottom[2])


@compiled(error_model="numpy", allocates=False)
def _add(cells: Any, fired: Any, way: Any, weights: Any, reaches: Any) -> None:
    if way.lanes == LANES:
        _add_wide(cells, fired, way, weights, reaches)
    elif way.lanes == 8:
        _add_narrow(cells, fired, way, weights, reaches, 8)
    else:
        _add_narrow(cells, fired, way, weights, reaches, 4)


@compiled(inline="always", allocates=False)
def _add_wide(cells: Any, fired: Any, way: Any, weights: Any, reaches: Any) -> None:
    """To whole vectors of channels: one row or two where so many groups have spikes, else four."""
    rows, columns, step = reaches[way.row :], reaches[way.column :], way.step
    pitch, line = way.pitch, way.line
    for k in range(len(fired)):
        begin, cell, size, bits = _outputs(fired[k], rows, columns)
        groups = bits | bits >> ONE
        groups = (groups | groups >> TWO) & LOWEST
        rest = groups & (groups - ONE)
        a = _row(bits, groups, step)
        if rest == 0:
            add_rows(cells, (cell, pitch), weights, (a,), (begin, line), size, LANES, None)
            continue
        b = _row(bits, rest, step)
        rest &= rest - ONE
        if rest == 0:
            add_rows(cells, (cell, pitch), weights, (a, b), (begin, line), size, LANES, None)
            continue
        c = _row(bits, rest, step)
        rest &= rest - ONE
        d = _row(bits, rest, step) if rest else 0  # the row of no spikes
        add_rows(cells, (cell, pitch), weights, (a, b, c, d), (begin, line), size, LANES, None)


@compiled(inline="always", allocates=False)
def _add_narrow(cells: Any, fired: Any, way: Any, weights: Any, reaches: Any, lanes: Any) -> None:
    """To fewer channels: a line of taps at once, in vectors whose ends add nothing, but at the borders.

    Four rows, most of them of no spikes, cost less than not knowing how many there will be.
    """
    rows, columns, step = reaches[way.row :], reaches[way.column :], way.step
    pitch, line, taps = way.pitch, way.line, way.taps
    for k in range(len(fired)):
        begin, cell, size, bits = _outputs(fired[k], rows, columns)
        sums = (
            _row_of(bits, 0, step), _row_of(bits, 1, step), _row_of(bits, 2, step), _row_of(bits, 3, step)
        )  # fmt: skip
        if size[1] == taps:
            whole = size[0], line // LANES
            add_rows(cells, (cell, pitch), weights, sums, (begin, line), whole, LANES, None)
        else:
            add_rows(cells, (cell, pitch), weights, sums, (begin, line), size, lanes, None)


@compiled(error_model="numpy", allocates=False)
def _add_often(cells: Any, packed: Any, count: Any, way: Any, weights: Any, reaches: Any) -> None:
    """One neuron that fires any number of times."""
    begin, cell, size, bits = _outputs(packed, reaches[way.row :], reaches[way.column :])
    sums = (_row(bits, bits, way.step),)
    if way.lanes == LANES:
        add_rows(cells, (cell, way.pitch), weights, sums, (begin, way.line), size, LANES, count)
    elif way.lanes == 8:
        add_rows(cells, (cell, way.pitch), weights, sums, (begin, way.line), size, 8, count)
    else:
        add_rows(cells, (cell, way.pitch), weights, sums, (begin, way.line), size, 4, count)


@compiled(inline="always", allocates=False)
def _outputs(packed: Any, rows: Any, columns: Any) -> Any:
    """Of what fires: where its taps begin, its first output, how many lines and vectors of them; its bits."""
    line, vector, bits = split(packed)
    y, x = np.uint64(line), np.uint64(vector)
    begin, cell = rows[y, 0] + columns[x, 0], rows[y, 1] + columns[x, 1]
    return begin, cell, (rows[y, 2], columns[x, 2]), bits


@compiled(inline="always", allocates=False)
def _row(bits: Any, groups: Any, step: Any) -> Any:
    """Where the sums of the group with the lowest bit of `groups` begin."""
    first = np.uint64(lowest_bit(groups)) & ~np.uint64(GROUP - 1)
    pattern = bits >> first & np.uint64(PATTERNS - 1)
    return np.int64(first * np.uint64(PATTERNS // GROUP) + pattern) * step


@compiled(inline="always", allocates=False)
def _row_of(bits: Any, group: Any, step: Any) -> Any:
    """Where the sums of a group begin; of no spikes the first row of all, of zeros."""
    pattern = np.int64(bits >> np.uint64(GROUP * group) & np.uint64(PATTERNS - 1))
    return (pattern + group * PATTERNS) * np.int64(pattern != 0) * step
