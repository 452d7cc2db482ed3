"""Compiled loops of `nrf.model.spectral`: products of small matrices, and the transform of a map.

Channels stand next to each other, in whole vectors of 16, and the same is done to all of them.
"""

from typing import Any, NamedTuple

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from nrf.kernels import compiled
from nrf.vectors import _all as spread
from nrf.vectors import _vector as vector_at
from nrf.vectors import copy, instruction

Array = NDArray[Any]
LANES = 16
BLOCK = 8  # rows of a product that stay in registers


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


@instruction
def _add_products(
    context: Any, to: Any, first: Any, row: Any, matrix: Any, begin: Any, down: Any, on: Any, values: Any,
    start: Any, below: Any, depth: Any, rows: Any, add: Any,
) -> Any:  # fmt: skip
    """Up to BLOCK rows of a product, 16 columns wide, with the sums in registers.

    to[first + r row + lane] (+)= sum over k of matrix[begin + r down + k on] values[start + k below + lane]
    """

    def generate(target: Any, builder: Any, signature: Any, given: list[Any]) -> Any:
        to, first, row, matrix, begin, down, on, values, start, below, depth, rows, add = given
        of_to, of_matrix, of_values = (signature.args[k] for k in (0, 3, 7))
        fused = ("contract",)  # one rounding for product and sum, where the processor can
        factors = target.make_array(of_matrix)(target, builder, matrix).data
        for count in range(1, BLOCK + 1):
            numbers = [ir.Constant(row.type, r) for r in range(count)]
            with builder.if_then(builder.icmp_signed("==", rows, numbers[-1].type(count))):
                firsts = [builder.add(first, builder.mul(row, r)) for r in numbers]
                places = [vector_at(target, builder, of_to, to, at, LANES) for at in firsts]
                sums = []
                for place, align in places:
                    before = builder.load(place, align=align)
                    before = builder.select(add, before, ir.Constant(before.type, None))
                    sums.append(cgutils.alloca_once_value(builder, before))  # type: ignore[no-untyped-call]
                with cgutils.for_range(builder, depth) as loop:
                    at = builder.add(start, builder.mul(loop.index, below))
                    place, align = vector_at(target, builder, of_values, values, at, LANES)
                    value = builder.load(place, align=align)
                    column = builder.add(begin, builder.mul(loop.index, on))
                    for r, total in zip(numbers, sums, strict=True):
                        at = builder.add(column, builder.mul(down, r))
                        factor = spread(builder, builder.load(builder.gep(factors, [at])), LANES)
                        product = builder.fmul(factor, value, flags=fused)
                        builder.store(builder.fadd(builder.load(total), product, flags=fused), total)
                for (place, align), total in zip(places, sums, strict=True):
                    builder.store(builder.load(total), place, align=align)
        return target.get_dummy_value()

    n = types.intp
    kinds = to, n, n, matrix, n, n, n, values, n, n, n, n, types.boolean
    return types.void(*kinds), generate


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
def products(
    to: Array, matrix: Array, values: Array, sizes: tuple[int, int, int, int], to_at: tuple[int, int, int],
    matrix_at: tuple[int, int, int, int], values_at: tuple[int, int, int], add: bool,
) -> None:  # fmt: skip
    """to[b, r] (+)= sum over k of matrix[b, r, k] values[b, k], of rows of whole vectors.

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
                    to, first, to_at[2], matrix, begin, matrix_at[2], matrix_at[3], values, start,
                    values_at[2], depth, min(size, rows - r), add,
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
def transform(maps: Array, channels: int, down: Axis, across: Axis, spectra: Array, room: Array) -> None:
    """The spectra of maps (N, H W C): of each frequency and map real and imaginary parts, (F, N, 2 C), flat.

    Frequencies are all those down the rows, each with all those across and their negatives.
    `room` is for the folded map, its waves down the rows, and those of one of these across.
    """
    two = 2 * channels
    row, wide = across.size * channels, down.frequencies * two
    folded, waves = room[: down.size * row], room[down.size * row :]
    line = waves[across.size * wide :]
    low, left = down.size // 2, across.size // 2
    high, right = down.size - low, across.size - left
    for n in range(len(maps)):
        _fold(folded, maps[n], down.size, row)
        if down.size % 2:
            copy(maps[n, low * row : (low + 1) * row], folded[low * row :])
        products(
            waves, down.cosines, folded, (across.size, down.frequencies, high, channels), (0, wide, two),
            (0, 0, high, 1), (0, channels, row), False,
        )  # fmt: skip
        products(
            waves, down.sines, folded, (across.size, down.frequencies, low, channels), (channels, wide, two),
            (0, 0, low, 1), (high * row, channels, row), False,
        )  # fmt: skip
        _fold(waves, waves, across.size, wide)
        for k in range(down.frequencies):
            products(
                line, across.cosines, waves, (1, across.frequencies, right, two), (0, 0, 2 * two),
                (0, 0, right, 1), (k * two, 0, wide), False,
            )  # fmt: skip
            products(
                line, across.sines, waves, (1, across.frequencies, left, two), (two, 0, 2 * two),
                (0, 0, left, 1), (right * wide + k * two, 0, wide), False,
            )  # fmt: skip
            for wave in range(across.frequencies):
                plus = ((2 * (k * across.frequencies + wave)) * len(maps) + n) * two
                minus = plus + len(maps) * two
                for cc in range(2 * wave * two, 2 * wave * two + channels, LANES):
                    sc, cs, ss = cc + channels, cc + two, cc + two + channels
                    _mirror(spectra, minus, plus, line, ss, cc)
                    _mirror(spectra, plus + channels, minus + channels, line, cs, sc)
                    plus, minus = plus + LANES, minus + LANES


@_loops
def transform_back(spectra: Array, channels: int, down: Axis, across: Axis, maps: Array, room: Array) -> None:
    """The maps of spectra that count every frequency as often as it and its negative stand for it."""
    two = 2 * channels
    row, wide = across.size * channels, down.frequencies * two
    waves, line = room[: across.size * wide], room[across.size * wide :]
    low, left = down.size // 2, across.size // 2
    high, right = down.size - low, across.size - left
    for n in range(len(maps)):
        for k in range(down.frequencies):
            for wave in range(across.frequencies):
                plus = ((2 * (k * across.frequencies + wave)) * len(maps) + n) * two
                minus = plus + len(maps) * two
                for cc in range(2 * wave * two, 2 * wave * two + channels, LANES):
                    sc, cs, ss = cc + channels, cc + two, cc + two + channels
                    _mirror(line, cc, ss, spectra, plus, minus)
                    _mirror(line, sc, cs, spectra, minus + channels, plus + channels)
                    plus, minus = plus + LANES, minus + LANES
            products(
                waves, across.cosines, line, (1, right, across.frequencies, two), (k * two, 0, wide),
                (0, 0, 1, right), (0, 0, 2 * two), False,
            )  # fmt: skip
            products(
                waves, across.sines, line, (1, left, across.frequencies, two),
                (right * wide + k * two, 0, wide), (0, 0, 1, left), (two, 0, 2 * two), False,
            )  # fmt: skip
        _unfold(waves, across.size, wide)
        products(
            maps[n], down.cosines, waves, (across.size, high, down.frequencies, channels), (0, channels, row),
            (0, 0, 1, high), (0, wide, two), False,
        )  # fmt: skip
        products(
            maps[n], down.sines, waves, (across.size, low, down.frequencies, channels),
            (high * row, channels, row), (0, 0, 1, low), (channels, wide, two), False,
        )  # fmt: skip
        _unfold(maps[n], down.size, row)


@_loops
def conjugate_products(spectra: Array, weights: Array, kernel: Array) -> None:
    """The product with conj(W), W (F, 2, C, O) flat, as a real one (F, 2 C, 2 O): [[r, -i], [i, r]]."""
    inputs, outputs = kernel.shape[1] // 2, kernel.shape[2] // 2
    size = inputs * outputs
    for f in range(len(kernel)):
        for c in range(inputs):
            real, imaginary = 2 * f * size + c * outputs, (2 * f + 1) * size + c * outputs
            for o in range(outputs):
                r, i = weights[f] * spectra[real + o], weights[f] * spectra[imaginary + o]
                kernel[f, c, o] = r
                kernel[f, c, outputs + o] = -i
                kernel[f, inputs + c, o] = i
                kernel[f, inputs + c, outputs + o] = r


@_loops
def conjugate_products_back(kernel: Array, weights: Array, spectra: Array) -> None:
    """The gradient of spectra W (F, 2, C, O), flat, from that of the real products (F, 2 C, 2 O)."""
    inputs, outputs = kernel.shape[1] // 2, kernel.shape[2] // 2
    size = inputs * outputs
    for f in range(len(kernel)):
        for c in range(inputs):
            real, imaginary = 2 * f * size + c * outputs, (2 * f + 1) * size + c * outputs
            for o in range(outputs):
                r = kernel[f, c, o] + kernel[f, inputs + c, outputs + o]
                i = kernel[f, inputs + c, o] - kernel[f, c, outputs + o]
                spectra[real + o], spectra[imaginary + o] = weights[f] * r, weights[f] * i
