"""Coefficients of neurons and steps on edges, as the contract states them: what needs no torch."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import nir
import numpy as np

from nrf.arrays import Floats
from nrf.export.contract import Contract
from nrf.export.graph import NEURONS, SPIKING, STATEFUL, Graph
from nrf.export.order import reached

Edge = tuple[str, str]
Values = TypeVar("Values")  # arrays, or tensors


@dataclass(frozen=True)
class Neuron(Generic[Values]):
    """Coefficients of a neuron node, each of the node's shape; None where a node has no such term."""

    rate: Values | None  # 1 - a: what the membrane forgets per step; None without leak
    gain: Values  # r, or dt r without leak, or 1 where the contract does not scale
    rest: Values  # v_leak, volts
    start: Values  # volts, the first v
    threshold: Values | None = None  # volts
    reset: Values | None = None  # volts
    synapse: Values | None = None  # 1 - b: what the current forgets per step
    w_in: Values | None = None


def neuron(node: nir.NIRNode, contract: Contract) -> Neuron[Floats]:
    """Coefficients of a neuron node under a contract. Without time constants, a step is one unit of time."""
    dt = contract.dt or 1.0

    def forgets(tau: Any) -> Floats:
        share = dt / np.asarray(tau, np.float64)
        return share if contract.integration == "euler" else -np.expm1(-share)

    def floats(*keys: str) -> Any:
        """The first of these parameters that the node has."""
        return next((np.asarray(getattr(node, key), np.float64) for key in keys if hasattr(node, key)), None)

    if isinstance(node, nir.Threshold):
        threshold = floats("threshold")
        return Neuron(None, np.ones_like(threshold), np.zeros(()), np.zeros(()), threshold)
    leaky, spiking = hasattr(node, "v_leak"), hasattr(node, "v_threshold")
    gain = floats("r") * (1.0 if leaky else dt)
    rest = floats("v_leak") if leaky else np.zeros_like(gain)
    return Neuron(
        rate=forgets(floats("tau", "tau_mem")) if leaky else None,
        gain=gain if contract.membrane == "scaled" else np.ones_like(gain),
        rest=rest,
        start=floats("v_reset") if spiking and contract.start == "reset" else rest,
        threshold=floats("v_threshold"),
        reset=floats("v_reset"),
        synapse=forgets(node.tau_syn) if hasattr(node, "tau_syn") else None,
        w_in=floats("w_in"),
    )


def lags(graph: Graph) -> dict[Edge, int]:
    """Steps that lie on edges, where there are any."""
    spent = spent_delays(graph)
    late = {edge: 1 for edge in graph.edges if edge[1] in spent}
    back = [(b, a) for a, b in graph.edges if not isinstance(graph.nodes[a], NEURONS)]
    if not graph.contract.delay:
        late |= {edge: 1 for edge in graph.recurrent if not _fed_late(graph, edge[0])}
        for a, b in graph.edges:
            if emits_late(graph, a):
                late[a, b] = late.get((a, b), 0) + 1
        return late
    leading = reached(graph.neurons, back)  # to a neuron
    for a, b in graph.edges:
        starts = a == graph.input or isinstance(graph.nodes[a], NEURONS)
        if starts and b in leading:
            late[a, b] = late.get((a, b), 0) + 1
    return late


def spent_delays(graph: Graph) -> set[str]:
    """Delays with recurrent input: one of their steps lies on their edges, so that the cycle opens."""
    return {target for _, target in graph.recurrent if isinstance(graph.nodes[target], nir.Delay)}


def emits_late(graph: Graph, name: str) -> int:
    """Steps from the membrane's passing of the threshold to the spike: 1 where the contract says so."""
    late = graph.contract_of(name).emit == "late" and isinstance(graph.nodes[name], STATEFUL)
    return int(late and isinstance(graph.nodes[name], SPIKING))


def _fed_late(graph: Graph, name: str) -> bool:
    """Whether all that a node passes on comes from neurons whose spikes are late already."""
    if isinstance(graph.nodes[name], NEURONS):
        return bool(emits_late(graph, name))
    back = [(b, a) for a, b in graph.edges if not isinstance(graph.nodes[b], NEURONS)]
    sources = [source for source in reached([name], back) if isinstance(graph.nodes[source], NEURONS)]
    return bool(sources) and all(emits_late(graph, source) for source in sources)
