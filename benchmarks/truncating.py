"""A float reference that loses what the chip cannot help losing, and nothing else.

The chip cuts its states to whole numbers after each decay. Here the graph's own nodes run in float64 with
the same cut; of the program nothing is used but how many integers a volt is, S, per channel.

    I[t] = trunc(I[t-1] (1 - dt/tau_syn)) + S drive[t]           CubaLIF, CubaLI; else I[t] = S drive[t]
    V[t] = trunc(V[t-1] (1 - dt/tau)) + I[t]
    spike if V[t] > S threshold, then V[t] = 0

For a graph on the grid the simulator must give the same, to the last spike and the last bit of a membrane.
"""

import nir
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.reference.coefficients import Neuron, neuron
from nrf.backends.reference.events import dense
from nrf.backends.reference.nodes import operator
from nrf.errors import InputError
from nrf.export.graph import NEURONS, Graph
from nrf.export.order import topological

UNITY = 4096  # decays of Loihi 2 are 12-bit fractions


def truncating(
    graph: Graph, program: LoihiProgram, frames: NDArray[np.float32]
) -> dict[str, tuple[NDArray[np.bool_], NDArray[np.int64]]]:
    """Spikes and V of every population, both (steps, *shape) and on the graph's clock.

    >>> spikes, states = truncating(graph, lower(graph, chip, LowerOptions()), frames)["lif1"]
    """
    if graph.recurrent or graph.contract.delay or any(isinstance(n, nir.Delay) for n in graph.nodes.values()):
        raise InputError(f"{graph.name}: the truncating reference follows neither loops nor delays")
    signals = {graph.input: torch.as_tensor(frames).double()}
    found = {}
    for name in topological(graph.nodes, graph.edges, {}, graph.input)[1:]:
        first, *others = (signals[source] for source in graph.inputs_of(name))
        x, node = sum(others, first), graph.nodes[name]
        if isinstance(node, NEURONS):
            floats = vars(neuron(node, graph.contract)).items()
            cell = Neuron(
                **{key: value if value is None else torch.as_tensor(value) for key, value in floats}
            )
            scale = torch.as_tensor(program.neurons[name].scale).reshape(-1, *(1 for _ in x.shape[2:]))
            spikes, states = _scan(x, cell, scale)
            signals[name], found[name] = spikes.double(), (spikes.numpy(), states.long().numpy())
        else:
            signals[name] = dense(operator(node, graph.contract, "cpu", torch.float64)(x, None)[0])
    return found


def _scan(x: Tensor, cell: Neuron[Tensor], scale: Tensor) -> tuple[Tensor, Tensor]:
    """All steps of one population."""
    reset = torch.zeros(()) if cell.reset is None else cell.reset
    if not torch.equal(cell.rest.expand(x.shape[1:]), reset.expand(x.shape[1:]).to(cell.rest)):
        raise InputError("the truncating reference starts at reset; v_leak and v_reset must be equal")
    leak = torch.ones(()) if cell.rate is None else cell.rate
    drive = leak * cell.gain * x
    if cell.synapse is not None and cell.w_in is not None:
        drive = cell.synapse * cell.w_in * drive
    push = torch.round(scale * drive)
    keep_i, keep_v = (
        torch.zeros(()).double() if cell.synapse is None else _kept(cell.synapse),
        torch.ones(()).double() if cell.rate is None else _kept(cell.rate),
    )
    bar = torch.tensor(torch.inf) if cell.threshold is None else scale * (cell.threshold - reset)
    i, v = torch.zeros_like(x[0]), torch.zeros_like(x[0])
    spikes, states = torch.zeros(x.shape, dtype=torch.bool), torch.empty_like(x)
    for t, now in enumerate(push):
        i = torch.trunc(i * keep_i) + now
        v = torch.trunc(v * keep_v) + i
        spikes[t] = v > bar
        v = torch.where(spikes[t], 0.0, v)
        states[t] = v
    return spikes, states


def _kept(rate: Tensor) -> Tensor:
    """What is left after one step, as the 12-bit fraction that a tau on the grid stands for."""
    return 1 - torch.round(UNITY * rate) / UNITY
