"""Sums of rows in whole vectors, for compiled loops.

LLVM takes a loop over an array apart into vectors only after it has asked, at run time, whether the arrays
overlap; for rows of some dozen numbers that costs more than the sums. So these vectors are spelled out. Any
processor can do them: where its registers are shorter, LLVM uses several.
"""

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic


def _adder(lanes: int) -> Callable[..., None]:
    """Make a function of compiled code that adds rows of weights, so many lanes of them from the k-th on.

    cells[cell + k + lane] += weights[rows[0] + k + lane] + weights[rows[1] + k + lane] + ...

    Weights have 16 bits, cells as many or more. `rows` is a tuple; no bound is checked.
    """

    @intrinsic
    def add(context: Any, cells: Any, cell: Any, weights: Any, rows: Any, k: Any) -> Any:
        def generate(target: Any, builder: Any, signature: Any, values: list[Any]) -> Any:
            def vector(array: int, index: Any) -> Any:
                kind = signature.args[array]
                data = target.make_array(kind)(target, builder, values[array]).data
                wanted = ir.VectorType(target.get_value_type(kind.dtype), lanes).as_pointer()
                return builder.bitcast(builder.gep(data, [builder.add(index, values[4])]), wanted)

            begins = [builder.extract_value(values[3], k) for k in range(len(signature.args[3]))]
            total, *others = (builder.load(vector(2, begin), align=2) for begin in begins)
            for row in others:
                total = builder.add(total, row)
            place = vector(0, values[1])
            align = signature.args[0].dtype.bitwidth // 8
            before = builder.load(place, align=align)
            if before.type != total.type:
                total = builder.sext(total, before.type)
            builder.store(builder.add(before, total), place, align=align)
            return target.get_dummy_value()

        return types.void(cells, cell, weights, rows, k), generate

    return cast(Callable[..., None], add)


add_16, add_8, add_1 = _adder(16), _adder(8), _adder(1)
