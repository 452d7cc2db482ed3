"""From a canonical graph to a Loihi 2 program."""

from dataclasses import replace
from math import prod

import numpy as np

from nrf.backends.border import Lowered, LowerOptions
from nrf.backends.loihi.calibrate import Calibrator
from nrf.backends.loihi.check import check_draft
from nrf.backends.loihi.chip import Loihi
from nrf.backends.loihi.draft import Draft
from nrf.backends.loihi.placement import memory, place
from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.loihi.quantise import Choice
from nrf.errors import InputError
from nrf.export.graph import Graph
from nrf.findings import refuse_errors


def lower(graph: Graph, chip: Loihi, options: LowerOptions) -> LoihiProgram:
    """The integer program of a graph; scales are chosen on calibration clips.

    Populations are written one after the other: each choice is tried out on what the ones before it fire.
    """
    draft = Draft(graph, chip, options.format)
    if draft.numbers.single and options.weights == "16":
        raise InputError("a .net file has one synapse per weight, of 8 bits; use --weights 8 or auto with it")
    refuse_errors(check_draft(draft), graph.name)
    calibrator = Calibrator(draft, options)
    program, losses = draft.program(), []
    for name in draft.layers:
        choice, loss = calibrator.choose(name)
        program = draft.added(program, name, choice)
        notes = _weights(program, draft, name, choice)
        if np.isfinite(steps := program.neurons[name].safe_steps(program.bits)):
            notes["safe steps"] = str(int(steps))
        losses.append(replace(loss, notes=notes | loss.notes))
    into = {name: [synapses.operator for synapses in program.into(name)] for name in program.neurons}
    placement = place(program.shapes, into, chip)
    lowered = Lowered(placement, tuple(losses), calibrator.about, rewrites=draft.moved)
    return replace(program, lowered=lowered)


def _weights(program: LoihiProgram, draft: Draft, name: str, choice: Choice) -> dict[str, str]:
    """What each connection into a population got, and what its second synapses cost."""
    layer, into = draft.layers[name], iter(program.into(name))
    got, second = [], []
    for number, connection in enumerate(layer.connections):
        wide = bool(choice.wide) and choice.wide[number]
        got.append(f"{(connection.source, *connection.path)[-1]} {16 if wide else 8}")
        next(into)
        second += [next(into).operator] if wide else []
    size = prod(layer.population.shape)
    fixed, each, count = memory(second, size, draft.chip)
    held = fixed + (each - draft.chip.memory.neuron) * size
    cost = f"{count:,} synapses, {held / 1024:.1f} KiB" if second else "none"
    return {"weight bits": ", ".join(got), "cost of 16 bits": cost}
