"""Random NIR graphs: branches, recurrence, sub-graphs, per-neuron parameters, all node types."""

from dataclasses import dataclass, field

import nir
import numpy as np
from hypothesis import strategies as st

from nrf.export.contract import Contract

DT = 1e-3


@dataclass
class Case:
    """A raw graph, the edges that lead back in it, input frames and a contract."""

    graph: nir.NIRGraph
    feedback: set[tuple[str, str]]
    shapes: dict[str, tuple[int, ...]]  # what goes into each node, nodes of sub-graphs as `sub.node`
    frames: np.ndarray
    contract: Contract


@dataclass
class Builder:
    """A graph in the making; `draw` decides the structure, `rng` the values."""

    draw: st.DrawFn
    rng: np.random.Generator
    shape: tuple[int, ...]
    nodes: dict[str, nir.NIRNode] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)
    feedback: set[tuple[str, str]] = field(default_factory=set)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    tips: list[str] = field(default_factory=list)  # nodes whose sum goes on
    depth: int = 0

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) >= 100 - percent

    def pick(self, *options: object) -> object:
        return self.draw(st.sampled_from(options))

    def add(self, node: nir.NIRNode, sources: list[str] | None = None) -> str:
        name = f"{type(node).__name__.lower()}{len(self.nodes)}"
        self.nodes[name] = node
        self.shapes[name] = self.shape
        self.edges += [(source, name) for source in (self.tips if sources is None else sources)]
        return name

    def values(self, low: float, high: float, shape: tuple[int, ...]) -> np.ndarray:
        return self.rng.uniform(low, high, shape)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A graph of a few tiny stages, each some linear nodes and a neuron."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = draw(st.sampled_from([(3,), (2, 6), (2, 5, 6)]))
    build = Builder(draw, rng, shape)
    build.tips = [build.add(nir.Input(np.array(shape)), [])]
    for _ in range(draw(st.integers(1, 3))):
        stage(build)
    build.add(nir.Output(np.array(build.shape)))
    frames = (rng.random((draw(st.integers(1, 8)), *shape)) < 0.5) * rng.uniform(0.5, 2.0, shape)
    late = draw(st.sampled_from(["now", "now", "late"]))
    reset_at = draw(st.sampled_from(["spike", "spike", "next", "held"]))
    contract = Contract(
        dt=DT,
        reset=draw(st.sampled_from(["zero", "subtract", "none"])),
        fire=draw(st.sampled_from(["gt", "ge"])),
        delay=0 if late == "late" else draw(st.sampled_from([0, 1])),
        v_min=draw(st.sampled_from([None, -0.3])),
        integration=draw(st.sampled_from(["euler", "exponential"])),
        synapse=draw(st.sampled_from(["scaled", "unit", "decayed"])),
        membrane=draw(st.sampled_from(["scaled", "unit"])),
        max_spikes=draw(st.sampled_from([1, 0, 2])) if reset_at == "spike" else 1,
        reset_at=reset_at,
        emit=late,
        start=draw(st.sampled_from(["leak", "reset"])),
    )
    graph = nir.NIRGraph(build.nodes, build.edges, type_check=False)
    return Case(graph, build.feedback, build.shapes, frames, contract)


def stage(build: Builder) -> None:
    """Some linear nodes, or two branches of them, and a neuron that may feed itself or the one before."""
    if build.depth < 2 and build.chance(20):
        return nested(build)
    if build.chance(25):
        tips = build.tips
        left = build.add(same_shape(build))
        build.tips = tips
        right = build.add(same_shape(build), tips)
        build.tips = [left, right, *(tips if build.chance(30) else [])]
    for _ in range(build.draw(st.integers(0, 2))):
        linear(build)
    name = build.add(neuron(build))
    build.tips = [name]
    if not isinstance(build.nodes[name], nir.Threshold) and build.chance(40):
        recur(build, name)


def nested(build: Builder) -> None:
    """A stage inside a graph of its own."""
    inner = Builder(build.draw, build.rng, build.shape, depth=build.depth + 1)
    inner.tips = [inner.add(nir.Input(np.array(build.shape)), [])]
    stage(inner)
    inner.add(nir.Output(np.array(inner.shape)))
    name = build.add(nir.NIRGraph(inner.nodes, inner.edges, type_check=False))
    build.feedback |= {(f"{name}.{a}", f"{name}.{b}") for a, b in inner.feedback}
    build.shapes |= {f"{name}.{key}": shape for key, shape in inner.shapes.items()}
    build.shape, build.tips = inner.shape, [name]


def recur(build: Builder, name: str) -> None:
    """Lead the neuron's output back to itself: directly, or through a linear node or a Delay."""
    kind = build.pick("direct", "linear", "delay", "linear, delay")
    if kind == "direct":
        build.edges.append((name, name))
        build.feedback.add((name, name))
        return
    back = name
    if "linear" in str(kind):
        back = build.add(same_shape(build), [back])
    if kind == "linear":
        build.feedback.add((name, back))
    else:
        back = build.add(delay(build, least=1), [back])
    build.edges.append((back, name))


def delay(build: Builder, least: int = 0) -> nir.Delay:
    return nir.Delay(DT * build.rng.integers(least, 4, build.shape))


def same_shape(build: Builder) -> nir.NIRNode:
    """A linear node that keeps the shape."""
    shape = build.shape
    if len(shape) == 1 and build.chance(60):
        weight = build.rng.normal(0, 1, (*shape, *shape))
        return nir.Linear(weight) if build.chance(50) else nir.Affine(weight, build.rng.normal(0, 0.3, shape))
    if len(shape) == 2 and build.chance(60):
        n = int(build.pick(1, 2, 3))
        return nir.Conv1d(
            shape[1], build.rng.normal(0, 1, (shape[0], shape[0], n)), 1, "same", 1, 1, np.zeros(shape[0])
        )
    if len(shape) == 3 and build.chance(60):
        return conv2d(build, same=True)
    return scale(build)


def scale(build: Builder) -> nir.Scale:
    shape = build.pick(build.shape, (build.shape[0], *(1 for _ in build.shape[1:])), (1,))
    return nir.Scale(build.values(0.3, 1.5, shape))


def linear(build: Builder) -> None:
    """Append one node of the kinds that suit the shape."""
    shape = build.shape
    kinds = {1: ["affine", "scale", "delay"], 2: ["conv1d", "flatten", "scale", "delay"]}
    kind = build.pick(*kinds.get(len(shape), ["conv2d", "conv2d", "sum", "avg", "flatten", "scale", "delay"]))
    if kind in ("sum", "avg") and min(shape[1:]) < 2:
        kind = "flatten"
    if kind == "affine":
        out = int(build.pick(2, 4))
        weight = build.rng.normal(0, 1, (out, *shape))
        node = nir.Affine(weight, build.rng.normal(0, 0.3, out)) if build.chance(70) else nir.Linear(weight)
    elif kind == "conv1d":
        padding = build.pick("same", "valid", 1)
        n = min(int(build.pick(1, 2, 3)), shape[1])
        stride = 1 if padding == "same" else int(build.pick(1, 2))
        weight = build.rng.normal(0, 1, (2, shape[0], n))
        node = nir.Conv1d(shape[1], weight, stride, padding, 1, 1, build.rng.normal(0, 0.3, 2))
    elif kind == "conv2d":
        node = conv2d(build)
    elif kind in ("sum", "avg"):
        make = nir.SumPool2d if kind == "sum" else nir.AvgPool2d
        node = make(np.array([2, 2]), np.array([2, 1]), np.array([int(build.pick(0, 1)), 0]))
    elif kind == "flatten":
        node = nir.Flatten({"input": np.array(shape)}, int(build.pick(0, len(shape) - 2)), -1)
    else:
        node = scale(build) if kind == "scale" else delay(build)
    build.tips = [build.add(node)]
    build.shape = shape_after(node, shape)


def conv2d(build: Builder, same: bool = False) -> nir.Conv2d:
    channels, height, width = build.shape
    padding = "same" if same else build.pick("same", "valid", (1, 0))
    size = (min(int(build.pick(1, 2, 3)), height), min(int(build.pick(1, 2)), width))
    groups = channels if build.chance(30) else 1
    out = channels if same or groups > 1 else int(build.pick(1, 3))
    stride = 1 if padding == "same" else int(build.pick(1, 2))
    dilation = (1, 1) if padding != "same" else build.pick((1, 1), (2, 3))
    weight = build.rng.normal(0, 1, (out, channels // groups, *size))
    return nir.Conv2d(
        (height, width), weight, stride, padding, dilation, groups, build.rng.normal(0, 0.3, out)
    )


def shape_after(node: nir.NIRNode, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Found by trying, with the naive operators."""
    from tests.export.naive import convolve, pool

    x = np.zeros(shape)
    if isinstance(node, nir.Affine | nir.Linear):
        return (len(node.weight),)
    if isinstance(node, nir.Conv1d | nir.Conv2d):
        return convolve(node, x).shape
    if isinstance(node, nir.SumPool2d | nir.AvgPool2d):
        return pool(node, x).shape
    if isinstance(node, nir.Flatten):
        return x.reshape(*shape[: node.start_dim], -1).shape
    return shape


def neuron(build: Builder) -> nir.NIRNode:
    """A neuron of any kind, with parameters per neuron, per channel or for all at once."""
    full = build.shape
    shape = build.pick(full, (full[0], *(1 for _ in full[1:])), (1,), ())
    tau, syn = build.values(2 * DT, 20 * DT, shape), build.values(2 * DT, 9 * DT, shape)
    r, rest = build.values(2.0, 6.0, shape), build.values(-0.1, 0.1, shape)
    threshold, reset = build.values(0.2, 0.9, shape), build.values(-0.1, 0.1, shape)
    w_in = build.values(0.5, 4.0, shape)
    kind = build.pick("IF", "LIF", "CubaLIF", "LIF", "CubaLIF", "I", "LI", "CubaLI", "Threshold")
    return {
        "I": lambda: nir.I(r / 10 / DT),
        "IF": lambda: nir.IF(r / 10 / DT, threshold, reset),
        "LI": lambda: nir.LI(tau, r, rest),
        "LIF": lambda: nir.LIF(tau, r, rest, threshold, reset),
        "CubaLI": lambda: nir.CubaLI(syn, tau, r, rest, w_in),
        "CubaLIF": lambda: nir.CubaLIF(syn, tau, r, rest, threshold, reset, w_in),
        "Threshold": lambda: nir.Threshold(threshold),
    }[str(kind)]()
