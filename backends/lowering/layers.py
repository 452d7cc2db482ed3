"""A graph as chips see it: populations of neurons, and one linear operator per connection between them.

Every path of synaptic nodes (convolution, affine, pooling, scale, flatten, delay) from one population to
the next is composed into one operator, exactly:

    x[target] = sum over connections of operator @ spikes[source] + bias[target]

Convolution after pooling stays a convolution wherever that is exact; anything else becomes a sparse matrix.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar, Literal

import nir
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nrf.errors import InputError
from nrf.export.graph import NEURONS, Graph

Pair = tuple[int, int]
Floats = NDArray[np.float64]


class Operator:
    """A linear map from the spikes of one population to the drive of another: one of `KINDS`."""

    KINDS: ClassVar[tuple[type["Operator"], ...]]  # what a program file may hold in the place of an operator

    @property
    def inputs(self) -> int:
        """How many neurons it listens to."""
        raise NotImplementedError

    def matrix(self) -> sparse.csr_array:
        """The operator as a sparse matrix (outputs, inputs)."""
        raise NotImplementedError

    def scaled(self, factors: Floats) -> "Operator":
        """Results multiplied by one factor per group of consecutive neurons."""
        matrix = self.matrix()
        each = np.repeat(factors, matrix.shape[0] // len(factors))
        return Matrix(sparse.csr_array(sparse.diags_array(each) @ matrix))


@dataclass(frozen=True)
class Conv(Operator):
    """Cross-correlation: y[o, h, w] = sum weight[o, i, j, k] x[i, h stride - padding + j dilation, ...]."""

    weight: NDArray[Any]  # (out, in / groups, kernel height, kernel width); integers once lowered
    input_shape: tuple[int, int, int]
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    kind: Literal["conv"] = "conv"

    @property
    def inputs(self) -> int:
        """Channels times places."""
        return prod(self.input_shape)

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of the result."""
        height, width = (
            (size + 2 * pad - gap * (kernel - 1) - 1) // step + 1
            for size, pad, gap, kernel, step in zip(
                self.input_shape[1:],
                self.padding,
                self.dilation,
                self.weight.shape[2:],
                self.stride,
                strict=True,
            )
        )
        return self.weight.shape[0], height, width

    @property
    def is_sound(self) -> bool:
        """Whether kernel, map and the other numbers fit each other."""
        out, per_group, *kernel = self.weight.shape
        positive = (
            min(out, per_group, *kernel, *self.input_shape, *self.stride, *self.dilation, self.groups) > 0
        )
        return (
            positive
            and min(self.padding) >= 0
            and out % self.groups == 0
            and per_group * self.groups == self.input_shape[0]
            and min(self.output_shape) > 0
        )

    def matrix(self) -> sparse.csr_array:
        """The same operator as a sparse matrix (outputs, inputs)."""
        channels, height, width = self.input_shape
        out_channels, out_height, out_width = self.output_shape
        kernel_height, kernel_width = self.weight.shape[2:]
        o, i, j, k, h, w = np.ogrid[
            :out_channels, : self.weight.shape[1], :kernel_height, :kernel_width, :out_height, :out_width
        ]
        row = h * self.stride[0] - self.padding[0] + j * self.dilation[0]
        column = w * self.stride[1] - self.padding[1] + k * self.dilation[1]
        channel = i + (o // (out_channels // self.groups)) * self.weight.shape[1]
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        source = (channel * height + row) * width + column
        target = (o * out_height + h) * out_width + w
        value = self.weight[..., None, None]
        source, target, value, inside = np.broadcast_arrays(source, target, value, inside)
        keep = inside & (value != 0)
        size = (out_channels * out_height * out_width, channels * height * width)
        return sparse.csr_array((value[keep], (target[keep], source[keep])), shape=size)

    def scaled(self, factors: Floats) -> Operator:
        """A convolution again if there is one factor per channel."""
        if len(factors) != len(self.weight):
            return super().scaled(factors)
        return replace(self, weight=self.weight * factors[:, None, None, None])


@dataclass(frozen=True)
class Matrix(Operator):
    """y = weight @ x on flattened maps; `weight` is (outputs, inputs)."""

    weight: sparse.csr_array
    kind: Literal["matrix"] = "matrix"

    @property
    def inputs(self) -> int:
        """Columns."""
        return int(self.weight.shape[1])

    def matrix(self) -> sparse.csr_array:
        """The operator itself."""
        return self.weight


Operator.KINDS = (Conv, Matrix)


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
            way.operator or _identity(graph.shapes[way.source]),
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
            total = summed(old.operator or _identity(shape), new.operator or _identity(shape))
            if total is not None:
                path = tuple(dict.fromkeys(old.path + new.path))
                ways[place] = replace(old, path=path, operator=total)
                return
    ways.append(new)


def _identity(shape: tuple[int, ...]) -> Matrix:
    return Matrix(sparse.eye_array(int(np.prod(shape)), format="csr"))


def summed(one: Operator, other: Operator) -> Operator | None:
    """Both operators at once; None where convolutions would have to become matrices."""
    if isinstance(one, Matrix) and isinstance(other, Matrix):
        return Matrix(sparse.csr_array(one.weight + other.weight))
    if isinstance(one, Conv) and isinstance(other, Conv) and _geometry(one) == _geometry(other):
        return replace(one, weight=one.weight + other.weight)
    return None


def _geometry(conv: Conv) -> tuple[Any, ...]:
    return conv.weight.shape, conv.input_shape, conv.stride, conv.padding, conv.dilation, conv.groups


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


def composed_path(graph: Graph, source: str, path: Sequence[str]) -> list[tuple[Operator, int]]:
    """The operators of a chain of synaptic nodes, each with its delay: one for each value of Delay nodes."""
    parts: list[tuple[Operator | None, int]] = [(None, 0)]
    shape = graph.shapes[source]
    for name in path:
        parts = [
            (longer, delay + more)
            for operator, delay in parts
            for longer, more in composed(graph, name, shape, operator)
        ]
        shape = graph.shapes[name]
    return [(operator or _identity(shape), delay) for operator, delay in parts]


def composed(
    graph: Graph, name: str, shape: tuple[int, ...], operator: Operator | None
) -> list[tuple[Operator | None, int]]:
    """An operator led through one node that sees maps of `shape`, each with the delay that this adds."""
    node = graph.nodes[name]
    if isinstance(node, nir.Flatten):
        return [(operator, 0)]
    if not isinstance(node, nir.Delay):
        return [(_after(operator, _operator_of(graph, name, shape)), 0)]
    steps = np.round(np.asarray(node.delay) / (graph.contract.dt or 1.0)).astype(int).ravel()
    values = np.unique(steps)
    if len(values) == 1:
        return [(operator, int(values[0]))]
    masks = [Matrix(sparse.csr_array(sparse.diags_array((steps == n).astype(float)))) for n in values]
    return [(_after(operator, mask), int(n)) for mask, n in zip(masks, values, strict=True)]


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


def _after(first: Operator | None, second: Operator) -> Operator:
    """`second` applied to the result of `first`, or alone."""
    if first is None:
        return second
    if isinstance(first, Conv) and isinstance(second, Conv):
        merged = _merge(first, second)
        if merged is not None:
            return merged
    if isinstance(first, Conv) and isinstance(second, Matrix):
        scales = _channel_scales(second, first.output_shape)
        if scales is not None:
            return first.scaled(scales)
    return Matrix(sparse.csr_array(second.matrix() @ first.matrix()))


def _channel_scales(matrix: Matrix, shape: tuple[int, int, int]) -> Floats | None:
    """One factor per channel, if that is all the matrix does."""
    coo = matrix.weight.tocoo()
    if matrix.weight.shape[0] != matrix.weight.shape[1] or np.any(coo.row != coo.col):
        return None
    factors = matrix.weight.diagonal().reshape(shape[0], -1)
    return np.asarray(factors[:, 0]) if np.all(factors == factors[:, :1]) else None


def _merge(first: Conv, second: Conv) -> Conv | None:
    """Two convolutions as one, or None where borders would make it inexact.

    kernel k1 + (k2 - 1) d2 s1, stride s1 s2, padding p1 + p2 s1. The second one's padding stands for zeros,
    so each window of the first that lies beyond its map must lie beyond the input as well.
    """
    if first.dilation != (1, 1):
        return None
    for axis in (0, 1):
        size, kernel = first.input_shape[1 + axis], first.weight.shape[2 + axis]
        step, pad = first.stride[axis], first.padding[axis]
        before = -step - pad + kernel - 1 < 0  # last pixel of the window just before the map
        after = first.output_shape[1 + axis] * step - pad >= size  # first pixel of the window just after
        if second.padding[axis] and not (before and after):
            return None
    channel_wise = first.groups == first.input_shape[0] == first.weight.shape[0]  # pooling, for example
    if second.groups != 1 and not (channel_wise and first.groups == second.groups):
        return None
    k1, k2 = first.weight.shape[2:], second.weight.shape[2:]
    gaps = [second.dilation[axis] * first.stride[axis] for axis in (0, 1)]
    kernel = [k1[axis] + (k2[axis] - 1) * gaps[axis] for axis in (0, 1)]
    inputs = first.input_shape[0] if second.groups == 1 else 1
    weight = np.zeros((second.weight.shape[0], inputs, *kernel))
    for j in range(k2[0]):
        for k in range(k2[1]):
            tap = second.weight[:, :, j, k, None, None]
            if second.groups != 1:
                block = tap * np.repeat(first.weight, second.weight.shape[0] // second.groups, axis=0)
            elif channel_wise:
                block = tap * first.weight[None, :, 0]
            else:
                block = np.einsum("om,mihw->oihw", tap[:, :, 0, 0], ungrouped(first))
            weight[:, :, j * gaps[0] :, k * gaps[1] :][:, :, : k1[0], : k1[1]] += block
    return Conv(
        weight,
        first.input_shape,
        (first.stride[0] * second.stride[0], first.stride[1] * second.stride[1]),
        (
            first.padding[0] + second.padding[0] * first.stride[0],
            first.padding[1] + second.padding[1] * first.stride[1],
        ),
        groups=second.groups,
    )


def ungrouped(conv: Conv) -> Floats:
    """Weights (out, in, height, width) with the zeros between groups written out."""
    out, per_group = conv.weight.shape[:2]
    weight = np.zeros((out, conv.input_shape[0], *conv.weight.shape[2:]))
    size = out // conv.groups
    for group in range(conv.groups):
        rows = slice(group * size, (group + 1) * size)
        weight[rows, group * per_group : (group + 1) * per_group] = conv.weight[rows]
    return weight


def bias_into(graph: Graph, target: str) -> Floats:
    """What reaches `target` when nothing spikes: biases carried through the nodes after them."""
    silent: dict[str, Floats] = {}  # what leaves a synaptic node then

    def before(name: str) -> Floats:
        parts = [behind(source) for source, _ in steps_into(graph, name) if not is_source(graph, source)]
        return sum(parts[1:], parts[0]) if parts else np.zeros(())

    def behind(name: str) -> Floats:
        if name not in silent:
            node, shape, arriving = graph.nodes[name], graph.shapes[name], before(name)
            total = np.zeros(shape)
            if np.any(arriving):
                for operator, _ in composed(graph, name, arriving.shape, None):
                    passed = arriving.ravel() if operator is None else operator.matrix() @ arriving.ravel()
                    total += passed.reshape(shape)
            bias = np.asarray(getattr(node, "bias", 0.0), np.float64)
            spatial = (1,) * (len(shape) - 1) if isinstance(node, nir.Conv1d | nir.Conv2d) else ()
            silent[name] = total + bias.reshape(bias.shape + spatial)
        return silent[name]

    return np.array(np.broadcast_to(before(target), graph.shapes[target]))
