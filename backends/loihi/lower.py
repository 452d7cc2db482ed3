"""From a canonical graph to a Loihi 2 program."""

from dataclasses import replace

from nrf.backends.border import Lowered, LowerOptions
from nrf.backends.loihi.calibrate import Calibrator
from nrf.backends.loihi.check import check_draft
from nrf.backends.loihi.chip import Loihi
from nrf.backends.loihi.draft import Draft
from nrf.backends.loihi.placement import place
from nrf.backends.loihi.program import LoihiProgram
from nrf.export.graph import Graph
from nrf.findings import refuse_errors


def lower(graph: Graph, chip: Loihi, options: LowerOptions) -> LoihiProgram:
    """The integer program of a graph; scales are chosen on calibration clips.

    Populations are written one after the other: each choice is tried out on what the ones before it fire.
    """
    draft = Draft(graph, chip, options.format)
    refuse_errors(check_draft(draft), graph.name)
    calibrator = Calibrator(draft, options)
    program, losses = draft.program(), []
    for name in draft.layers:
        choice, loss = calibrator.choose(name)
        program = draft.added(program, name, choice)
        if name in program.safe_steps:
            loss = replace(loss, notes=loss.notes | {"safe steps": str(program.safe_steps[name])})
        losses.append(loss)
    into = {name: [synapses.operator for synapses in program.into(name)] for name in program.neurons}
    placement = place(program.shapes, into, chip)
    lowered = Lowered(placement, tuple(losses), calibrator.about, rewrites=draft.moved)
    return replace(program, lowered=lowered)
