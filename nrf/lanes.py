"""Vectors as numbers of compiled loops: lanes of an array are taken, reckoned with like one number, and put.

LLVM makes vectors of a loop itself where it can be sure, or ask at run time, that no arrays overlap; of more
than a few it gives up. Here they are spelled out, and the same arithmetic serves numbers, lanes and torch.
Where a processor's registers are shorter, LLVM uses several.
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import models, overload, register_model

from nrf.vectors import constant, instruction, spread, vector_at

LANES = 16  # of most loops: a vector of 512 bits, or several shorter ones


class Lanes(types.Type):
    """So many numbers of one type with a sign, or truths."""

    def __init__(self, dtype: Any, count: int) -> None:
        self.dtype, self.count = dtype, count
        super().__init__(name=f"Lanes({dtype}, {count})")


@register_model(Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Lanes) -> None:
        item = ir.IntType(1) if kind.dtype == types.boolean else manager[kind.dtype].get_value_type()
        super().__init__(manager, kind, ir.VectorType(item, kind.count))  # type: ignore[no-untyped-call]


def _same(target: Any, builder: Any, kind: Lanes, given: Any, value: Any) -> Any:
    """Lanes, or a number as lanes of a kind."""
    if isinstance(given, Lanes):
        return value
    return spread(builder, target.cast(builder, value, given, kind.dtype), kind.count)


def _of_two(function: Callable[..., Any], make: Callable[..., Any], gives: Any = None) -> None:
    """An operator of lanes and lanes, or of lanes and a number of their type."""

    @instruction
    def compute(context: Any, a: Any, b: Any) -> Any:
        kind = a if isinstance(a, Lanes) else b

        def generate(target: Any, builder: Any, signature: Any, values: list[Any]) -> Any:
            both = [
                _same(target, builder, kind, given, value)
                for given, value in zip((a, b), values, strict=True)
            ]
            return make(builder, isinstance(kind.dtype, types.Float), *both)

        return Lanes(gives or kind.dtype, kind.count)(a, b), generate

    @overload(function, strict=False)
    def _(a: Any, b: Any) -> Any:
        if isinstance(a, Lanes) or isinstance(b, Lanes):
            return lambda a, b: compute(a, b)
        return None


def _arithmetic(name: str) -> Callable[..., Any]:
    return lambda builder, floats, a, b: getattr(builder, "f" * floats + name)(a, b)


def _comparison(sign: str) -> Callable[..., Any]:
    def compare(builder: Any, floats: bool, a: Any, b: Any) -> Any:
        of_floats = builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered  # NaN is not itself
        return (of_floats if floats else builder.icmp_signed)(sign, a, b)

    return compare


for _function, _name in {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "div",
    operator.and_: "and_", operator.or_: "or_", operator.lshift: "shl", operator.rshift: "ashr",
}.items():  # fmt: skip
    _of_two(_function, _arithmetic(_name))
for _function, _sign in {
    operator.gt: ">", operator.ge: ">=", operator.lt: "<", operator.le: "<=", operator.ne: "!=",
}.items():  # fmt: skip
    _of_two(_function, _comparison(_sign), types.boolean)


@instruction
def _absolute(context: Any, a: Any) -> Any:
    def generate(target: Any, builder: Any, signature: Any, values: list[Any]) -> Any:
        kind = values[0].type
        if not isinstance(a.dtype, types.Float):
            zero = ir.Constant(kind, None)
            return builder.select(
                builder.icmp_signed("<", values[0], zero), builder.neg(values[0]), values[0]
            )
        name = f"llvm.fabs.v{a.count}f{a.dtype.bitwidth}"
        fabs = builder.module.declare_intrinsic(name, fnty=ir.FunctionType(kind, [kind]))
        return builder.call(fabs, values)

    return a(a), generate


@overload(abs, strict=False)
def _abs(a: Any) -> Any:
    return (lambda a: _absolute(a)) if isinstance(a, Lanes) else None


@instruction
def where(context: Any, condition: Any, yes: Any, no: Any) -> Any:
    """Of lanes or of one number each: `yes` where the condition holds, else `no`."""
    one = yes if isinstance(yes, Lanes) else no
    kind = Lanes(one.dtype if isinstance(one, Lanes) else one, condition.count)

    def generate(target: Any, builder: Any, signature: Any, values: list[Any]) -> Any:
        pair = [
            _same(target, builder, kind, given, value)
            for given, value in zip((yes, no), values[1:], strict=True)
        ]
        return builder.select(values[0], *pair)

    return kind(condition, yes, no), generate


@constant
def take(context: Any, values: Any, first: Any, count: Any) -> Any:
    """So many lanes of an array from the first on; the count is a constant."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    lanes = count.literal_value

    def generate(target: Any, builder: Any, signature: Any, given: list[Any]) -> Any:
        place, align = vector_at(target, builder, signature.args[0], given[0], given[1], lanes)
        return builder.load(place, align=align)

    return Lanes(values.dtype, lanes)(values, types.intp, count), generate


@instruction
def put(context: Any, values: Any, first: Any, lanes: Any) -> Any:
    """Write lanes to an array from the first on."""

    def generate(target: Any, builder: Any, signature: Any, given: list[Any]) -> Any:
        place, align = vector_at(target, builder, signature.args[0], given[0], given[1], lanes.count)
        builder.store(given[2], place, align=align)
        return target.get_dummy_value()

    return types.void(values, types.intp, lanes), generate


@instruction
def bits_of(context: Any, truths: Any) -> Any:
    """Truths as the lowest bits of a number."""

    def generate(target: Any, builder: Any, signature: Any, given: list[Any]) -> Any:
        mask = builder.bitcast(given[0], ir.IntType(truths.count))
        return builder.zext(mask, ir.IntType(64))

    return types.uint64(truths), generate


@instruction
def largest(context: Any, a: Any) -> Any:
    """The largest of lanes of whole numbers."""

    def generate(target: Any, builder: Any, signature: Any, values: list[Any]) -> Any:
        name = f"llvm.vector.reduce.smax.v{a.count}i{a.dtype.bitwidth}"
        kind = ir.FunctionType(values[0].type.element, [values[0].type])
        return builder.call(builder.module.declare_intrinsic(name, fnty=kind), values)

    return a.dtype(a), generate
