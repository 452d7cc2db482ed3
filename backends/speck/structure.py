"""A graph as Speck sees it: per core pooled sources, one convolution, one population of neurons.

    spikes of each source --> sum pooling --> one convolution --> neurons

Sum pooling belongs to the way from one core to the next and stays apart from the convolution; everything
after it is composed into one kernel. What does not have this form becomes a finding, never a silent change.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import nir
import numpy as np

from nrf.backends.lowering.layers import Conv, Floats, Operator, bias_into, composed, paths_into
from nrf.backends.speck.program import Shape, map_shape
from nrf.export.contract import Contract
from nrf.export.graph import NEURONS, Graph
from nrf.findings import Finding, Found, Rules


@dataclass(frozen=True)
class Pool:
    """One pooling node on the way from a source to a core."""

    node: str
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    average: bool  # divides by the area of the kernel


@dataclass(frozen=True)
class Source:
    """Where a core's input comes from."""

    name: str  # a population, or the graph's input
    shape: Shape  # before pooling
    pools: tuple[Pool, ...] = ()

    @property
    def pool(self) -> int:
        """Sum pooling in all, as one number; the rules make sure that it is one."""
        return prod(pool.kernel[0] for pool in self.pools)

    @property
    def share(self) -> float:
        """What average pooling divides by, as a factor of the kernel."""
        return prod(1.0 / prod(pool.kernel) for pool in self.pools if pool.average)


@dataclass(frozen=True)
class Way:
    """One chain of nodes into a population: pooling that belongs to the source, then the rest."""

    source: Source
    before: Shape  # after pooling
    path: tuple[str, ...]  # nodes after pooling
    recurrent: bool
    operators: tuple[tuple[Operator, int], ...]  # of `path`, one for each delay in steps


@dataclass(frozen=True)
class Layer:
    """What one core would hold, still in volts."""

    node: str  # the neurons
    path: tuple[str, ...]  # nodes of the convolution, in order
    synapse: str  # the one to name where the kernel is the matter
    neuron: nir.NIRNode
    shape: Shape
    sources: tuple[Source, ...]
    conv: Conv  # volts per spike
    bias: Floats  # `shape`, volts per step

    @property
    def kernel_words(self) -> int:
        """Kernel memory: c * 2^(ceil(log2(kx ky)) + ceil(log2 f)) words."""
        features, _, *side = self.conv.weight.shape
        return self.conv.input_shape[0] << (_ceil_log2(prod(side)) + _ceil_log2(features))

    @property
    def neuron_words(self) -> int:
        """Neuron memory: f * 2^(ceil(log2 fy) + ceil(log2 fx)) words."""
        return neuron_words(*self.shape)

    @property
    def halved(self) -> tuple[int, tuple[int, int]]:
        """The next larger stride, and the output map that it would give."""
        return 2 * self.conv.stride[0], ((self.shape[1] + 1) // 2, (self.shape[2] + 1) // 2)

    @property
    def fan_out(self) -> float:
        """Synaptic operations per input spike away from the border."""
        features, _, height, width = self.conv.weight.shape
        return float(features * height * width / prod(self.conv.stride))

    def per_channel(self, key: str) -> Floats:
        """A neuron parameter as one value per channel; 1 where the neuron has none."""
        value = np.asarray(getattr(self.neuron, key, 1.0), np.float64)
        if value.size == prod(self.shape):
            return np.asarray(value.reshape(self.shape[0], -1)[:, 0])
        return np.broadcast_to(value.ravel(), self.shape[0])


def neuron_words(features: int, height: int, width: int) -> int:
    """Words of memory for the neurons of a map, whose sides count as powers of two."""
    return features << (_ceil_log2(height) + _ceil_log2(width))


def _ceil_log2(value: int) -> int:
    return max(value - 1, 0).bit_length()


@dataclass(frozen=True)
class Normal:
    """A layer in units of its channels' thresholds: `v >= 1` fires. Scaling a channel changes no spike."""

    weight: Floats  # (out, in, kernel, kernel) thresholds per spike
    bias: Floats  # (out,) thresholds per step
    floor: float  # thresholds; -inf for none. One for all channels: the rule `one_floor_per_core` sees to it
    volts: Floats  # (out,) volts per threshold


def normal(layer: Layer, contract: Contract) -> Normal:
    """A layer in units of its thresholds. A LIF layer is taken as if it did not leak, with its floor at 0.

    IF   v <- v + dt r (W s + b)        LIF   v <- v + dt/tau r (W s + b)
    """
    threshold, leaks = layer.per_channel("v_threshold"), isinstance(layer.neuron, nir.LIF)
    gain = (contract.dt or 1.0) * layer.per_channel("r") / layer.per_channel("tau") / threshold
    floor = -np.inf if contract.v_min is None else float(np.min(contract.v_min / threshold))
    weight, bias = layer.conv.weight * gain[:, None, None, None], layer.bias[:, 0, 0] * gain
    return Normal(weight, bias, 0.0 if leaks else floor, threshold)


FORM = Rules[[str, Sequence[Way], Graph]]()  # a population and all ways into it
ENDS = Rules[[Graph]]()


def structure(graph: Graph) -> tuple[list[Layer], list[Finding]]:
    """The layers of a graph in topological order, and all that has not the form of a layer."""
    layers, findings = [], []
    for node in graph.neurons:
        ways = [_way(graph, *path) for path in paths_into(graph, node)]
        unfit = FORM.findings(node, ways, graph)
        findings += unfit
        if not unfit:
            layers.append(_layer(graph, node, ways))
    return layers, findings + ENDS.findings(graph)


@FORM.rule("error")
def feed_forward(node: str, ways: Sequence[Way], graph: Graph) -> Found:
    """Spikes flow one way: a step has no end on the chip, so that nothing can come a step later."""
    for way in ways:
        if way.recurrent:
            edge = f"{way.source.name} -> {node}"
            yield edge, "recurrent connections are not supported on Speck", "use a feed-forward graph"


@FORM.rule("error")
def one_kernel_per_core(node: str, ways: Sequence[Way], graph: Graph) -> Found:
    """The maps of all sources are added before one convolution."""
    if len({way.path for way in ways}) != 1:
        names = " and ".join(dict.fromkeys(f"'{(*way.path, node)[0]}'" for way in ways))
        yield (
            node,
            f"its input comes through {names or 'nothing'}; a core has one kernel for all its sources",
            "let the sources meet before one convolution",
        )
    elif len({way.source.share for way in ways}) > 1:
        parts = " and ".join(f"'{way.source.name}' divided by {1 / way.source.share:g}" for way in ways)
        yield (
            node,
            f"pooling brings it {parts}; a core has one kernel for all its sources",
            "pool all of them by the sum, or all by the average of equally many",
        )


@FORM.rule("error")
def no_delay(node: str, ways: Sequence[Way], graph: Graph) -> Found:
    """Spikes travel as fast as they can."""
    for way in ways:
        if steps := max((delay for _, delay in way.operators), default=0):
            yield way.path[0], f"a delay of {steps} steps is not supported on Speck", "remove the Delay node"


@FORM.rule("error")
def synapse_is_convolution(node: str, ways: Sequence[Way], graph: Graph) -> Found:
    """A core holds one kernel that is the same at every place. A vector is a map of one place."""
    if map_shape(graph.shapes[node])[1:] == (1, 1):
        return
    for way in ways:
        if any(not isinstance(operator, Conv) for operator, _ in way.operators):
            path = f"from '{way.source.name}' to it through {', '.join(way.path)}"
            remedy = "a core holds one kernel that is the same at every place"
            yield node, f"what leads {path} is no convolution", remedy


@ENDS.rule("error")
def one_output(graph: Graph) -> Found:
    """The host reads one population."""
    ends = graph.inputs_of(graph.output)
    if len(ends) > 1:
        yield (
            graph.output,
            f"{len(ends)} nodes end in it ({', '.join(ends)}); the host reads one population",
            "end the graph in one IF population, for example one that these feed",
        )


@ENDS.rule("error")
def ends_in_neurons(graph: Graph) -> Found:
    """The output is spikes as they are."""
    for node in graph.inputs_of(graph.output):
        if not isinstance(graph.nodes[node], NEURONS):
            yield (
                node,
                f"the output is a {type(graph.nodes[node]).__name__}, Speck gives spikes of neurons",
                "end the graph in an IF population and do the rest on the host",
            )


def _way(graph: Graph, start: str, path: tuple[str, ...], recurrent: bool) -> Way:
    """Leading pooling goes to the source, the rest to the kernel."""
    pools: list[Pool] = []
    for node in path:
        pool = graph.nodes[node]
        if not isinstance(pool, nir.SumPool2d | nir.AvgPool2d):
            break
        kernel, stride, padding = (
            tuple(np.broadcast_to(np.asarray(value, int), 2).tolist())
            for value in (pool.kernel_size, pool.stride, pool.padding)
        )
        pools.append(Pool(node, kernel, stride, padding, isinstance(pool, nir.AvgPool2d)))
    begin, rest = pools[-1].node if pools else start, path[len(pools) :]
    source = Source(start, map_shape(graph.shapes[start]), tuple(pools))
    operators = tuple(composed(graph, begin, rest)) if rest else ()
    return Way(source, map_shape(graph.shapes[begin]), rest, recurrent, operators)


def _layer(graph: Graph, node: str, ways: Sequence[Way]) -> Layer:
    """What a core would hold, where the ways have its form."""
    way, shape = ways[0], map_shape(graph.shapes[node])
    operator = way.operators[0][0] if way.path else Conv(np.eye(way.before[0])[:, :, None, None], way.before)
    if not isinstance(operator, Conv):  # onto a map of one place
        operator = Conv(operator.matrix().toarray().reshape(shape[0], *way.before), way.before)
    return Layer(
        node=node,
        path=way.path,
        synapse=next((name for name in way.path if hasattr(graph.nodes[name], "weight")), node),
        neuron=graph.nodes[node],
        shape=shape,
        sources=tuple(way.source for way in ways),
        conv=replace(operator, weight=operator.weight * way.source.share),
        bias=bias_into(graph, node).reshape(shape),
    )
