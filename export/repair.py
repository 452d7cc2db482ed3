"""What exporters get wrong and has one exact remedy: each repair is one small function that says what it did.

A repair takes the flat graph (nodes and edges) and yields a sentence for everything that it changed. Repairs
of form apply to every file; repairs of meaning belong to a dialect, which knows what its framework meant.
"""

from collections.abc import Callable, Iterator

import nir
import numpy as np

from nrf.export.flatten import Edges, Nodes
from nrf.export.shape_inference import (
    CONVOLUTIONS,
    PARAMETERS,
    POOLS,
    Shape,
    ShapeError,
    broadcasts,
    declared,
    edited,
    infer,
    output_shape,
    parameters,
)

Repair = Callable[[Nodes, Edges, float], Iterator[str]]  # nodes and edges are changed in place; dt in seconds
LEAKY = (nir.LIF, nir.CubaLIF)
EVENT_AXES = 3  # channels, rows, columns


def apply(repairs: tuple[Repair, ...], nodes: Nodes, edges: Edges, dt: float | None) -> list[str]:
    """Apply repairs in order; what was changed, one sentence each."""
    return [sentence for repair in repairs for sentence in repair(nodes, edges, dt or 1.0)]


def leading_axes(nodes: Nodes, edges: Edges, dt: float) -> Iterator[str]:
    """An Input with a batch or time axis in front, which no node can take."""
    for name, node in nodes.items():
        if not isinstance(node, nir.Input):
            continue
        shape, behind = declared(node), _listeners(name, nodes, edges)
        for axes in range(len(shape)):
            left = shape[axes:]
            counted = (axes, axes + 1) if len(left) <= EVENT_AXES else (axes,)  # by a Flatten right behind it
            if any(all(_takes(b, left, nodes, edges, each) for b in behind) for each in counted):
                if axes:
                    nodes[name] = nir.Input({"input": np.array(left)})
                    yield f"node '{name}': the leading axes {shape[:axes]} are a batch or time axis, dropped"
                break


def batch_axis_of_flatten(nodes: Nodes, edges: Edges, dt: float) -> Iterator[str]:
    """A Flatten that states a batch axis, or whose start_dim counts one, as it does in torch."""
    shapes = infer(nodes, edges)
    for name, node in nodes.items():
        shape = next((shapes[a] for a, b in edges if b == name and a in shapes), ())
        if not isinstance(node, nir.Flatten) or not shape:
            continue
        stated, behind = declared(node), _listeners(name, nodes, edges)
        axes = len(stated) - len(shape)
        if axes > 0 and stated[axes:] == shape:
            nodes[name] = _counted_from(node, shape, axes)
            yield f"node '{name}': the leading axes {stated[:axes]} are dropped here as well"
        elif int(node.start_dim) > 0 and behind and not _fits(node, shape, behind, nodes, edges):
            without = _counted_from(node, shape, 1)
            if _fits(without, shape, behind, nodes, edges):
                nodes[name] = without
                yield f"node '{name}': start_dim {node.start_dim} counts a batch axis, which is not there"
        if nodes[name] is not node:
            shapes = infer(nodes, edges)


def leading_axes_of_output(nodes: Nodes, edges: Edges, dt: float) -> Iterator[str]:
    """An Output with such axes in front."""
    shapes = infer(nodes, edges)
    for name, node in nodes.items():
        shape = next((shapes[a] for a, b in edges if b == name and a in shapes), ())
        stated = declared(node) if isinstance(node, nir.Output) else ()
        if shape and stated != shape and stated[-len(shape) :] == shape:
            nodes[name] = nir.Output({"output": np.array(shape)})
            yield f"node '{name}': the leading axes {stated[: -len(shape)]} are dropped here as well"


def _counted_from(node: nir.Flatten, shape: Shape, axes: int) -> nir.Flatten:
    """The same Flatten with so many axes fewer in front."""
    first, last = (max(d - axes, 0) if d > 0 else d for d in (int(node.start_dim), int(node.end_dim)))
    return nir.Flatten({"input": np.array(shape)}, first, last)


def _listeners(name: str, nodes: Nodes, edges: Edges) -> list[str]:
    """Nodes that a node leads to, seen through those that take any shape: one number for all."""
    seen, waiting, found = {name}, [name], []
    while waiting:
        source = waiting.pop()
        for target in (b for a, b in edges if a == source and b in nodes and b not in seen):
            seen.add(target)
            keys = PARAMETERS.get(type(nodes[target]), ())
            if keys and all(np.size(getattr(nodes[target], key)) == 1 for key in keys):
                waiting.append(target)
            else:
                found.append(target)
    return found


def _takes(name: str, shape: Shape, nodes: Nodes, edges: Edges, dropped: int = 0) -> bool:
    """Whether a node, and what is behind a Flatten, can take a shape that has lost so many axes."""
    node = nodes[name]
    if isinstance(node, nir.Flatten):
        behind = [
            other for other in _listeners(name, nodes, edges) if not isinstance(nodes[other], nir.Flatten)
        ]
        return _fits(_counted_from(node, shape, dropped), shape, behind, nodes, edges)
    known = isinstance(node, (nir.Affine, nir.Linear, *CONVOLUTIONS, *POOLS)) or type(node) in PARAMETERS
    return not known or bool(_given(node, shape))


def _fits(node: nir.Flatten, shape: Shape, behind: list[str], nodes: Nodes, edges: Edges) -> bool:
    """Whether all nodes behind a Flatten take what it makes of a shape."""
    given = _given(node, shape)
    return bool(given) and all(_takes(other, given, nodes, edges) for other in behind)


def _given(node: nir.NIRNode, shape: Shape) -> Shape:
    """What a node makes of a shape, () where it cannot take it."""
    try:
        return output_shape(node, shape)
    except ShapeError:
        return ()


def scalar_parameters(nodes: Nodes, edges: Edges, dt: float) -> Iterator[str]:
    """One number for a whole layer, which nir takes for a layer of shape (); written out by `canonical`."""
    shapes = infer(nodes, edges)
    for name, node in nodes.items():
        keys = PARAMETERS.get(type(node), ()) if shapes.get(name) else ()
        if keys and all(np.ndim(getattr(node, key)) == 0 for key in keys):
            count = int(np.prod(shapes[name]))
            yield f"node '{name}': its scalar parameters stand for all of its {count} neurons"


def channel_parameters(nodes: Nodes, edges: Edges, dt: float) -> Iterator[str]:
    """One number per channel of a map, written without the map's other axes, where it fits none of these."""
    pending = True
    while pending:  # shapes behind such a node are known only once it fits
        pending, shapes = False, infer(nodes, edges)
        for source, name in edges:
            shape = shapes.get(source, ())
            if len(shape) < 2 or type(nodes.get(name)) not in PARAMETERS:
                continue
            every = parameters(nodes[name])
            flat = {k: v for k, v in every.items() if v.shape == shape[:1] and not broadcasts(v.shape, shape)}
            if flat:
                column = (-1, *(1 for _ in shape[1:]))
                nodes[name] = edited(nodes[name], **{k: v.reshape(column) for k, v in flat.items()})
                yield f"node '{name}': its {', '.join(flat)} {shape[:1]} hold for the channels of {shape}"
                pending = True


def grouped_convolutions(nodes: Nodes, edges: Edges, dt: float) -> Iterator[str]:
    """nir takes the channels of one group for those of all; nothing to change, `infer` counts them right."""
    for name, node in nodes.items():
        if isinstance(node, CONVOLUTIONS) and int(node.groups) > 1:
            channels = int(node.groups) * np.shape(node.weight)[1]
            yield f"node '{name}': its {int(node.groups)} groups take {channels} channels together"


def endless_time_constants(nodes: Nodes, edges: Edges, dt: float) -> Iterator[str]:
    """A decay of 1 comes out as tau = inf and r = inf: a LIF that never forgets is an IF with gain 1."""
    for name, node in nodes.items():
        if isinstance(node, nir.LIF) and np.isinf(node.tau).any():
            if not np.isinf(node.tau).all():
                continue
            nodes[name] = nir.IF(
                r=np.full_like(node.tau, 1 / dt), v_threshold=node.v_threshold, v_reset=node.v_reset
            )
            yield f"node '{name}': tau and r are infinite (a decay of 1), read as an IF with r = 1/dt"


def unit_integrators(nodes: Nodes, edges: Edges, dt: float) -> Iterator[str]:
    """An IF written with r = 1 whatever dt is: v <- v + x is meant, which is r = 1/dt."""
    for name, node in nodes.items():
        if isinstance(node, nir.IF) and dt != 1 and np.all(node.r == 1):
            nodes[name] = nir.IF(np.full_like(node.r, 1 / dt), node.v_threshold, node.v_reset)
            yield f"node '{name}': r is 1 whatever dt is, read as 1/dt (v <- v + x)"


def decays_in_r(nodes: Nodes, edges: Edges, dt: float) -> Iterator[str]:
    """r holds the decay beta itself, to the last bit; tau = dt / (1 - beta) was rounded."""
    for name, node in nodes.items():
        if isinstance(node, LEAKY):
            key = "tau" if isinstance(node, nir.LIF) else "tau_mem"
            beta = np.asarray(node.r, np.float64)
            if np.all((beta >= 0) & (beta < 1)):
                setattr(node, key, dt / (1 - beta))
                node.r = np.ones_like(beta)
                yield f"node '{name}': r is the decay and no resistance, {key} taken from it"


def recurrent_wiring(nodes: Nodes, edges: Edges, dt: float) -> Iterator[str]:
    """Recurrent layers whose input was wired into the recurrent weights instead of into the neuron."""
    for weights in [name for name in nodes if name.endswith("w_rec")]:
        neurons = [b for a, b in edges if a == weights]
        if len(neurons) != 1 or not isinstance(nodes[neurons[0]], nir.IF | nir.LIF | nir.CubaLIF):
            continue
        outside = [(a, b) for a, b in edges if b == weights and a != neurons[0]]
        for edge in outside:
            edges.remove(edge)
            edges.append((edge[0], neurons[0]))
            yield f"edge {edge[0]} -> {weights}: belongs to the neurons '{neurons[0]}', moved there"


def channels_last(nodes: Nodes, edges: Edges, dt: float) -> Iterator[str]:
    """A linear layer behind a Flatten that counts its inputs as (rows, columns, channels)."""
    shapes = infer(nodes, edges)
    for name, node in nodes.items():
        if not isinstance(node, nir.Flatten):
            continue
        shape = next((shapes[a] for a, b in edges if b == name and a in shapes), ())
        for target in (b for a, b in edges if a == name):
            layer = nodes[target]
            if len(shape) == 3 and isinstance(layer, nir.Affine | nir.Linear):
                channels, rows, columns = shape
                weight = np.asarray(layer.weight)
                channels_first = weight.reshape(-1, rows, columns, channels).transpose(0, 3, 1, 2)
                layer.weight = channels_first.reshape(weight.shape)
                yield f"node '{target}': its inputs are counted channels last, put into NIR's order"


FORM: tuple[Repair, ...] = (
    leading_axes,
    batch_axis_of_flatten,
    leading_axes_of_output,
    scalar_parameters,
    channel_parameters,
    grouped_convolutions,
)
