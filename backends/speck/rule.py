"""What the rules of the chip look at, and what they share."""

from collections.abc import Sequence

from nrf.backends.border.chip import Target
from nrf.backends.lowering.rules import Rules
from nrf.backends.speck.structure import Layer
from nrf.export.graph import Graph

LAYER = Rules[[Layer, Graph, Target]]()  # one layer at a time
WHOLE = Rules[[Sequence[Layer], Graph, Target]]()  # all layers together


def halved(layer: Layer) -> tuple[int, tuple[int, int]]:
    """The next larger stride, and the output map that it would give."""
    return 2 * layer.conv.stride[0], ((layer.shape[1] + 1) // 2, (layer.shape[2] + 1) // 2)
