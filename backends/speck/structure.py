"""A graph as Speck sees it: per core pooled sources, one convolution, one population of neurons.

    spikes of each source --> sum pooling --> one convolution --> neurons

Sum pooling belongs to the way from one core to the next and stays apart from the convolution; everything
after it is composed into one kernel. What does not have this form becomes a finding, never a silent change.
"""

from dataclasses import dataclass, replace
from math import prod

import nir
import numpy as np

from nrf.backends.lowering.layers import Conv, Floats, Matrix, bias_into, compose, paths_into
from nrf.errors import InputError
from nrf.export.contract import Contract
from nrf.export.graph import NEURONS, Graph
from nrf.findings import Finding

Shape = tuple[int, int, int]


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
        features, height, width = self.shape
        return features << (_ceil_log2(height) + _ceil_log2(width))

    @property
    def fan_out(self) -> float:
        """Synaptic operations per input spike away from the border."""
        features, _, height, width = self.conv.weight.shape
        return float(features * height * width / prod(self.conv.stride))


def _ceil_log2(value: int) -> int:
    return max(value - 1, 0).bit_length()


def map_shape(shape: tuple[int, ...]) -> Shape:
    """Any node's shape as (channels, height, width)."""
    padded = (*shape, 1, 1) if len(shape) == 1 else (shape[0], 1, shape[1]) if len(shape) == 2 else shape
    return (padded[0], padded[1], padded[2])


@dataclass(frozen=True)
class Normal:
    """A layer in units of its channels' thresholds: `v >= 1` fires. Scaling a channel changes no spike."""

    weight: Floats  # (out, in, kernel, kernel) thresholds per spike
    bias: Floats  # (out,) thresholds per step
    floor: float  # thresholds; -inf for none. One for all channels: the rule `one_floor_per_core` sees to it
    volts: Floats  # (out,) volts per threshold


def normal(layer: Layer, contract: Contract) -> Normal:
    """An integrate-and-fire layer in units of its thresholds:  v <- v + dt r (W s + b)."""
    threshold = per_channel(layer, "v_threshold")
    gain = (contract.dt or 1.0) * per_channel(layer, "r") / threshold
    floor = -np.inf if contract.v_min is None else float(np.min(contract.v_min / threshold))
    return Normal(layer.conv.weight * gain[:, None, None, None], layer.bias[:, 0, 0] * gain, floor, threshold)


def per_channel(layer: Layer, key: str) -> Floats:
    """A neuron parameter as one value per channel; 1 where the neuron has none."""
    value = np.asarray(getattr(layer.neuron, key, 1.0), np.float64)
    channels = layer.shape[0]
    if value.size == prod(layer.shape):
        return np.asarray(value.reshape(channels, -1)[:, 0])
    return np.broadcast_to(value.ravel(), channels)


def structure(graph: Graph) -> tuple[list[Layer], list[Finding]]:
    """The layers of a graph in topological order, and all that has not the form of a layer."""
    layers, findings = [], []
    for name in graph.neurons:
        try:
            layers.append(_layer(graph, name))
        except _Unfit as unfit:
            findings.append(unfit.finding)
    findings += _ends(graph)
    return layers, findings


class _Unfit(Exception):
    """A population whose input has not the form of a layer."""

    def __init__(self, rule: str, node: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.finding = Finding(rule, "error", node, message, remedy)


def _layer(graph: Graph, name: str) -> Layer:
    kernels: dict[tuple[str, ...], list[Source]] = {}
    for start, path, recurrent in paths_into(graph, name):
        if recurrent:
            raise _Unfit(
                "feed_forward",
                f"{start} -> {name}",
                "recurrent connection",
                "only feed-forward graphs run here",
            )
        source, rest = _split(graph, start, path)
        kernels.setdefault(rest, []).append(source)
    if len(kernels) != 1:
        names = " and ".join(f"'{(path or (name,))[0]}'" for path in kernels) or "nothing"
        raise _Unfit(
            "one_kernel_per_core",
            name,
            f"its input comes through {names}; a core has one kernel for all its sources",
            "let the sources meet before one convolution",
        )
    ((path, sources),) = kernels.items()
    if len({source.share for source in sources}) > 1:
        parts = " and ".join(f"'{source.name}' divided by {1 / source.share:g}" for source in sources)
        raise _Unfit(
            "one_kernel_per_core",
            name,
            f"pooling brings it {parts}; a core has one kernel for all its sources",
            "pool all of them by the sum, or all by the average of equally many",
        )
    return Layer(
        node=name,
        path=path,
        synapse=next((node for node in path if hasattr(graph.nodes[node], "weight")), name),
        neuron=graph.nodes[name],
        shape=map_shape(graph.shapes[name]),
        sources=tuple(sources),
        conv=_convolution(graph, name, sources[0], path),
        bias=bias_into(graph, name).reshape(map_shape(graph.shapes[name])),
    )


def _split(graph: Graph, start: str, path: tuple[str, ...]) -> tuple[Source, tuple[str, ...]]:
    """Leading pooling goes to the source, the rest to the kernel."""
    pools = []
    for node in path:
        pool = graph.nodes[node]
        if not isinstance(pool, nir.SumPool2d | nir.AvgPool2d):
            break
        kernel, stride, padding = (
            tuple(np.broadcast_to(np.asarray(value, int), 2).tolist())
            for value in (pool.kernel_size, pool.stride, pool.padding)
        )
        pools.append(Pool(node, kernel, stride, padding, isinstance(pool, nir.AvgPool2d)))
    return Source(start, map_shape(graph.shapes[start]), tuple(pools)), path[len(pools) :]


def _convolution(graph: Graph, name: str, source: Source, path: tuple[str, ...]) -> Conv:
    """The kernel from the pooled map of a source to the neurons, average pooling included."""
    start = source.pools[-1].node if source.pools else source.name
    before, after = map_shape(graph.shapes[start]), map_shape(graph.shapes[name])
    if not path:
        return Conv(np.eye(before[0])[:, :, None, None] * source.share, before)
    try:
        operator, delay = compose(graph, start, path)
    except InputError as error:
        raise _Unfit("synapse_is_known", name, str(error).split(": ", 1)[1], "") from error
    if delay:
        raise _Unfit(
            "no_delay", path[0], f"a delay of {delay} steps", "the chip has none; remove the Delay node"
        )
    if isinstance(operator, Matrix):
        if after[1:] != (1, 1):
            raise _Unfit(
                "synapse_is_convolution",
                name,
                f"what leads from '{source.name}' to it through {', '.join(path)} is no convolution",
                "a core holds one kernel that is the same at every place",
            )
        weight = operator.weight.toarray().reshape(after[0], *before)
        operator = Conv(weight, before)
    return replace(operator, weight=operator.weight * source.share)


def _ends(graph: Graph) -> list[Finding]:
    """The output must be spikes of one population as they are."""
    findings = []
    ends = graph.inputs_of(graph.output)
    if len(ends) > 1:
        findings.append(
            Finding(
                "one_output",
                "error",
                graph.output,
                f"{len(ends)} nodes end in it ({', '.join(ends)}); the host reads one population",
                "end the graph in one IF population, for example one that these feed",
            )
        )
    for last in ends:
        if not isinstance(graph.nodes[last], NEURONS):
            findings.append(
                Finding(
                    "ends_in_neurons",
                    "error",
                    last,
                    f"the output is a {type(graph.nodes[last]).__name__}, the chip gives spikes of neurons",
                    "end the graph in an IF population and do the rest on the host",
                )
            )
    return findings
