"""Put a graph on the chip's grid: the same graph with its numbers rounded to what a core can hold.

The rounded graph is then the model: its float reference and the chip's integers give the same spikes, because
every weight is an integer over 2^k of the threshold, and so is every membrane.
"""

import math
from dataclasses import replace

import nir
import numpy as np

from nrf.backends.speck.check import check
from nrf.backends.speck.chip import Bits, Speck
from nrf.backends.speck.quantise import grid_scale, largest_scale, rounded
from nrf.backends.speck.structure import Layer, normal, structure
from nrf.errors import InputError
from nrf.export.graph import Graph
from nrf.findings import refuse_errors


def to_grid(graph: Graph, chip: Speck) -> Graph:
    """The graph with weights, biases and floor rounded; the spike condition becomes the chip's, `>=`.

    Needs one convolution (or linear layer) per population, so that it is clear whose weights to round.
    """
    refuse_errors(check(graph, chip), graph.name)
    v_min = _floor(graph, structure(graph)[0], chip.bits)
    graph = replace(graph, contract=graph.contract.with_(fire="ge", v_min=v_min))
    layers, _ = structure(graph)
    nodes = dict(graph.nodes)
    for layer in layers:
        nodes[layer.synapse] = _rounded_node(graph, layer, chip.bits)
    result = replace(graph, nodes=nodes)
    for before, after in zip(layers, structure(result)[0], strict=True):
        _demand_rounded(graph, before, after, chip.bits)
    return result


def _scale(graph: Graph, layer: Layer, bits: Bits) -> float:
    """The largest power of two at which nothing overflows, or the one that the layer is on already."""
    unit = normal(layer, graph.contract)
    return grid_scale(unit, bits) or 2.0 ** math.floor(math.log2(largest_scale(unit, bits)))


def _floor(graph: Graph, layers: list[Layer], bits: Bits) -> float | None:
    """The floor in volts, a multiple of the coarsest core's step."""
    if graph.contract.v_min is None:
        return None
    # the first channel stands for all: a floor other than 0 goes with one threshold (`one_floor_per_core`)
    steps = [float(normal(layer, graph.contract).volts[0]) / _scale(graph, layer, bits) for layer in layers]
    return round(graph.contract.v_min / max(steps)) * max(steps)


def _rounded_node(graph: Graph, layer: Layer, bits: Bits) -> nir.NIRNode:
    """The node with the layer's weights, rounded in units of the threshold."""
    node = graph.nodes[layer.synapse]
    unit, scale = normal(layer, graph.contract), _scale(graph, layer, bits)
    numbers = rounded(unit, scale, bits)
    if np.array_equal(numbers.weight, unit.weight * scale) and np.array_equal(
        numbers.bias, unit.bias * scale
    ):
        return node
    shape = np.shape(getattr(node, "weight", ()))
    if len(layer.path) > 2 or int(np.prod(shape)) != layer.conv.weight.size or not shape:
        raise _no_convolution_of_its_own(graph, layer)
    drive = (graph.contract.dt or 1.0) * layer.per_channel("r") * layer.sources[0].share
    gain = unit.volts / scale / drive
    weight = (numbers.weight * gain[:, None, None, None]).reshape(shape)
    bias = (numbers.bias * gain).reshape(np.shape(node.bias))
    if isinstance(node, nir.Conv2d):
        return nir.Conv2d(
            node.input_shape, weight, node.stride, node.padding, node.dilation, node.groups, bias,
            metadata=node.metadata,
        )  # fmt: skip
    return nir.Affine(weight, bias, metadata=node.metadata)


def _demand_rounded(graph: Graph, before: Layer, after: Layer, bits: Bits) -> None:
    """Refuse where the new nodes do not make the rounded layer, as where two layers share a convolution."""
    unit, scale = normal(after, graph.contract), _scale(graph, before, bits)
    numbers = rounded(normal(before, graph.contract), scale, bits)
    pairs = ((unit.weight, numbers.weight), (unit.bias, numbers.bias))
    if not all(np.allclose(values * scale, integers, rtol=0, atol=1e-5) for values, integers in pairs):
        raise _no_convolution_of_its_own(graph, before)
    if grid_scale(unit, bits) is None:
        raise InputError(
            f"{graph.name}: node '{after.node}': the floor (v_min, rounded to {graph.contract.v_min:g} V) is "
            f"no whole number of its steps of {unit.volts[0] / scale:g} V; use one threshold for all "
            "populations, or v_min 0 or none"
        )


def _no_convolution_of_its_own(graph: Graph, layer: Layer) -> InputError:
    path = ", ".join(layer.path) or "no weights"
    return InputError(
        f"{graph.name}: node '{layer.node}': its input passes {path}; on the grid there must be one "
        "convolution per population and no Scale, merge or copy them first"
    )
