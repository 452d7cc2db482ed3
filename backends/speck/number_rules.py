"""Rules about neurons and about the numbers that a core can hold."""

from collections.abc import Sequence
from math import prod

import nir
import numpy as np

from nrf.backends.border.chip import Target
from nrf.backends.lowering.rules import Found
from nrf.backends.speck.rule import LAYER, WHOLE
from nrf.backends.speck.structure import Layer, normal, per_channel
from nrf.export.graph import Graph


@LAYER.rule("error")
def biases_fit(layer: Layer, graph: Graph, target: Target) -> Found:
    """One bias per channel, and 1024 of them per core."""
    if not np.allclose(layer.bias, layer.bias[:, :1, :1], rtol=0, atol=1e-9):
        yield (
            layer.node,
            "its constant input differs within a channel (bias before padding)",
            "the chip has one bias per channel; move the bias to the last node before the neurons",
        )
    if np.any(layer.bias) and layer.shape[0] > target["cores.biases"]:
        yield (
            layer.node,
            f"{layer.shape[0]} biases, a core has {target['cores.biases']}",
            "use fewer channels or no bias",
        )


@LAYER.rule("error")
def one_threshold_per_core(layer: Layer, graph: Graph, target: Target) -> Found:
    """A core has one threshold. One per channel can move into the weights, one per neuron cannot."""
    for key in ("v_threshold", "r", "v_reset", "tau", "v_leak"):
        value = getattr(layer.neuron, key, None)
        if value is None:
            continue
        value = np.broadcast_to(np.asarray(value, float), np.shape(value)).reshape(
            layer.shape if np.size(value) == prod(layer.shape) else (-1, 1, 1)
        )
        if np.any(value != value[:, :1, :1]):
            yield (
                layer.node,
                f"{key} differs within a channel",
                "a core has one threshold and one leak per channel",
            )


@LAYER.rule("error")
def one_floor_per_core(layer: Layer, graph: Graph, target: Target) -> Found:
    """A core has one floor; one in volts would be a different share of every channel's threshold."""
    if not graph.contract.v_min or not isinstance(layer.neuron, nir.IF):  # a fitted LIF has its floor at 0
        return
    threshold = per_channel(layer, "v_threshold")
    low, high = threshold.min(), threshold.max()
    if not np.isclose(low, high, rtol=1e-6, atol=0):
        yield (
            layer.node,
            f"thresholds from {low:g} to {high:g} V and a floor of {graph.contract.v_min:g} V (v_min); a "
            "core has one threshold and one floor",
            "give all its channels one threshold, or use v_min 0 or none",
        )


@LAYER.rule("error")
def weights_fit_8_bits(layer: Layer, graph: Graph, target: Target) -> Found:
    """With the largest weight at the end of 8 bits, the threshold must still be at least 1."""
    ratio, steps = _largest_weight(layer, graph), 2 ** (target["bits.weight"] - 1) - 1
    if ratio > steps:
        yield (
            layer.synapse,
            f"the largest weight is {ratio:.3g} thresholds, 8 bits reach {steps} at a threshold of 1",
            "scale weights or threshold",
        )


@LAYER.rule("warning")
def one_spike_per_update(layer: Layer, graph: Graph, target: Target) -> Found:
    """A neuron fires at most once per event, however much one event brings."""
    if (ratio := _largest_weight(layer, graph)) > 1:
        yield (
            layer.synapse,
            f"the largest weight is {ratio:.3g} thresholds, and a neuron fires at most once per event",
            "expect fewer spikes on the chip; train with weights below the threshold",
        )


@LAYER.rule("error")
def states_fit_16_bits(layer: Layer, graph: Graph, target: Target) -> Found:
    """With threshold and floor inside 16 bits, the largest weight must still be at least 1."""
    limit = 2 ** (target["bits.state"] - 1) - 1
    floor = normal(layer, graph.contract).floor
    reach = max(1.0, -floor if np.isfinite(floor) else 1.0)  # thresholds that the state must hold
    largest = _largest_weight(layer, graph) * limit / reach
    if largest < 1:
        yield (
            layer.node,
            f"where {reach:.3g} thresholds fit 16 bits, the largest weight is {largest:.3g} and rounds away",
            "scale weights or threshold, or raise v_min",
        )


@LAYER.rule("error")
def neuron_leaks_linearly(layer: Layer, graph: Graph, target: Target) -> Found:
    """The chip's leak is linear, an exponential one can only be fitted."""
    if isinstance(layer.neuron, nir.LIF):
        yield (
            layer.node,
            "LIF leaks exponentially, the chip linearly",
            "lower with --approximate, or train with the preset speck2f",
        )


@LAYER.rule("warning")
def neuron_rests_at_zero(layer: Layer, graph: Graph, target: Target) -> Found:
    """The chip's leak ends at 0, not at a resting potential."""
    rest = per_channel(layer, "v_leak")
    if isinstance(layer.neuron, nir.LIF) and np.any(rest):
        yield (
            layer.node,
            f"rests at {rest[np.abs(rest).argmax()]:g} V (v_leak), the chip at 0; v_leak would be left out",
            "train with v_leak 0, or with the preset speck2f",
        )


@LAYER.rule("error")
def neuron_is_known(layer: Layer, graph: Graph, target: Target) -> Found:
    """The chip integrates and fires, and resets to 0 or by subtraction."""
    if not isinstance(layer.neuron, nir.IF | nir.LIF):
        yield (
            layer.node,
            f"{type(layer.neuron).__name__} is not on the chip",
            "use IF; a leaky output can move to the host's readout (contract: readout.leak)",
        )
    elif graph.contract.reset == "zero" and np.any(getattr(layer.neuron, "v_reset", 0.0)):
        yield (
            layer.node,
            "resets to a value other than 0",
            "the chip resets to 0 or subtracts the threshold",
        )


@WHOLE.rule("error")
def floor_at_or_below_zero(layers: Sequence[Layer], graph: Graph, target: Target) -> Found:
    """The floor acts after the reset, so it must not lie above the reset potential."""
    if graph.contract.v_min is not None and graph.contract.v_min > 0:
        yield ("", f"contract: v_min is {graph.contract.v_min} V", "use 0 or less")


@WHOLE.rule("warning")
def fires_at_threshold(layers: Sequence[Layer], graph: Graph, target: Target) -> Found:
    """The chip fires at `v >= threshold`. One higher would do for `>`, but is then subtracted too."""
    if graph.contract.fire == "gt" and graph.contract.reset == "subtract":
        yield (
            "",
            "contract: fires above the threshold and subtracts it; the chip fires at the threshold already",
            "expect ties to fire one step earlier; train with fire ge",
        )


def _largest_weight(layer: Layer, graph: Graph) -> float:
    """Largest weight in units of the threshold, over channels."""
    return float(np.abs(normal(layer, graph.contract).weight).max())
