"""How rules are written: one small function per limit of the chip, named after what it demands."""

from collections.abc import Callable, Iterable, Sequence

from nrf.backends.speck.structure import Layer
from nrf.backends.target import Target
from nrf.export.graph import Graph
from nrf.findings import Finding

LayerRule = Callable[[Layer, Graph, Target], Iterable[Finding]]
GraphRule = Callable[[Sequence[Layer], Graph, Target], Iterable[Finding]]
LAYER_RULES: list[LayerRule] = []
GRAPH_RULES: list[GraphRule] = []


def layer_rule(function: LayerRule) -> LayerRule:
    """Add a rule about one layer; findings carry its name."""
    LAYER_RULES.append(function)
    return function


def graph_rule(function: GraphRule) -> GraphRule:
    """Add a rule about all layers together."""
    GRAPH_RULES.append(function)
    return function


def error(node: str, message: str, remedy: str) -> Finding:
    """What a rule finds; its name is filled in by `check`."""
    return Finding("", "error", node, message, remedy)


def halved(layer: Layer) -> tuple[int, tuple[int, int]]:
    """The next larger stride, and the output map that it would give."""
    return 2 * layer.conv.stride[0], ((layer.shape[1] + 1) // 2, (layer.shape[2] + 1) // 2)
