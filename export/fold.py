"""Scale and AvgPool folded into neighbouring linear nodes.

    Affine(W, b) after Scale(s)     W diag(s) x + b
    Scale(s) after Affine(W, b)     diag(s) W x + diag(s) b
    AvgPool                         SumPool, then Scale(1 / kernel area)

A factor moves on through Flatten, and through pooling where it is the same for a whole channel. Convolutions
take a factor per channel. Where one of the neighbours cannot take it, the node stays as it is.
"""

import math

import nir
import numpy as np
from numpy.typing import NDArray

from nrf.export.shapes import CONVOLUTIONS, POOLS

Nodes = dict[str, nir.NIRNode]
Edges = list[tuple[str, str]]
Factor = NDArray[np.float64]


def fold(nodes: Nodes, edges: Edges) -> tuple[Nodes, Edges]:
    """Nodes and edges without the Scale and AvgPool nodes that a neighbour could take over."""
    for name in sorted(nodes):
        node = nodes[name]
        if isinstance(node, nir.Scale):
            factor = np.asarray(node.scale, np.float64)
        elif isinstance(node, nir.AvgPool2d):
            factor = np.full(node.output_type["output"], 1 / math.prod(node.kernel_size.tolist()))
        else:
            continue
        changed = _into_targets(name, factor, nodes, edges) or _into_source(name, factor, nodes, edges)
        if changed:
            nodes = nodes | changed
            if isinstance(node, nir.Scale):
                nodes, edges = {key: nodes[key] for key in nodes if key != name}, _bypassed(name, edges)
            else:
                nodes[name] = _summed(node)
            return fold(nodes, edges)  # what stood behind this node may now fold as well
    return nodes, edges


def _into_targets(name: str, factor: Factor, nodes: Nodes, edges: Edges) -> Nodes | None:
    """The nodes after `name` with its factor inside, or None if one of them cannot take it."""
    changed: Nodes = {}
    for target in [b for a, b in edges if a == name]:
        node = nodes[target]
        channel = _per_channel(factor)
        taken: Nodes | None = None
        if [a for a, b in edges if b == target] != [name]:
            return None
        if isinstance(node, nir.Affine) and node.weight.ndim == 2:
            taken = {target: nir.Affine(node.weight * factor, node.bias, metadata=node.metadata)}
        elif isinstance(node, CONVOLUTIONS) and channel is not None:
            out, inside, *kernel = node.weight.shape
            groups = int(node.groups)
            grouped = node.weight.reshape(groups, out // groups, inside, *kernel)
            grouped = grouped * channel.reshape(groups, 1, inside, *(1 for _ in kernel))
            taken = {target: _convolution(node, grouped.reshape(node.weight.shape), node.bias)}
        elif isinstance(node, nir.Flatten):
            taken = _into_targets(target, factor.reshape(node.output_type["output"]), nodes, edges)
        elif isinstance(node, POOLS) and channel is not None:
            spread = np.broadcast_to(channel.reshape(-1, 1, 1), node.output_type["output"])
            taken = _into_targets(target, spread, nodes, edges)
        if not taken:
            return None
        changed |= taken
    return changed or None


def _into_source(name: str, factor: Factor, nodes: Nodes, edges: Edges) -> Nodes | None:
    """The node before `name` with the factor inside, or None if it cannot take it."""
    sources = [a for a, b in edges if b == name]
    if len(sources) != 1 or [b for a, b in edges if a == sources[0]] != [name]:
        return None
    source, channel = sources[0], _per_channel(factor)
    node = nodes[source]
    if isinstance(nodes[name], nir.AvgPool2d):  # the factor also holds before the pooling
        factor = np.full(nodes[name].input_type["input"], factor.flat[0])
    if isinstance(node, nir.Affine) and node.weight.ndim == 2:
        return {source: nir.Affine(node.weight * factor[:, None], node.bias * factor, metadata=node.metadata)}
    if isinstance(node, CONVOLUTIONS) and channel is not None:
        weight = node.weight * channel.reshape(-1, *(1 for _ in node.weight.shape[1:]))
        return {source: _convolution(node, weight, node.bias * channel)}
    return None


def _convolution(node: nir.NIRNode, weight: NDArray[np.float64], bias: NDArray[np.float64]) -> nir.NIRNode:
    copy = type(node)(
        node.input_shape,
        weight,
        node.stride,
        node.padding,
        node.dilation,
        node.groups,
        bias,
        metadata=node.metadata,
    )
    copy.input_type, copy.output_type = node.input_type, node.output_type
    return copy


def _per_channel(factor: Factor) -> Factor | None:
    """The factor of each channel, or None if it varies within one."""
    rows = factor.reshape(len(factor), -1)
    return rows[:, 0] if (rows == rows[:, :1]).all() else None


def _summed(node: nir.AvgPool2d) -> nir.NIRNode:
    """SumPool in the place of AvgPool."""
    pool = nir.SumPool2d(node.kernel_size, node.stride, node.padding, metadata=node.metadata)
    pool.input_type, pool.output_type = node.input_type, node.output_type
    return pool


def _bypassed(name: str, edges: Edges) -> Edges:
    sources = [a for a, b in edges if b == name]
    targets = [b for a, b in edges if a == name]
    return [edge for edge in edges if name not in edge] + [(a, b) for a in sources for b in targets]
