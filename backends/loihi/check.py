"""What Loihi 2 can and cannot do: each rule looks at one thing, names the node, the figure and a way out."""

from functools import cached_property

import nir
import numpy as np

from nrf.backends.border import Placement
from nrf.backends.loihi.chip import Loihi
from nrf.backends.loihi.placement import place
from nrf.backends.loihi.quantise import drive, strength
from nrf.backends.lowering.dynamics import Dynamics, dynamics_of
from nrf.backends.lowering.layers import Layers, bias_into, layers_of
from nrf.backends.lowering.timing import extra_delay, latencies
from nrf.errors import InputError
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


class View:
    """A graph and a chip as the rules see them; what is costly is worked out once."""

    def __init__(self, graph: Graph, chip: Loihi) -> None:
        self.graph, self.chip = graph, chip

    @cached_property
    def layers(self) -> Layers:
        """Populations and connections."""
        return layers_of(self.graph)

    @cached_property
    def dynamics(self) -> dict[str, Dynamics]:
        """The difference equations of every population."""
        populations = self.layers.populations.items()
        return {name: dynamics_of(population, self.graph.contract) for name, population in populations}

    @cached_property
    def placement(self) -> Placement | InputError:
        """Where everything would go, or why it cannot."""
        shapes = {name: population.shape for name, population in self.layers.populations.items()}
        into = {name: [connection.operator for connection in self.layers.into(name)] for name in shapes}
        try:
            return place(shapes, into, self.chip)
        except InputError as error:
            return error


NODES = Rules[[View]]()  # look at single nodes
WHOLE = Rules[[View]]()  # need a graph that passes these


def check(graph: Graph, chip: Loihi) -> list[Finding]:
    """All findings of all rules. A graph with errors cannot be lowered."""
    view = View(graph, chip)
    findings = NODES.findings(view)
    return findings if errors(findings) else findings + WHOLE.findings(view)


@NODES.rule("error")
def node_exists_on_chip(view: View) -> Found:
    """Neurons and synapses are those that integers of Loihi 2 can express."""
    for name, node in view.graph.nodes.items():
        if not isinstance(node, (nir.Input, nir.Output, *NEURONS, *SYNAPSES)):
            yield (
                name,
                f"{type(node).__name__} does not exist on Loihi 2",
                "replace it by IF, LIF, CubaLIF or LI",
            )


@NODES.rule("error")
def reset_goes_to_zero(view: View) -> Found:
    """A spike sets the membrane to zero; there is no reset by subtraction."""
    if view.graph.contract.reset == "subtract":
        yield (
            "",
            "the contract resets by subtraction, Loihi 2 resets to zero",
            "train or fine-tune with reset zero, or accept other spikes and give --reset zero",
        )


@NODES.rule("error")
def membrane_has_no_floor(view: View) -> Found:
    """Nothing stops a membrane from below except saturation at 24 bit."""
    if view.graph.contract.v_min is not None:
        floor = view.graph.contract.v_min
        yield "", f"the contract has a floor at {floor} V, Loihi 2 has none", "train without v_min"


@NODES.rule("error")
def threshold_is_above_reset(view: View) -> Found:
    """The threshold is an unsigned number, counted from the reset voltage."""
    for name in view.graph.neurons:
        node = view.graph.nodes[name]
        reset = np.asarray(getattr(node, "v_reset", 0.0))
        threshold = np.asarray(getattr(node, "v_threshold", getattr(node, "threshold", np.inf)))
        if np.any(threshold <= reset):
            yield (
                name,
                f"threshold {threshold.min():g} is not above reset {reset.max():g}",
                "raise the threshold",
            )


@NODES.rule("error")
def step_is_within_time_constant(view: View) -> Found:
    """Decays are fractions: forward Euler with dt above tau would turn the sign of the membrane."""
    dt = view.graph.contract.dt or 1.0
    for name in view.graph.neurons:
        for key in ("tau", "tau_mem", "tau_syn"):
            tau = getattr(view.graph.nodes[name], key, None)
            if tau is not None and np.min(tau) < dt:
                yield (
                    name,
                    f"{key} is {np.min(tau):g} s, the step is {dt:g} s",
                    f"use a dt below {np.min(tau):g} s",
                )


@NODES.rule("error")
def only_spikes_travel(view: View) -> Found:
    """Membranes can be read out by the host, but they do not reach other neurons."""
    for name in view.graph.neurons:
        onward = [target for target in view.graph.outputs_of(name) if target != view.graph.output]
        if not isinstance(view.graph.nodes[name], SPIKING) and onward:
            kind = type(view.graph.nodes[name]).__name__
            yield name, f"{kind} does not fire, but feeds '{onward[0]}'", "use LIF, or make it the output"


@NODES.rule("error")
def loops_hold_a_neuron(view: View) -> Found:
    """Synapses lead from neurons to neurons; nothing else remembers."""
    rest = [name for name, node in view.graph.nodes.items() if not isinstance(node, NEURONS)]
    edges = [(a, b) for a, b in view.graph.edges if a in rest and b in rest]
    for component in components(rest, edges):
        if cyclic(component, edges):
            yield component[0], f"the loop through {', '.join(component)} has no neuron", "put one into it"


@NODES.rule("error")
def output_is_one_population(view: View) -> Found:
    """The host reads spikes or membranes of a population; nothing is computed after it."""
    sources = view.graph.inputs_of(view.graph.output)
    if len(sources) != 1 or not isinstance(view.graph.nodes[sources[0]], NEURONS):
        ends = ", ".join(f"{type(view.graph.nodes[name]).__name__} '{name}'" for name in sources)
        yield view.graph.output, f"the output reads {ends}", "end the graph with one population, such as LI"


@WHOLE.rule("error")
def spikes_arrive_in_time(view: View) -> Found:
    """Each synapse takes one step: branches are evened out by delays, loops must have steps enough."""
    contract, layers = view.graph.contract, view.layers
    try:
        late = latencies(layers, contract, view.graph.input)
    except InputError as error:
        yield "", str(error), ""
        return
    longest = view.chip.delay.steps
    for connection in layers.connections:
        delay = extra_delay(connection, contract, late)
        if delay > longest:
            yield (
                f"{connection.source} -> {connection.target}",
                f"needs a delay of {delay} steps, the chip has {longest}",
                "shorten the Delay, or split it by a population in between",
            )


@WHOLE.rule("error")
def biases_are_not_delayed(view: View) -> Found:
    """A bias is part of the neuron and acts from the first step on."""
    for name, node in view.graph.nodes.items():
        if isinstance(node, nir.Delay) and np.any(node.delay > 0) and np.any(bias_into(view.graph, name)):
            yield name, "delays a bias, which acts from the first step on the chip", "put it after the Delay"


@WHOLE.rule("warning")
def decay_is_not_lost(view: View) -> Found:
    """Decays are multiples of 1/4096 per step."""
    unity = view.chip.bits.unity
    for name, dynamics in view.dynamics.items():
        for decay in (dynamics.decay_v, dynamics.decay_u):
            if np.any((decay > 0) & (np.round(decay * unity) < 4)):
                slowest = decay[decay > 0].min()
                yield (
                    name,
                    f"loses {slowest:.2e} per step, the chip counts in {1 / unity:.2e}",
                    "use a larger dt or a shorter time constant",
                )


@WHOLE.rule("warning")
def weights_keep_their_bits(view: View) -> Found:
    """Weights and threshold share one scale: below the largest threshold, weights must keep their bits."""
    bits = view.chip.bits
    largest = bits.never / (bits.largest_weight + 1)
    for name, dynamics in view.dynamics.items():
        drives = tuple(drive(connection, dynamics) for connection in view.layers.into(name))
        ratio = np.where(np.isfinite(dynamics.threshold), dynamics.threshold, 0) / strength(
            drives, dynamics.groups
        )
        if np.any(ratio > largest):
            lost = int(np.ceil(np.log2(ratio.max() / largest)))
            yield (
                name,
                f"takes {ratio.max():.0f} of its strongest spikes to fire, the chip counts to {largest:.0f}; "
                f"{lost} of {bits.weight} bits of the weights, or of their sums, are lost",
                "shorten the time constant or scale the weights up",
            )


@WHOLE.rule("error")
def neuron_fits_a_core(view: View) -> Found:
    """A neuron and all its synapses live on one core."""
    if isinstance(view.placement, InputError):
        yield "", str(view.placement), ""


@WHOLE.rule("note")
def cores_needed(view: View) -> Found:
    """How many cores and chips, and who asks for most."""
    placement = view.placement
    if isinstance(placement, InputError):
        return
    most = max(view.layers.populations, key=lambda name: len(placement.of(name)))
    chips = f"{placement.chips} chip" + ("s" if placement.chips > 1 else "")
    yield (
        "",
        f"needs {len(placement.cores)} of {placement.available} cores ({chips}, advisory); "
        f"node '{most}' asks for {len(placement.of(most))} of them; "
        f"{placement.totals['neurons']} neurons, {placement.totals['synapses']} synapses",
        "",
    )


@WHOLE.rule("warning")
def one_chip_is_enough(view: View) -> Found:
    """Boards have several chips, but a single one is what most people have. Figures are advisory."""
    placement = view.placement
    if isinstance(placement, Placement) and placement.chips > 1:
        yield (
            "",
            f"needs {placement.chips} chips: {len(placement.cores)} cores, a chip has {placement.available}",
            "stride or pool earlier, or use a board with several chips",
        )


@WHOLE.rule("note")
def values_split_populations(view: View) -> Found:
    """On hardware a Lava population has one decay and one threshold: it is split by value."""
    for name, dynamics in view.dynamics.items():
        values = len(np.unique(np.stack([dynamics.decay_u, dynamics.decay_v]), axis=1).T)
        if values > 1:
            yield name, f"{values} different time constants become {values} populations on the chip", ""
