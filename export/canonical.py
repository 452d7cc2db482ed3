"""Canonical form: one way to write a graph, so that every backend has one thing to read.

    flatten     sub-graphs dissolve; node `b` of sub-graph `a` becomes `a.b`
    normalise   shapes known, parameters as full arrays, padding as integers, Linear as Affine
    fold        Scale and AvgPool into neighbouring linear nodes, where the result is the same (see fold.py)
    order       nodes in topological order, recurrent edges marked (see order.py)

Neurons keep their names. Doing it twice changes nothing.
"""

from typing import Any

import nir
import numpy as np
from numpy.typing import NDArray

from nrf.errors import InputError
from nrf.export.contract import Contract
from nrf.export.flatten import flatten
from nrf.export.fold import fold
from nrf.export.graph import STATEFUL, Graph
from nrf.export.order import recurrent_edges, topological
from nrf.export.shapes import CONVOLUTIONS, PARAMETERS, POOLS, Shape, flat_range, infer, padding_of, pair
from nrf.export.validate import findings_of, timing
from nrf.findings import refuse_errors


def canonical(
    graph: nir.NIRGraph, contract: Contract, name: str = "graph", assumed: tuple[str, ...] = ()
) -> Graph:
    """Validate a graph and bring it into canonical form; raises InputError with every error found."""
    try:
        nodes, edges = flatten(graph)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    refuse_errors(findings_of(nodes, edges), name)
    refuse_errors(timing(nodes, contract), name)
    shapes = infer(nodes, edges)
    output = next(key for key, node in nodes.items() if isinstance(node, nir.Output))
    if contract.readout is not None and len(shapes[output]) != 3:
        raise InputError(
            f"{name}: the contract's readout takes maps (shapes, rows, columns), but the output has shape "
            f"{shapes[output]}; leave the readout out"
        )
    sources = {target: source for source, target in edges if source in shapes}
    nodes = {
        key: normalised(node, shapes[sources.get(key, key)], shapes[key])
        for key, node in nodes.items()
        if key in shapes
    }
    nodes, edges = fold(nodes, edges)
    shapes = {key: shapes[key] for key in nodes}
    return arranged(nodes, edges, shapes, name, contract, graph.metadata, assumed)


def arranged(
    nodes: dict[str, nir.NIRNode],
    edges: list[tuple[str, str]],
    shapes: dict[str, Shape],
    name: str,
    contract: Contract,
    metadata: dict[str, Any],
    assumed: tuple[str, ...] = (),
) -> Graph:
    """Nodes in topological order, edges by it, recurrent edges marked."""
    start = next(key for key, node in nodes.items() if isinstance(node, nir.Input))
    recurrent = recurrent_edges(
        nodes,
        edges,
        is_neuron=lambda key: isinstance(nodes[key], STATEFUL),
        is_delay=lambda key: isinstance(nodes[key], nir.Delay) and bool(np.min(nodes[key].delay) > 0),
        start=start,
    )
    order = topological(nodes, edges, recurrent, start)
    rank = {key: k for k, key in enumerate(order)}
    return Graph(
        name=name,
        nodes={key: nodes[key] for key in order},
        edges=tuple(sorted(edges, key=lambda edge: (rank[edge[1]], rank[edge[0]]))),
        shapes={key: shapes[key] for key in order},
        recurrent=recurrent,
        contract=contract,
        metadata={key: value for key, value in metadata.items() if key != "nrf_contract"},
        assumed=assumed,
    )


def normalised(node: nir.NIRNode, shape: Shape, out: Shape) -> nir.NIRNode:
    """A copy of `node` for an input of `shape`, with everything written out."""
    kind = type(node)
    meta = {"metadata": dict(node.metadata)}
    if isinstance(node, nir.Input):
        return nir.Input(input_type={"input": np.array(shape)}, **meta)
    if isinstance(node, nir.Output):
        return nir.Output(output_type={"output": np.array(shape)}, **meta)
    if isinstance(node, nir.Affine | nir.Linear):
        weight = real(node.weight)
        bias = real(node.bias) if isinstance(node, nir.Affine) else np.zeros(out, weight.dtype)
        return nir.Affine(weight, np.broadcast_to(bias, out).copy(), **meta)
    if isinstance(node, CONVOLUTIONS):
        return typed(_convolution(node, shape, meta), shape, out)
    if isinstance(node, POOLS):
        sizes = (np.array(pair(v)) for v in (node.kernel_size, node.stride, node.padding))
        return typed(kind(*sizes, **meta), shape, out)
    if isinstance(node, nir.Flatten):
        first, last = flat_range(node, len(shape))
        return typed(nir.Flatten({"input": np.array(shape)}, first, last, **meta), shape, out)
    values = {key: np.broadcast_to(real(getattr(node, key)), shape).copy() for key in PARAMETERS[kind]}
    return kind(**values, **meta)


def typed(node: nir.NIRNode, shape: Shape, out: Shape) -> nir.NIRNode:
    """Set the shapes that nir leaves open, or gets wrong for kernels that are not square."""
    node.input_type, node.output_type = {"input": np.array(shape)}, {"output": np.array(out)}
    return node


def real(value: Any) -> NDArray[Any]:
    """An array of floats; integers become float64."""
    array = np.asarray(value)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _convolution(node: nir.NIRNode, shape: Shape, meta: dict[str, Any]) -> nir.NIRNode:
    weight = real(node.weight)
    axes = weight.ndim - 2
    stride, dilation = pair(node.stride, axes), pair(node.dilation, axes)
    if str(node.padding) == "same":
        weight, dilation = _odd(weight, dilation)
    bias = np.zeros(len(weight), weight.dtype) if node.bias is None else real(node.bias)
    bias = np.broadcast_to(bias, (len(weight),)).copy()
    if isinstance(node, nir.Conv1d):
        padding = padding_of(nir.Conv1d(None, weight, 1, node.padding, dilation[0], 1, bias))
        return nir.Conv1d(
            shape[1], weight, stride[0], padding[0], dilation[0], int(node.groups), bias, **meta
        )
    padding = padding_of(nir.Conv2d(None, weight, 1, node.padding, dilation, 1, bias))
    return nir.Conv2d(shape[1:], weight, stride, padding, dilation, int(node.groups), bias, **meta)


def _odd(weight: NDArray[Any], dilation: Shape) -> tuple[NDArray[Any], Shape]:
    """Kernels for which 'same' would pad one more behind than in front get a tap of zero in front."""
    for axis, step in enumerate(dilation, start=2):
        if step * (weight.shape[axis] - 1) % 2 == 0:
            continue
        spread = np.zeros(
            [step * (n - 1) + 2 if k == axis else n for k, n in enumerate(weight.shape)], weight.dtype
        )
        np.moveaxis(spread, axis, 0)[1::step] = np.moveaxis(weight, axis, 0)
        weight = spread
        dilation = tuple(1 if k == axis - 2 else d for k, d in enumerate(dilation))
    return weight, dilation
