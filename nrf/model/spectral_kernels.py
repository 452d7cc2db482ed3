"""Compiled loops of `nrf.model.spectral`: products of small matrices, and the transform of a map.

Channels stand next to each other, in whole vectors of 16, and the same is done to all of them.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from llvmlite import ir  # type: ignore[import-untyped]
from llvmlite.binding import get_host_cpu_features  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from nrf.kernels import compiled
from nrf.lanes import LANES
from nrf.vectors import instruction, spread, tuple_of, vector_at

Array = NDArray[Any]
unpack: Callable[..., Any] = cgutils.unpack_tuple
BLOCK = 16 if get_host_cpu_features().get("avx512f") else 4  # vectors of sums that stay in registers


class Axis(NamedTuple):
    """The waves along one axis of a map, its places counted from the middle.

    The cosine of a place and of its mirror image are equal, and the sines opposite: sums of both meet the
    cosines, differences the sines, which halves the products. Places here are those of one half, from the
    edge to the middle.
    """

    size: int  # places
    frequencies: int
    cosines: Array  # (places, frequencies), flat; halved in the middle, which is its own mirror image
    sines: Array
    cosines_back: Array  # (frequencies, places), flat
    sines_back: Array


Axes = tuple[Axis, Axis]  # down the columns of a map, and across its rows


class Room(NamedTuple):
    """What the transforms of some maps need on their way, flat."""

    waves: Array
    waves_after: Array
    spectra: Array  # of one wave down the columns
    spectra_after: Array


def _waves_of(mirrored: bool) -> Callable[..., None]:
    """Make a function of compiled code for up to BLOCK / 2 waves or places, 16 lanes wide, sums in registers.

    p[r] = sum over k of cosines[begin + r + k on] (v[places[0] + k step[0]] + v[places[1] + k step[1]])
    q[r] = sum over k of sines[begin + r + k on] (v[places[2] + k step[1]] - v[places[3] + k step[0]])

    without the second and last unless `mirrored`; p and q, or if `mixed` p + q and p - q, become
    to[into[0] + r by[0]] and to[into[1] + r by[1]].
    """

    @instruction
    def write(
        context: Any, to: Any, into: Any, by: Any, cosines: Any, sines: Any, begin: Any, on: Any, values: Any,
        places: Any, step: Any, depth: Any, rows: Any, mixed: Any,
    ) -> Any:  # fmt: skip
        def generate(target: Any, builder: Any, signature: Any, given: list[Any]) -> Any:
            to, into, by, cosines, sines, begin, on, values, places, step, depth, rows, mixed = given
            into, by, places, step = (unpack(builder, each) for each in (into, by, places, step))
            steps = step[0], step[1], step[1], step[0]
            waves = [target.make_array(signature.args[3])(target, builder, w).data for w in (cosines, sines)]
            for count in _each(builder, rows, BLOCK // 2):
                sums = _Sums(builder, count * 2, ir.VectorType(waves[0].type.pointee, LANES))
                with cgutils.for_range(builder, depth) as loop:
                    a, b, c, d = (
                        _lanes(target, builder, signature.args[7], values, place, loop.index, by_k)
                        if mirrored or number in (0, 2) else None
                        for number, (place, by_k) in enumerate(zip(places, steps, strict=True))
                    )  # fmt: skip
                    pair = (builder.fadd(a, b), builder.fsub(c, d)) if mirrored else (a, c)
                    column = builder.add(begin, builder.mul(loop.index, on))
                    rows_of = [builder.gep(wave, [column]) for wave in waves]
                    for number in range(2 * count):
                        factor = builder.load(builder.gep(rows_of[number % 2], [on.type(number // 2)]))
                        sums.add(number, spread(builder, factor, LANES), pair[number % 2])
                for r in range(count):
                    p, q = sums.value(2 * r), sums.value(2 * r + 1)
                    both = (builder.fadd(p, q), p), (builder.fsub(p, q), q)
                    for first, further, (mix, own) in zip(into, by, both, strict=True):
                        at = builder.add(first, builder.mul(further, on.type(r)))
                        place, align = vector_at(target, builder, signature.args[0], to, at, LANES)
                        builder.store(builder.select(mixed, mix, own), place, align=align)
            return target.get_dummy_value()

        n = types.intp
        pair, four = tuple_of(n, 2), tuple_of(n, 4)
        kinds = to, pair, pair, cosines, sines, n, n, values, four, pair, n, n, types.boolean
        return types.void(*kinds), generate

    return write


_set_waves, _set_places = _waves_of(mirrored=True), _waves_of(mirrored=False)


@instruction
def _add_conjugate_products(
    context: Any, to: Any, into: Any, row: Any, matrix: Any, begins: Any, down: Any, on: Any, values: Any,
    starts: Any, below: Any, depth: Any, rows: Any, add: Any,
) -> Any:  # fmt: skip
    """Up to BLOCK / 2 rows of a product of complex numbers with conjugate ones, 16 columns wide.

    to[into + r row] (+)= sum over k of matrix[begins + r down + k on] conj(values[starts + k below])

    The first of real and of imaginary parts are given apart.
    """

    def generate(target: Any, builder: Any, signature: Any, given: list[Any]) -> Any:
        to, into, row, matrix, begins, down, on, values, starts, below, depth, rows, add = given
        factors = target.make_array(signature.args[3])(target, builder, matrix).data
        into, begins, starts = (unpack(builder, pair) for pair in (into, begins, starts))
        kind = ir.VectorType(factors.type.pointee, LANES)
        for count in _each(builder, rows, BLOCK // 2):
            shifts = [builder.mul(row, row.type(r)) for r in range(count)]
            places = [
                vector_at(target, builder, signature.args[0], to, builder.add(first, shift), LANES)
                for shift in shifts
                for first in into
            ]
            sums = _Sums(builder, 2 * count, kind)
            with cgutils.for_range(builder, depth) as loop:
                x, y = (
                    _lanes(target, builder, signature.args[7], values, start, loop.index, below)
                    for start in starts
                )
                for r in range(count):
                    at = builder.add(builder.mul(loop.index, on), builder.mul(down, row.type(r)))
                    parts = [builder.load(builder.gep(factors, [builder.add(each, at)])) for each in begins]
                    real, imaginary = (spread(builder, each, LANES) for each in parts)
                    sums.add(2 * r, real, x)
                    sums.add(2 * r, imaginary, y)
                    sums.add(2 * r + 1, imaginary, x)
                    sums.add(2 * r + 1, builder.fneg(real), y)
            for number, (place, align) in enumerate(places):
                before = builder.select(add, builder.load(place, align=align), ir.Constant(kind, None))
                builder.store(builder.fadd(before, sums.value(number)), place, align=align)
        return target.get_dummy_value()

    n = types.intp
    pair = tuple_of(n, 2)
    kinds = to, pair, n, matrix, pair, n, n, values, pair, n, n, n, types.boolean
    return types.void(*kinds), generate


def _each(builder: Any, rows: Any, most: int) -> Iterator[int]:
    """For the compiler: every number of rows there may be, with the code to be written for it."""
    end = builder.append_basic_block()
    switch = builder.switch(rows, end)
    for count in range(1, most + 1):
        block = builder.append_basic_block()
        switch.add_case(count, block)
        builder.position_at_end(block)
        yield count
        builder.branch(end)
    builder.position_at_end(end)


def _lanes(target: Any, builder: Any, kind: Any, array: Any, first: Any, number: Any, step: Any) -> Any:
    """A vector of an array, so many steps further."""
    at = builder.add(first, builder.mul(number, step))
    place, align = vector_at(target, builder, kind, array, at, LANES)
    return builder.load(place, align=align)


class _Sums:
    """Vectors in registers, at first 0."""

    def __init__(self, builder: Any, count: int, kind: Any) -> None:
        nothing = ir.Constant(kind, None)
        self.builder = builder
        self.sums = [cgutils.alloca_once_value(builder, nothing) for _ in range(count)]  # type: ignore[no-untyped-call]

    def value(self, number: int) -> Any:
        return self.builder.load(self.sums[number])

    def add(self, number: int, factor: Any, value: Any) -> None:
        fused = ("contract",)  # one rounding for product and sum, where the processor can
        product = self.builder.fmul(factor, value, flags=fused)
        self.builder.store(self.builder.fadd(self.value(number), product, flags=fused), self.sums[number])


_loops = compiled(nogil=True, error_model="numpy", allocates=False)


@_loops
def _conjugate_products(
    to: Array, matrix: Array, values: Array, sizes: tuple[int, int, int, int], to_at: tuple[int, int, int],
    matrix_at: tuple[int, int, int, int], values_at: tuple[int, int, int], add: bool,
) -> None:  # fmt: skip
    """to[b, r] (+)= sum over k of matrix[b, r, k] conj(values[b, k]): complex rows of whole vectors.

    `sizes` are those of b, r, k and a row. How much further imaginary parts are, and an array's steps along
    b, and r or k, are numbers of elements.
    """
    batch, rows, depth, row = sizes
    blocks = max(1, -(-rows // (BLOCK // 2)))
    size = max(1, -(-rows // blocks))
    for b in range(batch):
        for r in range(0, rows, size):
            begin = b * matrix_at[1] + r * matrix_at[2]
            for lane in range(0, row, LANES):
                first, start = b * to_at[1] + r * to_at[2] + lane, b * values_at[1] + lane
                _add_conjugate_products(
                    to, (first, first + to_at[0]), to_at[2], matrix, (begin, begin + matrix_at[0]),
                    matrix_at[2], matrix_at[3], values, (start, start + values_at[0]), values_at[2], depth,
                    min(size, rows - r), add,
                )  # fmt: skip


@_loops
def _down(maps: Array, row: int, down: Axis, waves: Array) -> None:
    """The waves down the columns of maps (N, H, W C): (frequencies, N, 2, W C), flat, real parts first."""
    for n in range(len(maps)):
        for first in range(0, down.frequencies, BLOCK // 2):
            for lane in range(0, row, LANES):
                near, far = lane, (down.size - 1) * row + lane
                real = (first * len(maps) + n) * 2 * row + lane
                step = len(maps) * 2 * row
                _set_waves(
                    waves, (real, real + row), (step, step), down.cosines, down.sines, first,
                    down.frequencies, maps[n], (near, far, far, near), (row, -row), (down.size + 1) // 2,
                    min(BLOCK // 2, down.frequencies - first), False,
                )  # fmt: skip


@_loops
def _down_back(waves: Array, row: int, down: Axis, maps: Array) -> None:
    half = (down.size + 1) // 2
    for n in range(len(maps)):
        for first in range(0, half, BLOCK // 2):
            for lane in range(0, row, LANES):
                near, far = first * row + lane, (down.size - 1 - first) * row + lane
                real, step = n * 2 * row + lane, len(maps) * 2 * row
                _set_places(
                    maps[n], (far, near), (-row, row), down.cosines_back, down.sines_back, first, half, waves,
                    (real, real, real + row, real), (step, step), down.frequencies,
                    min(BLOCK // 2, half - first), True,
                )  # fmt: skip


@_loops
def _across(waves: Array, count: int, channels: int, across: Axis, spectra: Array) -> None:
    """The spectra of one wave down the columns (N, 2, W, C): (frequencies, N, 2 C), flat.

    Frequencies are all those across, each with its negative.
    """
    row, step = across.size * channels, 4 * count * channels
    for n in range(count):
        for first in range(0, across.frequencies, BLOCK // 2):
            rows = min(BLOCK // 2, across.frequencies - first)
            for lane in range(0, channels, LANES):
                near, plus = n * 2 * row + lane, first * step + 2 * n * channels + lane
                far, minus = near + row - channels, plus + step // 2
                _set_waves(
                    spectra, (minus, plus), (step, step), across.cosines, across.sines, first,
                    across.frequencies, waves, (near, far, far + row, near + row), (channels, -channels),
                    (across.size + 1) // 2, rows, True,
                )  # fmt: skip
                _set_waves(
                    spectra, (plus + channels, minus + channels), (step, step), across.cosines, across.sines,
                    first, across.frequencies, waves, (near + row, far + row, far, near),
                    (channels, -channels), (across.size + 1) // 2, rows, True,
                )  # fmt: skip


@_loops
def _across_back(spectra: Array, count: int, channels: int, across: Axis, waves: Array) -> None:
    half, row, step = (across.size + 1) // 2, across.size * channels, 4 * count * channels
    for n in range(count):
        for first in range(0, half, BLOCK // 2):
            rows = min(BLOCK // 2, half - first)
            for lane in range(0, channels, LANES):
                near, plus = n * 2 * row + first * channels + lane, 2 * n * channels + lane
                far, minus = near + row - (2 * first + 1) * channels, plus + step // 2
                i = channels  # from real to imaginary parts
                _set_waves(
                    waves, (far, near), (-channels, channels), across.cosines_back, across.sines_back, first,
                    half, spectra, (plus, minus, plus + i, minus + i), (step, step), across.frequencies, rows,
                    True,
                )  # fmt: skip
                _set_waves(
                    waves, (far + row, near + row), (-channels, channels), across.cosines_back,
                    across.sines_back, first, half, spectra, (plus + i, minus + i, minus, plus), (step, step),
                    across.frequencies, rows, True,
                )  # fmt: skip


@_loops
def transform(maps: Array, channels: int, axes: Axes, spectra: Array, room: Room) -> None:
    """The spectra (frequencies, N, 2 C) of maps (N, H W C): of all waves down the columns, one by one."""
    down, across = axes
    wave = len(maps) * 2 * across.size * channels
    part = len(maps) * 4 * across.frequencies * channels
    _down(maps, across.size * channels, down, room.waves)
    for k in range(down.frequencies):
        _across(room.waves[k * wave :], len(maps), channels, across, spectra[k * part :])


@_loops
def transform_back(spectra: Array, channels: int, axes: Axes, maps: Array, room: Room) -> None:
    """The maps of spectra that count every frequency as often as it and its negative stand for it."""
    down, across = axes
    wave = len(maps) * 2 * across.size * channels
    part = len(maps) * 4 * across.frequencies * channels
    for k in range(down.frequencies):
        _across_back(spectra[k * part :], len(maps), channels, across, room.waves[k * wave :])
    _down_back(room.waves, across.size * channels, down, maps)


@_loops
def filter_and_correlate(
    maps: Array, inputs: int, before: Axes, kernel: Array, to: Array, others: Array, correlated: Array,
    outputs: int, after: Axes, room: Room,
) -> None:  # fmt: skip
    """Filter maps (N, H W C) to others (N, H' W' F), if wanted, and correlate such, if any, with them.

    The kernel is complex, (frequencies, 2, C, F); what is added to `correlated` is (frequencies, 2, F, C).
    One wave down the columns comes after the other, so that its spectra stay in a core's cache.
    """
    (down, across), (down_after, across_after) = before, after
    count, parts, pairs = len(maps), 2 * across.frequencies, inputs * outputs
    two, two_after = 2 * inputs, 2 * outputs
    _down(maps, across.size * inputs, down, room.waves)
    if len(others):
        _down(others, across_after.size * outputs, down_after, room.waves_after)
    for k in range(down.frequencies):
        at = k * parts * 2 * pairs
        after_wave = room.waves_after[k * count * across_after.size * two_after :]
        _across(room.waves[k * count * across.size * two :], count, inputs, across, room.spectra)
        if len(others):
            _across(after_wave, count, outputs, across_after, room.spectra_after)
            _conjugate_products(
                correlated[at:], room.spectra_after, room.spectra, (parts, outputs, count, inputs),
                (pairs, 2 * pairs, inputs), (outputs, count * two_after, 1, two_after),
                (inputs, count * two, two), True,
            )  # fmt: skip
        if len(to):
            _conjugate_products(
                room.spectra_after, room.spectra, kernel[at:], (parts, count, inputs, outputs),
                (outputs, count * two_after, two_after), (inputs, count * two, two, 1),
                (pairs, 2 * pairs, outputs), False,
            )  # fmt: skip
            _across_back(room.spectra_after, count, outputs, across_after, after_wave)
    if len(to):
        _down_back(room.waves_after, across_after.size * outputs, down_after, to)
