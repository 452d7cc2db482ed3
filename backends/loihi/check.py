"""What Loihi 2 can and cannot do: each rule looks at one thing, names the node, the figure and a way out."""

import nir
import numpy as np

from nrf.backends.border import Placement
from nrf.backends.loihi.chip import Loihi
from nrf.backends.loihi.draft import Draft
from nrf.backends.lowering.layers import bias_into
from nrf.errors import InputError
from nrf.export.contract import Contract
from nrf.export.graph import NEURONS, SPIKING, Graph
from nrf.export.order import components, cyclic
from nrf.findings import Finding, Found, Rules, errors

SYNAPSES = (
    nir.Affine,
    nir.Conv1d,
    nir.Conv2d,
    nir.SumPool2d,
    nir.AvgPool2d,
    nir.Scale,
    nir.Flatten,
    nir.Delay,
)
NODES = Rules[[Draft]]()  # look at single nodes
WHOLE = Rules[[Draft]]()  # need a graph that passes these


def check(graph: Graph, chip: Loihi) -> list[Finding]:
    """All findings of all rules. A graph with errors cannot be lowered."""
    return check_draft(Draft(graph, chip))


def check_draft(draft: Draft) -> list[Finding]:
    """The same, of a draft that lowering goes on with."""
    findings = [*draft.moved, *NODES.findings(draft)]
    return findings if errors(findings) else findings + WHOLE.findings(draft)


@NODES.rule("error")
def node_exists_on_chip(draft: Draft) -> Found:
    """Neurons and synapses are those that integers of Loihi 2 can express."""
    for name, node in draft.graph.nodes.items():
        if not isinstance(node, (nir.Input, nir.Output, *NEURONS, *SYNAPSES)):
            message = f"{type(node).__name__} does not exist on Loihi 2"
            yield name, message, "replace it by IF, LIF, CubaLIF or LI"


@NODES.rule("error")
def reset_exists_on_chip(draft: Draft) -> Found:
    """A spike sets the membrane to zero in the same step, or ATRLIF takes off the threshold."""
    for contract, node in _contracts(draft).items():
        if contract.reset == "none":
            yield node, "the contract resets not at all", "train or fine-tune with reset zero or subtract"
        elif (contract.reset, contract.reset_at) in (("subtract", "held"), ("zero", "next")):
            how = "one step late" if contract.reset_at == "next" else "and holds until twice the threshold"
            message = f"the contract resets {how} (reset {contract.reset}), Loihi 2 in the step of the spike"
            yield node, message, "run nrf tune, or train with reset at once"


@WHOLE.rule("warning")
def subtraction_needs_atrlif(draft: Draft) -> Found:
    """Reset by subtraction is another neuron, with a state that grows with every spike unless it leaks."""
    for name, layer in draft.layers.items():
        if layer.subtracts:
            message = (
                "resets by subtraction as Lava's ATRLIF does; whether the chip has that neuron is not public"
            )
            remedy = (
                "lower says for how many steps its state fits; train with reset zero for plain LIF neurons"
            )
            yield name, message, remedy


def _contracts(draft: Draft) -> dict[Contract, str]:
    """The contracts that neurons which reset follow, each with one that does; no node for the graph's own."""
    graph = draft.graph
    resetting = [name for name in reversed(graph.neurons) if hasattr(graph.nodes[name], "v_reset")]
    special = {graph.contract_of(name): name for name in resetting}
    return special | {graph.contract: ""} if graph.contract in special else special


@NODES.rule("error")
def one_spike_per_step(draft: Draft) -> Found:
    """A neuron fires once per step or not at all."""
    most = draft.graph.contract.max_spikes
    if most != 1:
        message = f"the contract allows {most or 'any number of'} spikes per step, Loihi 2 one"
        yield "", message, "run nrf tune, or accept other spikes and give --max-spikes 1"


@NODES.rule("error")
def membrane_has_no_floor(draft: Draft) -> Found:
    """Nothing stops a membrane from below except saturation at 24 bit."""
    if (floor := draft.graph.contract.v_min) is not None:
        message = f"the contract has a floor at {floor} V, Loihi 2 has none"
        yield "", message, "run nrf tune, or train without v_min"


@NODES.rule("error")
def threshold_is_above_reset(draft: Draft) -> Found:
    """The threshold is an unsigned number, counted from the reset voltage."""
    for name in draft.graph.neurons:
        node = draft.graph.nodes[name]
        zero = draft.graph.contract_of(name).reset == "zero"
        reset = np.asarray(getattr(node, "v_reset", 0.0) if zero else 0.0)
        threshold = np.asarray(getattr(node, "v_threshold", getattr(node, "threshold", np.inf)))
        if np.any(threshold <= reset):
            message = f"threshold {threshold.min():g} is not above reset {reset.max():g}"
            yield name, message, "raise the threshold"


@NODES.rule("error")
def step_is_within_time_constant(draft: Draft) -> Found:
    """Decays are fractions: forward Euler with dt above tau would turn the sign of the membrane."""
    dt = draft.graph.contract.dt or 1.0
    for name in draft.graph.neurons:
        for key in ("tau", "tau_mem", "tau_syn"):
            tau = getattr(draft.graph.nodes[name], key, None)
            euler = draft.graph.contract_of(name).integration == "euler"
            if euler and tau is not None and np.min(tau) < dt:
                message = f"{key} is {np.min(tau):g} s, the step is {dt:g} s"
                yield name, message, f"use a dt below {np.min(tau):g} s"


@NODES.rule("error")
def only_spikes_travel(draft: Draft) -> Found:
    """Membranes can be read out by the host, but they do not reach other neurons."""
    for name in draft.graph.neurons:
        onward = [target for target in draft.graph.outputs_of(name) if target not in draft.graph.reads]
        if not isinstance(draft.graph.nodes[name], SPIKING) and onward:
            kind = type(draft.graph.nodes[name]).__name__
            yield name, f"{kind} does not fire, but feeds '{onward[0]}'", "use LIF, or make it the output"


@NODES.rule("error")
def loops_hold_a_neuron(draft: Draft) -> Found:
    """Synapses lead from neurons to neurons; nothing else remembers."""
    rest = {name: node for name, node in draft.graph.nodes.items() if not isinstance(node, NEURONS)}
    edges = {(a, b) for a, b in draft.graph.edges if a in rest and b in rest}
    for component in components(rest, edges):
        if cyclic(component, edges):
            yield component[0], f"the loop through {', '.join(component)} has no neuron", "put one into it"


@WHOLE.rule("error")
def spikes_arrive_in_time(draft: Draft) -> Found:
    """Each synapse takes one step: branches are evened out by delays, loops must have steps enough."""
    longest = draft.chip.delay.steps
    try:
        delays = [(connection, draft.delay(connection)) for connection in draft.connections]
    except InputError as error:
        yield "", str(error), ""
        return
    for connection, delay in delays:
        if delay > longest:
            edge = f"{connection.source} -> {connection.target}"
            message = f"needs a delay of {delay} steps, the chip has {longest}"
            yield edge, message, "shorten the Delay, or split it by a population in between"


@WHOLE.rule("error")
def biases_are_not_delayed(draft: Draft) -> Found:
    """A bias is part of the neuron and acts from the first step on."""
    for name, node in draft.graph.nodes.items():
        if isinstance(node, nir.Delay) and np.any(node.delay > 0) and np.any(bias_into(draft.graph, name)):
            yield name, "delays a bias, which acts from the first step on the chip", "put it after the Delay"


@WHOLE.rule("warning")
def decay_is_not_lost(draft: Draft) -> Found:
    """Decays are multiples of 1/4096 per step."""
    unity = draft.chip.bits.unity
    for name, layer in draft.layers.items():
        for decay in (layer.dynamics.decay_v, layer.dynamics.decay_u):
            if np.any((decay > 0) & (np.round(decay * unity) < 4)):
                slowest = decay[decay > 0].min()
                message = f"loses {slowest:.2e} per step, the chip counts in {1 / unity:.2e}"
                yield name, message, "use a larger dt or a shorter time constant"


@WHOLE.rule("warning")
def weights_keep_their_bits(draft: Draft) -> Found:
    """Weights and threshold share one scale: below the largest threshold, weights must keep their bits."""
    bits = draft.chip.bits
    largest = bits.never / (bits.largest_weight + 1)
    for name, layer in draft.layers.items():
        threshold = layer.dynamics.threshold
        ratio = np.where(np.isfinite(threshold), threshold, 0) / layer.strength
        if np.any(ratio > largest):
            lost = int(np.ceil(np.log2(ratio.max() / largest)))
            message = (
                f"takes {ratio.max():.0f} of its strongest spikes to fire, the chip counts to {largest:.0f}; "
                f"{lost} of {bits.weight} bits of the weights, or of their sums, are lost"
            )
            yield name, message, "shorten the time constant or scale the weights up"


@WHOLE.rule("warning")
def weights_of_a_neuron_fit_one_scale(draft: Draft) -> Found:
    """Weights of a neuron share one scale: below the largest by all bits of the state there is nothing."""
    bits = draft.chip.bits.state
    for name, layer in draft.layers.items():
        smallest, largest = layer.weakest, np.max(layer.strongest, axis=0)
        lost = smallest < largest * 2.0**-bits
        if lost.any():
            small, large = smallest[lost].min(), largest[lost].max()
            span = f"weights into one neuron span from {small:.3g} to {large:.3g}"
            message = f"{span}, the chip's state has {bits} bits; the smallest round to 0"
            yield name, message, "set weights to 0 that are not needed, or split the neuron's inputs"


@WHOLE.rule("error")
def neuron_fits_a_core(draft: Draft) -> Found:
    """A neuron and all its synapses live on one core."""
    if isinstance(draft.placement, InputError):
        yield "", str(draft.placement), ""


@WHOLE.rule("note")
def cores_needed(draft: Draft) -> Found:
    """How many cores and chips, and who asks for most."""
    placement = draft.placement
    if isinstance(placement, InputError):
        return
    most = max(draft.layers, key=lambda name: len(placement.of(name)))
    chips = f"{placement.chips} chip" + ("s" if placement.chips > 1 else "")
    message = (
        f"needs {len(placement.cores)} of {placement.available} cores ({chips}, advisory); "
        f"node '{most}' asks for {len(placement.of(most))} of them; "
        f"{placement.totals['neurons']} neurons, {placement.totals['synapses']} synapses"
    )
    yield "", message, ""


@WHOLE.rule("warning")
def one_chip_is_enough(draft: Draft) -> Found:
    """Boards have several chips, but a single one is what most people have. Figures are advisory."""
    placement = draft.placement
    if isinstance(placement, Placement) and placement.chips > 1:
        cores = f"{len(placement.cores)} cores, a chip has {placement.available}"
        message = f"needs {placement.chips} chips: {cores}"
        yield "", message, "stride or pool earlier, or use a board with several chips"


@WHOLE.rule("note")
def values_split_populations(draft: Draft) -> Found:
    """On hardware a Lava population has one decay and one threshold: it is split by value."""
    for name, layer in draft.layers.items():
        decays = np.stack([layer.dynamics.decay_u, layer.dynamics.decay_v])
        values = np.unique(decays, axis=1).shape[1]
        if values > 1:
            yield name, f"{values} different time constants become {values} populations on the chip", ""
