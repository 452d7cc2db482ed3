"""The graph on a chip's own neuron, in units of its thresholds: what has no such form is refused, by name."""

import copy
from dataclasses import replace

import nir
import numpy as np

from nrf.arrays import Floats
from nrf.backends.border.student import Setting, Student
from nrf.backends.reference.coefficients import neuron
from nrf.errors import InputError
from nrf.export.graph import NEURONS, SPIKING, Graph

WEIGHTED = (nir.Conv1d, nir.Conv2d, nir.Affine)


def on_chip_neuron(graph: Graph, student: Student, setting: Setting) -> Graph:
    """The graph with the chip's contract and neurons of threshold 1; weights are not rounded yet."""
    if graph.recurrent and not student.recurrent:
        raise InputError(f"{graph.name}: has recurrent connections; the chip has none, tune cannot help")
    for name, node in graph.nodes.items():
        if isinstance(node, nir.Delay):
            raise InputError(f"{graph.name}: node '{name}': tune takes no Delay")
    nodes, contract = dict(graph.nodes), graph.contract
    known = (nir.IF, nir.LIF, nir.CubaLIF) if student.currents else (nir.IF, nir.LIF)
    for name in graph.neurons:
        node = nodes[name]
        if not isinstance(node, SPIKING):  # a membrane that the host reads
            continue
        if not isinstance(node, known):
            kinds = " and ".join(kind.__name__ for kind in known)
            found = f"tune knows {kinds} neurons on this chip, not {type(node).__name__}"
            raise InputError(f"{graph.name}: node '{name}': {found}")
        cell, own = neuron(node, graph.contract_of(name)), graph.contract_of(name)
        assert cell.threshold is not None and cell.reset is not None
        unit = cell.threshold - (cell.reset if own.reset == "zero" else 0)
        rate = np.zeros_like(unit) if cell.rate is None else cell.rate
        gain = cell.gain * (rate if cell.rate is not None and own.membrane == "scaled" else 1)
        push = rate * (cell.rest - (cell.reset if own.reset == "zero" else 0))
        if student.leak == "linear":
            push, rate = push - setting.leak * rate * unit, np.zeros_like(rate)
        elif cell.rate is None:
            rate = np.full_like(rate, setting.leak)
        current = None
        if cell.synapse is not None and cell.w_in is not None:
            ways = {"scaled": cell.synapse, "unit": np.ones_like(cell.synapse), "decayed": 1 - cell.synapse}
            gain, push = (
                gain * cell.w_in * ways[own.synapse],
                push * cell.synapse,
            )  # a constant grows to 1 / synapse
            current = np.round(cell.synapse * student.decay_steps) / student.decay_steps
        rate = np.round(rate * student.decay_steps) / student.decay_steps
        for number, synapse in enumerate(synapses(graph, name)):
            constant = push if number == 0 else 0 * push
            factors = (_by_channel(graph, name, values / unit, nodes[synapse]) for values in (gain, constant))
            nodes[synapse] = _scaled(nodes[synapse], *factors)
        nodes[name] = _neuron(rate, contract.dt or 1.0, current)
    reset = None if setting.own_reset else student.contract["reset"][0]
    dt = contract.dt or 1.0  # neurons with a leak have a time constant
    plain = {"integration": "euler", "membrane": "scaled", "synapse": "scaled"}
    chip = replace(student.adopted(contract).with_(**plain, dt=dt, reset=reset), v_min=setting.floor)
    return replace(graph, nodes=nodes, contract=chip, node_contracts={}, origins={})


def synapses(graph: Graph, population: str) -> list[str]:
    """The nodes whose weights drive a population: the last ones on every way into it."""
    found: list[str] = []
    for source in graph.inputs_of(population):
        if isinstance(graph.nodes[source], WEIGHTED):
            found.append(source)
            if len(graph.outputs_of(source)) > 1:
                raise InputError(f"{graph.name}: node '{source}' feeds several nodes; copy it for each")
        elif source == graph.input or isinstance(graph.nodes[source], (*NEURONS, nir.Delay)):
            raise InputError(f"{graph.name}: node '{population}': no weights between '{source}' and it")
        else:
            found += synapses(graph, source)
    return list(dict.fromkeys(found))


def _by_channel(graph: Graph, name: str, values: Floats, node: nir.NIRNode) -> Floats:
    """One value per output channel of the synapse, from one per neuron."""
    whole = np.broadcast_to(values, graph.shapes[name]).reshape(graph.shapes[name][0], -1)
    if np.ptp(whole) == 0:
        return np.full(len(node.weight), whole[0, 0])
    if np.any(np.ptp(whole, axis=1) > 1e-9 * np.abs(whole).max()) or len(whole) != len(node.weight):
        raise InputError(f"{graph.name}: node '{name}': parameters differ within a channel, tune takes one")
    return whole[:, 0]


def _scaled(node: nir.NIRNode, gain: Floats, push: Floats) -> nir.NIRNode:
    """Weights and bias multiplied per output channel, and a constant input added."""
    copied = copy.copy(node)
    weight = np.asarray(node.weight, np.float64)
    if weight.ndim == 2 or not isinstance(node, nir.Affine):
        copied.weight = weight * gain.reshape(-1, *(1,) * (weight.ndim - 1))
    else:
        raise InputError("tune takes no Affine node with a matrix for every leading index")
    copied.bias = np.asarray(node.bias, np.float64) * gain + push
    return copied


def _neuron(rate: Floats, dt: float, synapse: Floats | None = None) -> nir.NIRNode:
    """Threshold 1, reset 0, input as it comes: r dt = 1, or r dt / tau = 1 with a leak."""
    one = np.ones(rate.shape)
    if synapse is not None:
        rate, synapse = np.maximum(rate, 1e-6), np.maximum(synapse, 1e-6) * one
        return nir.CubaLIF(dt / synapse, dt / rate, 1 / rate, 0 * one, one, 0 * one, 1 / synapse)
    if not np.any(rate):
        return nir.IF(one / dt, one, 0 * one)
    rate = np.maximum(rate, 1e-6)
    return nir.LIF(dt / rate, 1 / rate, 0 * one, one, 0 * one)
