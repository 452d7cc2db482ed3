"""Rules about neurons, about the numbers that a core can hold, and about the contract."""

from math import prod

import nir
import numpy as np

from nrf.backends.speck.chip import Speck, signed
from nrf.backends.speck.structure import Layer, normal
from nrf.export.contract import Contract
from nrf.findings import Found, Rules

NUMBERS = Rules[[Layer, Contract, Speck]]()
CONTRACT = Rules[[Contract]]()


@NUMBERS.rule("error")
def biases_fit(layer: Layer, contract: Contract, chip: Speck) -> Found:
    """One bias per channel, and a limited number of them per core."""
    if not np.allclose(layer.bias, layer.bias[:, :1, :1], rtol=0, atol=1e-9):
        yield (
            layer.node,
            "its constant input differs within a channel (bias before padding)",
            "a core has one bias per channel; move the bias to the last node before the neurons",
        )
    if np.any(layer.bias) and layer.shape[0] > chip.cores.biases:
        message = f"{layer.shape[0]} biases, a core has {chip.cores.biases}"
        yield layer.node, message, "use fewer channels or no bias"


@NUMBERS.rule("error")
def one_threshold_per_core(layer: Layer, contract: Contract, chip: Speck) -> Found:
    """A core has one threshold. One per channel can move into the weights, one per neuron cannot."""
    for key in ("v_threshold", "r", "v_reset", "tau", "v_leak"):
        value = np.asarray(getattr(layer.neuron, key, 0.0))
        if value.size == prod(layer.shape) and np.ptp(value.reshape(layer.shape[0], -1), axis=1).any():
            remedy = "a core has one threshold and one leak per channel"
            yield layer.node, f"{key} differs within a channel", remedy


@NUMBERS.rule("error")
def one_floor_per_core(layer: Layer, contract: Contract, chip: Speck) -> Found:
    """A core has one floor; one in volts would be a different share of every channel's threshold."""
    if not contract.v_min or not isinstance(layer.neuron, nir.IF):  # a fitted LIF has its floor at 0
        return
    threshold = layer.per_channel("v_threshold")
    low, high = threshold.min(), threshold.max()
    if not np.isclose(low, high, rtol=1e-6, atol=0):
        yield (
            layer.node,
            f"thresholds from {low:g} to {high:g} V and a floor of {contract.v_min:g} V (v_min); a "
            "core has one threshold and one floor",
            "give all its channels one threshold, or use v_min 0 or none",
        )


@NUMBERS.rule("error")
def weights_fit(layer: Layer, contract: Contract, chip: Speck) -> Found:
    """With the largest weight at the end of its bits, the threshold must still be at least 1."""
    ratio, highest = _largest_weight(layer, contract), signed(chip.bits.weight)[1]
    if ratio > highest:
        yield (
            layer.synapse,
            f"the largest weight is {ratio:.3g} thresholds, {chip.bits.weight} bits reach {highest} at a "
            "threshold of 1",
            "scale weights or threshold",
        )


@NUMBERS.rule("warning")
def one_spike_per_update(layer: Layer, contract: Contract, chip: Speck) -> Found:
    """A neuron fires at most once per event, however much one event brings."""
    if (ratio := _largest_weight(layer, contract)) > 1:
        yield (
            layer.synapse,
            f"the largest weight is {ratio:.3g} thresholds, and a neuron fires at most once per event",
            "expect fewer spikes on the chip; train with weights below the threshold",
        )


@NUMBERS.rule("error")
def states_fit(layer: Layer, contract: Contract, chip: Speck) -> Found:
    """With threshold and floor inside the state, the largest weight must still be at least 1."""
    floor = normal(layer, contract).floor
    depth = max(1.0, -floor if np.isfinite(floor) else 1.0)  # thresholds that the state must hold
    largest = _largest_weight(layer, contract) * signed(chip.bits.state)[1] / depth
    if largest < 1:
        yield (
            layer.node,
            f"where {depth:.3g} thresholds fit {chip.bits.state} bits, the largest weight is {largest:.3g} "
            "and rounds away",
            "scale weights or threshold, or raise v_min",
        )


@NUMBERS.rule("error")
def neuron_leaks_linearly(layer: Layer, contract: Contract, chip: Speck) -> Found:
    """The chip's leak is linear, an exponential one can only be fitted."""
    if isinstance(layer.neuron, nir.LIF):
        remedy = "lower with --approximate, or train with the preset speck2f"
        yield layer.node, "LIF leaks exponentially, neurons of Speck linearly", remedy


@NUMBERS.rule("warning")
def neuron_rests_at_zero(layer: Layer, contract: Contract, chip: Speck) -> Found:
    """The chip's leak ends at 0, not at a resting potential."""
    rest = layer.per_channel("v_leak")
    if isinstance(layer.neuron, nir.LIF) and np.any(rest):
        volts = rest[np.abs(rest).argmax()]
        message = f"rests at {volts:g} V (v_leak), on Speck at 0; v_leak would be left out"
        yield layer.node, message, "train with v_leak 0, or with the preset speck2f"


@NUMBERS.rule("error")
def neuron_is_supported(layer: Layer, contract: Contract, chip: Speck) -> Found:
    """The chip integrates and fires, and resets to 0 or by subtraction."""
    if not isinstance(layer.neuron, nir.IF | nir.LIF):
        yield (
            layer.node,
            f"{type(layer.neuron).__name__} neurons are not supported on Speck",
            "use IF; a leaky output can move to the host's readout (contract: readout.leak)",
        )
    elif contract.reset == "zero" and np.any(getattr(layer.neuron, "v_reset", 0.0)):
        remedy = "reset to 0, or subtract the threshold"
        yield layer.node, "resets to a value other than 0 (v_reset)", remedy


@CONTRACT.rule("error")
def floor_at_or_below_zero(contract: Contract) -> Found:
    """The floor acts after the reset, so it must not lie above the reset potential."""
    if contract.v_min is not None and contract.v_min > 0:
        yield "", f"contract: v_min is {contract.v_min} V", "use 0 or less"


@CONTRACT.rule("warning")
def fires_at_threshold(contract: Contract) -> Found:
    """The chip fires at `v >= threshold`. One higher would do for `>`, but is then subtracted too."""
    if contract.fire == "gt" and contract.reset == "subtract":
        yield (
            "",
            "contract: fires above the threshold and subtracts it; Speck fires at the threshold already",
            "expect ties to fire one step earlier; train with fire ge",
        )


def _largest_weight(layer: Layer, contract: Contract) -> float:
    """Largest weight in units of the threshold, over channels."""
    return float(np.abs(normal(layer, contract).weight).max())
