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
from typing import Any

import nir
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import nrf
from nrf.backends.border.recording import Provenance, Recording, Spikes
from nrf.backends.reference.coefficients import emits_late
from nrf.backends.reference.compiled import spikes_of
from nrf.backends.reference.events import Convolved, Events, Signal, dense
from nrf.backends.reference.plan import Plan, input_shape, plan
from nrf.errors import InputError
from nrf.export.graph import SPIKING, Graph


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
        known = plan(graph, str(x.device), dtype, membranes)
        spikes, volts = _simulate(graph, known, x, forced, membranes)
    return Recording(
        steps=len(x),
        shapes={name: graph.shapes[name] for name in [*graph.neurons, *graph.read_populations]},
        spikes={
            name: one.later(1).before(len(x)) if emits_late(graph, name) else one
            for name, one in spikes.items()
        },
        membranes=volts,
        provenance=Provenance(
            runtime="reference",
            device="simulation",
            versions={"nrf": nrf.__version__, "torch": torch.__version__, "nir": nir.version},
            checksum=known.checksum,
            details={"torch_device": device, "dtype": str(dtype).removeprefix("torch.")},
        ),
    ).read_out(graph.read_populations, graph.contract)


def _simulate(
    graph: Graph, known: Plan, x: Tensor, forced: dict[str, Tensor], membranes: bool
) -> tuple[dict[str, Spikes], dict[str, NDArray[Any]]]:
    """One component after the other; signals that nobody needs any more are let go.

    Returns spikes and membranes; the signal of an output that is no population is kept like a membrane.
    """
    operators, late, silent = known.operators, known.late, known.silent
    entry, neurons, read = graph.input, graph.neurons, graph.read_populations
    waiting = Counter(source for source, _ in graph.edges)
    sources = {name: graph.inputs_of(name) for name in graph.nodes}
    seen: dict[str, Signal] = {}  # what targets see: signals (T, *shape), or the teacher's spikes
    spikes: dict[str, Spikes] = {}
    volts: dict[str, NDArray[Any]] = {}

    def arriving(name: str, start: int, stop: int) -> Signal:
        """The sum of what reaches a node in some steps."""
        if name != entry and len(sources[name]) == 1 and stop - start == len(x):  # lists stay lists
            (source,) = sources[name]
            signal, lag = seen[source], late.get((source, name), 0)
            if not lag:
                return signal
            if isinstance(signal, Events) and not _before(silent, source, graph.nodes[name]).any():
                return signal.later(lag)
        parts = [x[start:stop]] if name == entry else []
        for source in sources[name]:
            lag = late.get((source, name), 0)
            now = dense(seen[source])[max(start - lag, 0) : max(stop - lag, 0)]
            if start < lag:
                first = _before(silent, source, graph.nodes[name])
                now = torch.cat([*[first] * (min(lag, stop) - start), now])
            parts.append(now)
        if not parts:
            return x.new_zeros(stop - start, *input_shape(graph, name))
        return sum(parts[1:], parts[0])

    for component, together in known.components:
        signals, states = dict[str, Signal](), dict[str, Any]()
        maps, potentials = dict[str, Tensor](), dict[str, Tensor]()
        if together:
            maps = {name: x.new_zeros(len(x), *graph.shapes[name]) for name in component}
            potentials = {name: torch.zeros_like(maps[name]) for name in component if name in neurons}
            signals |= maps
            seen |= {name: forced.get(name, maps[name]) for name in component}
            for name in component:  # what comes from elsewhere is added first
                sources[name].sort(key=component.__contains__)
        length = 1 if together else len(x)
        for start in range(0, len(x), length):
            for name in component:
                arrived = arriving(name, start, start + length)
                signal, membrane, states[name] = operators[name](arrived, states.get(name))
                if together:
                    maps[name][start : start + 1] = dense(signal)
                elif isinstance(signal, Convolved) and waiting[name] > 1:
                    signals[name] = signal.dense()  # once for all targets
                else:
                    signals[name] = signal
                if together and membrane is not None:
                    potentials[name][start : start + 1] = membrane
                elif membrane is not None:
                    potentials[name] = membrane
        for name, signal in signals.items():
            seen[name] = forced.get(name, signal)
            if isinstance(graph.nodes[name], SPIKING):
                one = graph.contract_of(name).max_spikes == 1
                spikes[name] = spikes_of(signal) if one else Spikes.from_dense(dense(signal).cpu().numpy())
            if name in potentials and (membranes or name in read):
                volts[name] = potentials[name].cpu().numpy()
                if emits_late(
                    graph, name
                ):  # the membrane that gave the spikes of a step is of the one before
                    volts[name] = np.concatenate([_at_start(graph, name), volts[name][:-1]])
        for source in (source for name in component for source in sources[name]):
            waiting[source] -= 1
            if not waiting[source]:
                del seen[source]
    return spikes, volts | {name: dense(seen[name]).cpu().numpy() for name in read if name not in neurons}


def _before(silent: dict[str, Tensor], source: str, target: nir.NIRNode) -> Tensor:
    """What a late edge carries before the first step; a Delay holds nothing then."""
    quiet = silent.get(source, torch.zeros(1))
    return torch.zeros_like(quiet) if isinstance(target, nir.Delay) else quiet


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


def _at_start(graph: Graph, name: str) -> NDArray[np.floating]:
    """The membrane of a neuron node before the first step, (1, *shape) in volts."""
    node = graph.nodes[name]
    start = node.v_reset if graph.contract_of(name).start == "reset" else getattr(node, "v_leak", 0.0)
    return np.broadcast_to(np.asarray(start, np.float64), (1, *graph.shapes[name]))


def _at_membrane(teacher: Recording, name: str, graph: Graph) -> NDArray[np.int64]:
    """The teacher's counts (steps, *shape) at the steps at which the membranes fired."""
    early = teacher.events(name).later(-emits_late(graph, name))
    return early.where(early.t >= 0).dense(teacher.steps, graph.shapes[name])
