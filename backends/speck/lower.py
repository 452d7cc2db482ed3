"""From a checked graph to integers on cores."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import nir
import numpy as np
from numpy.typing import NDArray

from nrf.backends.border import CoreUse, Loss, Lowered, LowerOptions
from nrf.backends.lowering.calibration import Calibration, generated_clips
from nrf.backends.speck.calibrate import calibrated, losses
from nrf.backends.speck.check import check
from nrf.backends.speck.chip import Bits, Speck, signed
from nrf.backends.speck.leak import fitted
from nrf.backends.speck.placement import placed
from nrf.backends.speck.program import Core, Source, SpeckProgram, map_shape
from nrf.backends.speck.quantise import Integers, as_sinabs, grid_scale, rounded
from nrf.backends.speck.structure import Layer, normal, structure
from nrf.export.graph import Graph
from nrf.findings import refuse_errors

CLIP_STEPS = 60
GENERATED_CLIPS = 6


def lower(graph: Graph, chip: Speck, options: LowerOptions, *, compatible: bool = False) -> SpeckProgram:
    """The program of a graph; a graph with errors is refused with all of them.

    A graph on the chip's grid is taken as it is. Off the grid, scale and rounding of every core are chosen by
    measured error on the calibration clips (generated ones if none are given), or exactly as Sinabs chooses
    them with `compatible`. `approximate` allows LIF neurons, with leak and gain fitted on the clips.
    """
    refuse_errors(check(graph, chip, options.approximate), graph.name)
    layers, _ = structure(graph)
    placement = placed(layers, chip)
    shape = graph.shapes[graph.input]
    clips = options.calibration or generated_clips(shape, CLIP_STEPS, seeds=range(GENERATED_CLIPS))
    undelayed = replace(graph, contract=graph.contract.with_(delay=0))  # the chip adds no steps
    measure = cache(lambda: Calibration.of(undelayed, clips))
    pairs = [
        _core(layer, undelayed, use, chip.bits, measure, compatible)
        for layer, use in zip(layers, placement.cores, strict=True)
    ]
    program = SpeckProgram(
        target=chip.name,
        contract=graph.contract,
        input_shape=map_shape(shape),
        cores=tuple(core for core, _ in pairs),
        output=graph.inputs_of(graph.output)[0],
        input=graph.input,
        bits=chip.bits,
    )
    lowered = Lowered(placement, tuple(loss for _, loss in pairs))
    if any(loss.rounding != "exact" for loss in lowered.losses):
        together, pixels = losses(program, measure())
        stated = tuple(replace(loss, f1_together=together[loss.population]) for loss in lowered.losses)
        lowered = Lowered(placement, stated, f"{len(clips)} clips, {options.origin}", pixels)
    return replace(program, lowered=lowered)


def _core(
    layer: Layer,
    graph: Graph,
    use: CoreUse,
    bits: Bits,
    measure: Callable[[], Calibration],
    compatible: bool,
) -> tuple[Core, Loss]:
    """One core, and what its population loses."""
    unit, notes, score = normal(layer, graph.contract), {}, None
    if isinstance(layer.neuron, nir.LIF):
        fit = fitted(layer, measure())
        unit = fit.unit
        notes = {"leak": f"{fit.leak.mean():.3g} thresholds per step", "F1 of the fit": f"{fit.f1:.3f}"}
    core_with = partial(_with_integers, layer, graph, use.core, unit.volts, bits)
    if compatible:
        rounding, volts = "as Sinabs", float(unit.volts[0])
        floor = unit.floor * volts if np.isfinite(unit.floor) else None
        core = core_with(as_sinabs(unit.weight * volts, unit.bias * volts, volts, floor, bits))
    elif scale := grid_scale(unit, bits):
        rounding, core = "exact", core_with(rounded(unit, scale, bits))
    else:
        rounding, (core, score) = "measured", calibrated(layer, unit, bits, core_with, measure())
    largest = np.abs(core.weight.astype(int)).max()
    notes |= {"threshold": str(core.threshold), "largest weight": str(largest)}
    return core, Loss(layer.node, rounding, f1=score, notes=notes)


def _with_integers(
    layer: Layer, graph: Graph, number: int, volts: NDArray[np.float64], bits: Bits, integers: Integers
) -> Core:
    """A layer with its integers, on a core. `volts` are those of one threshold, per channel."""
    threshold = integers.threshold
    if graph.contract.fire == "gt" and graph.contract.reset == "zero":
        # v > T is v >= T + 1; with subtraction the chip would take off one too many. No state is larger than
        # its bits allow, so that at their end T itself must do.
        threshold = min(threshold + 1, signed(bits.state)[1])
    return Core(
        node=layer.node,
        core=number,
        sources=tuple(Source(source.name, source.pool) for source in layer.sources),
        input_shape=layer.conv.input_shape,
        shape=layer.shape,
        node_shape=graph.shapes[layer.node],
        stride=layer.conv.stride,
        padding=layer.conv.padding,
        threshold=threshold,
        floor=integers.floor,
        zero_reset=graph.contract.reset == "zero",
        weight=integers.weight,
        bias=integers.bias,
        volts=volts / integers.threshold,
    )
