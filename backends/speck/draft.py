"""A graph on its way to integers: its layers, where they go, and what has not the form of a layer.

What fits a core only after an exact rewrite becomes a note, what does not becomes an error, never a silent
change.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import islice

import nir
import numpy as np

from nrf.backends.lowering.layers import bias_into, paths_into
from nrf.backends.lowering.operators import Conv
from nrf.backends.lowering.readout import divided
from nrf.backends.speck.chip import Speck
from nrf.backends.speck.layers import Layer
from nrf.backends.speck.placement import Mapped, mapped
from nrf.backends.speck.program import Kernel, map_shape
from nrf.backends.speck.rewrites import rewritten
from nrf.backends.speck.ways import Way, way_of
from nrf.export.graph import Graph
from nrf.findings import Finding, Found, Rules, errors

MOST_WAYS = 64  # into a population: far more than any core can hear
FORM = Rules[[str, Sequence[Way], Graph]]()  # a population and all ways into it


class Draft:
    """A canonical graph and a chip, as rules and lowering see them."""

    def __init__(self, graph: Graph, chip: Speck) -> None:
        parts = divided(graph)
        self.graph, self.readout, self.chip = parts.graph, parts.readout, chip
        self.findings = [*parts.findings]  # rewrites, and what has not the form of a layer
        self.layers: list[Layer] = []  # all that has, in topological order
        for node in self.graph.neurons:
            paths = islice(paths_into(self.graph, node), MOST_WAYS + 1)
            ways = [way_of(self.graph, chip, *path) for path in paths]
            self.findings += (found := FORM.findings(node, ways, self.graph))
            if not errors(found):
                layer, notes = _layer(self.graph, node, ways)
                self.layers.append(layer)
                self.findings += notes

    @cached_property
    def mapped(self) -> Mapped:
        """The layers on cores."""
        return mapped(self.layers, self.chip)

    @property
    def sensor_pools(self) -> set[int]:
        """Pooling behind the input, which the sensor stage does."""
        sources = (source for layer in self.layers for source in layer.sources)
        return {source.pool for source in sources if source.name == self.graph.input}

    @cached_property
    def waits(self) -> dict[str, int]:
        """Steps of Delay nodes on the way to each population, which all of its ways have in common."""
        steps: dict[str, int] = {}
        for layer in self.layers:
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
    ways = [way for way in ways if not way.recurrent]  # of which `feed_forward` speaks
    paths = {
        way.path: f"'{way.path[0]}'" if way.path else f"an edge from '{way.source.name}'" for way in ways
    }
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
