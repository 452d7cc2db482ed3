"""A graph in a table: what each node is, how large, and how it behaves in time."""

from dataclasses import dataclass

import nir
import numpy as np
from numpy.typing import NDArray

from nrf.export.graph import NEURONS, Graph
from nrf.export.shape_inference import Shape, parameters, seconds, window
from nrf.export.validate import TIMING, findings_of
from nrf.findings import Finding


@dataclass(frozen=True)
class NodeRow:
    """One node."""

    name: str
    kind: str
    shape: Shape  # of its output
    inputs: tuple[str, ...]  # recurrent ones with a trailing *
    parameters: int  # numbers in the file
    neurons: int
    synapses: int  # weights that are not zero, counted at every place where a kernel lies inside the map
    seconds: tuple[float, float] | None  # shortest and longest time constant, or delay
    threshold: tuple[float, float] | None  # lowest and highest, volts


def describe(graph: Graph) -> list[NodeRow]:
    """One row per node, in topological order.

    >>> sum(row.neurons for row in describe(read_graph("model.nir")))  # doctest: +SKIP
    """
    return [_row(graph, name, node) for name, node in graph.nodes.items()]


def remarks(graph: Graph) -> list[Finding]:
    """What is allowed but worth a word: unused nodes, time constants shorter than a step."""
    nodes = dict(graph.nodes)
    return findings_of(nodes, list(graph.edges)) + TIMING.findings(nodes, graph.contract)


def _row(graph: Graph, name: str, node: nir.NIRNode) -> NodeRow:
    numbers = parameters(node)
    return NodeRow(
        name=name,
        kind=type(node).__name__,
        shape=graph.shapes[name],
        inputs=tuple(f"{a}*" if (a, name) in graph.recurrent else a for a in graph.inputs_of(name)),
        parameters=sum(values.size for values in numbers.values()),
        neurons=int(np.prod(graph.shapes[name])) if isinstance(node, NEURONS) else 0,
        synapses=_synapses(node, graph.shapes[name]) if "weight" in numbers else 0,
        seconds=_range(seconds(node)),
        threshold=_range({key: values for key, values in numbers.items() if "threshold" in key}),
    )


def _range(values: dict[str, NDArray[np.float64]]) -> tuple[float, float] | None:
    every = np.concatenate([np.empty(0), *(v.ravel() for v in values.values())])
    return (float(every.min()), float(every.max())) if every.size else None


def _synapses(node: nir.NIRNode, out: Shape) -> int:
    """Connections of a linear node; a tap of a kernel counts wherever it meets the map and not its border."""
    if isinstance(node, nir.Affine):
        return int(np.count_nonzero(node.weight))
    taps = np.count_nonzero(node.weight, axis=(0, 1))
    _, stride, dilation, padding = window(node)
    total = taps.astype(np.int64)
    for axis, size in enumerate(np.atleast_1d(node.input_shape)):
        first = np.arange(taps.shape[axis])[:, None] * dilation[axis] - padding[axis] // 2
        place = first + np.arange(out[1 + axis]) * stride[axis]
        inside = ((place >= 0) & (place < size)).sum(axis=1)
        total = total * np.expand_dims(inside, [k for k in range(taps.ndim) if k != axis])
    return int(total.sum())
