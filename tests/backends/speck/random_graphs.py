"""Random graphs that a Speck takes: skips, several sources per core, equal kernels, biases, linear layers."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec
import nir
import numpy as np
from numpy.typing import NDArray

from nrf.backends.speck.check import check
from nrf.backends.speck.chip import Speck
from nrf.export import Contract, Graph
from nrf.findings import errors

from .graphs import SPECK, chain, convolution, integrate_and_fire, pool

CHANNELS = 4
assert isinstance(SPECK, Speck)
# Speck with hardly any memory, so that small graphs must be split over its cores
SMALL = msgspec.structs.replace(
    SPECK,
    cores=msgspec.structs.replace(
        SPECK.cores, kernel_words=(128, 128, 128, 256, 256, 512, 512, 128, 128),
        neuron_words=(256, 256, 256, 128, 128, 128, 64, 64, 64),
    ),
)  # fmt: skip


@dataclass
class Draft:
    """A graph in the making."""

    rng: np.random.Generator
    nodes: dict[str, nir.NIRNode]
    maps: dict[str, tuple[int, int, int]]
    edges: list[tuple[str, str]] = field(default_factory=list)
    fed: dict[str, int] = field(default_factory=dict)  # how many layers read a map

    def layer(self, name: str, weights: list[NDArray[Any]]) -> None:
        """One more population: one to three earlier maps, pooled to one size, through one kernel."""
        rng = self.rng
        free = [node for node in self.maps if self.fed.get(node, 0) < 2]
        sources = [str(node) for node in rng.permutation(free)[: rng.choice([1, 1, 2, 3])]]
        side = min(self.maps[node][1] for node in sources)
        sources = [node for node in sources if self.maps[node][1] in (side, 2 * side)]
        size, kernel = (side, side), int(rng.integers(1, 4))
        before = []
        for node in sources:
            self.fed[node] = self.fed.get(node, 0) + 1
            before.append(node)
            if self.maps[node][1] == 2 * side:
                before[-1] = f"p_{node}_{name}"
                self.nodes[before[-1]] = pool(2)
                self.edges.append((node, before[-1]))
        equal = [weight for weight in weights if weight.shape[2] <= side]
        if equal and rng.random() < 0.4:
            weight = equal[rng.integers(len(equal))]  # of an earlier layer: nothing to tell them apart by
        else:
            weight = rng.integers(-20, 40, (CHANNELS, CHANNELS, kernel, kernel)) / 64
            weights.append(weight)
        bias = rng.integers(-12, 13, CHANNELS) / 64 * (rng.random() < 0.5)
        padding = weight.shape[2] // 2
        stride = 2 if side >= 6 and rng.random() < 0.2 else 1
        conv = convolution(weight, size, stride, padding, bias=bias)
        after = (side + 2 * padding - weight.shape[2]) // stride + 1
        self.nodes |= {f"c_{name}": conv, name: integrate_and_fire((CHANNELS, after, after))}
        self.edges += [*((node, f"c_{name}") for node in before), (f"c_{name}", name)]
        self.maps[name] = CHANNELS, after, after

    def linear(self, source: str, name: str) -> None:
        """A fully connected population on a map."""
        shape, rng = self.maps[source], self.rng
        weight = rng.integers(-20, 40, (3, int(np.prod(shape)))) / 64
        self.nodes |= {
            f"f_{name}": nir.Flatten({"input": np.array(shape)}, 0, -1),
            f"l_{name}": nir.Affine(weight, rng.integers(-9, 10, 3) / 64 * (rng.random() < 0.5)),
            name: integrate_and_fire((3,)),
        }
        path = [source, f"f_{name}", f"l_{name}", name]
        self.edges += pairwise(path)
        self.maps[name] = 3, 1, 1


def random_graph(seed: int) -> tuple[Graph, Speck] | None:
    """A graph and a chip whose rules accept it; None where they do not."""
    rng = np.random.default_rng(seed)
    side = int(rng.choice([5, 6, 8]))
    shape = CHANNELS, side, side
    draft = Draft(rng, {"input": nir.Input(np.array(shape))}, {"input": shape})
    weights: list[NDArray[Any]] = []
    for index in range(rng.integers(1, 6)):
        draft.layer(f"n{index}", weights)
    last = list(draft.maps)[-1]
    if rng.random() < 0.3:
        draft.linear(last, last := "classes")
    draft.nodes["output"] = nir.Output(np.array(draft.maps[last] if last != "classes" else (3,)))
    contract = Contract(
        dt=1e-3,
        membrane="unit",
        reset=str(rng.choice(["zero", "subtract"])),  # type: ignore[arg-type]
        fire="ge",
        v_min=[-1.0, 0.0, None][rng.integers(3)],
        max_spikes=int(rng.integers(2)),
    )
    graph = chain(draft.nodes, contract, [*draft.edges, (last, "output")])
    chip = [SPECK, SMALL][rng.integers(2)]
    return None if errors(check(graph, chip)) else (graph, chip)


def events(rng: np.random.Generator, shape: tuple[int, ...], steps: int = 6) -> NDArray[np.int64]:
    """Sparse counts of events, some larger than 1."""
    return rng.integers(1, 3, (steps, *shape)) * (rng.random((steps, *shape)) < 0.08)
