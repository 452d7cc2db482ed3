"""What compiled loops over spikes share: whole vectors, bits, and which values are not 0.

LLVM takes a loop over an array apart into vectors only after it has asked, at run time, whether the arrays
overlap; for rows of some dozen numbers that costs more than the sums. So these vectors are spelled out. Any
processor can do them: where its registers are shorter, LLVM uses several.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from nrf.kernels import compiled

instruction = cast(Callable[[Callable[..., Any]], Callable[..., Any]], intrinsic)  # for mypy
BLOCK = 64  # neurons that are compared at once, and passed over where nothing reaches them


def vector_at(target: Any, builder: Any, kind: Any, array: Any, first: Any, lanes: int) -> tuple[Any, int]:
    """A pointer to so many lanes of an array from the first on, and how it is aligned."""
    data = target.make_array(kind)(target, builder, array).data
    item = target.get_data_type(kind.dtype)
    pointer = ir.VectorType(item, lanes).as_pointer()
    return builder.bitcast(builder.gep(data, [first]), pointer), target.get_abi_sizeof(item)


def spread(builder: Any, value: Any, lanes: int) -> Any:
    """A vector of one value."""
    first = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    first = builder.insert_element(first, value, ir.IntType(32)(0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(ir.IntType(32), lanes), None))


def _adder(lanes: int) -> Callable[..., None]:
    """Make a function of compiled code that adds so many lanes of rows of weights to cells.

    cells[cell + lane] += count (weights[rows[0] + shift + lane] + weights[rows[1] + shift + lane] + ...)

    Weights have 16 bits, cells as many or more. `rows` is a tuple; no bound is checked.
    """

    @instruction
    def add(context: Any, cells: Any, cell: Any, weights: Any, rows: Any, shift: Any, count: Any) -> Any:
        def generate(target: Any, builder: Any, signature: Any, values: list[Any]) -> Any:
            total: Any = None
            for number in range(len(signature.args[3])):
                begin = builder.add(builder.extract_value(values[3], number), values[4])
                place, align = vector_at(target, builder, signature.args[2], values[2], begin, lanes)
                row = builder.load(place, align=align)
                total = row if total is None else builder.add(total, row)
            place, align = vector_at(target, builder, signature.args[0], values[0], values[1], lanes)
            before = builder.load(place, align=align)
            if before.type != total.type:
                total = builder.sext(total, before.type)
            total = builder.mul(total, spread(builder, values[5], lanes))
            builder.store(builder.add(before, total), place, align=align)
            return target.get_dummy_value()

        return types.void(cells, cell, weights, rows, shift, cells.dtype), generate

    return add


add_16, add_8, add_4 = _adder(16), _adder(8), _adder(4)


@instruction
def not_zero(context: Any, cells: Any, first: Any) -> Any:
    """The bits of those of a block of cells, from the first on, that are not 0."""

    def generate(target: Any, builder: Any, signature: Any, values: list[Any]) -> Any:
        place, align = vector_at(target, builder, signature.args[0], values[0], values[1], BLOCK)
        block = builder.load(place, align=align)
        compare = builder.fcmp_unordered if isinstance(cells.dtype, types.Float) else builder.icmp_unsigned
        return builder.bitcast(compare("!=", block, ir.Constant(block.type, None)), ir.IntType(64))

    return types.uint64(cells, first), generate


@instruction
def lowest_bit(context: Any, mask: Any) -> Any:
    """The number of the lowest bit that is 1, of a mask that has one."""

    def generate(target: Any, builder: Any, signature: Any, values: list[Any]) -> Any:
        return builder.cttz(values[0], ir.IntType(1)(1))

    return types.int64(types.uint64), generate


@instruction
def bit_count(context: Any, mask: Any) -> Any:
    """How many bits of a mask are 1."""

    def generate(target: Any, builder: Any, signature: Any, values: list[Any]) -> Any:
        return builder.ctpop(values[0])

    return types.int64(types.uint64), generate


@compiled(inline="always", allocates=False)
def nonzero_bits(values: Any, first: Any) -> Any:
    """The bits of those of the next 64 values, or of as many as there are, that are not 0."""
    if first + BLOCK <= len(values):
        return not_zero(values, first)
    mask = np.uint64(0)
    for k in range(first, len(values)):
        mask |= np.uint64(values[k] != 0) << np.uint64(k - first)
    return mask


@compiled(nogil=True, allocates=False)
def count(values: Any) -> Any:
    """How many values are not 0."""
    total = 0
    for first in range(0, len(values), BLOCK):
        total += bit_count(nonzero_bits(values, first))
    return total


@compiled(allocates=False)
def find(values: Any, place: Any, count: Any) -> Any:
    """Places and values, as whole numbers, of all that is not 0, up to the room there is.

    Returns how many there are, whether all of them are whole numbers, and the lowest and highest, or 0.
    """
    found, whole, lowest, highest = 0, True, np.int64(0), np.int64(0)
    for first in range(0, len(values), BLOCK):
        mask = nonzero_bits(values, first)
        if mask and found + bit_count(mask) > len(place):
            found += bit_count(mask)
            continue
        while mask:
            k = first + lowest_bit(mask)
            mask &= mask - np.uint64(1)
            place[found], count[found] = k, np.int64(values[k])
            whole &= count[found] == values[k]
            lowest, highest = min(lowest, count[found]), max(highest, count[found])
            found += 1
    return found, whole, lowest, highest


@compiled(allocates=False)
def in_order(
    inside: Any, counts: Any, channels: Any, places: Any, order: Any, ordered: Any, first: Any
) -> None:
    """Spikes of one step, from the order in memory to that of neuron numbers, by counting channels.

    `inside` become neuron numbers in place, still in the order in memory; `order` are the same numbers
    sorted, with their `counts` in `ordered`; `first` is room for one number more than channels.
    """
    first[: channels + 1] = 0
    width, side = np.uint32(channels), np.uint32(places)  # divisions of few bits without a sign are quick
    for k in range(len(inside)):
        place = np.uint32(inside[k]) // width
        channel = np.uint32(inside[k]) - place * width
        inside[k] = channel * side + place
        first[channel + 1] += 1
    for row in range(channels):
        first[row + 1] += first[row]
    for k in range(len(inside)):
        channel = np.uint32(inside[k]) // side
        order[first[channel]], ordered[first[channel]] = inside[k], counts[k]
        first[channel] += 1


@compiled(allocates=False)
def copy(values: Any, to: Any) -> None:
    """The first numbers of `to` become those values."""
    for k in range(len(values)):
        to[k] = values[k]
