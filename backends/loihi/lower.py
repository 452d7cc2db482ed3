"""From a canonical graph to a Loihi 2 program."""

from dataclasses import replace

from nrf.backends.border import Lowered, LowerOptions
from nrf.backends.loihi.calibrate import Measured, choose
from nrf.backends.loihi.check import check
from nrf.backends.loihi.chip import Loihi
from nrf.backends.loihi.draft import Draft
from nrf.backends.loihi.placement import place
from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.loihi.quantise import Numbers
from nrf.export.graph import Graph
from nrf.findings import refuse_errors


def lower(graph: Graph, chip: Loihi, options: LowerOptions) -> LoihiProgram:
    """The integer program of a graph; scales are chosen on calibration clips.

    Populations are written one after the other: each choice is tried out on what the ones before it fire.
    """
    refuse_errors(check(graph, chip), graph.name)
    numbers = Numbers.of(chip.bits, options.format)
    measured = Measured.of(graph, options)
    tried, draft = Draft.of(measured.calibration.graph, numbers), Draft.of(graph, numbers)
    program = draft.program(chip.name)
    losses = []
    for name in draft.layers.populations:
        choice, loss = choose(tried, name, measured)
        program = draft.added(program, name, choice)
        losses.append(loss)
    shapes = {name: neurons.shape for name, neurons in program.neurons.items()}
    into = {name: [synapses.operator for synapses in program.into(name)] for name in shapes}
    lowered = Lowered(place(shapes, into, chip), tuple(losses), measured.about)
    return replace(program, lowered=lowered)
