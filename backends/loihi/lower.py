"""From a canonical graph to a Loihi 2 program."""

from dataclasses import replace

from nrf.backends.border.chip import Target
from nrf.backends.loihi.calibrate import Calibration, choose
from nrf.backends.loihi.check import check
from nrf.backends.loihi.draft import Draft
from nrf.backends.loihi.placement import place
from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.loihi.quantise import LOIHI, Numbers
from nrf.backends.lowering.calibration import Clips
from nrf.errors import InputError
from nrf.export.graph import Graph
from nrf.findings import errors


def lower(
    graph: Graph, target: Target, calibration: Clips | None = None, *, numbers: Numbers = LOIHI
) -> LoihiProgram:
    """The integer program of a graph; scales are chosen on `calibration` clips, or on generated ones.

    Populations are written one after the other: each choice is tried out on what the ones before it fire.

    >>> lower(read_graph("model.nir"), load_target("loihi2")).save("model.loihi2")
    """
    found = errors(check(graph, target))
    if found:
        raise InputError("\n       ".join(f"{graph.name}: {finding}" for finding in found))
    measured = Calibration.of(graph, calibration)
    tried, draft = Draft.of(measured.graph, numbers), Draft.of(graph, numbers)
    program = draft.program(target.name)
    losses = {}
    for name in draft.layers.populations:
        choice, losses[name] = choose(tried, name, measured)
        program = draft.added(program, name, choice)
    shapes = {name: one.shape for name, one in program.neurons.items()}
    into = {name: [one.operator for one in program.into(name)] for name in shapes}
    placement = place(shapes, into, target).to_json()
    return replace(
        program, report={"calibration": measured.about, "populations": losses, "placement": placement}
    )
