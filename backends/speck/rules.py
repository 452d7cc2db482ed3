"""The limits of the chip, one small named rule each; `check` runs all of them and stops at none."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import prod

import nir
import numpy as np

from nrf.backends.speck.mapping import assign
from nrf.backends.speck.structure import Layer, normal, structure
from nrf.backends.target import Target
from nrf.export.graph import Graph
from nrf.findings import Finding

LayerRule = Callable[[Layer, Graph, Target], Iterable[Finding]]
GraphRule = Callable[[Sequence[Layer], Graph, Target], Iterable[Finding]]
LAYER_RULES: list[LayerRule] = []
GRAPH_RULES: list[GraphRule] = []


def layer_rule(function: LayerRule) -> LayerRule:
    """Add a rule about one layer; findings carry its name."""
    LAYER_RULES.append(function)
    return function


def graph_rule(function: GraphRule) -> GraphRule:
    """Add a rule about all layers together."""
    GRAPH_RULES.append(function)
    return function


def findings_of(graph: Graph, target: Target, approximate: bool = False) -> list[Finding]:
    """All findings of all rules on a graph. With `approximate` a LIF neuron is only a warning."""
    layers, findings = structure(graph)
    for layer in layers:
        for check in LAYER_RULES:
            findings += [replace(found, rule=check.__name__) for found in check(layer, graph, target)]
    for judge in GRAPH_RULES:
        findings += [replace(found, rule=judge.__name__) for found in judge(layers, graph, target)]
    return [_tolerated(found) if approximate else found for found in findings]


def _tolerated(found: Finding) -> Finding:
    if found.rule != "neuron_leaks_linearly":
        return found
    return replace(
        found, severity="warning", remedy="leak and threshold are fitted; see the F1 that is printed"
    )


def _error(node: str, message: str, remedy: str) -> Finding:
    return Finding("", "error", node, message, remedy)


@layer_rule
def kernel_is_square(layer: Layer, graph: Graph, target: Target) -> Iterable[Finding]:
    """A core has one kernel size for both directions."""
    height, width = layer.conv.weight.shape[2:]
    if height != width:
        yield _error(
            layer.synapse,
            f"kernel is {height}x{width}, the chip's are square",
            f"pad it with zeros to {max(height, width)}x{max(height, width)}",
        )


@layer_rule
def kernel_fits(layer: Layer, graph: Graph, target: Target) -> Iterable[Finding]:
    """Kernels are at most 16 x 16. A linear layer is a kernel as large as the map before it."""
    side, limit = max(layer.conv.weight.shape[2:]), target["kernel.max_side"]
    if side > limit:
        yield _error(
            layer.synapse,
            f"kernel is {side} wide, the chip holds {limit}",
            "pool or use a stride before this layer",
        )


@layer_rule
def stride_is_known(layer: Layer, graph: Graph, target: Target) -> Iterable[Finding]:
    """The chip counts in strides of 1, 2, 4 or 8."""
    strides = target["kernel.strides"]
    if any(step not in strides for step in layer.conv.stride):
        yield _error(
            layer.synapse,
            f"stride is {layer.conv.stride}, the chip knows {strides}",
            "use the next smaller one and pool after the neurons",
        )


@layer_rule
def padding_fits(layer: Layer, graph: Graph, target: Target) -> Iterable[Finding]:
    """Padding is 0 to 7."""
    padding, limit = max(layer.conv.padding), target["kernel.max_padding"]
    if padding > limit:
        yield _error(
            layer.synapse,
            f"padding is {padding}, the chip pads at most {limit}",
            "use a smaller kernel or let the map shrink",
        )


@layer_rule
def no_dilation(layer: Layer, graph: Graph, target: Target) -> Iterable[Finding]:
    """Kernels have no holes."""
    if layer.conv.dilation != (1, 1):
        wide = [
            gap * (side - 1) + 1
            for gap, side in zip(layer.conv.dilation, layer.conv.weight.shape[2:], strict=True)
        ]
        yield _error(
            layer.synapse,
            f"dilation is {layer.conv.dilation}, the chip knows 1",
            f"write the kernel out with zeros as {wide[0]}x{wide[1]}",
        )


@layer_rule
def no_groups(layer: Layer, graph: Graph, target: Target) -> Iterable[Finding]:
    """Every output channel sees every input channel."""
    if layer.conv.groups != 1:
        yield _error(
            layer.synapse,
            f"{layer.conv.groups} groups, the chip knows 1",
            "write the kernel out with zeros between the groups",
        )


@layer_rule
def pooling_is_known(layer: Layer, graph: Graph, target: Target) -> Iterable[Finding]:
    """Spikes are pooled by 1, 2 or 4 on their way, without padding or overlap."""
    sizes = target["pool.sizes"]
    for source in layer.sources:
        for pool in source.pools:
            if pool.kernel[0] != pool.kernel[1] or pool.stride != pool.kernel or pool.padding != (0, 0):
                yield _error(
                    pool.node,
                    f"pooling {pool.kernel} with stride {pool.stride} and padding {pool.padding}; "
                    "the chip's is square, with stride equal to its kernel and no padding",
                    "use a convolution with stride instead",
                )
        if source.pool not in sizes and source.pools:
            yield _error(
                source.pools[-1].node,
                f"pools by {source.pool}, the chip knows {sizes}",
                "pool by 2 or 4, or use a convolution with stride",
            )


@layer_rule
def input_map_fits(layer: Layer, graph: Graph, target: Target) -> Iterable[Finding]:
    """A core addresses at most 128 x 128 input pixels."""
    side, limit = max(layer.conv.input_shape[1:]), target["map.max_input"]
    if side > limit:
        yield _error(
            layer.synapse,
            f"input map is {side} wide, the chip takes {limit}",
            f"pool by {2 if side <= 2 * limit else 4} before this layer",
        )


@layer_rule
def output_map_fits(layer: Layer, graph: Graph, target: Target) -> Iterable[Finding]:
    """A core addresses at most 64 x 64 neurons per output channel."""
    (_, height, width), limit = layer.shape, target["map.max_output"]
    if max(height, width) > limit:
        yield _error(
            layer.node,
            f"output map is {height}x{width}, the chip holds {limit}x{limit}",
            f"stride {_next_stride(layer)} on '{layer.synapse}' would make it {_shrunk(layer)}",
        )


@layer_rule
def channels_fit(layer: Layer, graph: Graph, target: Target) -> Iterable[Finding]:
    """At most 1024 channels in and out."""
    limit = target["map.max_channels"]
    for count, which in ((layer.conv.input_shape[0], "input"), (layer.shape[0], "output")):
        if count > limit:
            yield _error(layer.synapse, f"{count} {which} channels, the chip has {limit}", "use fewer")


@layer_rule
def core_memory(layer: Layer, graph: Graph, target: Target) -> Iterable[Finding]:
    """Some core must have room for kernel, neurons and biases together."""
    if _fits(layer, target):
        return
    kernel, neurons = layer.kernel_words, layer.neuron_words
    rooms = zip(target["cores.kernel_words"], target["cores.neuron_words"], strict=True)
    room = ", ".join(f"{_ki(k)}/{_ki(n)}" for k, n in dict.fromkeys(rooms))
    remedies = []
    if neurons > min(target["cores.neuron_words"]):
        words = layer.shape[0] * prod(1 << (side - 1).bit_length() for side in _shrunk_pair(layer))
        remedies.append(
            f"stride {_next_stride(layer)} on '{layer.synapse}' would bring {_ki(neurons)} to {_ki(words)} "
            "neuron words"
        )
    if kernel > min(target["cores.kernel_words"]):
        features = layer.shape[0]
        fewer = 1 << (features - 1).bit_length() - 1 if features > 1 else 1
        remedies.append(
            f"{fewer} instead of {features} channels would halve {_ki(kernel)} kernel words"
            if fewer < features
            else "a smaller kernel or fewer input channels would save kernel words"
        )
    yield _error(
        layer.node,
        f"needs {_ki(kernel)} kernel and {_ki(neurons)} neuron words; cores have {room}",
        "; ".join(remedies),
    )


@layer_rule
def biases_fit(layer: Layer, graph: Graph, target: Target) -> Iterable[Finding]:
    """One bias per channel, and 1024 of them per core."""
    if not np.allclose(layer.bias, layer.bias[:, :1, :1], rtol=0, atol=1e-9):
        yield _error(
            layer.node,
            "its constant input differs within a channel (bias before padding)",
            "the chip has one bias per channel; move the bias to the last node before the neurons",
        )
    if np.any(layer.bias) and layer.shape[0] > target["cores.biases"]:
        yield _error(
            layer.node,
            f"{layer.shape[0]} biases, a core has {target['cores.biases']}",
            "use fewer channels or no bias",
        )


@layer_rule
def one_threshold_per_core(layer: Layer, graph: Graph, target: Target) -> Iterable[Finding]:
    """A core has one threshold. One per channel can move into the weights, one per neuron cannot."""
    for key in ("v_threshold", "r", "v_reset", "tau", "v_leak"):
        value = getattr(layer.neuron, key, None)
        if value is None:
            continue
        value = np.broadcast_to(np.asarray(value, float), np.shape(value)).reshape(
            layer.shape if np.size(value) == prod(layer.shape) else (-1, 1, 1)
        )
        if np.any(value != value[:, :1, :1]):
            yield _error(
                layer.node,
                f"{key} differs within a channel",
                "a core has one threshold and one leak per channel",
            )


@layer_rule
def weights_fit_8_bits(layer: Layer, graph: Graph, target: Target) -> Iterable[Finding]:
    """With the largest weight at the end of 8 bits, the threshold must still be at least 1."""
    ratio, steps = _largest_weight(layer, graph), 2 ** (target["bits.weight"] - 1) - 1
    if ratio > steps:
        yield _error(
            layer.synapse,
            f"the largest weight is {ratio:.3g} thresholds, 8 bits reach {steps} at a threshold of 1",
            "scale weights or threshold",
        )


@layer_rule
def one_spike_per_update(layer: Layer, graph: Graph, target: Target) -> Iterable[Finding]:
    """A neuron fires at most once per event, however much one event brings."""
    if (ratio := _largest_weight(layer, graph)) > 1:
        yield Finding(
            "",
            "warning",
            layer.synapse,
            f"the largest weight is {ratio:.3g} thresholds, and a neuron fires at most once per event",
            "expect fewer spikes on the chip; train with weights below the threshold",
        )


@layer_rule
def states_fit_16_bits(layer: Layer, graph: Graph, target: Target) -> Iterable[Finding]:
    """With threshold and floor inside 16 bits, the largest weight must still be at least 1."""
    limit = 2 ** (target["bits.state"] - 1) - 1
    floor = normal(layer, graph.contract).floor
    reach = max(1.0, -floor if np.isfinite(floor) else 1.0)  # thresholds that the state must hold
    largest = _largest_weight(layer, graph) * limit / reach
    if largest < 1:
        yield _error(
            layer.node,
            f"where {reach:.3g} thresholds fit 16 bits, the largest weight is {largest:.3g} and rounds away",
            "scale weights or threshold, or raise v_min",
        )


@layer_rule
def neuron_leaks_linearly(layer: Layer, graph: Graph, target: Target) -> Iterable[Finding]:
    """The chip's leak is linear, an exponential one can only be fitted."""
    if isinstance(layer.neuron, nir.LIF):
        yield _error(
            layer.node,
            "LIF leaks exponentially, the chip linearly",
            "lower with --approximate, or train with the preset speck2f",
        )


@layer_rule
def neuron_is_known(layer: Layer, graph: Graph, target: Target) -> Iterable[Finding]:
    """The chip integrates and fires, and resets to 0 or by subtraction."""
    if not isinstance(layer.neuron, nir.IF | nir.LIF):
        yield _error(
            layer.node,
            f"{type(layer.neuron).__name__} is not on the chip",
            "use IF; a leaky output can move to the host's readout (contract: readout.leak)",
        )
    elif graph.contract.reset == "zero" and np.any(getattr(layer.neuron, "v_reset", 0.0)):
        yield _error(
            layer.node, "resets to a value other than 0", "the chip resets to 0 or subtracts the threshold"
        )


@graph_rule
def floor_at_or_below_zero(layers: Sequence[Layer], graph: Graph, target: Target) -> Iterable[Finding]:
    """The floor acts after the reset, so it must not lie above the reset potential."""
    if graph.contract.v_min is not None and graph.contract.v_min > 0:
        yield _error("", f"contract: v_min is {graph.contract.v_min} V", "use 0 or less")


@graph_rule
def two_destinations(layers: Sequence[Layer], graph: Graph, target: Target) -> Iterable[Finding]:
    """A core, and the sensor, send to at most two cores."""
    limit = target["cores.destinations"]
    for name in [graph.input, *(layer.node for layer in layers)]:
        readers = [layer.node for layer in layers for source in layer.sources if source.name == name]
        if len(readers) > limit:
            yield _error(
                name,
                f"feeds {', '.join(readers)}; a core feeds at most {limit}",
                "copy this population, or chain the readers",
            )


@graph_rule
def one_sensor_pooling(layers: Sequence[Layer], graph: Graph, target: Target) -> Iterable[Finding]:
    """The sensor stage pools once for all its destinations."""
    pools = {source.pool for layer in layers for source in layer.sources if source.name == graph.input}
    if len(pools) > 1:
        yield _error(
            graph.input,
            f"is pooled by {sorted(pools)}; the sensor stage pools once",
            "use the same pooling for all readers of the input",
        )


@graph_rule
def layers_find_cores(layers: Sequence[Layer], graph: Graph, target: Target) -> Iterable[Finding]:
    """Nine cores of four kinds: every layer needs one of its own."""
    fits = {layer.node: _fits(layer, target) for layer in layers}
    assignment = assign({name: cores for name, cores in fits.items() if cores})
    if not assignment.complete:
        names, cores = assignment.competing, assignment.contested
        yield _error(
            "",
            f"{len(names)} layers ({', '.join(names)}) fit only the {len(cores)} cores "
            f"{', '.join(map(str, cores))}",
            "make one of them small enough for another core, or merge layers",
        )


def cores_for(layers: Sequence[Layer], target: Target) -> dict[str, int]:
    """The core of every layer of a graph that passed the rules."""
    return assign({layer.node: _fits(layer, target) for layer in layers}).cores


def _fits(layer: Layer, target: Target) -> list[int]:
    """Cores with enough memory, the smallest first so that the large ones stay free."""
    kernel, neuron = target["cores.kernel_words"], target["cores.neuron_words"]
    cores = [
        core
        for core in range(target["cores.count"])
        if layer.kernel_words <= kernel[core]
        and layer.neuron_words <= neuron[core]
        and (not np.any(layer.bias) or layer.shape[0] <= target["cores.biases"])
    ]
    return sorted(cores, key=lambda core: (kernel[core] * neuron[core], core))


def _largest_weight(layer: Layer, graph: Graph) -> float:
    """Largest weight in units of the threshold, over channels."""
    return float(np.abs(normal(layer, graph.contract).weight).max())


def _next_stride(layer: Layer) -> int:
    return 2 * layer.conv.stride[0]


def _shrunk_pair(layer: Layer) -> tuple[int, int]:
    return (layer.shape[1] + 1) // 2, (layer.shape[2] + 1) // 2


def _shrunk(layer: Layer) -> str:
    return "x".join(map(str, _shrunk_pair(layer)))


def _ki(words: int) -> str:
    return f"{words / 1024:g} Ki"
