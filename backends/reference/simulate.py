"""The float reference: runs any canonical graph under its contract. Everything else is compared with it.

Feed-forward nodes see all steps at once (one convolution over T, then a scan over time); nodes on a common
cycle advance together, step by step. Where steps lie between two nodes:

    recurrent edges                          one step, as the graph says
    contract.emit = "late"                   one step on every edge that leaves a neuron
    contract.delay = 1                       one step on every way from the input or a neuron to a neuron
    recurrent edges into a Delay             part of the Delay's own steps

Before the first step neurons are silent: a lagged signal starts as what silence gives (a bias, for example).
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import nir
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import nrf
from nrf.backends.border.recording import Provenance, Recording, Spikes
from nrf.backends.reference.nodes import Operator, operator
from nrf.errors import InputError
from nrf.export.graph import NEURONS, SPIKING, STATEFUL, Graph
from nrf.export.order import components, cyclic, distances, topological

Edge = tuple[str, str]


def run(
    graph: Graph,
    frames: NDArray[Any],
    *,
    teacher: Recording | None = None,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    membranes: bool = True,
) -> Recording:
    """Run frames (T, *input shape) through a graph; record spikes and membranes of every neuron node.

    With a `teacher`, every node sees the teacher's spikes instead of those of the nodes before it. Without
    `membranes` only those of the output are kept, which saves memory on large graphs.

    >>> run(read_graph("model.nir"), frames).dense("lif1").sum()  # doctest: +SKIP
    """
    _check(graph, frames, teacher)
    x = torch.as_tensor(np.ascontiguousarray(frames)).to(device, dtype)
    forced = {
        name: torch.as_tensor(_at_membrane(teacher, name, graph)).to(device, dtype)
        for name in graph.neurons
        if teacher is not None and name in teacher.spikes
    }
    # A GPU would otherwise round convolutions to 10 bits of mantissa, and not always in the same way.
    exact = torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)
    with torch.inference_mode(), exact:
        traces = _simulate(graph, x, forced, membranes)
    return _recording(graph, traces, device, dtype)


@dataclass
class _Traces:
    """What is kept of a run."""

    spikes: dict[str, Spikes]
    volts: dict[str, NDArray[Any]]
    output: NDArray[Any]  # what reaches the output node, all steps


def _simulate(graph: Graph, x: Tensor, forced: dict[str, Tensor], membranes: bool) -> _Traces:
    """One component after the other; signals that nobody needs any more are let go."""
    operators = {
        name: operator(node, graph.contract_of(name), str(x.device), x.dtype)
        for name, node in _due(graph).items()
    }
    late = lags(graph)
    silent = _silence(graph, operators, x) if late else {}
    order = topological(graph.nodes, graph.edges, late, graph.input)
    sources = {name: graph.inputs_of(name) for name in order}
    waiting = Counter(source for source, _ in graph.edges)
    seen: dict[str, Tensor] = {}  # what targets see: signals (T, *shape), or the teacher's spikes
    spikes: dict[str, Spikes] = {}
    volts: dict[str, NDArray[Any]] = {}

    def arriving(name: str, chosen: list[str]) -> Tensor:
        """The sum of what reaches a node from some of its sources, all steps."""
        parts = []
        for source in chosen:
            lag = late.get((source, name), 0)
            first = [_before(silent, source, graph.nodes[name])] * lag
            parts.append(torch.cat([*first, seen[source]])[: len(x)] if lag else seen[source])
        if not parts:
            return torch.zeros(len(x), *_input_shape(graph, name), dtype=x.dtype, device=x.device)
        return sum(parts[1:], parts[0])

    for component in components(order, graph.edges):
        if not cyclic(component, graph.edges):
            name = component[0]
            signal = x if name == graph.input else arriving(name, sources[name])
            found = {name: operators[name](signal, None)[:2]}
        else:
            inside = set(component)
            outer = {n: arriving(n, [s for s in sources[n] if s not in inside]) for n in component}
            inner = {
                n: [
                    (s, late.get((s, n), 0), _before(silent, s, graph.nodes[n]))
                    for s in sources[n]
                    if s in inside
                ]
                for n in component
            }
            found = _step(component, outer, inner, operators, forced)
        for name, (signal, membrane) in found.items():
            seen[name] = forced.get(name, signal)
            if isinstance(graph.nodes[name], SPIKING):
                spikes[name] = Spikes.from_dense(signal.cpu().numpy())
            if membrane is not None and (membranes or (name, graph.output) in graph.edges):
                volts[name] = membrane.cpu().numpy()
        for source in (source for name in component for source in sources[name]):
            waiting[source] -= 1
            if not waiting[source]:
                del seen[source]
    return _Traces(spikes, volts, seen[graph.output].cpu().numpy())


def _step(
    component: list[str],
    outer: dict[str, Tensor],
    inner: dict[str, list[tuple[str, int, Tensor]]],
    operators: dict[str, Operator],
    forced: dict[str, Tensor],
) -> dict[str, tuple[Tensor, Tensor | None]]:
    """Signals and membranes of the nodes of a cycle, one step after the other.

    `outer` holds what comes from elsewhere, `inner` each source on the cycle with its lag and first value.
    """
    states: dict[str, Any] = dict.fromkeys(component)
    signals: dict[str, list[Tensor]] = {name: [] for name in component}
    membranes: dict[str, list[Tensor]] = {name: [] for name in component}
    seen: dict[str, list[Tensor]] = {name: [] for name in component}
    for t in range(len(outer[component[0]])):
        for name in component:
            signal = outer[name][t : t + 1]
            for source, lag, first in inner[name]:
                signal = signal + (seen[source][t - lag] if t >= lag else first)
            value, membrane, states[name] = operators[name](signal, states[name])
            signals[name].append(value)
            seen[name].append(forced[name][t : t + 1] if name in forced else value)
            if membrane is not None:
                membranes[name].append(membrane)
    return {
        name: (torch.cat(signals[name]), torch.cat(membranes[name]) if membranes[name] else None)
        for name in component
    }


def lags(graph: Graph) -> dict[Edge, int]:
    """Steps that lie on edges, where there are any."""
    spent = _spent(graph)
    late = {edge: 1 for edge in graph.edges if edge[1] in spent}
    passable = [(a, b) for a, b in graph.edges if not isinstance(graph.nodes[a], NEURONS)]
    if not graph.contract.delay:
        late |= {edge: 1 for edge in graph.recurrent if not _fed_late(graph, edge[0], passable)}
        for a, b in graph.edges:
            if _emits_late(graph, a):
                late[a, b] = late.get((a, b), 0) + 1
        return late
    for a, b in graph.edges:
        starts = a == graph.input or isinstance(graph.nodes[a], NEURONS)
        if starts and set(graph.neurons) & set(distances(b, passable)):
            late[a, b] = late.get((a, b), 0) + 1
    return late


def _spent(graph: Graph) -> set[str]:
    """Delays with recurrent input: one of their steps lies on their edges, so that the cycle opens."""
    return {target for _, target in graph.recurrent if isinstance(graph.nodes[target], nir.Delay)}


def _due(graph: Graph) -> dict[str, nir.NIRNode]:
    """The nodes as they run: Delays without the steps that lie on their edges."""
    dt, spent = graph.contract.dt or 1.0, _spent(graph)
    return {name: nir.Delay(node.delay - dt) if name in spent else node for name, node in graph.nodes.items()}


def _before(silent: dict[str, Tensor], source: str, target: nir.NIRNode) -> Tensor:
    """What a late edge carries before the first step; a Delay holds nothing then."""
    quiet = silent.get(source, torch.zeros(1))
    return torch.zeros_like(quiet) if isinstance(target, nir.Delay) else quiet


def _silence(graph: Graph, operators: dict[str, Operator], x: Tensor) -> dict[str, Tensor]:
    """Output (1, *shape) of every node while input and neurons are silent."""
    silent: dict[str, Tensor] = {}

    def visit(name: str) -> Tensor:
        if name not in silent:
            total = torch.zeros(1, *_input_shape(graph, name), dtype=x.dtype, device=x.device)
            if isinstance(graph.nodes[name], (nir.Input, nir.Delay, *NEURONS)):
                silent[name] = total
            else:
                total = sum((visit(source) for source in graph.inputs_of(name)), total)
                silent[name] = operators[name](total, None)[0]
        return silent[name]

    return {name: visit(name) for name in graph.nodes}


def _input_shape(graph: Graph, name: str) -> tuple[int, ...]:
    sources = graph.inputs_of(name)
    return graph.shapes[sources[0]] if sources else graph.shapes[name]


def _check(graph: Graph, frames: NDArray[Any], teacher: Recording | None) -> None:
    wanted = graph.shapes[graph.input]
    if not np.isfinite(frames).all():
        raise InputError(f"{graph.name}: frames hold values that are not finite")
    if teacher is not None and teacher.steps != len(frames):
        raise InputError(f"{graph.name}: {len(frames)} frames, but the teacher has {teacher.steps} steps")
    if frames.shape[1:] != wanted or len(frames) == 0:
        raise InputError(
            f"{graph.name}: frames have shape {frames.shape}, the input node '{graph.input}' takes (T, "
            f"{', '.join(map(str, wanted))})"
        )


def _recording(graph: Graph, traces: _Traces, device: str, dtype: torch.dtype) -> Recording:
    """A graph that does not end in one population has its output recorded as well, like a membrane."""
    volts, shapes = dict(traces.volts), {name: graph.shapes[name] for name in graph.neurons}
    output, *others = graph.inputs_of(graph.output)
    if output not in shapes or others:
        output = graph.output
        volts[output], shapes[output] = traces.output, graph.shapes[output]
    return Recording(
        steps=len(traces.output),
        shapes=shapes,
        spikes={
            name: spikes.later(_emits_late(graph, name)).before(len(traces.output))
            for name, spikes in traces.spikes.items()
        },
        membranes=volts,
        provenance=Provenance(
            runtime="reference",
            device="simulation",
            versions={"nrf": nrf.__version__, "torch": torch.__version__, "nir": nir.version},
            checksum=graph.checksum,
            details={"torch_device": device, "dtype": str(dtype).removeprefix("torch.")},
        ),
    ).read_out(output, graph.contract)


def _emits_late(graph: Graph, name: str) -> int:
    """Steps from the membrane's passing of the threshold to the spike: 1 where the contract says so."""
    late = graph.contract_of(name).emit == "late" and isinstance(graph.nodes[name], STATEFUL)
    return int(late and isinstance(graph.nodes[name], SPIKING))


def _fed_late(graph: Graph, name: str, passable: list[Edge]) -> bool:
    """Whether all that a node passes on comes from neurons whose spikes are late already."""
    backwards = [(b, a) for a, b in graph.edges if (a, b) in passable or a in graph.neurons]
    before = distances(name, [(b, a) for b, a in backwards if b not in graph.neurons or b == name])
    sources = [name] if name in graph.neurons else [source for source in before if source in graph.neurons]
    return bool(sources) and all(_emits_late(graph, source) for source in sources)


def _at_membrane(teacher: Recording, name: str, graph: Graph) -> NDArray[np.int64]:
    """The teacher's counts (steps, *shape) at the steps at which the membranes fired."""
    early = teacher.events(name).later(-_emits_late(graph, name))
    return early.where(early.t >= 0).dense(teacher.steps, graph.shapes[name])
