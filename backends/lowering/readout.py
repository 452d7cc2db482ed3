"""What lies behind the last populations is left to the host, which computes it in float from what it reads.

    x[t] = sum over wires of operator @ signal[source][t - steps]
    i[t] = (1 - decay_u) i[t-1] + gain x[t]
    v[t] = (1 - decay_v) v[t-1] + i[t] + bias            decays of 1 for a node without memory

No spike depends on linear maps, reshaping, delays and leaky integrators between the last spiking neurons and
the output, so this rewrite is exact, on every chip. Several populations may be read, hidden ones too: the
host waits for the one that comes latest.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Protocol

import nir
import numpy as np

from nrf.arrays import Floats
from nrf.backends.border import Frames, Program, Recording, Shape, Spikes
from nrf.backends.lowering.dynamics import Dynamics, dynamics_of
from nrf.backends.lowering.layers import Population, biases_into, connections_into
from nrf.backends.lowering.operators import Conv, Matrix, Operator
from nrf.backends.reference.coefficients import lags
from nrf.errors import InputError
from nrf.export.graph import NEURONS, SPIKING, Graph
from nrf.export.order import reached
from nrf.findings import Finding
from nrf.lazy import sparse
from nrf.model.readout import leaky

ALWAYS = ""  # a source that gives 1 in every step, for biases that a Delay holds back; no node is called so
LINEAR = (nir.Affine, nir.Conv1d, nir.Conv2d, nir.SumPool2d, nir.AvgPool2d, nir.Scale, nir.Flatten, nir.Delay)


@dataclass(frozen=True)
class Wire:
    """`operator` applied to what `source` gave `steps` before."""

    source: str  # a population of the chip, the input, an earlier node of the host, or `ALWAYS`
    operator: Operator
    steps: int


@dataclass(frozen=True)
class HostNode:
    """A node that the host computes: an integrator, or an output itself."""

    name: str
    shape: Shape
    wires: tuple[Wire, ...]
    dynamics: Dynamics


@dataclass(frozen=True)
class HostReadout:
    """What the host computes, sources first."""

    nodes: tuple[HostNode, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """What the host reads: populations of the chip, perhaps the input."""
        own = {ALWAYS, *(node.name for node in self.nodes)}
        heard = (wire.source for node in self.nodes for wire in node.wires)
        return tuple(dict.fromkeys(source for source in heard if source not in own))


@dataclass(frozen=True)
class Divided:
    """A graph in two: what the chip gets, and what the host does with its spikes."""

    graph: Graph  # ends in populations that the host reads
    readout: HostReadout | None = None  # None where the chip does it all
    findings: tuple[Finding, ...] = ()  # notes on what was folded or moved, or why it cannot be


def divided(graph: Graph, membranes: bool = False) -> Divided:
    """Leave to the host what lies behind the last populations.

    With `membranes` the chip can hold integrators whose membranes the host reads.

    >>> divided(graph).readout.sources  # IF -> Flatten -> Output  # doctest: +SKIP
    ('if3',)
    """
    folded = tuple(Finding("factor_in_weights", "note", *pair) for pair in graph.folded.items())
    behind = _behind(graph, membranes)
    direct = {name: read for name, read in graph.reads.items() if read not in behind}  # from the chip itself
    rest = behind - direct.keys()
    if not rest:
        return Divided(graph, findings=folded)
    where = next((name for name in graph.reads if name in rest), next(iter(graph.reads)))
    names = ", ".join(f"'{name}'" for name in graph.nodes if name in rest)
    if complaint := _complaint(graph, rest, where):
        return Divided(graph, findings=(*folded, complaint))
    hosts = {*graph.neurons, *graph.read_populations} & rest
    readout = HostReadout(tuple(_host_node(graph, name) for name in graph.nodes if name in hosts))
    read = ", ".join(f"'{name}'" for name in readout.sources)
    message = f"{names}: computed by the host from {read}, no spike depends on it"
    note = Finding("left_to_host", "note", where, message)
    ends = () if direct else ((next(name for name in readout.sources if name != graph.input), where),)
    kept = {name: node for name, node in graph.nodes.items() if name not in rest or (ends and name == where)}
    chips = replace(
        graph,
        nodes=kept,
        edges=(*(edge for edge in graph.edges if not rest & {*edge}), *ends),
        shapes={name: graph.shapes[name] for name in kept}
        | {end: graph.shapes[first] for first, end in ends},
        contract=replace(graph.contract, readout=None),
    )
    return Divided(chips, readout, (*folded, note))


def _behind(graph: Graph, membranes: bool) -> set[str]:
    """Nodes from which no way leads to a population of the chip."""
    back = _backwards(graph)
    synapses = [(b, a) for b, a in back if not isinstance(graph.nodes[b], NEURONS)]
    spiking = {name for name in graph.neurons if isinstance(graph.nodes[name], SPIKING)}
    integrators = [name for name in graph.neurons if name not in spiking]
    chips = {*spiking}
    if membranes:  # an integrator may stay where spikes drive it and nothing else, nor a bias that waits
        fed = {name: reached(graph.inputs_of(name), synapses) for name in integrators}
        held = {name for name in integrators if any(map(np.any, _held_back(graph, name).values()))}
        chips |= {name for name, before in fed.items() if before.isdisjoint(integrators)} - held
    return {*graph.nodes} - reached([*chips, graph.input], back)


def _complaint(graph: Graph, rest: Collection[str], where: str) -> Finding | None:
    """What keeps the host from computing these nodes, and a way out."""

    def refused(node: str, message: str, remedy: str) -> Finding:
        return Finding("left_to_host", "error", node, message, remedy)

    if any({*edge} <= {*rest} for edge in graph.recurrent):
        return refused(
            where,
            "what lies behind the last population is recurrent",
            "let only spiking neurons feed back",
        )
    for output in graph.reads:
        if not any(name in graph.neurons for name in reached([output], _backwards(graph)) - {*rest}):
            message = "no population of the chip reaches the output"
            return refused(output, message, "put spiking neurons before it")
    for name in rest:
        node = graph.nodes[name]
        if not isinstance(node, (*LINEAR, *NEURONS, nir.Output)):
            return refused(where, f"{type(node).__name__} '{name}' is not known to the host", "leave it out")
    return None


def _held_back(graph: Graph, name: str) -> dict[int, Floats]:
    """Biases that a Delay lets through to a node, by the step from which on it does."""
    return {steps: part for steps, part in biases_into(graph, name).items() if steps}


def _backwards(graph: Graph) -> list[tuple[str, str]]:
    return [(b, a) for a, b in graph.edges]


def _host_node(graph: Graph, name: str) -> HostNode:
    """A neuron's equations, or those of an output, which has no memory."""
    shape, node = graph.shapes[name], graph.nodes[name]
    bias = np.zeros(shape) + biases_into(graph, name).get(0, 0.0)
    late = lags(graph) if graph.contract.delay else {}  # spikes that are emitted late are recorded late
    wires = [Wire(w.source, w.operator, w.delay) for w in connections_into(graph, name, late)]
    held = [(steps, part.reshape(-1, 1)) for steps, part in _held_back(graph, name).items() if np.any(part)]
    wires += [Wire(ALWAYS, Matrix(sparse.csr_array(part)), steps) for steps, part in held]
    if isinstance(node, nir.Output):
        one = np.ones(bias.size)
        none = 0 * one
        dynamics = Dynamics(one, one, one, bias.ravel(), one * np.inf, none, none, none, none)
    else:
        dynamics = dynamics_of(Population(name, node, shape, bias), graph.contract_of(name))
    return HostNode(name, shape, tuple(wires), dynamics)


class ReadProgram(Program, Protocol):
    """What of a program the host needs."""

    @property
    def readout(self) -> HostReadout | None:
        """What it computes itself."""

    @property
    def input(self) -> str:
        """Name of the graph's input."""


class Host:
    """The host beside a running program; it keeps what one piece of a recording leaves to the next.

    Contract step k is computed when the chip is at step k + late, with late as small as the populations that
    are read allow. A step before the contract's first gives 0; a chip that is early starts from silence.
    """

    def __init__(self, program: ReadProgram) -> None:
        self.nodes = () if program.readout is None else program.readout.nodes
        self.input, own = program.input, {ALWAYS, *(node.name for node in self.nodes)}
        chips = {self.input: 0, **program.latencies}
        wires = [wire for node in self.nodes for wire in node.wires]
        self.late = max((chips[w.source] - w.steps for w in wires if w.source not in own), default=0)
        self.wires = {
            node.name: [
                (wire.source, wire.steps + self.late - chips.get(wire.source, self.late), _transposed(wire))
                for wire in node.wires
            ]
            for node in self.nodes
        }
        self.depth = max((shift for some in self.wires.values() for _, shift, _ in some), default=0)
        self.heard: dict[str, sparse.csr_array] = {}  # the last steps of every source
        self.states = {
            node.name: (_each(node.dynamics.start_u, node), _each(node.dynamics.start_v, node))
            for node in self.nodes
        }
        self.waiting = max(self.late, 0)
        if self.late < 0:
            sizes = {source: matrix.shape[0] for some in self.wires.values() for source, _, matrix in some}
            silent = {name: sparse.csr_array((-self.late, sizes[name])) for name in sizes.keys() - own}
            self._advance(silent)

    def read(
        self, recording: Recording, frames: Frames, forced: Mapping[str, Spikes] | None = None
    ) -> Recording:
        """The next piece of a recording with what the host makes of it; `forced` are a teacher's spikes."""
        if not self.nodes:
            return recording
        signals = {self.input: sparse.csr_array(frames.reshape(len(frames), -1).astype(np.float64))}
        for name, shape in recording.shapes.items():
            size, spikes = (recording.steps, prod(shape)), recording.spikes.get(name)
            if spikes is not None:
                given = (forced or {}).get(name, spikes).before(recording.steps)
                signals[name] = sparse.csr_array((given.n.astype(np.float64), (given.t, given.i)), shape=size)
            elif name in recording.membranes:
                volts = np.asarray(recording.membranes[name], np.float64)
                signals[name] = sparse.csr_array(volts.reshape(size))
        values = self._advance(signals)
        shapes = {node.name: node.shape for node in self.nodes}
        return replace(
            recording,
            shapes=recording.shapes | shapes,
            membranes={**recording.membranes}
            | {name: values[name].reshape(-1, *shape).astype(np.float32) for name, shape in shapes.items()},
            latencies=recording.latencies | dict.fromkeys(shapes, self.late),
        )

    def _advance(self, signals: Mapping[str, "sparse.csr_array"]) -> dict[str, Floats]:
        """All nodes of the host over the next steps of what they read, all (steps, neurons)."""
        known, values = dict(signals), {}
        steps = next(iter(signals.values())).shape[0]
        wait = min(self.waiting, steps)
        self.waiting -= wait
        known[ALWAYS] = sparse.csr_array((np.arange(steps) >= wait).astype(np.float64)[:, None])
        for node in self.nodes:
            x = np.zeros((steps, _size(node)))
            for source, shift, matrix in self.wires[node.name]:
                x += (self._since(source, known[source], self.depth - shift)[:steps] @ matrix).toarray()
            values[node.name] = np.concatenate([np.zeros((wait, _size(node))), self._node(node, x[wait:])])
            known[node.name] = sparse.csr_array(values[node.name])
        self.heard = {name: self._since(name, signal, steps) for name, signal in known.items()}
        return values

    def _since(self, name: str, now: "sparse.csr_array", step: int) -> "sparse.csr_array":
        """What a source gave from some step on, counted from the first that is remembered."""
        past = self.heard.get(name, sparse.csr_array((self.depth, now.shape[1])))
        return sparse.csr_array(sparse.vstack([past, now], format="csr")[step:])

    def _node(self, node: HostNode, x: Floats) -> Floats:
        """The equations of a node over some steps of its input; its state goes on."""
        d, (u, v) = node.dynamics, self.states[node.name]
        gain, keep_u, keep_v = (_each(values, node) for values in (d.gain, 1 - d.decay_u, 1 - d.decay_v))
        current = leaky(x * gain, keep_u, u)
        volts = leaky(current + _each(d.bias, node), keep_v, v)
        if len(x):
            self.states[node.name] = current[-1], volts[-1]
        return volts + _each(d.offset, node)


def _transposed(wire: Wire) -> "sparse.csr_array":
    return sparse.csr_array(wire.operator.matrix().T)


def _size(node: HostNode) -> int:
    return prod(node.shape)


def _each(values: Floats, node: HostNode) -> Floats:
    """One value per neuron from one per group."""
    return np.repeat(values, _size(node) // len(values))


def check_readout(program: ReadProgram, shapes: Mapping[str, Shape]) -> None:
    """Refuse what a file says of the host if it does not fit the populations of these shapes."""
    read, sizes = dict(shapes), {name: prod(shape) for name, shape in shapes.items()}
    sizes |= {program.input: prod(program.input_shape), ALWAYS: 1}
    for node in program.readout.nodes if program.readout else ():
        for complaint in _faults(node, sizes):
            raise InputError(f"node '{node.name}' of the host: {complaint}; lower again")
        read[node.name], sizes[node.name] = node.shape, _size(node)
    if not program.outputs or (program.readout is not None and not program.readout.nodes):
        raise InputError("the host reads nothing; lower again")
    for output in program.outputs:
        if output not in read:
            raise InputError(f"its output '{output}' is none of its populations, nor the host's")
        if program.contract.readout and len(read[output]) != 3:
            raise InputError(f"its contract reads coordinates, but its output '{output}' is no map")


def _faults(node: HostNode, sizes: Mapping[str, int]) -> Iterator[str]:
    if node.name in sizes:
        yield "another node has the same name"
    if min(node.shape, default=0) < 1 or _size(node) > 2**31:
        yield f"its shape is {node.shape}, expected sides of at least 1 and at most 2^31 neurons"
    groups = {len(values) if values.ndim == 1 else 0 for values in vars(node.dynamics).values()}
    if len(groups) != 1 or 0 in groups or _size(node) % groups.pop():
        yield f"its parameters are not one per group of its {_size(node)} neurons"
    for wire in node.wires:
        if wire.source not in sizes:
            yield f"its source '{wire.source}' does not come before it"
        if not 0 <= wire.steps < 2**16:
            yield f"it reads '{wire.source}' with a delay of {wire.steps} steps, expected 0 to 65535"
        operator = wire.operator
        weight = operator.weight if isinstance(operator, Conv) else operator.matrix().data
        if isinstance(operator, Conv) and (operator.weight.ndim != 4 or not operator.is_sound):
            yield f"its kernel {operator.weight.shape} does not fit its geometry"
        if weight.dtype != np.float64 or not np.isfinite(weight).all():
            yield "its weights are no finite numbers of 64 bits"
        if isinstance(operator, Conv):
            shape = prod(operator.output_shape), prod(operator.input_shape)
        else:
            shape = operator.matrix().shape
        if shape != (_size(node), sizes[wire.source]):
            yield f"reads '{wire.source}' through weights of shape {shape}"
