"""How spikes get from one population to the next: pooling on the way, then everything else as one kernel."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

import nir
import numpy as np

from nrf.backends.lowering.layers import composed_path
from nrf.backends.lowering.operators import Conv, Operator, after
from nrf.backends.speck.chip import Speck
from nrf.backends.speck.program import Shape, map_shape
from nrf.backends.speck.rewrites import stride_of_one_place
from nrf.export.graph import Graph


@dataclass(frozen=True)
class Upstream:
    """Where a population's input comes from, and what lies on the way."""

    name: str  # a population, or the graph's input
    shape: Shape  # before pooling
    pools: tuple[tuple[str, Conv], ...] = ()  # pooling nodes on the way, as convolutions
    delay: int = 0  # steps of Delay nodes on the way

    @property
    def pool(self) -> int:
        """Sum pooling in all, as one number; the rules make sure that it is one."""
        return prod(pool.weight.shape[2] for _, pool in self.pools)

    @property
    def share(self) -> float:
        """What average pooling multiplies by, as a factor of the kernel."""
        return prod(float(pool.weight.flat[0]) for _, pool in self.pools)


@dataclass(frozen=True)
class Way:
    """One chain of nodes into a population: pooling that belongs to the source, then the rest."""

    source: Upstream
    before: Shape  # after pooling
    nodes: tuple[str, ...]  # after pooling
    path: tuple[str, ...]  # those of `nodes` that do more than to reshape or to wait
    recurrent: bool
    operators: tuple[tuple[Operator, int], ...]  # of `nodes`, one for each delay in steps


def way_of(graph: Graph, chip: Speck, start: str, path: tuple[str, ...], recurrent: bool) -> Way:
    """Leading pooling goes to the source as far as the chip has it, the rest to the kernel.

    Where that makes no kernel of the chip all of it stays with the source, and a rule says what is missing.
    """
    pools: list[tuple[str, Conv]] = []
    begin = start
    for node in path:
        if not isinstance(graph.nodes[node], nir.SumPool2d | nir.AvgPool2d):
            break
        ((pool, _),) = composed_path(graph, begin, (node,))
        pools += [(node, part) for part in _parts(pool)]
        begin = node
    rest = path[len(dict(pools)) :]

    def way(count: int) -> Way:
        there, later = pools[:count], pools[count:]
        first = reduce(after, (pool for _, pool in later), None)
        operators = tuple(composed_path(graph, begin, rest, first)) if later or rest else ()
        delay = operators[0][1] if operators else 0
        source = Upstream(start, map_shape(graph.shapes[start]), tuple(there), delay)
        before = there[-1][1].output_shape if there else source.shape
        nodes = (*dict(later), *rest)
        kept = tuple(node for node in nodes if not _passes(graph.nodes[node]))
        return Way(source, before, nodes, kept, recurrent, operators)

    counts = range(len(pools), -1, -1)
    composed = way(next(count for count in counts if _on_the_way([pool for _, pool in pools[:count]], chip)))
    in_kernel = len(composed.source.pools) < len(pools)
    onto = map_shape(graph.shapes[path[-1]]) if path else composed.before
    if in_kernel and not all(_is_kernel(one, composed.before, onto, chip) for one, _ in composed.operators):
        return way(len(pools))
    return composed


def _parts(pool: Operator) -> list[Conv]:
    """Pooling as pooling several times by primes, so that some of it can be left to the kernel."""
    assert isinstance(pool, Conv)
    side = pool.weight.shape[2]
    if {*pool.weight.shape[2:], *pool.stride} != {side} or pool.padding != (0, 0):
        return [pool]
    parts, part = [], pool  # the first one has the division of an average
    for prime in _primes(side):
        weight = np.broadcast_to(part.weight[:, :, :1, :1], (*pool.weight.shape[:2], prime, prime))
        parts.append(replace(part, weight=weight, stride=(prime, prime)))
        part = replace(part, weight=np.ones_like(weight), input_shape=parts[-1].output_shape)
    return parts


def _primes(number: int) -> list[int]:
    """Its prime factors, 1 of 1."""
    least = next((n for n in range(2, number) if number % n == 0), number)
    return [least, *(_primes(number // least) if least < number else ())]


def _on_the_way(pools: Sequence[Conv], chip: Speck) -> bool:
    """Whether the chip pools so on the way from core to core."""
    sides = [pool.weight.shape[2:] for pool in pools]
    plain = all(len({*side, *pool.stride}) == 1 for side, pool in zip(sides, pools, strict=True))
    bare, whole = all(pool.padding == (0, 0) for pool in pools), prod(side[0] for side in sides)
    return plain and bare and (whole == 1 or whole in chip.pool.sizes)


def _is_kernel(operator: Operator, before: Shape, onto: Shape, chip: Speck) -> bool:
    """Whether a core can convolve so; what leads onto one place is a kernel as large as the map."""
    if not isinstance(operator, Conv):
        return onto[1:] == (1, 1) and max(before[1:]) <= chip.kernel.max_side
    side = max(operator.weight.shape[2:])
    return {*stride_of_one_place(operator).stride} <= {*chip.kernel.strides} and side <= chip.kernel.max_side


def _passes(node: nir.NIRNode) -> bool:
    """Whether a node leaves all values as they are, perhaps for later."""
    ones = isinstance(node, nir.Scale) and bool(np.all(node.scale == 1))
    return ones or isinstance(node, nir.Flatten | nir.Delay)
