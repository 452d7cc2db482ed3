"""Small graphs to check and lower."""

from itertools import pairwise
from typing import Any

import nir
import numpy as np

from nrf.backends.border import LowerOptions, load_chip
from nrf.backends.speck.chip import Speck
from nrf.backends.speck.lower import lower as lower_graph
from nrf.backends.speck.program import SpeckProgram
from nrf.export import Contract, Graph, canonical

SPECK = load_chip("speck2f")
assert isinstance(SPECK, Speck)
CHIP = Contract(dt=1.0, reset="subtract", fire="ge", v_min=-1.0)


def integrate_and_fire(shape: tuple[int, ...], threshold: Any = 1.0) -> nir.IF:
    """IF neurons that take the sum of their input each step."""
    return nir.IF(
        np.ones(shape), np.broadcast_to(np.asarray(threshold, float), shape).copy(), np.zeros(shape)
    )


def convolution(
    weight: Any, size: tuple[int, int], stride: int = 1, padding: int = 0, **options: Any
) -> nir.Conv2d:
    """A convolution; bias 0 unless given."""
    bias = options.pop("bias", np.zeros(len(weight)))
    dilation, groups = options.pop("dilation", 1), options.pop("groups", 1)
    return nir.Conv2d(size, np.asarray(weight, float), stride, padding, dilation, groups, bias)


def pool(size: int, stride: int | None = None, padding: int = 0, kind: type = nir.SumPool2d) -> nir.NIRNode:
    """Pooling, with stride = kernel unless given."""
    return kind(*(np.array([value, value]) for value in (size, stride or size, padding)))


def chain(nodes: dict[str, nir.NIRNode], contract: Contract = CHIP, edges: Any = None) -> Graph:
    """Nodes one after the other, or along `edges`, as a canonical graph."""
    graph = nir.NIRGraph(nodes, edges or list(pairwise(nodes)), type_check=False)
    return canonical(graph, contract, "test")


def one_layer(
    size: int = 8, features: int = 4, kernel: int = 3, channels: int = 2, before: nir.NIRNode | None = None,
    pooled: int | None = None, threshold: Any = 1.0, contract: Contract = CHIP, weight: float = 0.1,
    **options: Any,
) -> Graph:  # fmt: skip
    """input (-> pooling) -> convolution -> IF -> output."""
    side = pooled or size
    stride, padding, dilation = (
        options.get(key, d) for key, d in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    groups = options.get("groups", 1)
    weights = np.full((features, channels // groups, kernel, kernel), weight)
    out = (side + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    shape = (features, out, out)
    nodes: dict[str, nir.NIRNode] = {"input": nir.Input(np.array([channels, size, size]))}
    if before is not None:
        nodes["pool"] = before
    nodes |= {
        "conv": convolution(weights, (side, side), **options),
        "if": integrate_and_fire(shape, threshold),
        "output": nir.Output(np.array(shape)),
    }
    return chain(nodes, contract)


def lower(graph: Graph, clips: Any = None, chip: Speck = SPECK, **options: Any) -> SpeckProgram:
    """As the backend lowers it; `compatible` is an option of Speck alone."""
    return lower_graph(
        graph, chip, LowerOptions(clips, approximate=options.pop("approximate", False)), **options
    )
