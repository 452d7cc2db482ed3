"""The drive of a layer from events: work follows events times fan-out, not micro-steps times neurons.

    drive[row, j] = sum over events (row, i) and synapses s from i to j of values[s]        values = factor W

Most micro-steps of most neurons are silent; dense convolutions over them are what training would wait for.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nrf.arrays import Int64s
from nrf.backends.lowering.layers import composed_path, paths_into
from nrf.backends.tuning.adjacency_kernels import gather, scatter
from nrf.errors import InputError
from nrf.export.graph import Graph

if TYPE_CHECKING:
    from nrf.backends.tuning.layers import Layer


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Synapses that carry the weights of one node, sorted by the neuron of the source that they leave."""

    source: str
    node: str
    begins: Int64s  # of each neuron's synapses, one more than neurons
    targets: Int64s
    weights: Tensor  # place of each synapse's weight in the node's, flat
    factors: Tensor  # of what lies around the weights: average pooling, scale

    def values(self, weight: Tensor) -> Tensor:
        """Of every synapse; differentiable."""
        return weight.reshape(-1)[self.weights] * self.factors


@dataclass(frozen=True, eq=False)
class SpikeList:
    """Spikes of one source, one entry each: row is (step x micro + micro-step) x clips + clip."""

    rows: Int64s
    neurons: Int64s
    times: int  # steps x micro
    clips: int

    def dense(self, shape: tuple[int, ...], device: str = "cpu") -> Tensor:
        """Counts (times, clips, *shape)."""
        counts = np.zeros((self.times, self.clips, *shape), np.float32)
        np.add.at(counts.reshape(-1), self.rows * int(np.prod(shape)) + self.neurons, np.float32(1))
        return torch.as_tensor(counts, device=device)


def adjacencies(layer: "Layer") -> list[Adjacency] | None:
    """All synapses of a layer; None where two taps of a kernel share one, or not all nodes are linear."""
    graph, found = layer.graph, list[Adjacency]()
    for source, path, _ in paths_into(graph, layer.name):
        trained = [name for name in path if name in layer.synapses]
        if len(trained) != 1:
            return None
        numbers = np.arange(1.0, np.size(graph.nodes[trained[0]].weight) + 1)
        try:  # weights of 1 give the factor, weights of n and n^2 the place, if there is but one per synapse
            ones, first, second = (
                _matrix(_filled(graph, trained[0], weight), source, path)
                for weight in (0 * numbers + 1, numbers, numbers**2)
            )
        except InputError:
            return None
        if not (len(ones.data) == len(first.data) == len(second.data)):
            return None
        places = first.data / ones.data
        if not np.allclose(second.data / ones.data, places**2, rtol=1e-9):
            return None
        found.append(
            Adjacency(
                source,
                trained[0],
                ones.indptr.astype(np.int64),
                ones.indices.astype(np.int64),
                torch.as_tensor(np.round(places).astype(np.int64) - 1),
                torch.as_tensor(ones.data.astype(np.float32)),
            )
        )
    return found


def _filled(graph: Graph, name: str, weight: NDArray[np.float64]) -> Graph:
    """The graph with other weights in one node."""
    node = copy.copy(graph.nodes[name])
    node.weight = weight.reshape(np.shape(node.weight))
    return replace(graph, nodes=graph.nodes | {name: node})


def _matrix(graph: Graph, source: str, path: Sequence[str]) -> Any:
    """Sparse, (outputs, inputs) by columns, sorted."""
    ((operator, _),) = composed_path(graph, source, path)
    matrix = operator.matrix().tocsc()
    matrix.sort_indices()
    return matrix


class Scattered(torch.autograd.Function):
    """The drive (rows, neurons) of events through an adjacency."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, way: Adjacency, events: SpikeList, neurons: int) -> Tensor:
        """As above."""
        drive = np.zeros((events.times * events.clips, neurons), np.float32)
        scatter(drive, values.detach().numpy(), way.begins, way.targets, events.rows, events.neurons)
        ctx.parts = way, events
        return torch.as_tensor(drive)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """To the values of synapses."""
        way, events = ctx.parts
        to_values = np.zeros(len(way.targets), np.float32)
        given = gradients[0].contiguous().numpy()
        gather(given, to_values, way.begins, way.targets, events.rows, events.neurons)
        return torch.as_tensor(to_values), None, None, None
