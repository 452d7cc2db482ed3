"""All rules on a graph, none stops the others; those about its form are in `draft`."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

import nir
import numpy as np

from nrf.backends.speck.chip import Speck, signed
from nrf.backends.speck.draft import Draft
from nrf.backends.speck.layers import Layer, neuron_words
from nrf.events.sensor import Sensor
from nrf.export.contract import Contract
from nrf.export.graph import Graph
from nrf.findings import Finding, Found, Rules

LAYER = Rules[[Layer, Speck]]()
CONTRACT = Rules[[Contract]]()
WHOLE = Rules[[Draft]]()
UNSUPPORTED = {  # fields of the contract, and what to do about them
    "reset": (("none",), "subtract the threshold, or reset to 0"),
    "reset_at": (("next", "held"), "run nrf tune, or train with a reset at the spike"),
}


def check(graph: Graph, chip: Speck, approximate: bool = False) -> list[Finding]:
    """All findings of all rules on a graph. With `approximate` a LIF neuron is only a warning."""
    return check_draft(Draft(graph, chip), approximate)


def check_draft(draft: Draft, approximate: bool = False) -> list[Finding]:
    """The same, of a draft that lowering goes on with."""
    findings = [*draft.findings]
    for layer in draft.layers:
        findings += [*limits(layer, draft.chip), *LAYER.findings(layer, draft.chip)]
    for contract in dict.fromkeys(map(draft.graph.contract_of, draft.graph.neurons)):
        findings += CONTRACT.findings(contract)
    findings += WHOLE.findings(draft)
    return [_tolerated(finding) if approximate else finding for finding in findings]


def _tolerated(finding: Finding) -> Finding:
    if finding.rule != "neuron_leaks_linearly":
        return finding
    remedy = "leak and threshold are fitted, with a floor at -1 threshold; see the F1 that is printed"
    return replace(finding, severity="warning", remedy=remedy)


def limits(layer: Layer, chip: Speck) -> Iterator[Finding]:
    """Every figure of a layer that must not pass a limit; of weights, at a threshold of 1."""
    conv, shape, maps = layer.conv, layer.shape, chip.map
    kernel, padding, before, after = (
        max(sides) for sides in (conv.weight.shape[2:], conv.padding, conv.input_shape[1:], shape[1:])
    )
    stride, (rows, columns) = layer.halved
    smaller = f"pool by {2 if before <= 2 * maps.max_input else 4} before this layer"
    halved = f"stride {stride} on '{layer.synapse}' would make it {rows}x{columns}"
    biases = shape[0] if np.any(layer.bias) else 0
    bits, weight, highest = chip.bits.weight, _largest_weight(layer), signed(chip.bits.weight)[1]
    scale = "scale the weights; where r is 1/dt, give --dt instead"
    for rule, name, figure, limit, remedy in (
        ("kernel_fits", "side of the kernel", kernel, chip.kernel.max_side, "pool or use a stride before it"),
        ("padding_fits", "padding", padding, chip.kernel.max_padding, "use a smaller kernel"),
        ("input_map_fits", "side of the input map", before, maps.max_input, smaller),
        ("output_map_fits", "side of the output map", after, maps.max_output, halved),
        ("channels_fit", "input channels", conv.input_shape[0], maps.max_channels, "use fewer"),
        ("channels_fit", "output channels", shape[0], maps.max_channels, "use fewer"),
        ("weights_fit", f"largest {bits}-bit weight in thresholds", weight, highest, scale),
        ("biases_fit", "biases", biases, chip.cores.biases, "use fewer channels or no bias"),
    ):
        if figure > limit:
            message = f"{name}: {figure:.6g}, a core has at most {limit}"
            yield Finding(rule, "error", layer.synapse, message, remedy)


@LAYER.rule("error")
def stride_is_supported(layer: Layer, chip: Speck) -> Found:
    """The chip counts in strides of powers of two."""
    if any(step not in chip.kernel.strides for step in layer.conv.stride):
        known = _list(chip.kernel.strides)
        message = f"stride {_pair(layer.conv.stride)} is not supported on Speck, {known} are"
        yield layer.synapse, message, "use the next smaller one and pool after the neurons"


@LAYER.rule("error")
def pooling_is_supported(layer: Layer, chip: Speck) -> Found:
    """Spikes are pooled on their way, without padding or overlap."""
    for source in layer.sources:
        for node, pool in source.pools:
            kernel = pool.weight.shape[2:]
            if kernel[0] != kernel[1] or pool.stride != kernel or pool.padding != (0, 0):
                found = f"{_pair(kernel)} with stride {_pair(pool.stride)} and padding {_pair(pool.padding)}"
                message = f"pooling {found}; on Speck it is square, without overlap and padding"
                yield node, message, "use a convolution with stride instead"
        if source.pool not in chip.pool.sizes and source.pools:
            message = f"pooling by {source.pool} is not supported on Speck, by {_list(chip.pool.sizes)} is"
            yield source.pools[-1][0], message, "pool by 2 or 4, or use a convolution with stride"


@LAYER.rule("error")
def one_bias_per_channel(layer: Layer, chip: Speck) -> Found:
    """Padding of a map that a bias has reached already makes it uneven."""
    if not np.allclose(layer.bias, layer.bias[:, :1, :1], rtol=0, atol=1e-9):
        message = "its constant input differs within a channel (bias before padding)"
        yield layer.node, message, "move the bias to the last node before the neurons"


@LAYER.rule("error")
def one_threshold_per_core(layer: Layer, chip: Speck) -> Found:
    """A core has one threshold. One per channel can move into the weights, one per neuron cannot."""
    for key in ("v_threshold", "r", "v_reset", "tau", "v_leak"):
        value = np.asarray(getattr(layer.neuron, key, 0.0))
        per_channel = value.reshape(layer.shape[0], -1) if value.size == prod(layer.shape) else ()
        if uneven := [channel for channel in per_channel if np.ptp(channel)]:
            message = f"{key} is {uneven[0].min():g} to {uneven[0].max():g} within a channel"
            limit = "a core has one threshold, and one leak per channel"
            yield layer.node, f"{message}; {limit}", "give all neurons of a channel one value"


@LAYER.rule("note")
def threshold_in_weights(layer: Layer, chip: Speck) -> Found:
    """Weights, bias and threshold of a channel that are scaled together change no spike."""
    threshold = layer.per_channel("v_threshold")
    if np.ptp(threshold):
        span = f"thresholds from {threshold.min():g} to {threshold.max():g} V"
        yield (
            layer.node,
            f"{span} are in the weights of their channels: scaled together they fire the same",
            "",
        )


@LAYER.rule("error")
def one_floor_per_core(layer: Layer, chip: Speck) -> Found:
    """A core has one floor; one in volts would be a different share of every channel's threshold."""
    v_min, threshold = layer.contract.v_min, layer.per_channel("v_threshold")
    low, high = threshold.min(), threshold.max()
    if v_min and isinstance(layer.neuron, nir.IF) and high > low * (1 + 1e-6):  # a fitted LIF has its own
        message = f"thresholds from {low:g} to {high:g} V and a floor of {v_min:g} V (v_min)"
        yield layer.node, message, "give all its channels one threshold, or use v_min 0 or none"


@LAYER.rule("warning")
def one_spike_per_update(layer: Layer, chip: Speck) -> Found:
    """A neuron fires at most once per event, however much one event brings."""
    if (ratio := _largest_weight(layer)) > 1:
        message = f"the largest weight is {ratio:.3g} thresholds, and a neuron fires at most once per event"
        remedy = "expect fewer spikes on the chip; train with weights below the threshold"
        yield layer.synapse, message, remedy


@LAYER.rule("error")
def states_fit(layer: Layer, chip: Speck) -> Found:
    """With threshold and floor inside the state, and biases inside theirs, some weight must be at least 1."""
    floor, weight = layer.unit.floor, _largest_weight(layer)
    depth = max(1.0, -floor if np.isfinite(floor) else 1.0)  # thresholds that the state must hold
    bias, bits = float(np.abs(layer.unit.bias).max()), chip.bits
    for figure, width, remedy in (
        (depth, bits.state, "scale weights or threshold, or raise v_min"),
        (bias, bits.bias, "use a smaller bias, or give it as input events"),
    ):
        if figure and 0 < (largest := weight * signed(width)[1] / figure) < 1:
            what = "thresholds" if figure is depth else "thresholds of bias"
            message = f"where {figure:.3g} {what} fit {width} bits, the largest weight is {largest:.3g}"
            yield layer.node, f"{message} and rounds away", remedy


@LAYER.rule("warning")
def weights_are_not_all_zero(layer: Layer, chip: Speck) -> Found:
    """Such a layer hears nothing; only its biases can make it fire."""
    if not _largest_weight(layer):
        message = "all its weights are zero: no spike reaches these neurons"
        yield layer.synapse, message, "train them, or prune"


@LAYER.rule("error")
def neuron_leaks_linearly(layer: Layer, chip: Speck) -> Found:
    """The chip's leak is linear, an exponential one can only be fitted."""
    if isinstance(layer.neuron, nir.LIF):
        remedy = "run nrf tune, lower with --approximate, or train with the preset speck2f"
        yield layer.node, "LIF leaks exponentially, neurons of Speck linearly", remedy


@LAYER.rule("note")
def late_subtraction_at_once(layer: Layer, chip: Speck) -> Found:
    """Taken off at the spike or before the next input: where nothing leaks it is the same."""
    late = (layer.contract.reset, layer.contract.reset_at) == ("subtract", "next")
    if late and isinstance(layer.neuron, nir.IF):
        yield layer.node, "subtracts at the spike, not a step later: before the next input it is the same", ""


@LAYER.rule("warning")
def neuron_rests_at_zero(layer: Layer, chip: Speck) -> Found:
    """The chip's leak ends at 0, not at a resting potential."""
    rest = layer.per_channel("v_leak")
    if isinstance(layer.neuron, nir.LIF) and np.any(rest):
        volts = rest[np.abs(rest).argmax()]
        message = f"rests at {volts:g} V (v_leak), on Speck at 0; v_leak would be left out"
        yield layer.node, message, "train with v_leak 0, or with the preset speck2f"


@LAYER.rule("error")
def neuron_is_supported(layer: Layer, chip: Speck) -> Found:
    """The chip integrates and fires, starts at 0, and resets to 0 or by subtraction."""
    if not isinstance(layer.neuron, nir.IF | nir.LIF):
        message = f"{type(layer.neuron).__name__} neurons are not supported on Speck"
        remedy = "use IF; a leaky output can move to the host's readout (contract: readout.leak)"
        yield layer.node, message, remedy
        return
    unseen = (layer.contract.reset, layer.contract.start) == ("subtract", "leak")
    if np.any(layer.neuron.v_reset) and not unseen:
        remedy = "reset to 0, or subtract the threshold"
        yield layer.node, "starts at or resets to a value other than 0 (v_reset)", remedy


@CONTRACT.rule("error")
def contract_is_supported(contract: Contract) -> Found:
    """The chip resets when it fires; what takes off the threshold one step later may do so at once."""
    for key, (values, remedy) in UNSUPPORTED.items():
        if getattr(contract, key) in values and (contract.reset, contract.reset_at) != ("subtract", "next"):
            message = f"contract: {key} '{getattr(contract, key)}' is not supported on Speck"
            yield "", message, remedy


@CONTRACT.rule("error")
def floor_at_or_below_zero(contract: Contract) -> Found:
    """The floor acts after the reset, so it must not lie above the reset potential."""
    if contract.v_min is not None and contract.v_min > 0:
        yield "", f"contract: v_min is {contract.v_min} V", "use 0 or less"


@CONTRACT.rule("warning")
def fires_at_threshold(contract: Contract) -> Found:
    """The chip fires at `v >= threshold`. One higher would do for `>`, but is then subtracted too."""
    if contract.fire == "gt" and (contract.reset == "subtract" or contract.max_spikes != 1):
        message = "contract: fires above the threshold and subtracts or counts it; Speck fires there"
        yield "", message, "expect ties to fire one step earlier; train with fire ge"


@WHOLE.rule("error")
def destinations_fit(draft: Draft) -> Found:
    """A core, and the sensor, send to a few cores only."""
    limit = draft.chip.cores.destinations
    for name in [draft.graph.input, *(layer.node for layer in draft.layers)]:
        readers = [layer.node for layer in draft.layers for source in layer.sources if source.name == name]
        if len(readers) > limit:
            message = f"feeds {', '.join(readers)}; a core feeds at most {limit}"
            yield name, message, "copy this population, or chain the readers"


@WHOLE.rule("error")
def steps_agree(draft: Draft) -> Found:
    """The chip waits for nothing: what a contract delays comes earlier, on all ways to a core alike."""
    if len({draft.graph.contract_of(layer.node).emit for layer in draft.layers}) > 1:
        yield "", "contract: emit is late for some populations only", "state the same for all"
    for layer, late in _late(draft):
        if len({steps for _, steps in late}) > 1:
            listed = " and ".join(f"those of '{name}' {steps}" for name, steps in late)
            message = f"spikes come steps late, {listed} (Delay or contract: delay, emit), on Speck at once"
            yield layer.node, message, "state delay 0 and emit now, or make all ways to it equally long"


@WHOLE.rule("error")
def biases_wait_for_no_delay(draft: Draft) -> Found:
    """Without the Delay before a population, its bias would act for fewer steps before spikes come."""
    for layer in draft.layers:
        steps = draft.waits[layer.node]
        if np.any(layer.bias) and steps:
            message = f"its bias acts {steps} steps before spikes can come (Delay), on Speck none"
            yield layer.node, message, "remove the Delay, or the bias"


@WHOLE.rule("warning")
def biases_start_with_spikes(draft: Draft) -> Found:
    """Where a contract delays spikes, biases act on some steps before the first can come."""
    for layer, late in _late(draft):
        steps = max((steps for _, steps in late), default=0) - draft.waits[layer.node]
        if np.any(layer.bias) and steps:
            message = f"its bias acts {steps} steps before spikes can come (contract: delay or emit)"
            yield layer.node, f"{message}, on Speck none", "state delay 0 and emit now, or expect that offset"


@WHOLE.rule("error")
def one_sensor_pooling(draft: Draft) -> Found:
    """The sensor stage pools once for all its destinations."""
    if len(draft.sensor_pools) > 1:
        message = f"is pooled by {sorted(draft.sensor_pools)}; the sensor stage pools once"
        yield draft.graph.input, message, "use the same pooling for all readers of the input"


@WHOLE.rule("error")
def sensor_stage_fits(draft: Draft) -> Found:
    """The sensor stage merges polarities, pools, cuts out and mirrors, in this order."""
    sensor, name = draft.graph.contract.sensor, draft.graph.input
    if sensor is None:
        return
    stage, side, shape = Sensor.parse(sensor), draft.chip.map.max_input, draft.graph.shapes[name]
    if stage.shape != shape:
        message = f"the sensor '{sensor}' gives {stage.shape}, the input takes {shape}"
        yield name, message, "state another crop, or merge"
    if max(stage.size) > side:
        yield name, f"a sensor of {_pair(stage.size)} pixels, the chip's is {side}", "state the chip's"
    pool = max(draft.sensor_pools, default=1)
    if any(edge % pool for edge in stage.crop):
        message = f"crop {stage.crop} is no multiple of the pooling by {pool}, which comes first"
        yield name, message, f"cut at multiples of {pool} pixels"


@WHOLE.rule("error")
def core_memory(draft: Draft) -> Found:
    """Some core must have room for kernel and neurons together, or two cores for some channels each."""
    sizes = zip(draft.chip.cores.kernel_words, draft.chip.cores.neuron_words, strict=True)
    room = ", ".join(f"{_ki(k)}/{_ki(n)}" for k, n in dict.fromkeys(sizes))
    for layer in draft.mapped.unfit:
        features, (kernel, neurons) = layer.shape[0], layer.words(layer.shape[0])
        remedies = []
        if neurons > min(draft.chip.cores.neuron_words):
            stride, sides = layer.halved
            fewer = f"{_ki(neurons)} to {_ki(neuron_words(features, *sides))} neuron words"
            remedies.append(f"stride {stride} on '{layer.synapse}' would bring {fewer}")
        if kernel > min(draft.chip.cores.kernel_words):
            half = 1 << (features - 1).bit_length() - 1 if features > 1 else 1
            remedies.append(
                f"{half} instead of {features} channels would halve {_ki(kernel)} kernel words"
                if half < features and kernel <= 4 * max(draft.chip.cores.kernel_words)  # two cores then do
                else "a smaller kernel or fewer input channels would save kernel words"
            )
        message = f"needs {_ki(kernel)} kernel and {_ki(neurons)} neuron words; cores have {room}"
        yield layer.node, f"{message}, and it cannot be split over two", "; ".join(remedies)


@WHOLE.rule("error")
def layers_find_cores(draft: Draft) -> Found:
    """Cores are of several kinds: every layer, or half of one, needs one of its own."""
    names, cores = draft.mapped.found.competing, draft.mapped.found.contested
    if names:
        listed, numbers = ", ".join(names), ", ".join(map(str, cores))
        message = f"{len(names)} layers ({listed}) fit only the {len(cores)} cores {numbers}"
        yield "", message, "make one of them small enough for another core, or merge layers"


@WHOLE.rule("note")
def split_over_cores(draft: Draft) -> Found:
    """A layer too large for one core is split by output channels: each has neurons of its own."""
    for layer in draft.layers:
        if len(cores := draft.mapped.of(layer)) > 1:
            listed = " and ".join(
                f"{share.first} to {share.last - 1} on core {core}" for core, share in cores
            )
            yield layer.node, f"split by channels, {listed}: channels share no neurons, no spike changes", ""


def _late(draft: Draft) -> Iterator[tuple[Layer, list[tuple[str, int]]]]:
    """Every layer, with the steps by which contract and Delay nodes make each of its sources late."""
    delay, emit = draft.graph.contract.delay, int(draft.graph.contract.emit == "late")
    late = {draft.graph.input: 0}  # spikes of a population, against a contract that delays nothing
    for layer in draft.layers:
        sources = [(each.name, delay + each.delay + late.get(each.name, 0)) for each in layer.sources]
        late[layer.node] = emit + max((steps for _, steps in sources), default=0)
        yield layer, sources


def _largest_weight(layer: Layer) -> float:
    """Largest weight in units of the threshold, over channels."""
    return float(np.abs(layer.unit.weight).max())


def _pair(sizes: Sequence[int]) -> str:
    return f"{sizes[0]}" if sizes[0] == sizes[1] else f"{sizes[0]}x{sizes[1]}"


def _list(sizes: Sequence[int]) -> str:
    return f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]}" if len(sizes) > 1 else f"{sizes[0]}"


def _ki(words: int) -> str:
    return f"{words / 1024:g} Ki" if words >= 1024 else f"{words}"
