"""Put a graph on the chip's grid: the same graph with its numbers rounded to what a core can hold.

The rounded graph is then the model: its float reference and the chip's integers give the same spikes, because
every weight is an integer over 2^k of the threshold, and so is every membrane.
"""

import math
from copy import copy
from dataclasses import replace

import nir
import numpy as np

from nrf.backends.speck.check import check_draft
from nrf.backends.speck.chip import Bits, Speck
from nrf.backends.speck.draft import Draft
from nrf.backends.speck.layers import Layer
from nrf.backends.speck.quantise import clipped, grid_scale, largest_scale, rounded
from nrf.errors import InputError
from nrf.export.graph import Graph
from nrf.findings import refuse_errors


def to_grid(graph: Graph, chip: Speck) -> Graph:
    """The graph with weights, biases and floor rounded; the spike condition becomes the chip's, `>=`.

    Needs one convolution (or linear layer) per population, so that it is clear whose weights to round.
    """
    draft = Draft(graph, chip)
    refuse_errors(check_draft(draft), graph.name)
    v_min = _floor(graph, draft.layers, chip.bits)
    graph = graph.with_contract(fire="ge", v_min=v_min)
    layers = Draft(graph, chip).layers
    nodes = dict(graph.nodes)
    for layer in layers:
        nodes[layer.synapse] = _rounded_node(graph, layer, chip.bits)
    result = replace(graph, nodes=nodes)
    for before, after in zip(layers, Draft(result, chip).layers, strict=True):
        _demand_rounded(graph, before, after, chip.bits)
    return result


def _scale(layer: Layer, bits: Bits) -> float:
    """The largest power of two at which nothing overflows, or the one that the layer is on already."""
    return grid_scale(layer.unit, bits) or 2.0 ** math.floor(math.log2(largest_scale(layer.unit, bits)))


def _floor(graph: Graph, layers: list[Layer], bits: Bits) -> float | None:
    """The floor in volts, a multiple of the coarsest core's step."""
    if graph.contract.v_min is None:
        return None
    # the first channel stands for all: a floor other than 0 goes with one threshold (`one_floor_per_core`)
    step = max(float(layer.unit.volts[0]) / _scale(layer, bits) for layer in layers)
    return round(graph.contract.v_min / step) * step


def _rounded_node(graph: Graph, layer: Layer, bits: Bits) -> nir.NIRNode:
    """The node with the layer's weights, rounded in units of the threshold."""
    node, scale = graph.nodes[layer.synapse], _scale(layer, bits)
    numbers = rounded(layer.unit, scale, bits)
    pairs = (numbers.weight, layer.unit.weight), (numbers.bias, layer.unit.bias)
    if all(np.array_equal(integers, values * scale) for integers, values in pairs):
        return node
    if len(np.shape(getattr(node, "weight", ()))) < 2 or len(node.weight) != layer.shape[0]:
        raise _no_convolution_of_its_own(graph, layer)
    steps = layer.gain / layer.unit.volts * scale  # of the chip per unit of the node
    copied = copy(node)
    for key, width, share in (("weight", bits.weight, layer.sources[0].share), ("bias", bits.bias, 1.0)):
        values = np.asarray(getattr(node, key), np.float64)
        factor = (steps * share).reshape(-1, *(1,) * (values.ndim - 1))
        setattr(copied, key, clipped(values * factor, width) / factor)
    return copied


def _demand_rounded(graph: Graph, before: Layer, after: Layer, bits: Bits) -> None:
    """Refuse where the new nodes do not make the rounded layer, as where two layers share a convolution."""
    scale = _scale(before, bits)
    numbers = rounded(before.unit, scale, bits)
    pairs = ((after.unit.weight, numbers.weight), (after.unit.bias, numbers.bias))
    if not all(np.allclose(values * scale, integers, rtol=0, atol=1e-5) for values, integers in pairs):
        raise _no_convolution_of_its_own(graph, before)
    if grid_scale(after.unit, bits) is None:
        raise InputError(
            f"{graph.name}: node '{after.node}': the floor (v_min, rounded to {graph.contract.v_min:g} V) is "
            f"no whole number of its steps of {after.unit.volts[0] / scale:g} V; use one threshold for all "
            "populations, or v_min 0 or none"
        )


def _no_convolution_of_its_own(graph: Graph, layer: Layer) -> InputError:
    path = ", ".join(layer.path) or "no weights"
    return InputError(
        f"{graph.name}: node '{layer.node}': its input passes {path}; on the grid there must be one "
        "convolution per population and no Scale, merge or copy them first"
    )
