"""From a checked graph to integers on cores."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from math import prod

import nir
import numpy as np

from nrf.backends.border import CoreUse, Loss, Lowered, LowerOptions
from nrf.backends.lowering.calibration import Calibration, generated_clips
from nrf.backends.speck.approximate import fitted, held_out, kept, poor
from nrf.backends.speck.calibrate import calibrated, losses
from nrf.backends.speck.check import check_draft
from nrf.backends.speck.chip import Bits, Speck, signed
from nrf.backends.speck.draft import Draft
from nrf.backends.speck.layers import Layer
from nrf.backends.speck.placement import placed
from nrf.backends.speck.program import PooledSource, Population, SpeckProgram, map_shape
from nrf.backends.speck.quantise import Quantised, as_sinabs, grid_scale, rounded
from nrf.export.graph import Graph
from nrf.findings import refuse_errors

CLIP_STEPS = 60
GENERATED_CLIPS = 6


def lower(graph: Graph, chip: Speck, options: LowerOptions, *, compatible: bool = False) -> SpeckProgram:
    """The program of a graph; a graph with errors is refused with all of them.

    A graph on the chip's grid is taken as it is. Off the grid, scale and rounding of every population are
    chosen by measured error on the calibration clips (generated ones if none are given), or exactly as Sinabs
    chooses them with `compatible`. `approximate` allows LIF neurons, with leak and gain fitted on two thirds
    of the clips and judged on the rest.
    """
    draft = Draft(graph, chip)
    findings = check_draft(draft, options.approximate)
    refuse_errors(findings, graph.name)
    layers = draft.layers
    rewrites = tuple(finding for finding in findings if finding.severity == "note")
    placement = placed(draft.mapped, chip)
    shape = graph.shapes[graph.input]
    clips = options.calibration or generated_clips(shape, CLIP_STEPS, seeds=range(GENERATED_CLIPS))
    delays = {name: node for name, node in draft.graph.nodes.items() if isinstance(node, nir.Delay)}
    gone = {name: nir.Delay(0 * node.delay) for name, node in delays.items()}
    undelayed = replace(graph.with_contract(delay=0, emit="now"), nodes=graph.nodes | gone)
    approximate = any(isinstance(layer.neuron, nir.LIF) for layer in layers)
    clips, held = held_out(clips) if approximate else (clips, [])
    measure = cache(lambda: Calibration.of(undelayed, clips))
    pairs = [
        _population(layer, graph.shapes[layer.node], placement.of(layer.node), chip.bits, measure, compatible)
        for layer in layers
    ]
    program = SpeckProgram(
        target=chip.name,
        contract=graph.contract,
        input_shape=map_shape(shape),
        populations=tuple(each for each, _ in pairs),
        outputs=graph.read_populations,
        readout=draft.readout,
        input=graph.input,
        bits=chip.bits,
        early={name: steps for name, steps in draft.waits.items() if steps},
    )
    lowered = Lowered(placement, tuple(loss for _, loss in pairs), rewrites=rewrites)
    if any(loss.rounding != "exact" for loss in lowered.losses):
        together, pixels = losses(program, measure())
        stated = tuple(replace(loss, f1_together=together[loss.population]) for loss in lowered.losses)
        about = f"{len(clips)} clips, {options.origin}"
        if approximate:
            notes = kept(program, Calibration.of(undelayed, held))
            stated = tuple(replace(loss, notes=loss.notes | notes[loss.population]) for loss in stated)
        lowered = Lowered(placement, stated, about, pixels, rewrites, tuple(poor(stated)))
    return replace(program, lowered=lowered)


def _population(
    layer: Layer,
    node_shape: tuple[int, ...],
    uses: Sequence[CoreUse],
    bits: Bits,
    measure: Callable[[], Calibration],
    compatible: bool,
) -> tuple[Population, Loss]:
    """One population, and what it loses."""
    unit, contract, score = layer.unit, layer.contract, None
    notes: dict[str, str] = {}
    if isinstance(layer.neuron, nir.LIF):
        unit, notes = fitted(layer, measure())
    # v > T is v >= T + 1; with subtraction the chip would take off one too many. No state is larger than its
    # bits allow, so that at their end T itself must do.
    above = (contract.fire, contract.reset, contract.max_spikes) == ("gt", "zero", 1)

    def make(integers: Quantised) -> Population:
        return Population(
            node=layer.node,
            core=uses[0].core,
            more=tuple((use.core, use.first // prod(layer.shape[1:])) for use in uses[1:]),
            sources=tuple(PooledSource(source.name, source.pool) for source in layer.sources),
            input_shape=layer.conv.input_shape,
            shape=layer.shape,
            node_shape=node_shape,
            stride=layer.conv.stride,
            padding=layer.conv.padding,
            threshold=min(integers.threshold + above, signed(bits.state)[1]),
            floor=integers.floor,
            zero_reset=contract.reset == "zero",
            weight=integers.weight,
            bias=integers.bias,
            volts=unit.volts / integers.threshold,
            max_spikes=contract.max_spikes,
        )

    if compatible:
        rounding, population = "as Sinabs", make(as_sinabs(unit, bits))
    elif scale := grid_scale(unit, bits):
        rounding, population = "exact", make(rounded(unit, scale, bits))
    else:
        rounding, (population, score) = "measured", calibrated(layer, unit, bits, make, measure())
    largest = np.abs(population.weight.astype(int)).max()
    notes |= {"threshold": str(population.threshold), "largest weight": str(largest)}
    return population, Loss(layer.node, rounding, f1=score, notes=notes)
