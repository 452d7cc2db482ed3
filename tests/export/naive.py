"""A second, slow interpreter of raw NIR graphs, to hold canonical form and reference against.

Written from the equations in `Contract` with NumPy alone: values are looked up backwards, one node and one
step at a time. Nothing of the package's graph code is used; the caller says which edges lead back.
"""

from typing import Any

import nir
import numpy as np

from nrf.export.contract import Contract

FIRING = (nir.IF, nir.LIF, nir.CubaLIF)
NEURONS = (nir.I, nir.IF, nir.LI, nir.LIF, nir.CubaLI, nir.CubaLIF, nir.Threshold)
Edge = tuple[str, str]


def naive(
    graph: nir.NIRGraph,
    frames: np.ndarray,
    contract: Contract,
    feedback: set[Edge],
    shapes: dict[str, tuple[int, ...]],
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Signals and membranes (T, ...) of every neuron of a graph, sub-graphs included as `sub.node`."""
    return Naive(graph, frames, contract, feedback, shapes).run()


class Naive:
    """State of one run."""

    def __init__(
        self,
        graph: nir.NIRGraph,
        frames: np.ndarray,
        contract: Contract,
        feedback: set[Edge],
        shapes: dict[str, tuple[int, ...]],
    ):
        self.nodes: dict[str, nir.NIRNode] = {}
        self.edges: list[Edge] = []
        self._add(graph, "")
        self.frames, self.contract, self.feedback, self.shapes = frames, contract, feedback, shapes
        self.dt = contract.dt or 1.0
        self.known: dict[tuple[str, int], Any] = {}
        self.membranes: dict[tuple[str, int], Any] = {}
        self.currents: dict[tuple[str, int], Any] = {}

    def _add(self, graph: nir.NIRGraph, prefix: str) -> None:
        def port(name: str, kind: type) -> str:
            node = graph.nodes[name]
            if not isinstance(node, nir.NIRGraph):
                return prefix + name
            return f"{prefix}{name}." + next(k for k, n in node.nodes.items() if isinstance(n, kind))

        for name, node in graph.nodes.items():
            if isinstance(node, nir.NIRGraph):
                self._add(node, f"{prefix}{name}.")
            else:
                self.nodes[prefix + name] = node
        self.edges += [(port(a, nir.Output), port(b, nir.Input)) for a, b in graph.edges]

    def run(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        neurons = [name for name, node in self.nodes.items() if isinstance(node, NEURONS)]
        steps = range(len(self.frames))
        for name in neurons:
            for t in steps:
                self._at(name, t)
        signals = {name: np.array([self.value(name, t) for t in steps]) for name in neurons}
        membranes = {name: np.array([self.membranes[name, t] for t in steps]) for name in neurons}
        for name in neurons:
            if self.contract.emit == "late" and isinstance(self.nodes[name], FIRING):
                node = self.nodes[name]
                first = node.v_reset if self.contract.start == "reset" else getattr(node, "v_leak", 0.0)
                first = first + np.zeros_like(membranes[name][:1])
                membranes[name] = np.concatenate([first, membranes[name][:-1]])
        return signals, membranes

    def value(self, name: str, t: int) -> Any:
        """What the targets of a node see at step t."""
        late = self.contract.emit == "late" and isinstance(self.nodes[name], FIRING)
        return self._at(name, t - late)

    def _at(self, name: str, t: int) -> Any:
        """What a node computes at step t; before the first step everything is silent."""
        if (name, t) not in self.known:
            node = self.nodes[name]
            if t < 0 and isinstance(node, (*NEURONS, nir.Delay)):
                self.known[name, t] = np.zeros(self.shapes[name])
            elif isinstance(node, nir.Input) and "." not in name:
                self.known[name, t] = self.frames[t] if t >= 0 else 0.0 * self.frames[0]
            else:
                self.known[name, t] = self._apply(name, node, t)
        return self.known[name, t]

    def total(self, name: str, t: int) -> Any:
        return sum(self.value(a, t - self.lag(a, b)) for a, b in self.edges if b == name)

    def lag(self, a: str, b: str) -> int:
        if self.contract.emit == "late":
            return 0 if self._comes_late(a) else int((a, b) in self.feedback)
        start = isinstance(self.nodes[a], NEURONS) or (isinstance(self.nodes[a], nir.Input) and "." not in a)
        if self.contract.delay:
            return int(start and self._reaches_neuron(b))
        return int((a, b) in self.feedback)

    def _comes_late(self, name: str) -> bool:
        """Whether a way back begins at neurons that give their spikes a step late, as nothing else does."""
        if isinstance(self.nodes[name], NEURONS):
            return isinstance(self.nodes[name], FIRING)
        sources = [a for a, b in self.edges if b == name]
        return bool(sources) and all(self._comes_late(a) for a in sources)

    def _reaches_neuron(self, name: str) -> bool:
        if isinstance(self.nodes[name], NEURONS):
            return True
        return any(self._reaches_neuron(b) for a, b in self.edges if a == name)

    def _apply(self, name: str, node: nir.NIRNode, t: int) -> Any:
        if isinstance(node, nir.Delay):
            steps = np.round(node.delay / self.dt).astype(int)
            result = np.zeros(self.shapes[name])
            for d in np.unique(steps):
                past = self.total(name, t - d) if t >= d else 0.0
                result = np.where(steps == d, past, result)
            return result
        x = self.total(name, t)
        if isinstance(node, NEURONS):
            return self._neuron(name, node, x, t)
        if isinstance(node, nir.Affine | nir.Linear):
            return node.weight @ x + getattr(node, "bias", 0.0)
        if isinstance(node, nir.Conv1d | nir.Conv2d):
            return convolve(node, x)
        if isinstance(node, nir.SumPool2d | nir.AvgPool2d):
            return pool(node, x)
        if isinstance(node, nir.Flatten):
            last = node.end_dim % x.ndim
            return x.reshape(*x.shape[: node.start_dim], -1, *x.shape[last + 1 :])
        return x * node.scale if isinstance(node, nir.Scale) else x

    def _neuron(self, name: str, node: nir.NIRNode, x: Any, t: int) -> Any:
        contract = self.contract
        if isinstance(node, nir.Threshold):
            self.membranes[name, t] = x
            return self._count(x, node.threshold)
        first = getattr(node, "v_leak", 0.0)
        if contract.start == "reset" and isinstance(node, FIRING):
            first = node.v_reset
        before = self.membranes.get((name, t - 1), first + np.zeros(np.shape(x)))
        v = self._membrane(before, node, self._current(name, node, x, t))
        if isinstance(node, nir.I | nir.LI | nir.CubaLI):
            self.membranes[name, t] = v
            return v
        fired = self.known.get((name, t - 1), 0.0) if t > 0 else 0.0
        if contract.reset_at == "next":
            v = {"subtract": v - node.v_threshold * fired, "zero": (1 - fired) * v, "none": v}[contract.reset]
        if contract.v_min is not None:
            v = np.maximum(v, contract.v_min)
        judged = v
        if contract.reset_at == "held" and contract.reset == "subtract":
            judged = v - node.v_threshold * self._count(before, node.v_threshold)
        z = self._count(judged, node.v_threshold)
        if contract.reset_at != "next" and contract.reset == "zero":
            v = np.where(z > 0, node.v_reset, v)
        if contract.reset_at != "next" and contract.reset == "subtract":
            v = v - z * node.v_threshold
        self.membranes[name, t] = v
        return z

    def _kept(self, tau: Any) -> Any:
        return 1 - self.dt / tau if self.contract.integration == "euler" else np.exp(-self.dt / tau)

    def _current(self, name: str, node: nir.NIRNode, x: Any, t: int) -> Any:
        if not isinstance(node, nir.CubaLI | nir.CubaLIF):
            return x
        i, b = self.currents.get((name, t - 1), 0.0), self._kept(node.tau_syn)
        self.currents[name, t] = {
            "scaled": b * i + (1 - b) * node.w_in * x,
            "unit": b * i + node.w_in * x,
            "decayed": b * (i + node.w_in * x),
        }[self.contract.synapse]
        return self.currents[name, t]

    def _membrane(self, v: Any, node: nir.NIRNode, i: Any) -> Any:
        unit = self.contract.membrane == "unit"
        if isinstance(node, nir.I | nir.IF):
            return v + (i if unit else self.dt * node.r * i)
        a = self._kept(node.tau_mem if hasattr(node, "tau_mem") else node.tau)
        return a * v + (1 - a) * node.v_leak + (i if unit else (1 - a) * node.r * i)

    def _count(self, v: Any, threshold: Any) -> Any:
        most, at = self.contract.max_spikes, self.contract.fire == "ge"
        if most == 1:
            return (v >= threshold if at else v > threshold).astype(float)
        count = np.maximum(np.floor(v / threshold) if at else np.ceil(v / threshold) - 1, 0.0)
        return np.minimum(count, most) if most else count


def convolve(node: nir.NIRNode, x: np.ndarray) -> np.ndarray:
    """Cross-correlation, tap by tap."""
    features, channels, *kernel = node.weight.shape
    axes = len(kernel)
    stride, dilation = (np.broadcast_to(v, axes) for v in (node.stride, node.dilation))
    span = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    if node.padding == "same":
        pads = [(s // 2, s - s // 2) for s in span]
    else:
        pads = [
            (int(p), int(p)) for p in np.broadcast_to(0 if node.padding == "valid" else node.padding, axes)
        ]
    x = np.pad(x, [(0, 0), *pads])
    size = [(n - s - 1) // step + 1 for n, s, step in zip(x.shape[1:], span, stride, strict=True)]
    y = np.zeros((features, *size))
    for o in range(features):
        group = o // (features // node.groups)
        for c in range(channels):
            for tap in np.ndindex(*kernel):
                window = tuple(
                    slice(k * d, k * d + s * (n - 1) + 1, s)
                    for k, d, s, n in zip(tap, dilation, stride, size, strict=True)
                )
                y[o] += node.weight[(o, c, *tap)] * x[(group * channels + c, *window)]
        y[o] += np.broadcast_to(node.bias, features)[o]
    return y


def pool(node: nir.NIRNode, x: np.ndarray) -> np.ndarray:
    """Sum or average over windows, padding included."""
    (kh, kw), (sh, sw), (ph, pw) = node.kernel_size, node.stride, node.padding
    x = np.pad(x, [(0, 0), (ph, ph), (pw, pw)])
    rows, columns = (x.shape[1] - kh) // sh + 1, (x.shape[2] - kw) // sw + 1
    y = np.zeros((len(x), rows, columns))
    for r in range(rows):
        for c in range(columns):
            y[:, r, c] = x[:, r * sh : r * sh + kh, c * sw : c * sw + kw].sum(axis=(1, 2))
    return y / (kh * kw) if isinstance(node, nir.AvgPool2d) else y
