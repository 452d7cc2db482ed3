"""A graph as chips see it: populations of neurons, and one linear operator per connection between them.

Every path of synaptic nodes (convolution, affine, pooling, scale, flatten, delay) from one population to
the next is composed into one operator, exactly:

    x[target] = sum over connections of operator @ spikes[source] + bias[target]
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import nir
import numpy as np

from nrf.arrays import Floats, compact
from nrf.backends.lowering.operators import Conv, Matrix, Operator, Pair, after, identity, summed
from nrf.errors import InputError
from nrf.export.graph import NEURONS, Graph
from nrf.lazy import sparse


@dataclass(frozen=True)
class Connection:
    """Spikes of `source` reach `target` through `operator`, `delay` steps late (Delay nodes on the way)."""

    source: str  # a population, or the graph's input
    target: str
    path: tuple[str, ...]  # synaptic nodes in between, in order
    operator: Operator
    delay: int = 0
    recurrent: bool = False  # carries the spikes of the step before
    external: bool = False  # comes from the graph's input


@dataclass(frozen=True)
class Population:
    """Neurons of one node, with the constant input that biases on the way add up to."""

    name: str
    node: nir.NIRNode
    shape: tuple[int, ...]
    bias: Floats  # `shape`; same unit as the operators' results


@dataclass(frozen=True)
class Layers:
    """All populations in topological order, and all connections between them."""

    populations: dict[str, Population]
    connections: tuple[Connection, ...]

    def into(self, target: str) -> list[Connection]:
        """Connections that end in `target`."""
        return [connection for connection in self.connections if connection.target == target]


def layers_of(graph: Graph) -> Layers:
    """Split a canonical graph into populations and connections.

    >>> layers_of(graph).into("lif2")[0].operator.stride  # doctest: +SKIP
    (2, 2)
    """
    populations = {
        name: Population(name, graph.nodes[name], graph.shapes[name], bias_into(graph, name))
        for name in graph.neurons
    }
    return Layers(populations, tuple(way for name in populations for way in connections_into(graph, name)))


@dataclass(frozen=True)
class _Way:
    """All chains of synaptic nodes from a source to some node with the same delay, as one operator."""

    source: str
    path: tuple[str, ...]
    operator: Operator | None  # None: spikes as they are
    delay: int
    recurrent: bool


def connections_into(
    graph: Graph, target: str, late: Mapping[tuple[str, str], int] | None = None
) -> list[Connection]:
    """What drives a node, node by node from its sources on: branches that meet again are added up there.

    So a chain of n diamonds costs n sums, not one product for each of its 2^n paths. Steps that the contract
    puts on edges behind a source (`late`) count as delay.
    """
    behind: dict[str, list[_Way]] = {}  # what leaves a synaptic node

    def before(name: str) -> list[_Way]:
        ways: list[_Way] = []
        for source, recurrent in steps_into(graph, name):
            if is_source(graph, source):
                steps = (late or {}).get((source, name), 0)
                _add(ways, _Way(source, (), None, steps, recurrent), graph.shapes[source])
                continue
            if source not in behind:
                behind[source] = [far for near in before(source) for far in _through(graph, source, near)]
            for way in behind[source]:
                _add(ways, replace(way, recurrent=way.recurrent or recurrent), graph.shapes[source])
        return ways

    return [
        Connection(
            way.source,
            target,
            way.path,
            way.operator or identity(graph.shapes[way.source]),
            way.delay,
            way.recurrent,
            external=way.source == graph.input,
        )
        for way in before(target)
    ]


def _through(graph: Graph, name: str, way: _Way) -> Iterator[_Way]:
    """A way led through one more node; one for each value of a Delay."""
    shape = graph.shapes[graph.inputs_of(name)[0]]
    for operator, delay in composed(graph, name, shape, way.operator):
        yield replace(way, path=(*way.path, name), operator=operator, delay=way.delay + delay)


def _add(ways: list[_Way], new: _Way, shape: tuple[int, ...]) -> None:
    """Append a way, or add it to one from the same source with the same delay."""
    for place, old in enumerate(ways):
        if all(getattr(old, key) == getattr(new, key) for key in ("source", "delay", "recurrent")):
            total = summed(old.operator or identity(shape), new.operator or identity(shape))
            if total is not None:
                path = tuple(dict.fromkeys(old.path + new.path))
                ways[place] = replace(old, path=path, operator=total)
                return
    ways.append(new)


def is_source(graph: Graph, name: str) -> bool:
    """Whether connections begin at a node: the input, or neurons."""
    return name == graph.input or isinstance(graph.nodes[name], NEURONS)


def steps_into(graph: Graph, target: str) -> Iterator[tuple[str, bool]]:
    """The nodes right before one, and whether they are heard a step later."""
    is_delay = isinstance(graph.nodes[target], nir.Delay)  # then its own steps open the loop
    for source in graph.inputs_of(target):
        yield source, (source, target) in graph.recurrent and not is_delay


def paths_into(graph: Graph, target: str) -> Iterator[tuple[str, tuple[str, ...], bool]]:
    """Every chain of synaptic nodes into `target`, one by one: its source, the chain, if it is recurrent."""
    for source, recurrent in steps_into(graph, target):
        if is_source(graph, source):
            yield source, (), recurrent
        else:
            for start, path, earlier in paths_into(graph, source):
                yield start, (*path, source), recurrent or earlier


def composed_path(
    graph: Graph, source: str, path: Sequence[str], first: Operator | None = None
) -> list[tuple[Operator, int]]:
    """The operators of a chain of synaptic nodes, each with its delay: one for each value of Delay nodes.

    `first` comes before all of them, and gives maps of the source's shape.
    """
    parts: list[tuple[Operator | None, int]] = [(first, 0)]
    shape = graph.shapes[source]
    for name in path:
        parts = [
            (longer, delay + more)
            for operator, delay in parts
            for longer, more in composed(graph, name, shape, operator)
        ]
        shape = graph.shapes[name]
    return [(operator or identity(shape), delay) for operator, delay in parts]


def composed(
    graph: Graph, name: str, shape: tuple[int, ...], operator: Operator | None
) -> list[tuple[Operator | None, int]]:
    """An operator led through one node that sees maps of `shape`, each with the delay that this adds."""
    node = graph.nodes[name]
    if isinstance(node, nir.Flatten):
        return [(operator, 0)]
    if not isinstance(node, nir.Delay):
        return [(after(operator, _operator_of(graph, name, shape)), 0)]
    steps = np.round(np.asarray(node.delay) / (graph.contract.dt or 1.0)).astype(int).ravel()
    values = np.unique(steps)
    if len(values) == 1:
        return [(operator, int(values[0]))]
    masks = [Matrix(sparse.csr_array(sparse.diags_array((steps == n).astype(float)))) for n in values]
    return [(after(operator, mask), int(n)) for mask, n in zip(masks, values, strict=True)]


def _pair(value: Any) -> Pair:
    height, width = np.broadcast_to(np.asarray(value, dtype=int), 2)
    return int(height), int(width)


def _operator_of(graph: Graph, name: str, shape: tuple[int, ...]) -> Operator:
    """The operator of one synaptic node; its bias is counted elsewhere."""
    node = graph.nodes[name]
    match node:
        case nir.Conv2d():
            weight = np.asarray(node.weight, np.float64)
            size = (shape[0], shape[1], shape[2])
            return Conv(
                weight, size, _pair(node.stride), _pair(node.padding), _pair(node.dilation), int(node.groups)
            )
        case nir.Conv1d():
            weight = np.asarray(node.weight, np.float64)[:, :, None, :]
            stride, padding, dilation = (
                int(np.ravel(v)[0]) for v in (node.stride, node.padding, node.dilation)
            )
            size = (shape[0], 1, shape[1])
            return Conv(weight, size, (1, stride), (0, padding), (1, dilation), int(node.groups))
        case nir.SumPool2d() | nir.AvgPool2d():
            kernel = _pair(node.kernel_size)
            value = 1.0 if isinstance(node, nir.SumPool2d) else 1.0 / (kernel[0] * kernel[1])
            size = (shape[0], shape[1], shape[2])
            weight = np.full((shape[0], 1, *kernel), value)
            return Conv(weight, size, _pair(node.stride), _pair(node.padding), groups=shape[0])
        case nir.Affine():
            weight = np.asarray(node.weight, np.float64)  # (..., out, in): one matrix per leading index
            blocks = map(sparse.csr_array, weight.reshape(-1, *weight.shape[-2:]))
            return Matrix(sparse.csr_array(sparse.block_diag(list(blocks))))
        case nir.Scale():
            scale = np.broadcast_to(np.asarray(node.scale, np.float64), shape)
            return Matrix(sparse.csr_array(sparse.diags_array(scale.ravel())))
    raise InputError(
        f"{graph.name}: node '{name}': {type(node).__name__} is no synapse that a chip can carry"
    )


def bias_into(graph: Graph, target: str) -> Floats:
    """What reaches `target` in the end when nothing spikes: biases carried through the nodes after them."""
    total = sum(biases_into(graph, target).values(), np.zeros(()))
    return compact(np.broadcast_to(total, graph.shapes[target]))


def biases_into(graph: Graph, target: str) -> dict[int, Floats]:
    """The same by the step at which each part arrives first: that of Delay nodes on its way."""
    silent: dict[str, dict[int, Floats]] = {}  # what leaves a synaptic node then

    def before(name: str) -> dict[int, Floats]:
        parts: dict[int, Floats] = {}
        for source, _ in steps_into(graph, name):
            if not is_source(graph, source):
                for steps, part in behind(source).items():
                    parts[steps] = parts.get(steps, 0.0) + part
        return parts

    def behind(name: str) -> dict[int, Floats]:
        if name not in silent:
            node, shape = graph.nodes[name], graph.shapes[name]
            bias = np.asarray(getattr(node, "bias", 0.0), np.float64)
            spatial = (1,) * (len(shape) - 1) if isinstance(node, nir.Conv1d | nir.Conv2d) else ()
            parts = {0: np.zeros(shape) + bias.reshape(bias.shape + spatial)}
            for steps, arriving in before(name).items():
                for operator, more in composed(graph, name, arriving.shape, None) if np.any(arriving) else ():
                    passed = arriving.ravel() if operator is None else operator.matrix() @ arriving.ravel()
                    parts[steps + more] = parts.get(steps + more, 0.0) + passed.reshape(shape)
            silent[name] = parts
        return silent[name]

    return before(target)
