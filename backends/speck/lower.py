"""From a checked graph to integers on cores."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.backends.speck.program import Core, Source, SpeckProgram
from nrf.backends.speck.quantise import Integers, as_sinabs, grid_scale, largest_scale, rounded
from nrf.backends.speck.rules import cores_for, findings_of
from nrf.backends.speck.structure import Layer, normal, structure
from nrf.backends.target import Target
from nrf.errors import InputError
from nrf.export.graph import Graph
from nrf.findings import errors


def lower(
    graph: Graph,
    target: Target,
    calibration: Sequence[NDArray[np.float32]] | None = None,
    *,
    compatible: bool = False,
) -> SpeckProgram:
    """The program of a graph; a graph with errors is refused with all of them.

    A graph on the chip's grid is taken as it is, else every core gets the largest scale. `compatible` rounds
    exactly as Sinabs does.
    """
    found = errors(findings_of(graph, target))
    if found:
        raise InputError("\n       ".join(f"{graph.name}: {finding}" for finding in found))
    layers, _ = structure(graph)
    places = cores_for(layers, target)
    cores: list[Core] = []
    report: dict[str, Any] = {}
    for layer in layers:
        unit = normal(layer, graph.contract)
        scale = grid_scale(unit)
        if compatible:
            numbers = as_sinabs(
                layer.conv.weight, layer.bias[:, 0, 0], float(unit.volts[0]), graph.contract.v_min
            )
        else:
            numbers = rounded(unit, scale or largest_scale(unit))
        cores.append(core_of(layer, graph, places[layer.node], numbers, unit.volts))
        report[layer.node] = {"scale": numbers.scale, "on_grid": scale is not None}
    return SpeckProgram(
        target=target.name,
        contract=graph.contract,
        input_shape=_input_shape(graph, layers),
        cores=tuple(cores),
        output=graph.inputs_of(graph.output)[0],
        report=report,
    )


def core_of(layer: Layer, graph: Graph, place: int, numbers: Integers, volts: NDArray[np.float64]) -> Core:
    """A layer with its integers. `volts` are those of one threshold, per channel."""
    threshold = numbers.threshold
    if graph.contract.fire == "gt" and graph.contract.reset == "zero":
        threshold += 1  # v > T is v >= T + 1; with subtraction the chip would take off one too many
    return Core(
        node=layer.node,
        core=place,
        sources=tuple(
            Source("input" if source.name == graph.input else source.name, source.pool)
            for source in layer.sources
        ),
        input_shape=layer.conv.input_shape,
        shape=layer.shape,
        node_shape=graph.shapes[layer.node],
        stride=layer.conv.stride,
        padding=layer.conv.padding,
        threshold=threshold,
        floor=numbers.floor,
        zero_reset=graph.contract.reset == "zero",
        weight=numbers.weight,
        bias=numbers.bias,
        volts=volts / numbers.scale,
    )


def _input_shape(graph: Graph, layers: list[Layer]) -> tuple[int, int, int]:
    return next(s.shape for layer in layers for s in layer.sources if s.name == graph.input)
