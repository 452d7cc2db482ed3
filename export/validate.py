"""Validation of any NIR graph, ours or a stranger's: one small rule per thing that can be wrong.

Every rule looks at the flat graph (see flatten.py) and yields all that it finds, not only the first.
"""

from collections.abc import Iterable
from copy import copy

import nir
import numpy as np

from nrf.errors import InputError
from nrf.export.contract import Contract
from nrf.export.flatten import Edges, Nodes, flatten
from nrf.export.graph import STATEFUL
from nrf.export.order import components, cyclic, distances
from nrf.export.shapes import (
    CONVOLUTIONS,
    PARAMETERS,
    POOLS,
    Shape,
    ShapeError,
    declared,
    infer,
    output_shape,
    pair,
)
from nrf.findings import Finding, Found, Rules, errors

LINEAR = (nir.Affine, nir.Linear, *CONVOLUTIONS)
KNOWN = (nir.Input, nir.Output, nir.Flatten, *LINEAR, *POOLS, *PARAMETERS)
POSITIVE = ("tau", "tau_syn", "tau_mem", "v_threshold")
TIMED = (nir.LI, nir.LIF, nir.CubaLI, nir.CubaLIF, nir.Delay)  # nodes with seconds in them
STRUCTURE = Rules[[Nodes, Edges]]()  # nodes, edges and values
SHAPES = Rules[[Nodes, Edges]]()  # need a graph that passes these
TIMING = Rules[[Nodes, Contract]]()  # what only the contract can tell


def validate(graph: nir.NIRGraph) -> list[Finding]:
    """All findings of all rules, errors and warnings.

    >>> [finding.rule for finding in validate(nir.NIRGraph({}, [], type_check=False))]
    ['one_input', 'one_output']
    """
    try:
        nodes, edges = flatten(graph)
    except InputError as error:
        return [Finding("sub_graphs", "error", "", str(error))]
    return findings_of(nodes, edges)


def findings_of(nodes: Nodes, edges: Edges) -> list[Finding]:
    """All findings about a flat graph. Shapes are looked at only where the structure is sound."""
    findings = STRUCTURE.findings(nodes, edges)
    return findings if errors(findings) else findings + SHAPES.findings(nodes, edges)


def can_be_repaired(nodes: Nodes, edges: Edges) -> bool:
    """Whether a graph holds together well enough for repairs; infinite values may have a remedy."""
    return all(f.rule == "finite_parameters" for f in errors(STRUCTURE.findings(nodes, edges)))


def timing(nodes: Nodes, contract: Contract) -> list[Finding]:
    """What only the contract can tell: dt is there where seconds are, and suits them."""
    return TIMING.findings(nodes, contract)


@STRUCTURE.rule("error")
def known_types(nodes: Nodes, edges: Edges) -> Found:
    """Only primitives of NIR can be run."""
    for name, node in nodes.items():
        if not isinstance(node, KNOWN):
            yield (name, f"type {type(node).__name__} is not known", "")


@STRUCTURE.rule("error")
def one_input(nodes: Nodes, edges: Edges) -> Found:
    """A graph has one Input, with a shape."""
    inputs = [name for name, node in nodes.items() if isinstance(node, nir.Input)]
    if len(inputs) != 1:
        yield ("", f"the graph has {len(inputs)} Input nodes, expected one", "")
    for name in inputs:
        if not declared(nodes[name]):
            yield (name, "the Input states no shape of whole numbers", "")


@STRUCTURE.rule("error")
def one_output(nodes: Nodes, edges: Edges) -> Found:
    """A graph has one Output."""
    outputs = [name for name, node in nodes.items() if isinstance(node, nir.Output)]
    if len(outputs) != 1:
        yield ("", f"the graph has {len(outputs)} Output nodes, expected one", "")


@STRUCTURE.rule("error")
def no_dangling_edges(nodes: Nodes, edges: Edges) -> Found:
    """Both ends of an edge exist."""
    for source, target in dict.fromkeys(edges):
        for end in dict.fromkeys((source, target)):
            if end not in nodes:
                yield (f"{source} -> {target}", f"there is no node '{end}'", "")


@STRUCTURE.rule("error")
def no_duplicated_edges(nodes: Nodes, edges: Edges) -> Found:
    """Two nodes are connected once; what would it mean otherwise?"""
    for edge in dict.fromkeys(edges):
        if edges.count(edge) > 1:
            yield (
                " -> ".join(edge),
                f"the edge is there {edges.count(edge)} times",
                "keep one, and scale the weights if a sum was meant",
            )


@STRUCTURE.rule("error")
def reachable(nodes: Nodes, edges: Edges) -> Found:
    """Every node is reached from the input."""
    reached = _reached(nodes, edges, nir.Input)
    for name, node in nodes.items():
        if name not in reached and not isinstance(node, nir.Output):
            yield (name, "nothing leads from the input to this node", "connect or remove it")


@STRUCTURE.rule("error")
def input_reaches_output(nodes: Nodes, edges: Edges) -> Found:
    """There is a way from the input to the output."""
    reached = _reached(nodes, edges, nir.Input)
    for name, node in nodes.items():
        if isinstance(node, nir.Output) and name not in reached:
            yield (name, "no path leads from the input to the output", "")


@STRUCTURE.rule("warning")
def used(nodes: Nodes, edges: Edges) -> Found:
    """A node that does not lead to the output is at least worth a word."""
    reached = _reached(nodes, [(b, a) for a, b in edges], nir.Output)
    for name in nodes:
        if reached and name not in reached:
            yield name, "this node does not lead to the output", ""


@STRUCTURE.rule("error")
def cycles_hold_state(nodes: Nodes, edges: Edges) -> Found:
    """A cycle needs a neuron or a delay in it, or its values would depend on themselves."""
    stateless = [name for name, node in nodes.items() if not isinstance(node, STATEFUL) and not _delays(node)]
    for component in components(stateless, edges):
        if cyclic(component, edges):
            yield (
                component[0],
                f"cycle without a neuron or delay: {', '.join(component)}",
                "put a neuron or a Delay into it",
            )


@STRUCTURE.rule("error")
def finite_parameters(nodes: Nodes, edges: Edges) -> Found:
    """No parameter is NaN or infinite."""
    for name, node in nodes.items():
        for key in (
            *PARAMETERS.get(type(node), ()),
            *(("weight", "bias") if isinstance(node, LINEAR) else ()),
        ):
            value = getattr(node, key, None)
            values = np.asarray(0.0 if value is None else value, dtype=np.float64)  # a bias may be None
            if count := int((~np.isfinite(values)).sum()):
                yield (name, f"{key} has {count} values that are not finite", "")


@STRUCTURE.rule("error")
def positive_parameters(nodes: Nodes, edges: Edges) -> Found:
    """Time constants and thresholds are above zero; delays are not below."""
    for name, node in nodes.items():
        for key in PARAMETERS.get(type(node), ()):
            lowest = np.min(np.asarray(getattr(node, key), dtype=np.float64), initial=np.inf)
            if key in POSITIVE and lowest <= 0:
                yield (name, f"{key} is {lowest:g}, expected above 0", "")
            if key == "delay" and lowest < 0:
                yield (name, f"{key} is {lowest:g} s, expected 0 or more", "")


@STRUCTURE.rule("error")
def sound_kernels(nodes: Nodes, edges: Edges) -> Found:
    """Kernel, stride, dilation and groups are at least 1, padding at least 0, groups divide the channels."""
    for name, node in nodes.items():
        if isinstance(node, CONVOLUTIONS):
            axes = {nir.Conv1d: 1, nir.Conv2d: 2}[type(node)]
            if np.ndim(node.weight) != axes + 2 or np.size(node.weight) == 0:
                yield (name, f"weight has shape {np.shape(node.weight)}", "")
            elif np.size(node.bias) not in (1, len(node.weight)):
                yield (name, f"{np.size(node.bias)} biases for {len(node.weight)} features", "")
            elif len(node.weight) % max(int(node.groups), 1):
                yield (name, f"{node.groups} groups for {len(node.weight)} features", "")
            if str(node.padding) == "same" and max(pair(node.stride)) > 1:
                yield (name, f"padding 'same' with stride {pair(node.stride, axes)}", "")
            least = {"stride": 1, "dilation": 1, "groups": 1}
        elif isinstance(node, POOLS):
            axes, least = 2, {"kernel_size": 1, "stride": 1}
        else:
            continue
        if not isinstance(node.padding, str):
            least["padding"] = 0
        for key, low in least.items():
            value = tuple(np.atleast_1d(getattr(node, key)).tolist())
            if len(value) not in (1, axes) or min(value) < low:
                yield (name, f"{key} is {value}, expected {low} or more per axis", "")


@STRUCTURE.rule("error")
def affine_bias(nodes: Nodes, edges: Edges) -> Found:
    """An Affine has a matrix, and a bias for each of its rows."""
    for name, node in nodes.items():
        if isinstance(node, nir.Affine):
            rows = (*np.shape(node.weight)[:-2], np.shape(node.weight)[-2])
            if np.shape(node.bias) not in ((), (1,), rows):
                yield (name, f"bias has shape {np.shape(node.bias)}, expected {rows}", "")


@SHAPES.rule("error")
def shapes_agree(nodes: Nodes, edges: Edges) -> Found:
    """Along every edge, what the source gives is what the target takes."""
    shapes = infer(nodes, edges)
    for source, target in edges:
        if source not in shapes:
            continue
        node, shape, where = nodes[target], shapes[source], f"{source} -> {target}"
        try:
            out = output_shape(node, shape)
        except ShapeError as error:
            remedy = _other_padding(source, nodes, edges, shapes, node)
            yield (where, f"'{source}' gives {shape}, but '{target}' {error}", remedy)
            continue
        wanted = declared(node) if isinstance(node, nir.Output) else ()
        if wanted and wanted != shape:
            yield (where, f"'{source}' gives {shape}, the output says {wanted}", "")
        elif out != shapes[target]:
            yield (
                where,
                f"'{source}' gives {shape} and so {out}, other inputs of '{target}' make it {shapes[target]}",
                "",
            )


@TIMING.rule("error")
def dt_is_known(nodes: Nodes, contract: Contract) -> Found:
    """Where there are seconds, dt must be known."""
    timed = [name for name, node in nodes.items() if isinstance(node, TIMED)]
    if contract.dt is None and timed:
        yield (
            timed[0],
            "it has a time constant, but no dt is known",
            "give the framework with --dialect, or the step with --dt SECONDS",
        )


@TIMING.rule("error")
def whole_delays(nodes: Nodes, contract: Contract) -> Found:
    """Delays are whole numbers of steps, and none is lost by rounding."""
    for name, node in nodes.items():
        if not isinstance(node, nir.Delay) or contract.dt is None:
            continue
        steps = np.asarray(node.delay, np.float64) / contract.dt
        off = np.abs(steps - np.round(steps)).max(initial=0)
        if off > 1e-3:
            message = f"delays are not whole steps of dt = {contract.dt:g} s (off by up to {off:.2g} steps)"
            yield name, message, "choose a dt that divides them"
        elif np.any((steps > 0) & (np.round(steps) == 0)):
            message = f"delays are {steps[steps > 0].min():.2g} of a step, dt is {contract.dt:g} s"
            yield name, message, "make them 0 or at least one step"


@TIMING.rule("warning")
def dt_suits(nodes: Nodes, contract: Contract) -> Found:
    """Forward Euler overshoots where a time constant is shorter than a step."""
    for name, node in nodes.items():
        for key in ("tau", "tau_syn", "tau_mem"):
            shortest = float(np.min(getattr(node, key, np.inf)))
            if contract.dt is not None and contract.dt > shortest:
                message = f"{key} is {shortest:g} s, shorter than dt = {contract.dt:g} s"
                yield name, message, "forward Euler overshoots there"


def _reached(nodes: Nodes, edges: Iterable[tuple[str, str]], kind: type) -> set[str]:
    edges = list(edges)
    starts = [name for name, node in nodes.items() if isinstance(node, kind)]
    return {name for start in starts for name in distances(start, edges)}


def _other_padding(
    source: str, nodes: Nodes, edges: Edges, shapes: dict[str, Shape], target: nir.NIRNode
) -> str:
    """Whether another padding of the convolution before would make an edge agree."""
    node = nodes[source]
    before = next((shapes[a] for a, b in edges if b == source and a in shapes), None)
    if isinstance(node, CONVOLUTIONS) and before is not None:
        for padding in range(max(np.shape(node.weight)[2:])):
            other = copy(node)
            other.padding = padding
            try:
                output_shape(target, output_shape(other, before))
            except ShapeError:
                continue
            return f"padding {padding} on '{source}' would make them agree"
    return ""


def _delays(node: nir.NIRNode) -> bool:
    return isinstance(node, nir.Delay) and bool(np.min(node.delay) > 0)
