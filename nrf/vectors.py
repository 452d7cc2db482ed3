"""What compiled loops over spikes share: whole vectors, bits, and which values are not 0.

LLVM takes a loop over an array apart into vectors only after it has asked, at run time, whether the arrays
overlap; for rows of some dozen numbers that costs more than the sums. So these vectors are spelled out. Any
processor can do them: where its registers are shorter, LLVM uses several.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from nrf.kernels import compiled

instruction = cast(Callable[[Callable[..., Any]], Callable[..., Any]], intrinsic)  # for mypy
# The same, told the values of constants and not only their types.
constant = cast(Callable[[Callable[..., Any]], Callable[..., Any]], intrinsic(prefer_literal=True))
tuple_of: Callable[..., Any] = types.UniTuple  # for mypy
CACHE_LINE, AHEAD = 64, 2**14  # bytes
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


@contextmanager
def _loop(builder: Any, number: Any) -> Iterator[Any]:
    """A loop that counts up to a number, as it stands: LLVM makes none of several turns of it.

    Lines of taps are few, so that what several at once need before and after them costs more than they spare.
    """
    start, head = builder.block, builder.append_basic_block("head")
    body, end = builder.append_basic_block("body"), builder.append_basic_block("end")
    builder.branch(head)
    builder.position_at_end(head)
    index = builder.phi(number.type)
    index.add_incoming(number.type(0), start)
    builder.cbranch(builder.icmp_signed("<", index, number), body, end)
    builder.position_at_end(body)
    yield index
    index.add_incoming(builder.add(index, number.type(1)), builder.block)
    back = builder.branch(head)
    word = builder.module.add_metadata([ir.MetaDataString(builder.module, "llvm.loop.unroll.disable")])
    back.set_metadata("llvm.loop", loop := builder.module.add_metadata([word, word]))
    loop.operands = (loop, word)  # a loop's name is a node that holds itself
    builder.position_at_end(end)


@constant
def add_rows(
    context: Any, cells: Any, cell: Any, weights: Any, rows: Any, tap: Any, size: Any, lanes: Any, count: Any
) -> Any:
    """Add rows of weights to lines of cells.

        cells[cell[0] + y cell[1] + k] += count (weights[rows[0] + w] + weights[rows[1] + w] + ...)

    where w = tap[0] + y tap[1] + k, for every y below size[0] and every k below lanes size[1]; `lanes` is a
    constant. Weights have 16 bits, cells as many or more. A count of None is 1. No bound is checked.
    """
    if not isinstance(lanes, types.IntegerLiteral):
        return None
    width = lanes.literal_value

    def generate(target: Any, builder: Any, signature: Any, values: list[Any]) -> Any:
        (cell, pitch), (first, line), (lines, vectors) = (
            [builder.extract_value(values[pair], side) for side in (0, 1)] for pair in (1, 4, 5)
        )
        starts = [builder.add(builder.extract_value(values[3], k), first) for k in range(len(rows))]
        times = None if count == types.none else spread(builder, values[7], width)

        def add_vector(y: Any, lane: Any) -> None:
            """One vector of line y."""
            total: Any = None
            for start in starts:
                place = builder.add(builder.add(start, builder.mul(y, line)), lane)
                pointer, align = vector_at(target, builder, weights, values[2], place, width)
                taps = builder.load(pointer, align=align)
                total = taps if total is None else builder.add(total, taps)
            place = builder.add(builder.add(cell, builder.mul(y, pitch)), lane)
            pointer, align = vector_at(target, builder, cells, values[0], place, width)
            before = builder.load(pointer, align=align)
            if before.type != total.type:
                total = builder.sext(total, before.type)
            total = builder.mul(total, times) if times else total
            builder.store(builder.add(before, total), pointer, align=align)

        with builder.if_else(builder.icmp_signed("==", vectors, vectors.type(1))) as (one, many):
            with one, _loop(builder, lines) as y:
                add_vector(y, lines.type(0))
            with many, _loop(builder, lines) as y, _loop(builder, vectors) as k:
                add_vector(y, builder.mul(k, vectors.type(width)))
        return target.get_dummy_value()

    pair, times = tuple_of(types.intp, 2), types.none if count == types.none else cells.dtype
    return types.void(cells, pair, weights, rows, pair, pair, lanes, times), generate


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
def fetch_ahead(context: Any, cells: Any, first: Any) -> Any:
    """Ask memory for what lies `AHEAD` bytes behind a block of cells, so that it is here when it is read."""

    def generate(target: Any, builder: Any, signature: Any, values: list[Any]) -> Any:
        place, _ = vector_at(target, builder, cells, values[0], values[1], BLOCK)
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        form = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", (byte,), form)
        for line in range(0, BLOCK * target.get_abi_sizeof(target.get_data_type(cells.dtype)), CACHE_LINE):
            ahead = builder.gep(builder.bitcast(place, byte), [ir.IntType(64)(AHEAD + line)])
            builder.call(prefetch, [ahead, number(0), number(3), number(1)])  # to be read, often, as data
        return target.get_dummy_value()

    return types.void(cells, first), generate


@instruction
def lowest_bit(context: Any, mask: Any) -> Any:
    """The number of the lowest bit that is 1, of a mask that has one."""

    def generate(target: Any, builder: Any, signature: Any, values: list[Any]) -> Any:
        return builder.cttz(values[0], ir.IntType(1)(1))

    return types.int64(types.uint64), generate


@instruction
def highest_bit(context: Any, mask: Any) -> Any:
    """The number of the highest bit that is 1, of a mask that has one."""

    def generate(target: Any, builder: Any, signature: Any, values: list[Any]) -> Any:
        return builder.sub(ir.IntType(64)(63), builder.ctlz(values[0], ir.IntType(1)(1)))

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
def find(values: Any, size: Any, t: Any, i: Any, n: Any, firsts: Any, masks: Any) -> Any:
    """Step, place and value, as a whole number, of all that is not 0, up to the room there is.

    Steps have `size` values. Returns how many were found, whether all of them are whole numbers, and the
    lowest and highest, or 0. `firsts` and `masks` are room for blocks in which something is not 0: these are
    looked for first, without a branch, as fast as memory gives them.
    """
    found, whole, lowest, highest = 0, True, np.int64(0), np.int64(0)
    step, start = 0, 0
    for begin in range(0, len(values), BLOCK * len(masks)):
        held = 0
        for first in range(begin, min(begin + BLOCK * len(masks), len(values)), BLOCK):
            fetch_ahead(values, first)
            mask = nonzero_bits(values, first)
            firsts[held], masks[held] = first, mask
            held += mask != 0
        for k in range(held):
            first, mask = firsts[k], masks[k]
            if found + bit_count(mask) > len(t):
                found += bit_count(mask)
                continue
            while mask:
                place = first + lowest_bit(mask)
                mask &= mask - np.uint64(1)
                while place >= start + size:
                    step, start = step + 1, start + size
                t[found], i[found], n[found] = step, place - start, np.int64(values[place])
                whole &= n[found] == values[place]
                lowest, highest = min(lowest, n[found]), max(highest, n[found])
                found += 1
    return found, whole, lowest, highest


@compiled(allocates=False)
def spread_steps(counts: Any, numbers: Any, t: Any, i: Any) -> None:
    """Each number, of which so many are in every step, with its step."""
    first = 0
    for step in range(len(counts)):
        part, steps, to = numbers[first : first + counts[step]], t[first:], i[first:]
        for k in range(len(part)):
            steps[k], to[k] = step, part[k]
        first += counts[step]


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
