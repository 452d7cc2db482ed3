"""A graph as Speck sees it: per core pooled sources, one convolution, one population of neurons.

    spikes of each source --> sum pooling --> one convolution --> neurons

Sum pooling belongs to the way from one core to the next and stays apart from the convolution; everything
after it is composed into one kernel. What has this form only after an exact rewrite becomes a note, what has
not becomes an error, never a silent change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from math import prod

import nir
import numpy as np

from nrf.arrays import Floats
from nrf.backends.lowering.layers import bias_into, paths_into
from nrf.backends.lowering.operators import Conv
from nrf.backends.lowering.readout import divided
from nrf.backends.speck.chip import Speck
from nrf.backends.speck.program import Kernel, Shape, map_shape
from nrf.backends.speck.rewrites import rewritten
from nrf.backends.speck.ways import Upstream, Way, way_of
from nrf.export.contract import Contract
from nrf.export.graph import Graph
from nrf.findings import Finding, Found, Rules, errors

FLOOR = -1.0  # thresholds, of a LIF; at 0 it would lose inhibition that comes before excitation in a step


@dataclass(frozen=True)
class Normal:
    """A layer in units of its channels' thresholds: `v >= 1` fires. Scaling a channel changes no spike."""

    weight: Floats  # (out, in, kernel, kernel) thresholds per spike
    bias: Floats  # (out,) thresholds per step
    floor: float  # thresholds; -inf for none. One for all channels: the rule `one_floor_per_core` sees to it
    volts: Floats  # (out,) volts per threshold


@dataclass(frozen=True)
class Layer:
    """What one core would hold, still in volts."""

    node: str  # the neurons
    path: tuple[str, ...]  # nodes of the convolution, in order
    synapse: str  # the one to name where the kernel is the matter
    neuron: nir.NIRNode
    contract: Contract  # that the neurons follow
    sources: tuple[Upstream, ...]
    conv: Kernel  # volts per spike
    bias: Floats  # `shape`, volts per step

    @property
    def shape(self) -> Shape:
        """(channels, height, width) of its neurons."""
        return self.conv.output_shape

    def words(self, channels: int) -> tuple[int, int]:
        """Kernel and neuron memory of so many of its channels.

        c * 2^(ceil(log2(kx ky)) + ceil(log2 f)) and f * 2^(ceil(log2 fy) + ceil(log2 fx)) words
        """
        side = self.conv.weight.shape[2:]
        kernel = self.conv.input_shape[0] << (_ceil_log2(prod(side)) + _ceil_log2(channels))
        return kernel, neuron_words(channels, *self.shape[1:])

    @property
    def halved(self) -> tuple[int, tuple[int, int]]:
        """The next larger stride, and the output map that it would give."""
        return 2 * self.conv.stride[0], ((self.shape[1] + 1) // 2, (self.shape[2] + 1) // 2)

    @property
    def fan_out(self) -> float:
        """Synaptic operations per input spike away from the border."""
        sides = zip(self.conv.weight.shape[2:], self.conv.stride, self.shape[1:], strict=True)
        return self.shape[0] * prod(min(kernel / stride, size) for kernel, stride, size in sides)

    @property
    def gain(self) -> Floats:
        """Volts that a unit of input adds to the membranes of every channel in a step.

        IF   v <- v + dt r (W s + b)        LIF   v <- a v + (1 - a) r (W s + b)        "unit": 1 for both
        """
        if self.contract.membrane == "unit":
            return np.ones(self.shape[0])
        share = (self.contract.dt or 1.0) / self.per_channel("tau")
        if isinstance(self.neuron, nir.LIF) and self.contract.integration == "exponential":
            share = -np.expm1(-share)
        return share * self.per_channel("r")

    @cached_property
    def unit(self) -> Normal:
        """In units of its thresholds. A LIF layer is taken as if it did not leak, with its floor at -1."""
        threshold, v_min = self.per_channel("v_threshold"), self.contract.v_min
        gain = self.gain / threshold
        floor = -np.inf if v_min is None else float(np.min(v_min / threshold))
        weight, bias = self.conv.weight * gain[:, None, None, None], self.bias[:, 0, 0] * gain
        return Normal(weight, bias, FLOOR if isinstance(self.neuron, nir.LIF) else floor, threshold)

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


MOST_WAYS = 64  # into a population: far more than any core can hear
FORM = Rules[[str, Sequence[Way], Graph]]()  # a population and all ways into it


def structure(graph: Graph, chip: Speck) -> tuple[list[Layer], list[Finding]]:
    """The layers of a graph in topological order, all rewrites, and all that has not the form of a layer."""
    parts = divided(graph)
    graph, findings, layers = parts.graph, [*parts.findings], []
    for node in graph.neurons:
        ways = [way_of(graph, chip, *path) for path in islice(paths_into(graph, node), MOST_WAYS + 1)]
        found = FORM.findings(node, ways, graph)
        if not errors(found):
            layer, notes = _layer(graph, node, ways)
            layers.append(layer)
            found += notes
        findings += found
    return layers, findings


def waits(layers: Sequence[Layer]) -> dict[str, int]:
    """Steps of Delay nodes on the way to each population, which all of its ways have in common."""
    steps: dict[str, int] = {}
    for layer in layers:
        ways = [source.delay + steps.get(source.name, 0) for source in layer.sources]
        steps[layer.node] = max(ways, default=0)
    return steps


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
    if len(ways) > MOST_WAYS:
        yield node, f"more than {MOST_WAYS} chains of nodes lead to it", "merge linear nodes into one"
        return
    paths = {way.path: f"'{(*way.path, node)[0]}'" for way in ways}
    maps = {way.before: f"a map of shape {way.before}" for way in ways}
    shares = {s.share: f"'{s.name}' divided by {1 / s.share:g}" for s in (way.source for way in ways)}
    for parts, remedy in (
        (paths, "let the sources meet before one convolution"),
        (maps, "give all sources the same channels, rows and columns"),
        (shares, "pool all of them by the sum, or all by the average of equally many"),
    ):
        if len(parts) != 1:
            listed = " and ".join(parts.values()) or "nothing"
            yield node, f"its input comes through {listed}; a core has one kernel for all its sources", remedy
            return


@FORM.rule("note")
def flattened_after_meeting(node: str, ways: Sequence[Way], graph: Graph) -> Found:
    """Maps of the same shape, flattened and added, are the flattened sum of the maps."""
    if len({way.nodes for way in ways}) > 1 and len({way.path for way in ways}) == 1:
        names = ", ".join(dict.fromkeys(name for way in ways for name in way.nodes if name not in way.path))
        yield node, f"its sources meet before {names} instead of after: reshaping changes no spike", ""


@FORM.rule("error")
def one_delay_per_way(node: str, ways: Sequence[Way], graph: Graph) -> Found:
    """Spikes travel as fast as they can: a delay is exact only where all that follows comes as much later."""
    for way in ways:
        if len(way.operators) > 1:
            steps = sorted(delay for _, delay in way.operators)
            name = next(name for name in way.nodes if isinstance(graph.nodes[name], nir.Delay))
            message = f"delays some values by {steps[0]} and others by {steps[-1]} steps, Speck none"
            yield name, message, "use one delay for all of them, or remove the Delay node"


@FORM.rule("note")
def one_kernel_of_several(node: str, ways: Sequence[Way], graph: Graph) -> Found:
    """Linear nodes one after the other are one linear map."""
    for path in dict.fromkeys(way.path for way in ways if len(way.path) > 1):
        yield node, f"{', '.join(path)} are held as one kernel: sums of products stay the same", ""


@FORM.rule("note")
def delay_only_shifts(node: str, ways: Sequence[Way], graph: Graph) -> Found:
    """The chip waits for nothing. What all of a population's input does, its spikes do too."""
    if steps := max((way.source.delay for way in ways), default=0):
        yield node, f"comes {steps} steps earlier on the chip, without the Delay before it, and says so", ""


@FORM.rule("error")
def synapse_is_convolution(node: str, ways: Sequence[Way], graph: Graph) -> Found:
    """A core holds one kernel that is the same at every place. A vector is a map of one place."""
    if map_shape(graph.shapes[node])[1:] == (1, 1):
        return
    for way in ways:
        if any(not isinstance(operator, Conv) for operator, _ in way.operators):
            path = f"from '{way.source.name}' to it through {', '.join(way.path)}"
            message = f"what leads {path} is not one kernel that is the same at every place"
            yield node, message, "put neurons between them, or leave out the padding of all but the first"


def _layer(graph: Graph, node: str, ways: Sequence[Way]) -> tuple[Layer, list[Finding]]:
    """What a core would hold, where the ways have its form, and the rewrites of its kernel."""
    way, shape = ways[0], map_shape(graph.shapes[node])
    identity = Conv(np.eye(way.before[0])[:, :, None, None], way.before)
    operator = way.operators[0][0] if way.operators else identity
    if not isinstance(operator, Conv):  # onto a map of one place
        operator = Conv(operator.matrix().toarray().reshape(shape[0], *way.before), way.before)
    synapse = next((name for name in way.path if hasattr(graph.nodes[name], "weight")), node)
    geometry = operator.stride, operator.padding, operator.dilation, operator.groups
    weight = operator.weight * way.source.share
    kernel, notes = rewritten(Kernel(weight, way.before, *geometry, map=shape[1:]), synapse)
    layer = Layer(
        node=node,
        path=way.path,
        synapse=synapse,
        neuron=graph.nodes[node],
        contract=graph.contract_of(node),
        sources=tuple(way.source for way in ways),
        conv=kernel,
        bias=bias_into(graph, node).reshape(shape),
    )
    return layer, notes
