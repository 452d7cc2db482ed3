"""Shapes along a graph: what every node makes of the shape that it is given.

convolution, pooling   n_out = (n_in + 2 padding - dilation (kernel - 1) - 1) // stride + 1   per axis
neurons, Scale, Delay  n_out = n_in; each parameter has that shape or broadcasts to it
"""

from collections import deque
from copy import copy
from typing import Any

import nir
import numpy as np
from numpy.typing import NDArray

from nrf.export.flatten import Edges, Nodes
from nrf.export.order import digraph

Shape = tuple[int, ...]
CONVOLUTIONS = (nir.Conv1d, nir.Conv2d)
POOLS = (nir.SumPool2d, nir.AvgPool2d)
PARAMETERS: dict[type, tuple[str, ...]] = {  # elementwise parameters: full shape, or a broadcast of it
    nir.Scale: ("scale",),
    nir.Delay: ("delay",),
    nir.Threshold: ("threshold",),
    nir.I: ("r",),
    nir.IF: ("r", "v_threshold", "v_reset"),
    nir.LI: ("tau", "r", "v_leak"),
    nir.LIF: ("tau", "r", "v_leak", "v_threshold", "v_reset"),
    nir.CubaLI: ("tau_syn", "tau_mem", "r", "v_leak", "w_in"),
    nir.CubaLIF: ("tau_syn", "tau_mem", "r", "v_leak", "v_threshold", "v_reset", "w_in"),
}


class ShapeError(ValueError):
    """A node cannot take the shape that reaches it; the text goes on after the node's name."""


def parameters(node: nir.NIRNode) -> dict[str, NDArray[np.float64]]:
    """All numbers that a node multiplies, adds or compares with, by name; a bias may be missing.

    >>> parameters(nir.Linear(np.zeros((10, 128)))).keys()
    dict_keys(['weight'])
    """
    values = {key: getattr(node, key, None) for key in PARAMETERS.get(type(node), ("weight", "bias"))}
    return {key: np.asarray(value, np.float64) for key, value in values.items() if value is not None}


def seconds(node: nir.NIRNode) -> dict[str, NDArray[np.float64]]:
    """Time constants and delays of a node, by name."""
    keys = ("tau", "tau_syn", "tau_mem", "delay")
    return {key: values for key, values in parameters(node).items() if key in keys}


def edited(node: nir.NIRNode, **values: Any) -> nir.NIRNode:
    """A copy of a node with some fields changed; nir's own guesses of its shapes are not repeated."""
    new = copy(node)
    vars(new).update(values)
    return new


def output_shape(node: nir.NIRNode, shape: Shape) -> Shape:
    """Shape that `node` makes of an input of `shape`; raises ShapeError with the reason.

    >>> output_shape(nir.Linear(np.zeros((10, 128))), (128,))
    (10,)
    """
    if isinstance(node, nir.Affine | nir.Linear):
        *batch, rows, columns = np.shape(node.weight)
        if shape != (*batch, columns):
            raise ShapeError(f"takes {(*batch, columns)}")
        return (*batch, rows)
    if isinstance(node, (*CONVOLUTIONS, *POOLS)):
        return _windowed(node, shape)
    if isinstance(node, nir.Flatten):
        stated = declared(node)
        if stated and stated != shape:
            raise ShapeError(f"says input_type {stated}")
        first, last = flat_range(node, len(shape))
        return (*shape[:first], int(np.prod(shape[first : last + 1])), *shape[last + 1 :])
    for key, values in parameters(node).items():
        if not broadcasts(values.shape, shape):
            raise ShapeError(f"has {key} of shape {values.shape}")
    return shape


def infer(nodes: Nodes, edges: Edges) -> dict[str, Shape]:
    """Output shape of every node that an Input reaches. Where a node refuses its input, inference stops."""
    wires = digraph(nodes, edges)
    shapes = {name: declared(node) for name, node in nodes.items() if isinstance(node, nir.Input)}
    queue = deque(shapes)
    while queue:
        source = queue.popleft()
        for target in wires[source]:
            if target in nodes and target not in shapes:
                try:
                    shapes[target] = output_shape(nodes[target], shapes[source])
                except ShapeError:
                    continue
                queue.append(target)
    return shapes


def declared(node: nir.NIRNode) -> Shape:
    """The shape written in an Input, Output or Flatten node; () if there is none."""
    types = node.output_type if isinstance(node, nir.Output) else node.input_type
    value = next(iter(types.values())) if types else None
    sizes = np.atleast_1d(np.asarray([] if value is None else value, np.float64))
    if sizes.ndim != 1 or not np.isfinite(sizes).all() or (sizes < 1).any() or (sizes % 1).any():
        return ()
    return tuple(int(n) for n in sizes)


def broadcasts(shape: Shape, target: Shape) -> bool:
    """Whether an array of `shape` broadcasts to exactly `target`."""
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


def pair(value: Any, axes: int = 2) -> Shape:
    """An integer, or one per axis, as a tuple of integers."""
    numbers = np.atleast_1d(np.asarray(value)).astype(int)
    return tuple(int(n) for n in (np.repeat(numbers, axes) if numbers.size == 1 else numbers))


def flat_range(node: nir.Flatten, axes: int) -> tuple[int, int]:
    """First and last axis that a Flatten joins, counted from the front, time and batch apart."""
    first, last = (int(d) + axes if int(d) < 0 else int(d) for d in (node.start_dim, node.end_dim))
    if not 0 <= first <= last < axes:
        raise ShapeError(f"joins axes {node.start_dim} to {node.end_dim}")
    return first, last


def window(node: nir.NIRNode) -> tuple[Shape, Shape, Shape, Shape]:
    """Kernel, stride, dilation and padding (both ends together) of a convolution or pooling, per axis."""
    kernel = np.shape(node.weight)[2:] if isinstance(node, CONVOLUTIONS) else pair(node.kernel_size)
    stride, dilation = (pair(value, len(kernel)) for value in (node.stride, getattr(node, "dilation", 1)))
    if str(node.padding) == "same":
        return kernel, stride, dilation, tuple(d * (k - 1) for d, k in zip(dilation, kernel, strict=True))
    padding = 0 if str(node.padding) == "valid" else node.padding
    return kernel, stride, dilation, tuple(2 * p for p in pair(padding, len(kernel)))


def _windowed(node: nir.NIRNode, shape: Shape) -> Shape:
    kernel, stride, dilation, padding = window(node)
    axes = len(kernel)
    if isinstance(node, CONVOLUTIONS):
        features, channels = np.shape(node.weight)[0], np.shape(node.weight)[1] * int(node.groups)
        if len(shape) != 1 + axes or shape[0] != channels:
            raise ShapeError(f"takes {channels} channels of {axes} axes")
        if node.input_shape is not None and pair(node.input_shape, axes) != shape[1:]:
            raise ShapeError(f"says input_shape {pair(node.input_shape, axes)}")
    elif len(shape) != 3:
        raise ShapeError("takes (channels, height, width)")
    else:
        features = shape[0]
    out = tuple(
        (n + p - d * (k - 1) - 1) // s + 1
        for n, k, s, d, p in zip(shape[1:], kernel, stride, dilation, padding, strict=True)
    )
    if min(out) < 1:
        ends = tuple(p // 2 for p in padding)
        raise ShapeError(f"has a kernel of {kernel} with padding {ends}, which does not fit")
    return (features, *out)
