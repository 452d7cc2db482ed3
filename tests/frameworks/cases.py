"""The frameworks and their cases as data: which flags say what an exporter drops, and what no flag can say.

The cases themselves are made by `witness_<framework>.py`, which runs in the framework's environment. A case
that is not named here needs the dialect alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Flags = Mapping[str, object]  # fields of the contract, as `nrf.read` takes them

ZERO: Flags = {"reset": "zero"}
NONE: Flags = {"reset": "none"}
SUBTRACT: Flags = {"reset": "subtract"}
HELD: Flags = {"reset_at": "held"}
HELD_ZERO: Flags = {"reset": "zero", "reset_at": "held"}
SINGLE: Flags = {"max_spikes": 1}
SINGLE_ZERO: Flags = {"max_spikes": 1, "reset": "zero"}
UNIT: Flags = {"membrane": "unit"}
FLOOR: Flags = {"v_min": -0.1}
TRUE_TAU: Flags = {"dt": 1e-3}


@dataclass(frozen=True)
class Framework:
    """One framework: how its cases are read, and what its exporter does to them."""

    name: str  # of the dialect and of the witness
    title: str
    vendor: str  # whose environment it runs in
    loses: str  # what its exporter does not write, without a word
    refused: str  # which of its files nir 1.0.8 refuses
    flags: Mapping[str, Flags] = field(default_factory=dict)  # variants that `nrf check --golden` tries
    told: Mapping[str, Flags] = field(default_factory=dict)  # values that only the user knows
    lost: Mapping[str, str] = field(default_factory=dict)  # cases that no flag brings back, and why

    def flags_of(self, case: str) -> Flags:
        """What must be said beside the dialect."""
        return {**self.flags, **self.told}.get(case, {})


FRAMEWORKS = {
    framework.name: framework
    for framework in (
        Framework(
            "snntorch",
            "snnTorch",
            "frameworks",
            loses="`reset_mechanism` (`--reset zero`, `--reset none`) and `reset_delay=False` "
            "(`--reset-at held`); where they differ from layer to layer there is no flag",
            refused="grouped convolutions",
            flags={
                "leaky_reset_zero": ZERO,
                "leaky_reset_none": NONE,
                "leaky_at_once_subtract": HELD,
                "leaky_at_once_zero": HELD_ZERO,
                "conv_leaky_reset_zero": ZERO,
                "conv_leaky_at_once_subtract": HELD,
                "synaptic_reset_zero": ZERO,
                "synaptic_reset_none": NONE,
                "synaptic_at_once_subtract": HELD,
                "synaptic_at_once_zero": HELD_ZERO,
                "rleaky_reset_zero": ZERO,
                "rleaky_reset_none": NONE,
                "rleaky_at_once_subtract": HELD,
                "rleaky_at_once_zero": HELD_ZERO,
                "rsynaptic_reset_zero": ZERO,
                "rsynaptic_reset_none": NONE,
            },
            lost={"mixed": "a reset mechanism of its own for every layer"},
        ),
        Framework(
            "sinabs",
            "Sinabs",
            "sinabs",
            loses="the spike function (`--max-spikes`), the reset (`--reset zero`), `norm_input=False` "
            "(`--membrane unit`), `min_v_mem` (`--v-min`); `tau_syn` has no flag",
            refused="LIF with one tau or threshold per layer; grouped convolutions",
            flags={
                "iaf_single_spike": SINGLE,
                "iaf_single_spike_ties": SINGLE,
                "iaf_reset_zero": ZERO,
                "iaf_single_spike_reset_zero": SINGLE_ZERO,
                "conv_iaf_single_spike": SINGLE,
                "lif_unnormalised": UNIT,
                "lif_single_spike": SINGLE,
                "lif_reset_zero": ZERO,
                "lif_single_spike_reset_zero": SINGLE_ZERO,
                "conv_lif_each_unnormalised": UNIT,
            },
            told={
                "iaf_max_spike": {"max_spikes": 2},
                "iaf_floor": FLOOR,
                "conv_iaf_floor": FLOOR,
                "lif_floor": FLOOR,
            },
            lost={
                "iaf_synaptic": "the synapse: tau_syn is not written",
                "lif_synaptic": "the synapse: tau_syn is not written",
            },
        ),
        Framework(
            "norse",
            "Norse",
            "frameworks",
            loses="`reset_method` (`--reset subtract`), a `dt` other than 0.001 (`--dt`) and `v_reset` "
            "(`--v-reset`, for IAFCell with `--start reset`)",
            refused="all with Norse's default parameters, which are scalars; batch axes",
            flags={
                "lif_box_subtract": SUBTRACT,
                "lif_box_true_tau": TRUE_TAU,
                "lif_true_tau": TRUE_TAU,
            },
            told={
                "lif_box_dt": {"dt": 4e-6},
                "lif_box_v_reset": {"v_reset": -0.25},
                "lif_v_reset": {"v_reset": -0.25},
                "iaf_v_reset": {"v_reset": -0.25, "start": "reset"},
            },
        ),
        Framework(
            "spikingjelly",
            "SpikingJelly",
            "frameworks",
            loses="the `dt` of a network of LIFNode alone, if it is not 1e-4 (`--dt`); "
            "what NIR cannot say it refuses to write",
            refused="none",
        ),
        Framework(
            "rockpool",
            "Rockpool",
            "frameworks",
            loses="`max_spikes_per_dt` (`--max-spikes`); recurrent weights and bias of neurons have no flag",
            refused="all: batch and time are axes of Input and Output",
            flags={"lif_single_spike": SINGLE, "lif_neuron_single_spike": SINGLE},
            lost={
                "lif_bias": "the neurons' bias: v_leak is written as 0",
                "lif_neuron_bias": "the neurons' bias: v_leak is written as 0",
            },
        ),
        Framework(
            "spyx",
            "Spyx",
            "spyx",
            loses="dilation and groups of a convolution; the dialect puts right that r is the decay, that "
            "recurrent layers are wired wrongly and that inputs behind Flatten are counted channels last",
            refused="none",
        ),
    )
}
