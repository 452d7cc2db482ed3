"""Scale and AvgPool folded into neighbouring linear nodes.

    Affine(W, b) after Scale(s)     W diag(s) x + b
    Scale(s) after Affine(W, b)     diag(s) W x + diag(s) b
    AvgPool                         SumPool, then Scale(1 / kernel area)

A factor moves on through Flatten, and through pooling where it is the same for a whole channel. Convolutions
take a factor per channel. Where one of the neighbours cannot take it, the node stays as it is.
"""

import math
from heapq import heappop, heappush

import nir
import numpy as np
from numpy.typing import NDArray

from nrf.export.flatten import Edges, Nodes, bypass
from nrf.export.shape_inference import CONVOLUTIONS, POOLS, edited
from nrf.lazy import networkx as nx

FOLDING = (nir.Scale, nir.AvgPool2d)
Factor = NDArray[np.float64]


def fold(nodes: Nodes, edges: Edges) -> tuple[Nodes, Edges, dict[str, str]]:
    """Nodes and edges without the Scale and AvgPool nodes that a neighbour could take over, and which did."""
    nodes, wires, folded = dict(nodes), nx.MultiDiGraph(), dict[str, str]()
    wires.add_edges_from(edges)
    pending = sorted(name for name, node in nodes.items() if isinstance(node, FOLDING))
    while pending:
        name = heappop(pending)
        node = nodes.get(name)
        if isinstance(node, nir.Scale):
            factor = np.asarray(node.scale, np.float64)
        elif isinstance(node, nir.AvgPool2d):
            factor = np.full(node.output_type["output"], 1 / math.prod(node.kernel_size.tolist()))
        else:
            continue
        changed = _into_targets(name, factor, nodes, wires) or _into_source(name, factor, nodes, wires)
        nodes |= changed
        if changed:
            neighbours = ", ".join(f"'{neighbour}'" for neighbour in changed)
            folded[name] = f"its factor is in the weights of {neighbours}: (W s) x = W (s x)"
        if changed and isinstance(node, nir.AvgPool2d):
            summed = nir.SumPool2d(node.kernel_size, node.stride, node.padding, metadata=node.metadata)
            nodes[name] = edited(summed, input_type=node.input_type, output_type=node.output_type)
        elif changed:
            for neighbour in _neighbours(name, nodes, wires):
                heappush(pending, neighbour)
            bypass(name, wires)
            del nodes[name]
    return nodes, list(wires.edges()), folded


def _into_targets(name: str, factor: Factor, nodes: Nodes, wires: "nx.MultiDiGraph") -> Nodes:
    """The nodes after `name` with its factor inside; none if one of them cannot take it."""
    changed: Nodes = {}
    pending = [(name, factor)]
    while pending:
        source, factor = pending.pop()
        channel = _per_channel(factor)
        if not wires.out_degree(source):
            return {}
        for target in wires.successors(source):
            node = nodes[target]
            if wires.in_degree(target) != 1:
                return {}
            if isinstance(node, nir.Affine) and node.weight.ndim == 2:
                changed[target] = edited(node, weight=node.weight * factor)
            elif isinstance(node, CONVOLUTIONS) and channel is not None:
                _, inside, *kernel = node.weight.shape
                groups = channel.reshape(int(node.groups), 1, inside, *(1 for _ in kernel))
                grouped = node.weight.reshape(len(groups), -1, inside, *kernel) * groups
                changed[target] = edited(node, weight=grouped.reshape(node.weight.shape))
            elif isinstance(node, nir.Flatten):
                pending.append((target, factor.reshape(node.output_type["output"])))
            elif isinstance(node, POOLS) and channel is not None:
                spread = np.broadcast_to(channel.reshape(-1, 1, 1), node.output_type["output"])
                pending.append((target, spread))
            else:
                return {}
    return changed


def _into_source(name: str, factor: Factor, nodes: Nodes, wires: "nx.MultiDiGraph") -> Nodes:
    """The node before `name` with the factor inside; none if it cannot take it."""
    source, *others = wires.predecessors(name)
    if others or wires.out_degree(source) != 1:
        return {}
    node, channel = nodes[source], _per_channel(factor)
    if isinstance(nodes[name], nir.AvgPool2d):  # the factor also holds before the pooling
        factor = np.full(nodes[name].input_type["input"], factor.flat[0])
    if isinstance(node, nir.Affine) and node.weight.ndim == 2:
        return {source: edited(node, weight=node.weight * factor[:, None], bias=node.bias * factor)}
    if isinstance(node, CONVOLUTIONS) and channel is not None:
        weight = node.weight * channel.reshape(-1, *(1 for _ in node.weight.shape[1:]))
        return {source: edited(node, weight=weight, bias=node.bias * channel)}
    return {}


def _neighbours(name: str, nodes: Nodes, wires: "nx.MultiDiGraph") -> list[str]:
    """The nodes whose factor may find a way on once `name` is gone."""
    neighbours = list(wires.successors(name))
    while wires.in_degree(name) == 1:
        (name,) = wires.predecessors(name)
        neighbours.append(name)
        if not isinstance(nodes[name], (nir.Flatten, *POOLS)):
            break
    return neighbours


def _per_channel(factor: Factor) -> Factor | None:
    """The factor of each channel, or None if it varies within one."""
    rows = factor.reshape(len(factor), -1)
    return rows[:, 0] if (rows == rows[:, :1]).all() else None
