"""Compiled loops of the float reference: from lists of events through convolutions and neurons to new lists.

A frame goes through a convolution and its neurons while both stay in a core's own cache, and only what fires
is written down. Nothing is fused into one rounding or moved, so that every membrane has the bits that torch
gives it for the same drive.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from nrf.kernels import compiled
from nrf.lanes import LANES, bits_of, put, take, where
from nrf.vectors import bit_count, copy, instruction, lowest_bit, nonzero_bits, spread, vector_at

Array = NDArray[Any]
ROWS = 8  # of outputs that stay in registers
BLOCK = 64  # neurons whose spikes are the bits of one number
SUMS, SCALED, UNIT = range(3)  # how the drive enters the membrane, see `Contract`
TO_VALUE, SUBTRACT, KEEP = range(3)  # what a spike does to it

_loops = compiled(nogil=True, error_model="numpy", allocates=False)
_inlined = compiled(inline="always", error_model="numpy", allocates=False)


class Listed(NamedTuple):
    """Events of maps (T, rows, columns, channels): those of a row of a step lie together, by column."""

    first: Array  # (T, rows)
    last: Array  # (T, rows), behind it
    column: Array
    channel: Array
    value: Array  # one each, or one for all
    each: int  # 1, or 0


class Taps(NamedTuple):
    """Weights of a convolution, backwards: in the order of an event's outputs.

    An event of channel c at column j adds to all columns that it reaches in a row, features together: one
    vector per row of the kernel. These vectors are cut into parts of one length.
    """

    values: Array  # (parts, channels, rows of the kernel, lanes of a part), flat
    parts: int
    lanes: int  # of a part
    channels: int
    features: int
    side: int  # of the kernel
    padding: int


class Neurons(NamedTuple):
    """What the scan knows of neurons (rows, lanes): a row of them is `wide` in memory, whole blocks."""

    coefficients: Array  # gain, rate, rest, level, reset, one after the other, flat
    size: int  # of each
    down: int  # from a row to the next; 0 where all rows are alike
    wide: int
    lanes: int
    floor: Any
    form: int
    after: int


class Drive(NamedTuple):
    """What neurons hear: x, or if it is empty, what events give through taps."""

    x: Array  # (T, rows lanes)
    events: Listed
    taps: Taps
    start: Array  # of a row: the bias
    margin: int  # of each row, on both sides, lanes that events at the border reach


def _adder(lanes: int) -> Any:
    """Make a function of compiled code that adds the rows of the kernel that events of one place have.

    to[first + r row + lane] += sum over e of value[e] taps[begin + span channel[e] + r lanes + lane]
    """

    @instruction
    def add(
        context: Any, to: Any, first: Any, row: Any, taps: Any, begin: Any, span: Any, channel: Any,
        value: Any, each: Any, start: Any, end: Any, rows: Any,
    ) -> Any:  # fmt: skip
        def generate(target: Any, builder: Any, signature: Any, given: list[Any]) -> Any:
            to, first, row, taps, begin, span, channel, value, each, start, end, rows = given
            kinds = signature.args
            channels = target.make_array(kinds[6])(target, builder, channel).data
            factors = target.make_array(kinds[7])(target, builder, value).data
            for count in range(1, ROWS + 1):
                with builder.if_then(builder.icmp_signed("==", rows, rows.type(count))):
                    steps = [builder.add(first, builder.mul(row, row.type(r))) for r in range(count)]
                    places = [vector_at(target, builder, kinds[0], to, at, lanes) for at in steps]
                    sums = [
                        cgutils.alloca_once_value(builder, builder.load(place, align=align))  # type: ignore[no-untyped-call]
                        for place, align in places
                    ]
                    with cgutils.for_range(builder, builder.sub(end, start)) as loop:
                        e = builder.add(start, loop.index)
                        number = builder.sext(builder.load(builder.gep(channels, [e])), begin.type)
                        factor = builder.load(builder.gep(factors, [builder.mul(e, each)]))
                        factor = spread(builder, factor, lanes)
                        at = builder.add(begin, builder.mul(number, span))
                        for r, total in enumerate(sums):
                            one = builder.add(at, at.type(r * lanes))
                            place, align = vector_at(target, builder, kinds[3], taps, one, lanes)
                            product = builder.fmul(builder.load(place, align=align), factor)
                            builder.store(builder.fadd(builder.load(total), product), total)
                    for (place, align), total in zip(places, sums, strict=True):
                        builder.store(builder.load(total), place, align=align)
            return target.get_dummy_value()

        n = types.intp
        return types.void(to, n, n, taps, n, n, channel, value, n, n, n, n), generate

    return add


_add_narrow, _add_wide = _adder(LANES), _adder(2 * LANES)


@_inlined
def _step(
    v: Any, n: Any, x: Any, at: Any, coefficients: Any, k: Any, size: Any, floor: Any, form: Any, after: Any
) -> Any:
    """One step of a block of neurons, from number n on; the bits of those that fire."""
    bits = np.uint64(0)
    for part in range(0, BLOCK, LANES):
        first = k + part
        gain, rate = take(coefficients, first, LANES), take(coefficients, first + size, LANES)
        rest, level = (
            take(coefficients, first + 2 * size, LANES),
            take(coefficients, first + 3 * size, LANES),
        )
        reset = take(coefficients, first + 4 * size, LANES)
        before = take(v, n + part, LANES)
        push, gap = take(x, at + part, LANES) * gain, rest - before
        if form == SUMS:
            m = before + push
        elif form == SCALED:
            m = before + rate * (gap + push)
        else:
            m = before + rate * gap + push
        m = where(floor > m, floor, m)
        fired = m > level
        if after == SUBTRACT:
            put(v, n + part, where(fired, m - reset, m))
        else:
            put(v, n + part, where(fired, reset, m) if after == TO_VALUE else m)
        bits |= bits_of(fired) << np.uint64(part)
    return bits


@_inlined
def _divided(n: Any, share: Any) -> Any:
    """n // number for share = 1 / number: quicker, and exact for all n of 32 bits."""
    return np.int64((n + 0.5) * share)


@_inlined
def _list(mask: Any, begin: Any, channels: Any, share: Any, column: Any, channel: Any, count: Any) -> Any:
    """Write down the places of a row whose bits are 1; how many there are now."""
    while mask:
        n = begin + lowest_bit(mask)
        mask &= mask - np.uint64(1)
        place = _divided(n, share)
        column[count], channel[count] = place, n - place * channels
        count += 1
    return count


@_loops
def _scatter(y: Array, width: int, begin: int, end: int, t: int, events: Listed, taps: Taps) -> None:
    """Add what the events of a step give to the rows of outputs from `begin` to `end`."""
    side, shift = taps.side, max(0, taps.padding - taps.side + 1)
    span = side * taps.lanes
    for part in range(taps.parts):
        slab = part * taps.channels * span
        for i in range(
            max(0, begin - taps.padding), min(events.first.shape[1], end - taps.padding + side - 1)
        ):
            e, stop = events.first[t, i], events.last[t, i]
            top = i + taps.padding - side + 1 - begin
            skipped = max(0, -top)
            rows = min(side, end - begin - top) - skipped
            blocks = (rows + ROWS - 1) // ROWS
            size = (rows + blocks - 1) // blocks  # all about as large
            while e < stop:
                start, here = e, events.column[e]
                e += 1
                while e < stop and events.column[e] == here:
                    e += 1
                at = (top + skipped) * width + (here + shift) * taps.features + part * taps.lanes
                for r in range(0, rows, size):
                    tap = slab + (skipped + r) * taps.lanes
                    if taps.lanes == LANES:
                        _add_narrow(
                            y, at + r * width, width, taps.values, tap, span, events.channel, events.value,
                            events.each, start, e, min(size, rows - r),
                        )  # fmt: skip
                    else:
                        _add_wide(
                            y, at + r * width, width, taps.values, tap, span, events.channel, events.value,
                            events.each, start, e, min(size, rows - r),
                        )  # fmt: skip


@_loops
def scan(
    drive: Drive, room: Array, begin: int, end: int, v: Array, neurons: Neurons, membrane: Array,
    output: Array, fired: Listed, channels: int,
) -> int:  # fmt: skip
    """All steps of the rows of neurons from `begin` to `end`, with room for their drive: how many spikes.

    Membranes (T, rows lanes), spikes as an output of the same shape and as a list: each where there is room.
    """
    x, events, taps, margin, lanes = drive.x, drive.events, drive.taps, drive.margin, neurons.lanes
    dense, lists = len(x) > 0, fired.first.shape[1] > 0
    steps, width = (len(x) if dense else len(events.first)), lanes + 2 * margin
    share = 1 / channels
    count, spare = steps * begin * lanes, room[len(room) - BLOCK :]
    for t in range(steps):
        line = x[t] if dense else room
        if not dense:
            for row in range(end - begin):
                copy(drive.start, room[row * width :])
            _scatter(room, width, begin, end, t, events, taps)
        for row in range(begin, end):
            if lists:
                fired.first[t, row] = count
            for n in range(0, lanes, BLOCK):
                here, left = row * lanes + n, min(BLOCK, lanes - n)
                source, place = line, here if dense else (row - begin) * width + margin + n
                if dense and left < BLOCK:
                    for lane in range(left):
                        spare[lane] = line[here + lane]
                    source, place = spare, 0
                at = row * neurons.wide + n
                bits = _step(
                    v, at, source, place, neurons.coefficients, row * neurons.down + n, neurons.size,
                    neurons.floor, neurons.form, neurons.after,
                )  # fmt: skip
                if left < BLOCK:
                    bits &= (np.uint64(1) << np.uint64(left)) - np.uint64(1)
                if len(membrane):
                    for lane in range(left):
                        membrane[t, here + lane] = v[at + lane]
                if len(output):
                    for lane in range(left):
                        output[t, here + lane] = (bits >> np.uint64(lane)) & np.uint64(1)
                if lists:
                    count = _list(bits, n, channels, share, fired.column, fired.channel, count)
            if lists:
                fired.last[t, row] = count
    return count - steps * begin * lanes


@_loops
def listed(x: Array, sides: tuple[int, ...], last: bool, to: Listed) -> int:
    """List what is not 0 of flat maps: how many, or more than there is room for.

    `sides` are steps, rows, columns and channels; whether channels come last in memory, or before rows.
    """
    steps, rows, columns, channels = sides
    parts, width = (1, channels) if last else (channels, 1)
    length = columns * width
    count, room, share = 0, len(to.column), 1 / width
    for t in range(steps):
        for row in range(rows):
            to.first[t, row] = count
            for part in range(parts):
                line = x[((t * parts + part) * rows + row) * length :][:length]
                for begin in range(0, length, BLOCK):
                    mask = nonzero_bits(line, begin)
                    if count + BLOCK > room and count + bit_count(mask) > room:
                        return room + 1
                    start = count
                    count = _list(mask, begin, width, share, to.column, to.channel, count)
                    for e in range(start, count):
                        to.value[e] = line[to.column[e] * width + to.channel[e]]
                        to.channel[e] += part
            to.last[t, row] = count
    return count


@_loops
def pooled(
    events: Listed, sides: tuple[int, ...], down: int, across: int, divisor: Any, room: Array, to: Listed
) -> int:
    """Sums of events over windows `down` times `across`, divided: how many are not 0.

    `sides` are steps, rows, columns and channels of the windows; `room` is for a row of them, and is 0.
    """
    steps, rows, columns, channels = sides
    count, share, window = 0, 1 / channels, 1 / across
    for t in range(steps):
        for row in range(rows):
            to.first[t, row] = count
            for i in range(row * down, (row + 1) * down):
                for e in range(events.first[t, i], events.last[t, i]):
                    column = _divided(events.column[e], window)
                    if column < columns:
                        room[column * channels + events.channel[e]] += events.value[e * events.each]
            for begin in range(0, len(room), BLOCK):
                start = count
                count = _list(nonzero_bits(room, begin), begin, channels, share, to.column, to.channel, count)
                for e in range(start, count):
                    n = to.column[e] * channels + to.channel[e]
                    to.value[e], room[n] = room[n] / divisor, 0
            to.last[t, row] = count
    return count


@_loops
def unlisted(events: Listed, maps: Array, sides: tuple[int, ...]) -> None:
    """Put events into flat maps of 0."""
    steps, rows, columns, channels = sides
    for t in range(steps):
        for row in range(rows):
            for e in range(events.first[t, row], events.last[t, row]):
                n = ((t * rows + row) * columns + events.column[e]) * channels + events.channel[e]
                maps[n] = events.value[e * events.each]


@_loops
def in_order(events: Listed, columns: int, first: Array, steps: Array, numbers: Array) -> None:
    """Steps and neuron numbers of events, in order, by counting channels; `first` is room for one more.

    Their values are 1.
    """
    count, rows = 0, events.first.shape[1]
    for t in range(len(events.first)):
        first[:] = 0
        begin = count
        for row in range(rows):
            for e in range(events.first[t, row], events.last[t, row]):
                first[events.channel[e] + 1] += 1
        first[0] = count
        for channel in range(1, len(first)):
            first[channel] += first[channel - 1]
        count = first[len(first) - 1]
        for row in range(rows):
            for e in range(events.first[t, row], events.last[t, row]):
                channel = events.channel[e]
                numbers[first[channel]] = (channel * rows + row) * columns + events.column[e]
                first[channel] += 1
        for e in range(begin, count):
            steps[e] = t


@_inlined
def _mixed(before: Any, word: Any) -> Any:
    """One to one in either, and every bit reaches every other within two words."""
    product = (before ^ word) * np.uint64(0x9E3779B97F4A7C15)
    return product ^ (product >> np.uint64(32))


@_loops
def fingerprint(words: Array) -> Any:
    """A hash of 64-bit words: another for every change of one word, and almost surely for any other."""
    a, b, c, d = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(len(words))
    whole = len(words) // 4 * 4
    for k in range(0, whole, 4):  # four at a time, because each waits for its own product
        a, b = _mixed(a, words[k]), _mixed(b, words[k + 1])
        c, d = _mixed(c, words[k + 2]), _mixed(d, words[k + 3])
    for k in range(whole, len(words)):
        a = _mixed(a, words[k])
    return _mixed(_mixed(_mixed(a, b), c), d)
