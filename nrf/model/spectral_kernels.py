"""Compiled loops of `nrf.model.spectral`: products of small matrices, and the transform of a map.

Channels stand next to each other, in whole vectors of 16, and the same is done to all of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir  # type: ignore[import-untyped]
from llvmlite.binding import get_host_cpu_features  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from nrf.kernels import compiled
from nrf.vectors import _all as spread
from nrf.vectors import _vector as vector_at
from nrf.vectors import copy, instruction

Array = NDArray[Any]
LANES = 16
WIDE = "avx512f" in {name for name, has in get_host_cpu_features().items() if has}
BLOCK = 16 if WIDE else 8  # vectors of sums that stay in registers
FUSED = ("contract",)  # one rounding for product and sum, where the processor can


class Axis(NamedTuple):
    """The waves along one axis of a map, its places counted from the middle.

    The cosine of a place and of its mirror image are equal, and the sines opposite: sums of both meet the
    cosines, differences the sines, which halves the products. Sums are kept in the first half of an axis,
    where the middle is, if there is one, and differences in the other.
    """

    size: int  # places
    frequencies: int
    cosines: Array  # (frequencies, places of the first half), flat
    sines: Array  # (frequencies, places of the other half), flat


Axes = tuple[Axis, Axis]  # down the columns of a map, and across its rows


class Room(NamedTuple):
    """What the transforms of some maps need on their way, flat."""

    folded: Array  # a map
    waves: Array
    waves_after: Array
    spectra: Array  # of one wave down the columns
    spectra_after: Array
    line: Array  # of one map's wave


def _adder(conjugate: bool) -> Callable[..., None]:
    """Make a function of compiled code for some rows of a product, 16 columns wide, with sums in registers.

    to[first + r row + lane] (+)= sum over k of matrix[begin + r down + k on] values[start + k below + lane]

    or, of complex numbers, with the conjugate of values. Imaginary parts are `..._on` elements further.
    """

    @instruction
    def add(
        context: Any, to: Any, first: Any, row: Any, to_on: Any, matrix: Any, begin: Any, down: Any, on: Any,
        matrix_on: Any, values: Any, start: Any, below: Any, values_on: Any, depth: Any, rows: Any, add: Any,
    ) -> Any:  # fmt: skip
        def generate(target: Any, builder: Any, signature: Any, given: list[Any]) -> Any:
            to, first, row, to_on, matrix, begin, down, on, matrix_on = given[:9]
            values, start, below, values_on, depth, rows, add = given[9:]
            of_to, of_matrix, of_values = (signature.args[k] for k in (0, 4, 9))
            factors = target.make_array(of_matrix)(target, builder, matrix).data
            parts = 2 if conjugate else 1

            def places(kind: Any, array: Any, at: Any, imaginary: Any) -> list[tuple[Any, int]]:
                shifts = [at, builder.add(at, imaginary)][:parts]
                return [vector_at(target, builder, kind, array, shift, LANES) for shift in shifts]

            def add_product(total: Any, factor: Any, value: Any) -> None:
                product = builder.fmul(factor, value, flags=FUSED)
                builder.store(builder.fadd(builder.load(total), product, flags=FUSED), total)

            for count in range(1, BLOCK // parts + 1):
                numbers = [ir.Constant(row.type, r) for r in range(count)]
                with builder.if_then(builder.icmp_signed("==", rows, numbers[-1].type(count))):
                    firsts = [builder.add(first, builder.mul(row, r)) for r in numbers]
                    targets = [place for at in firsts for place in places(of_to, to, at, to_on)]
                    sums = []
                    for place, align in targets:
                        before = builder.load(place, align=align)
                        before = builder.select(add, before, ir.Constant(before.type, None))
                        sums.append(cgutils.alloca_once_value(builder, before))  # type: ignore[no-untyped-call]
                    with cgutils.for_range(builder, depth) as loop:
                        at = builder.add(start, builder.mul(loop.index, below))
                        pair = [
                            builder.load(place, align=align)
                            for place, align in places(of_values, values, at, values_on)
                        ]
                        column = builder.add(begin, builder.mul(loop.index, on))
                        for r in range(count):
                            at = builder.add(column, builder.mul(down, numbers[r]))
                            of_row = [
                                spread(builder, builder.load(builder.gep(factors, [place])), LANES)
                                for place in [at, builder.add(at, matrix_on)][:parts]
                            ]
                            if conjugate:
                                (real, imaginary), (x, y) = of_row, pair
                                add_product(sums[2 * r], real, x)
                                add_product(sums[2 * r], imaginary, y)
                                add_product(sums[2 * r + 1], imaginary, x)
                                add_product(sums[2 * r + 1], builder.fneg(real), y)
                            else:
                                add_product(sums[r], of_row[0], pair[0])
                    for (place, align), total in zip(targets, sums, strict=True):
                        builder.store(builder.load(total), place, align=align)
            return target.get_dummy_value()

        n = types.intp
        kinds = to, n, n, n, matrix, n, n, n, n, values, n, n, n, n, n, types.boolean
        return types.void(*kinds), generate

    return add


_add_products, _add_conjugate_products = _adder(conjugate=False), _adder(conjugate=True)


@instruction
def _mirror(context: Any, to: Any, total: Any, difference: Any, values: Any, p: Any, q: Any) -> Any:
    """16 lanes of to[total] = values[p] + values[q] and to[difference] = values[q] - values[p]."""

    def generate(target: Any, builder: Any, signature: Any, given: list[Any]) -> Any:
        _, total, difference, _, p, q = given
        first, second = (
            builder.load(place, align=align)
            for place, align in (
                vector_at(target, builder, signature.args[3], given[3], at, LANES) for at in (p, q)
            )
        )
        for at, value in ((total, builder.fadd(first, second)), (difference, builder.fsub(second, first))):
            place, align = vector_at(target, builder, signature.args[0], given[0], at, LANES)
            builder.store(value, place, align=align)
        return target.get_dummy_value()

    return types.void(to, types.intp, types.intp, values, types.intp, types.intp), generate


_loops = compiled(nogil=True, error_model="numpy", allocates=False)


@_loops
def _products(
    to: Array, matrix: Array, values: Array, sizes: tuple[int, int, int, int], to_at: tuple[int, int, int],
    matrix_at: tuple[int, int, int, int], values_at: tuple[int, int, int],
) -> None:  # fmt: skip
    """to[b, r] = sum over k of matrix[b, r, k] values[b, k], of rows of whole vectors.

    `sizes` are those of b, r, k and a row. What each of the three begins with, and its steps along b, r and k
    as far as it has them, are numbers of elements.
    """
    batch, rows, depth, row = sizes
    blocks = max(1, -(-rows // BLOCK))
    size = max(1, -(-rows // blocks))  # all about as large
    for b in range(batch):
        for r in range(0, rows, size):
            begin = matrix_at[0] + b * matrix_at[1] + r * matrix_at[2]
            for lane in range(0, row, LANES):
                first = to_at[0] + b * to_at[1] + r * to_at[2] + lane
                start = values_at[0] + b * values_at[1] + lane
                _add_products(
                    to, first, to_at[2], 0, matrix, begin, matrix_at[2], matrix_at[3], 0, values, start,
                    values_at[2], 0, depth, min(size, rows - r), False,
                )  # fmt: skip


@_loops
def _conjugate_products(
    to: Array, matrix: Array, values: Array, sizes: tuple[int, int, int, int], to_at: tuple[int, int, int],
    matrix_at: tuple[int, int, int, int], values_at: tuple[int, int, int], add: bool,
) -> None:  # fmt: skip
    """to[b, r] (+)= sum over k of matrix[b, r, k] conj(values[b, k]), of complex numbers.

    Steps as above; instead of what each begins with, how much further imaginary parts are.
    """
    batch, rows, depth, row = sizes
    blocks = max(1, -(-rows // (BLOCK // 2)))
    size = max(1, -(-rows // blocks))
    for b in range(batch):
        for r in range(0, rows, size):
            begin = b * matrix_at[1] + r * matrix_at[2]
            for lane in range(0, row, LANES):
                _add_conjugate_products(
                    to, b * to_at[1] + r * to_at[2] + lane, to_at[2], to_at[0], matrix, begin, matrix_at[2],
                    matrix_at[3], matrix_at[0], values, b * values_at[1] + lane, values_at[2], values_at[0],
                    depth, min(size, rows - r), add,
                )  # fmt: skip


@_loops
def _fold(to: Array, values: Array, size: int, row: int) -> None:
    """Sums and differences of the rows of values that mirror each other; they may take their place."""
    for i in range(size // 2):
        for near in range(i * row, (i + 1) * row, LANES):
            far = near + (size - 1 - 2 * i) * row
            _mirror(to, near, far, values, near, far)


@_loops
def _unfold(values: Array, size: int, row: int) -> None:
    """The rows of which these were sums and differences, halved."""
    for i in range(size // 2):
        for near in range(i * row, (i + 1) * row, LANES):
            far = near + (size - 1 - 2 * i) * row
            _mirror(values, far, near, values, far, near)


@_loops
def _down(maps: Array, channels: int, down: Axis, width: int, waves: Array, room: Array) -> None:
    """The waves down the columns of maps (N, H W C): (frequencies, N, W, 2 C), flat, real parts first."""
    two, row = 2 * channels, width * channels
    step = len(maps) * width * two
    low = down.size // 2
    high = down.size - low
    for n in range(len(maps)):
        begin = n * width * two
        _fold(room, maps[n], down.size, row)
        if down.size % 2:
            copy(maps[n, low * row : high * row], room[low * row :])
        _products(
            waves, down.cosines, room, (width, down.frequencies, high, channels), (begin, two, step),
            (0, 0, high, 1), (0, channels, row),
        )  # fmt: skip
        _products(
            waves, down.sines, room, (width, down.frequencies, low, channels), (begin + channels, two, step),
            (0, 0, low, 1), (high * row, channels, row),
        )  # fmt: skip


@_loops
def _down_back(waves: Array, channels: int, down: Axis, width: int, maps: Array) -> None:
    two, row = 2 * channels, width * channels
    step = len(maps) * width * two
    low = down.size // 2
    high = down.size - low
    for n in range(len(maps)):
        begin = n * width * two
        _products(
            maps[n], down.cosines, waves, (width, high, down.frequencies, channels), (0, channels, row),
            (0, 0, 1, high), (begin, two, step),
        )  # fmt: skip
        _products(
            maps[n], down.sines, waves, (width, low, down.frequencies, channels), (high * row, channels, row),
            (0, 0, 1, low), (begin + channels, two, step),
        )  # fmt: skip
        _unfold(maps[n], down.size, row)


@_loops
def _across(waves: Array, count: int, channels: int, across: Axis, spectra: Array, line: Array) -> None:
    """The spectra of one wave down the columns (N, W, 2 C), which is lost: (frequencies, N, 2 C), flat.

    Frequencies are all those across, each with its negative.
    """
    two = 2 * channels
    left = across.size // 2
    right = across.size - left
    for n in range(count):
        wave = waves[n * across.size * two : (n + 1) * across.size * two]
        _fold(wave, wave, across.size, two)
        _products(
            line, across.cosines, wave, (1, across.frequencies, right, two), (0, 0, 2 * two),
            (0, 0, right, 1), (0, 0, two),
        )  # fmt: skip
        _products(
            line, across.sines, wave, (1, across.frequencies, left, two), (two, 0, 2 * two),
            (0, 0, left, 1), (right * two, 0, two),
        )  # fmt: skip
        for k in range(across.frequencies):
            plus = (2 * k * count + n) * two
            minus = plus + count * two
            for cc in range(2 * k * two, 2 * k * two + channels, LANES):
                sc, cs, ss = cc + channels, cc + two, cc + two + channels
                _mirror(spectra, minus, plus, line, ss, cc)
                _mirror(spectra, plus + channels, minus + channels, line, cs, sc)
                plus, minus = plus + LANES, minus + LANES


@_loops
def _across_back(spectra: Array, count: int, channels: int, across: Axis, waves: Array, line: Array) -> None:
    two = 2 * channels
    left = across.size // 2
    right = across.size - left
    for n in range(count):
        for k in range(across.frequencies):
            plus = (2 * k * count + n) * two
            minus = plus + count * two
            for cc in range(2 * k * two, 2 * k * two + channels, LANES):
                sc, cs, ss = cc + channels, cc + two, cc + two + channels
                _mirror(line, cc, ss, spectra, plus, minus)
                _mirror(line, sc, cs, spectra, minus + channels, plus + channels)
                plus, minus = plus + LANES, minus + LANES
        wave = waves[n * across.size * two : (n + 1) * across.size * two]
        _products(
            wave, across.cosines, line, (1, right, across.frequencies, two), (0, 0, two),
            (0, 0, 1, right), (0, 0, 2 * two),
        )  # fmt: skip
        _products(
            wave, across.sines, line, (1, left, across.frequencies, two), (right * two, 0, two),
            (0, 0, 1, left), (two, 0, 2 * two),
        )  # fmt: skip
        _unfold(wave, across.size, two)


@_loops
def transform(maps: Array, channels: int, axes: Axes, spectra: Array, room: Room) -> None:
    """The spectra (frequencies, N, 2 C) of maps (N, H W C): of all waves down the columns, one by one."""
    down, across = axes
    count, two = len(maps), 2 * channels
    _down(maps, channels, down, across.size, room.waves, room.folded)
    for k in range(down.frequencies):
        wave, part = k * count * across.size * two, k * 2 * across.frequencies * count * two
        _across(room.waves[wave:], count, channels, across, spectra[part:], room.line)


@_loops
def transform_back(spectra: Array, channels: int, axes: Axes, maps: Array, room: Room) -> None:
    """The maps of spectra that count every frequency as often as it and its negative stand for it."""
    down, across = axes
    count, two = len(maps), 2 * channels
    for k in range(down.frequencies):
        wave, part = k * count * across.size * two, k * 2 * across.frequencies * count * two
        _across_back(spectra[part:], count, channels, across, room.waves[wave:], room.line)
    _down_back(room.waves, channels, down, across.size, maps)


@_loops
def filter_and_correlate(
    maps: Array, inputs: int, before: Axes, kernel: Array, to: Array, others: Array, correlated: Array,
    outputs: int, after: Axes, room: Room,
) -> None:  # fmt: skip
    """Filter maps (N, H W C) to others (N, H' W' F), if they are wanted, and correlate such, if any, with them.

    The kernel is complex, (frequencies, 2, C, F), and what is added to `correlated` is (frequencies, 2, F, C).
    One wave down the columns comes after the other, so that its spectra stay in a core's cache.
    """
    (down, across), (down_after, across_after) = before, after
    count, parts = len(maps), 2 * across.frequencies
    two, two_after, pairs = 2 * inputs, 2 * outputs, inputs * outputs
    _down(maps, inputs, down, across.size, room.waves, room.folded)
    if len(others):
        _down(others, outputs, down_after, across_after.size, room.waves_after, room.folded)
    for k in range(down.frequencies):
        at = k * parts * 2 * pairs
        after_wave = room.waves_after[k * count * across_after.size * two_after :]
        _across(room.waves[k * count * across.size * two :], count, inputs, across, room.spectra, room.line)
        if len(others):
            _across(after_wave, count, outputs, across_after, room.spectra_after, room.line)
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
            _across_back(room.spectra_after, count, outputs, across_after, after_wave, room.line)
    if len(to):
        _down_back(room.waves_after, outputs, down_after, across_after.size, to)
