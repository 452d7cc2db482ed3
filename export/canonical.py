"""Canonical form: one way to write a graph, so that every backend has one thing to read.

    flatten     sub-graphs dissolve; node `b` of sub-graph `a` becomes `a.b`
    normalise   shapes known, parameters as full arrays, padding as integers, Linear as Affine
    fold        Scale and AvgPool into neighbouring linear nodes, where the result is the same (see fold.py)
    order       nodes in topological order, recurrent edges marked (see order.py)

Neurons keep their names. Doing it twice changes nothing.
"""

from math import prod
from typing import Any

import nir
import numpy as np
from numpy.typing import NDArray

from nrf.arrays import LARGE, compact
from nrf.errors import InputError
from nrf.export.contract import Contract
from nrf.export.flatten import Edges, Nodes, flatten
from nrf.export.fold import fold
from nrf.export.graph import STATEFUL, Graph
from nrf.export.order import recurrent_edges, topological
from nrf.export.shape_inference import (
    CONVOLUTIONS,
    PARAMETERS,
    POOLS,
    Shape,
    edited,
    flat_range,
    infer,
    pair,
    window,
)
from nrf.export.validate import TIMING, delays, findings_of
from nrf.files import require_memory
from nrf.findings import refuse_errors

CONTRACT_KEYS = ("nrf_contract", "nrf_node_contracts")  # where contracts are kept in a file's metadata


def canonical(graph: nir.NIRGraph, contract: Contract, name: str = "graph") -> Graph:
    """Validate a graph and bring it into canonical form; raises InputError with every error found."""
    try:
        nodes, edges = flatten(graph)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    return canonical_of(nodes, edges, contract, name, graph.metadata)


def canonical_of(
    nodes: Nodes, edges: Edges, contract: Contract, name: str, metadata: dict[str, Any]
) -> Graph:
    """The same from a flat graph."""
    refuse_errors(findings_of(nodes, edges), name)
    refuse_errors(TIMING.findings(nodes, contract), name)
    shapes = infer(nodes, edges)
    needed = 0
    for key, node in nodes.items():
        needed += 8 * prod(shapes[key]) * (1 + len(PARAMETERS.get(type(node), ())))
        about = f"{name}: node '{key}' of shape {shapes[key]}"
        require_memory(about, needed, "all values up to here", "use less padding or smaller maps")
    for output in (key for key, node in nodes.items() if isinstance(node, nir.Output)):
        about = f"the output '{output}' has shape {shapes[output]}"
        if contract.readout is not None and len(shapes[output]) != 3:
            raise InputError(
                f"{name}: the contract's readout takes maps (objects, rows, columns), but {about}; "
                "leave the readout out"
            )
        if contract.classes is not None and max(shapes[output]) < 2:
            raise InputError(f"{name}: {about}: one value is no choice of classes")
    sources = {target: source for source, target in edges}
    nodes, edges, folded = fold(
        {key: normalised(node, shapes[sources.get(key, key)], shapes[key]) for key, node in nodes.items()},
        edges,
    )
    order, recurrent = _ordered(nodes, edges)
    rank = {key: k for k, key in enumerate(order)}
    return Graph(
        name=name,
        nodes={key: nodes[key] for key in order},
        edges=tuple(sorted(edges, key=lambda edge: (rank[edge[1]], rank[edge[0]]))),
        shapes={key: shapes[key] for key in order},
        recurrent=recurrent,
        contract=contract,
        metadata={key: value for key, value in metadata.items() if key not in CONTRACT_KEYS},
        folded=folded,
    )


def _ordered(nodes: Nodes, edges: Edges) -> tuple[list[str], frozenset[tuple[str, str]]]:
    """Nodes in topological order, and the recurrent edges that it leaves out."""
    start = next(key for key, node in nodes.items() if isinstance(node, nir.Input))
    recurrent = recurrent_edges(
        nodes,
        edges,
        is_neuron=lambda key: isinstance(nodes[key], STATEFUL),
        is_delay=lambda key: delays(nodes[key]),
        start=start,
    )
    return topological(nodes, edges, recurrent, start), recurrent


def normalised(node: nir.NIRNode, shape: Shape, out: Shape) -> nir.NIRNode:
    """A copy of `node` for an input of `shape`, with everything written out."""
    if isinstance(node, nir.Linear):
        weight = real(node.weight)
        node = nir.Affine(weight, np.zeros(out, weight.dtype), metadata=node.metadata)
    values: dict[str, Any] = {
        "metadata": dict(node.metadata),
        "input_type": {"input": np.array(shape)},  # which nir leaves open, or gets wrong for oblong kernels
        "output_type": {"output": np.array(out)},
    }
    if isinstance(node, nir.Affine):
        values |= {"weight": real(node.weight), "bias": np.broadcast_to(real(node.bias), out).copy()}
    elif isinstance(node, CONVOLUTIONS):
        values |= _convolution(node, shape)
    elif isinstance(node, POOLS):
        values |= {key: np.array(pair(getattr(node, key))) for key in ("kernel_size", "stride", "padding")}
    elif isinstance(node, nir.Flatten):
        values["start_dim"], values["end_dim"] = flat_range(node, len(shape))
    else:
        for key in PARAMETERS.get(type(node), ()):
            whole = np.broadcast_to(real(getattr(node, key)), shape)
            held = compact(whole) if whole.size > LARGE else whole
            values[key] = whole.copy() if held is whole else held
    return edited(node, **values)


def real(value: Any) -> NDArray[Any]:
    """An array of floats; integers become float64."""
    array = np.asarray(value)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _convolution(node: nir.NIRNode, shape: Shape) -> dict[str, Any]:
    """The fields of a convolution, one integer per axis; nir wants those of a Conv1d without a tuple."""
    weight = real(node.weight)
    _, stride, dilation, padding = window(node)
    if str(node.padding) == "same":
        weight, dilation, padding = _odd(weight, dilation, padding)
    bias = np.zeros(1, weight.dtype) if node.bias is None else real(node.bias)
    sizes: dict[str, Any] = {
        "input_shape": shape[1:],
        "stride": stride,
        "padding": tuple(p // 2 for p in padding),
        "dilation": dilation,
    }
    if isinstance(node, nir.Conv1d):
        sizes = {key: value[0] for key, value in sizes.items()}
    bias = np.broadcast_to(bias, (len(weight),)).copy()
    return {"weight": weight, "bias": bias, "groups": int(node.groups), **sizes}


def _odd(weight: NDArray[Any], dilation: Shape, padding: Shape) -> tuple[NDArray[Any], Shape, Shape]:
    """Kernels for which 'same' would pad one more behind than in front get a tap of zero in front."""
    for axis, (step, pad) in enumerate(zip(dilation, padding, strict=True)):
        if pad % 2:
            taps = np.moveaxis(weight, axis + 2, 0)
            spread = np.zeros((pad + 2, *taps.shape[1:]), weight.dtype)
            spread[1::step] = taps
            weight = np.moveaxis(spread, 0, axis + 2)
            dilation = (*dilation[:axis], 1, *dilation[axis + 1 :])
            padding = (*padding[:axis], pad + 1, *padding[axis + 1 :])
    return np.ascontiguousarray(weight), dilation, padding
