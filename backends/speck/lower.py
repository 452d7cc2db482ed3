"""From a checked graph to integers on cores."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import nir
import numpy as np
from numpy.typing import NDArray

from nrf.backends.border.chip import Target
from nrf.backends.lowering.calibration import Clips, generated_clips
from nrf.backends.speck.calibrate import Calibration, calibrated, losses
from nrf.backends.speck.check import check
from nrf.backends.speck.leak import fitted
from nrf.backends.speck.neuron import HIGHEST
from nrf.backends.speck.placement_rules import cores_for
from nrf.backends.speck.program import Core, Source, SpeckProgram
from nrf.backends.speck.quantise import Integers, as_sinabs, grid_scale, rounded
from nrf.backends.speck.structure import Layer, normal, structure
from nrf.errors import InputError
from nrf.export.graph import Graph
from nrf.findings import errors

CLIP_STEPS = 60
ON_GRID = "exact"


def lower(
    graph: Graph,
    target: Target,
    calibration: Clips | None = None,
    *,
    approximate: bool = False,
    compatible: bool = False,
) -> SpeckProgram:
    """The program of a graph; a graph with errors is refused with all of them.

    A graph on the chip's grid is taken as it is. Off the grid, scale and rounding of every core are chosen by
    measured error on the calibration clips (generated ones if none are given), or exactly as Sinabs chooses
    them with `compatible`. `approximate` allows LIF neurons, with leak and gain fitted on the clips.
    """
    found = errors(check(graph, target, approximate=approximate))
    if found:
        raise InputError("\n       ".join(f"{graph.name}: {finding}" for finding in found))
    layers, _ = structure(graph)
    places = cores_for(layers, target)
    clips = calibration or generated_clips(graph.shapes[graph.input], CLIP_STEPS, seeds=range(6))
    undelayed = replace(graph, contract=graph.contract.with_(delay=0))  # the chip adds no steps
    measure = cache(lambda: Calibration.of(undelayed, clips))
    cores, report = [], {}
    for layer in layers:
        core, report[layer.node] = _core(layer, undelayed, places[layer.node], measure, compatible)
        cores.append(core)
    program = SpeckProgram(
        target=target.name,
        contract=graph.contract,
        input_shape=next(s.shape for layer in layers for s in layer.sources if s.name == graph.input),
        cores=tuple(cores),
        output=graph.inputs_of(graph.output)[0],
        input=graph.input,
    )
    placement = _placement(layers, places, target)
    if any(row["rounding"] != ON_GRID for row in report.values()):
        together, pixels = losses(program, measure())
        for node, f1 in together.items():
            report[node]["F1 together"] = f1
        placement |= pixels
    return replace(program, report={"populations": report, "placement": placement})


def _core(
    layer: Layer, graph: Graph, place: int, measure: Callable[[], Calibration], compatible: bool
) -> tuple[Core, dict[str, Any]]:
    """One core, and what its row of the report says."""
    notes: dict[str, Any] = {"core": place}
    if isinstance(layer.neuron, nir.LIF):
        fit = fitted(layer, measure())
        unit = fit.unit
        notes |= {"leak": float(fit.leak.mean()), "fit F1": fit.f1}
    else:
        unit = normal(layer, graph.contract)
    core_with = partial(core_of, layer, graph, place, unit.volts)
    grid = grid_scale(unit)
    if compatible:
        volts = float(unit.volts[0])
        floor = unit.floor * volts if np.isfinite(unit.floor) else None
        core = core_with(as_sinabs(unit.weight * volts, unit.bias * volts, volts, floor))
        notes["rounding"] = "as Sinabs"
    elif grid:
        core = core_with(rounded(unit, grid))
        notes["rounding"] = ON_GRID
    else:
        core, notes["F1 alone"] = calibrated(layer, unit, core_with, measure())
        notes["rounding"] = "measured"
    notes |= {"threshold": core.threshold, "largest weight": int(np.abs(core.weight.astype(int)).max())}
    return core, notes


def _placement(layers: Sequence[Layer], places: dict[str, int], target: Target) -> dict[str, Any]:
    """What the cores hold, in sum and per core as [used, there are]."""
    kernels, neurons = target["cores.kernel_words"], target["cores.neuron_words"]
    per_core = [
        {
            "core": places[layer.node],
            "population": layer.node,
            "memory": {
                "kernel words": [layer.kernel_words, kernels[places[layer.node]]],
                "neuron words": [layer.neuron_words, neurons[places[layer.node]]],
            },
        }
        for layer in layers
    ]
    return {
        "cores": len(places),
        "kernel_words": sum(layer.kernel_words for layer in layers),
        "neuron_words": sum(layer.neuron_words for layer in layers),
        "per_core": per_core,
    }


def core_of(layer: Layer, graph: Graph, place: int, volts: NDArray[np.float64], numbers: Integers) -> Core:
    """A layer with its integers. `volts` are those of one threshold, per channel."""
    threshold = numbers.threshold
    if graph.contract.fire == "gt" and graph.contract.reset == "zero":
        # v > T is v >= T + 1; with subtraction the chip would take off one too many. No state is larger than
        # 16 bits, so that at their end T itself must do.
        threshold = min(threshold + 1, HIGHEST)
    return Core(
        node=layer.node,
        core=place,
        sources=tuple(Source(source.name, source.pool) for source in layer.sources),
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
        volts=volts / numbers.threshold,
    )
