"""Validation of any NIR graph, ours or a stranger's: one small rule per thing that can be wrong.

Every rule looks at the flat graph (see flatten.py) and yields all that it finds, not only the first.
"""

from collections import Counter

import nir
import numpy as np

from nrf.arrays import distinct
from nrf.errors import InputError
from nrf.export.contract import Contract
from nrf.export.flatten import Edges, Nodes, flatten
from nrf.export.graph import STATEFUL
from nrf.export.order import components, cyclic, reached
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
    pair,
    parameters,
    seconds,
)
from nrf.findings import Finding, Found, Rules, errors

LINEAR = (nir.Affine, nir.Linear, *CONVOLUTIONS)
KNOWN = (nir.Input, nir.Output, nir.Flatten, *LINEAR, *POOLS, *PARAMETERS)
LONGEST = 2**20  # steps of a delay: what a run has to remember
POSITIVE = ("tau", "tau_syn", "tau_mem", "v_threshold")
SIZES = {"kernel_size": 1, "stride": 1, "dilation": 1, "groups": 1, "padding": 0}  # and the least of each
STRUCTURE = Rules[[Nodes, Edges]]()  # nodes, edges and values
SHAPES = Rules[[Nodes, Edges]]()  # need a graph that passes these
LIKELY_STEP = 50.0  # an r above this is 1/dt rather than a resistance
TIMING = Rules[[Nodes, Contract]]()  # what only the contract can tell: dt is known, and suits the seconds


def validate(graph: nir.NIRGraph) -> list[Finding]:
    """All findings of all rules, errors and warnings.

    >>> [finding.rule for finding in validate(nir.NIRGraph({}, [], type_check=False))]
    ['one_input_some_outputs', 'one_input_some_outputs']
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


@STRUCTURE.rule("error")
def known_types(nodes: Nodes, edges: Edges) -> Found:
    """Only primitives of NIR can be run."""
    for name, node in nodes.items():
        if not isinstance(node, KNOWN):
            yield (name, f"type {type(node).__name__} is not known", "")


@STRUCTURE.rule("error")
def one_input_some_outputs(nodes: Nodes, edges: Edges) -> Found:
    """A graph has one Input, with a shape, and any number of Outputs."""
    for kind, expected in ((nir.Input, "one"), (nir.Output, "at least one")):
        count = len(_of_type(kind, nodes))
        if not count or (count > 1 and expected == "one"):
            yield ("", f"the graph has {count} {kind.__name__} nodes, expected {expected}", "")
    for name in _of_type(nir.Input, nodes):
        if not declared(nodes[name]):
            yield (name, "the Input states no shape of whole numbers", "")


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
    for edge, times in Counter(edges).items():
        if times > 1:
            remedy = "keep one, and scale the weights if a sum was meant"
            yield (" -> ".join(edge), "the edge is there more than once", remedy)


@STRUCTURE.rule("error")
def reachable(nodes: Nodes, edges: Edges) -> Found:
    """Every node is reached from the input, the output too."""
    seen = reached(_of_type(nir.Input, nodes), edges)
    for name, node in nodes.items():
        if name not in seen:
            remedy = "connect it" if isinstance(node, nir.Output) else "connect or remove it"
            yield (name, "nothing leads from the input to this node", remedy)


@STRUCTURE.rule("warning")
def used(nodes: Nodes, edges: Edges) -> Found:
    """A node that does not lead to the output is at least worth a word."""
    leading = reached(_of_type(nir.Output, nodes), [(b, a) for a, b in edges])
    for name in nodes:
        if leading and name not in leading:
            yield name, "this node does not lead to the output", ""


@STRUCTURE.rule("error")
def cycles_hold_state(nodes: Nodes, edges: Edges) -> Found:
    """A cycle needs a neuron or a delay in it, or its values would depend on themselves."""
    stateless = [name for name, node in nodes.items() if not isinstance(node, STATEFUL) and not delays(node)]
    wires = set(edges)
    for component in components(stateless, wires):
        if cyclic(component, wires):
            message = f"cycle without a neuron or delay: {', '.join(component)}"
            yield (component[0], message, "put a neuron or a Delay into it")


@STRUCTURE.rule("error")
def finite_parameters(nodes: Nodes, edges: Edges) -> Found:
    """No parameter is NaN or infinite."""
    for name, node in nodes.items():
        for key, values in parameters(node).items():
            if count := int((~np.isfinite(distinct(values))).sum()):
                yield (name, f"{key} has {count} values that are not finite", "")


@STRUCTURE.rule("error")
def single_precision(nodes: Nodes, edges: Edges) -> Found:
    """Parameters are 32-bit numbers in most runtimes: one beyond them would become infinite there."""
    for name, node in nodes.items():
        for key, values in parameters(node).items():
            some = distinct(values)
            largest = np.abs(some, where=np.isfinite(some), out=np.zeros(some.shape)).max(initial=0)
            if largest > np.finfo(np.float32).max:
                yield (name, f"{key} reaches {largest:.3g}, beyond 32-bit numbers", "scale the node down")


@STRUCTURE.rule("warning")
def reset_is_below_the_threshold(nodes: Nodes, edges: Edges) -> Found:
    """A neuron that is reset to its threshold or above it fires for ever once it has fired."""
    for name, node in nodes.items():
        values = parameters(node)
        reset, threshold = values.get("v_reset", np.zeros(0)), values.get("v_threshold", np.zeros(0))
        if broadcasts(reset.shape, threshold.shape) and (over := reset >= threshold).any():
            figure = f"v_reset is {np.broadcast_to(reset, over.shape)[over][0]:g}, not below v_threshold"
            yield (
                name,
                f"{figure} {threshold[over][0]:g}",
                "with reset zero it never stops firing",
            )


@STRUCTURE.rule("error")
def positive_parameters(nodes: Nodes, edges: Edges) -> Found:
    """Time constants and thresholds are above zero; delays are not below."""
    for name, node in nodes.items():
        for key, values in parameters(node).items():
            lowest = values.min(initial=np.inf)
            if key in POSITIVE and lowest <= 0:
                yield (name, f"{key} is {lowest:g}, expected above 0", "")
            if key == "delay" and lowest < 0:
                yield (name, f"{key} is {lowest:g} s, expected 0 or more", "")


@STRUCTURE.rule("error")
def sound_kernels(nodes: Nodes, edges: Edges) -> Found:
    """Kernel, stride, dilation and groups are at least 1, padding at least 0."""
    for name in _of_type((*CONVOLUTIONS, *POOLS), nodes):
        axes = 1 if isinstance(nodes[name], nir.Conv1d) else 2
        for key, least in SIZES.items():
            value = getattr(nodes[name], key, least)
            sizes = tuple(np.atleast_1d(least if isinstance(value, str) else value).tolist())
            if len(sizes) not in (1, axes) or min(sizes) < least:
                yield (name, f"{key} is {sizes}, expected {least} or more per axis", "")


@STRUCTURE.rule("error")
def sound_weights(nodes: Nodes, edges: Edges) -> Found:
    """The weights of a convolution have an axis for each of its kernel's, and its groups divide them."""
    for name in _of_type(CONVOLUTIONS, nodes):
        node = nodes[name]
        axes = 1 if isinstance(node, nir.Conv1d) else 2
        if np.ndim(node.weight) != axes + 2 or np.size(node.weight) == 0:
            sides = ", ".join(["outputs", "inputs", "rows", "columns"][: axes + 2])
            yield (name, f"weight has shape {np.shape(node.weight)}, expected ({sides})", "")
        elif len(node.weight) % max(int(node.groups), 1):
            message = f"{len(node.weight)} features cannot be split into {node.groups} groups"
            yield (name, message, "use groups that divide them")
        if str(node.padding) == "same" and max(pair(node.stride)) > 1:
            message = f"padding 'same' is not defined for stride {pair(node.stride, axes)}"
            yield (name, message, "give padding in pixels")


@STRUCTURE.rule("error")
def biases_fit(nodes: Nodes, edges: Edges) -> Found:
    """A bias is one number for all outputs or features of a linear node, or one for each."""
    for name in _of_type(LINEAR, nodes):
        outputs = np.shape(nodes[name].weight)[: 1 if isinstance(nodes[name], CONVOLUTIONS) else -1]
        bias = parameters(nodes[name]).get("bias", np.zeros(()))
        if bias.shape not in ((), (1,), outputs):
            yield (name, f"bias has shape {bias.shape}, expected {outputs}", "")


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
            others = f"other inputs of '{target}' make it {shapes[target]}"
            yield (where, f"'{source}' gives {shape} and so {out}, {others}", "")


@TIMING.rule("error")
def dt_is_known(nodes: Nodes, contract: Contract) -> Found:
    """Where there are seconds, dt must be known."""
    timed = [name for name, node in nodes.items() if seconds(node)]
    if contract.dt is None and timed:
        yield (
            timed[0],
            "it has a time constant, but no dt is known",
            "give the framework with --dialect, or the step with --dt SECONDS",
        )


@TIMING.rule("error")
def whole_delays(nodes: Nodes, contract: Contract) -> Found:
    """Delays are whole numbers of steps, and none is lost by rounding."""
    if contract.dt is None:
        return
    for name in _of_type(nir.Delay, nodes):
        steps = np.asarray(nodes[name].delay, np.float64) / contract.dt
        off = np.abs(steps - np.round(steps)).max(initial=0)
        if (longest := steps.max(initial=0)) > LONGEST:
            message = (
                f"a delay of {longest:.3g} steps of dt = {contract.dt:g} s, at most {LONGEST:,} are kept"
            )
            yield name, message, "choose a larger dt, or seconds"
        elif off > 1e-3:
            message = f"delays are not whole steps of dt = {contract.dt:g} s (off by up to {off:.2g} steps)"
            yield name, message, "choose a dt that divides them"
        elif np.any((steps > 0) & (np.round(steps) == 0)):
            message = f"delays are {steps[steps > 0].min():.2g} of a step, dt is {contract.dt:g} s"
            yield name, message, "make them 0 or at least one step"


@TIMING.rule("warning")
def dt_suits(nodes: Nodes, contract: Contract) -> Found:
    """Forward Euler overshoots where a time constant is shorter than a step; exponentials forget all."""
    euler = contract.integration == "euler"
    for name, node in nodes.items():
        for key, values in seconds(node).items():
            shortest = values.min(initial=np.inf)
            if key != "delay" and contract.dt is not None and contract.dt > shortest:
                message = f"{key} is {shortest:g} s, shorter than dt = {contract.dt:g} s"
                yield name, message, f"{'forward Euler overshoots' if euler else 'a step forgets most'} there"


@TIMING.rule("warning")
def resistance_is_no_step(nodes: Nodes, contract: Contract) -> Found:
    """Exporters write 1/dt into the r of an integrator; without dt its input counts that much more."""
    for name in _of_type((nir.IF, nir.I), nodes):
        largest = np.abs(np.asarray(nodes[name].r, np.float64)).max(initial=0)
        if contract.dt is None and largest >= LIKELY_STEP:
            message = f"r is {largest:g}, which looks like 1/dt, and no dt is known"
            yield name, message, f"give --dt {1 / largest:g}; the weights need no scaling then"


def delays(node: nir.NIRNode) -> bool:
    """Whether a node holds back all its values, so that it may close a cycle."""
    return isinstance(node, nir.Delay) and bool(np.min(node.delay) > 0)


def _of_type(kind: type | tuple[type, ...], nodes: Nodes) -> list[str]:
    return [name for name, node in nodes.items() if isinstance(node, kind)]


def _other_padding(
    source: str, nodes: Nodes, edges: Edges, shapes: dict[str, Shape], target: nir.NIRNode
) -> str:
    """Whether another padding of the convolution before would make an edge agree."""
    node = nodes[source]
    before = next((shapes[a] for a, b in edges if b == source and a in shapes), None)
    if isinstance(node, CONVOLUTIONS) and before is not None:
        for padding in range(max(np.shape(node.weight)[2:])):
            try:
                output_shape(target, output_shape(edited(node, padding=padding), before))
            except ShapeError:
                continue
            return f"padding {padding} on '{source}' would make them agree"
    return ""
