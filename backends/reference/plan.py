"""What a graph asks of every run: made once, and anew as soon as anything in the graph is another."""

from dataclasses import dataclass
from typing import Any

import nir
import numpy as np
import torch
from torch import Tensor

from nrf.arrays import distinct
from nrf.backends.reference.coefficients import Edge, lags, spent_delays
from nrf.backends.reference.events import dense
from nrf.backends.reference.kernels import fingerprint
from nrf.backends.reference.nodes import Operator, operator
from nrf.export.graph import NEURONS, Graph
from nrf.export.order import components, cyclic, topological


@dataclass(frozen=True)
class Plan:
    """Operators and their order."""

    checksum: str
    operators: dict[str, Operator]
    late: dict[Edge, int]
    silent: dict[str, Tensor]  # output (1, *shape) of every node while input and neurons are silent
    components: list[tuple[list[str], bool]]  # and whether its nodes advance together, step by step


_last: list[tuple[Any, Plan]] = []  # of the graph that ran last


def plan(graph: Graph, device: str, dtype: torch.dtype, membranes: bool) -> Plan:
    """Of a graph as it is now: one look at all its numbers tells whether it is the one before."""
    key = (device, dtype, membranes, _contents(graph))
    for known, made in _last:
        if known == key:
            return made
    made = _plan(graph, device, dtype, membranes)
    _last[:] = [(key, made)]
    return made


def _plan(graph: Graph, device: str, dtype: torch.dtype, membranes: bool) -> Plan:
    operators = {
        name: operator(
            node, graph.contract_of(name), device, dtype, membranes or name in graph.read_populations
        )
        for name, node in _due(graph).items()
    }
    late, edges = lags(graph), set(graph.edges)
    order = topological(graph.nodes, graph.edges, late, graph.input)
    return Plan(
        graph.checksum,
        operators,
        late,
        _silence(graph, operators, device, dtype) if late else {},
        [(component, cyclic(component, edges)) for component in components(order, edges)],
    )


def _contents(graph: Graph) -> Any:
    """All that `Graph.checksum` covers, many times as quick: equal for equal graphs only, but for chance."""
    values = [
        (name, type(node), key, value.dtype, value.shape, _hash(distinct(value)))
        if isinstance(value, np.ndarray) and value.dtype != object
        else (name, type(node), key, repr(value))
        for name, node in graph.nodes.items()
        for key, value in vars(node).items()
        if key not in ("metadata", "input_type", "output_type")
    ]
    return graph.contract, graph.edges, graph.recurrent, {**graph.node_contracts}, {**graph.shapes}, values


def _hash(array: Any) -> int:
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = len(flat) // 8 * 8
    return int(fingerprint(flat[:whole].view(np.uint64))) ^ hash(flat[whole:].tobytes())


def _due(graph: Graph) -> dict[str, nir.NIRNode]:
    """The nodes as they run: Delays without the steps that lie on their edges."""
    dt, spent = graph.contract.dt or 1.0, spent_delays(graph)
    return {name: nir.Delay(node.delay - dt) if name in spent else node for name, node in graph.nodes.items()}


def _silence(
    graph: Graph, operators: dict[str, Operator], device: str, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Output (1, *shape) of every node while input and neurons are silent."""
    silent: dict[str, Tensor] = {}

    def visit(name: str) -> Tensor:
        if name not in silent:
            total = torch.zeros(1, *input_shape(graph, name), dtype=dtype, device=device)
            if isinstance(graph.nodes[name], (nir.Input, nir.Delay, *NEURONS)):
                silent[name] = total
            else:
                total = sum((visit(source) for source in graph.inputs_of(name)), total)
                silent[name] = dense(operators[name](total, None)[0])
        return silent[name]

    return {name: visit(name) for name in graph.nodes}


def input_shape(graph: Graph, name: str) -> tuple[int, ...]:
    """Of one step of what a node sees."""
    sources = graph.inputs_of(name)
    return graph.shapes[sources[0]] if sources else graph.shapes[name]
