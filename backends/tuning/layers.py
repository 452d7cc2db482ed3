"""Layers of a graph on a chip's own neuron, in torch.

    drive[t] = sum over synapses of W z[t]                    W = q 2^-k, q whole numbers of the chip
    drive[t] <- (1 - synapse) drive[t-1] + drive[t]           for CubaLIF, where the chip has such a current
    v[t] = max((1 - leak) v[t-1] + drive[t] + bias, floor)
    z[t] = v[t] reaches 1, then v[t] = 0 or v[t] - 1

On a chip that works event by event, the events of a step come over `micro` smaller steps; the bias comes with
the first. Rounding is straight-through: its gradient is that of the weights before.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import nir
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nrf.backends.border.student import Student
from nrf.backends.lowering.layers import paths_into
from nrf.backends.reference.coefficients import Neuron, lags, neuron
from nrf.backends.reference.nodes import stateless
from nrf.backends.tuning.adjacency import Adjacency, Scattered, SpikeList, adjacencies
from nrf.backends.tuning.neuron import synapses
from nrf.errors import InputError
from nrf.export.graph import SPIKING, Graph
from nrf.model.dynamics import Dynamics
from nrf.model.scan import scan

COVERED = 0.998  # share of a layer's weights that must fit without clipping
ALPHA, MICRO = 5.0, 4  # steepness of the surrogate gradient, with up to so many micro-steps
ARRAYS = 8  # of the size of the drive that are alive at once
Parameters = dict[str, tuple[Tensor, Tensor]]  # weight and bias by node, in thresholds
Grid = dict[str, int]  # k by node
Inputs = Mapping[str, Tensor | SpikeList]  # by source


@dataclass(frozen=True)
class Layer:
    """One population of a graph that `on_chip_neuron` made, and all that lies between it and its sources."""

    graph: Graph
    name: str
    student: Student

    @cached_property
    def nodes(self) -> list[str]:
        """Between sources and population, in order."""
        found = {node for _, path, _ in paths_into(self.graph, self.name) for node in path}
        return [name for name in self.graph.nodes if name in found]

    @property
    def sources(self) -> list[str]:
        """Populations, or the graph's input, that feed it."""
        feeding = (name for node in (*self.nodes, self.name) for name in self.graph.inputs_of(node))
        return list(dict.fromkeys(name for name in feeding if name not in self.nodes))

    @cached_property
    def ways(self) -> dict[str, tuple[int, bool]]:
        """By source: how many steps later it is heard, and whether it comes back by a loop."""
        late, found = lags(self.graph), dict[str, tuple[int, bool]]()
        for source, path, recurrent in paths_into(self.graph, self.name):
            steps = sum(late.get(edge, 0) for edge in pairwise((source, *path, self.name)))
            if found.setdefault(source, (steps, recurrent)) != (steps, recurrent):
                raise InputError(
                    f"{self.graph.name}: node '{self.name}' hears '{source}' at two times; tune takes one"
                )
        return found

    @property
    def synapses(self) -> list[str]:
        """Nodes whose weights are trained."""
        return synapses(self.graph, self.name)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the population."""
        return self.graph.shapes[self.name]

    @cached_property
    def adjacencies(self) -> list[Adjacency] | None:
        """Its synapses one by one, or None where they cannot be told apart."""
        return adjacencies(self)

    @cached_property
    def cell(self) -> Neuron[Any]:
        """Shares of membrane and synaptic current that are lost per step, where there are any."""
        return neuron(self.graph.nodes[self.name], self.graph.contract)

    def parameters(self, device: str = "cpu") -> Parameters:
        """Weights and biases in thresholds, as they are in the graph."""
        pairs = ((name, self.graph.nodes[name]) for name in self.synapses)
        return {name: (_tensor(node.weight, device), _tensor(node.bias, device)) for name, node in pairs}

    def values(self, micro: int) -> float:
        """Numbers that are alive at once in training, per clip and step."""
        around = sum(math.prod(self.graph.shapes[name]) for name in (*self.nodes, *self.sources))
        return float(micro * (ARRAYS * math.prod(self.shape) + 2 * around))

    def grid(self, parameters: Parameters) -> Grid:
        """The finest grid that covers nearly all weights, and all biases."""
        highest, largest = self.student.weights[1], self.student.biases[1] / self.student.bias_steps
        sizes = torch.cat([weight.detach().abs().flatten() for weight, _ in parameters.values()])
        reach = float(sizes.kthvalue(math.ceil(COVERED * sizes.numel())).values) or 1.0
        bias = max(float(bias.detach().abs().max()) for _, bias in parameters.values())
        room = min(highest / reach, largest / bias if bias else math.inf)
        return dict.fromkeys(parameters, min(math.floor(math.log2(room)), self.student.finest))

    def rounded(self, parameters: Parameters, grid: Grid) -> Parameters:
        """On the grid, straight-through."""
        return {
            name: (
                _rounded(weight, 2.0 ** grid[name], self.student.weights),
                _rounded(bias, 2.0 ** grid[name] * self.student.bias_steps, self.student.biases),
            )
            for name, (weight, bias) in parameters.items()
        }

    def written(self, parameters: Parameters, grid: Grid) -> Graph:
        """The graph with these parameters, rounded."""
        nodes = dict(self.graph.nodes)
        for name, (weight, bias) in self.rounded(parameters, grid).items():
            nodes[name] = copied = copy.copy(nodes[name])
            copied.weight, copied.bias = weight.detach().cpu().numpy(), bias.detach().cpu().numpy()
        return replace(self.graph, nodes=nodes)

    def spikes(self, inputs: Inputs, parameters: Parameters, micro: int = 1) -> Tensor:
        """Counts (steps, clips, neurons) of events, or of dense inputs (steps x micro, clips, *shape)."""
        fired = self.fired(inputs, parameters, micro)
        own = self.own_micro(micro)
        return fired.reshape(-1, own, *fired.shape[1:]).sum(1).flatten(2)

    def own_micro(self, micro: int) -> int:
        """Micro-steps of the output, of inputs in `micro` of them."""
        return micro

    def fired(self, inputs: Inputs, parameters: Parameters, micro: int = 1) -> Tensor:
        """The same in every micro-step: (steps x micro, clips, *shape)."""
        return self.fire(self.drive(inputs, parameters, micro), micro)

    def drive(self, inputs: Inputs, parameters: Parameters, micro: int = 1) -> Tensor:
        """What reaches membranes (steps x micro, clips, neurons); the bias comes in the first micro-step."""
        device = next(iter(parameters.values()))[0].device
        events = {name: x for name, x in inputs.items() if isinstance(x, SpikeList)}
        dense = {name: x for name, x in inputs.items() if isinstance(x, Tensor)}
        if events:
            times, clips = next((x.times, x.clips) for x in events.values())
            size = math.prod(self.shape)
            parts = [
                Scattered.apply(way.values(parameters[way.node][0]), way, events[way.source], size)  # type: ignore[no-untyped-call]
                for way in self.adjacencies or ()
            ]
            drive: Tensor = sum(parts[1:], parts[0])
        else:
            times, clips = next(iter(dense.values())).shape[:2]
            silent = {name: (weight, torch.zeros_like(bias)) for name, (weight, bias) in parameters.items()}
            drive = self._propagated({name: x.flatten(0, 1) for name, x in dense.items()}, silent)
        nothing = {name: torch.zeros(1, *self.graph.shapes[name], device=device) for name in self.sources}
        constant = self._propagated(nothing, parameters).reshape(1, 1, 1, -1)
        first = (torch.arange(micro, device=device) == 0).reshape(1, micro, 1, 1)
        drive = drive.reshape(times // micro, micro, clips, -1) + constant * first
        return drive.reshape(times, clips, -1)

    def fire(self, drive: Tensor, micro: int = 1) -> Tensor:
        """Spikes (times, clips, *shape) of a drive (times, clips, neurons).

        A membrane near its threshold stays there for many micro-steps. The surrogate gradient of a spike is
        as much steeper as there are more of them: else it counts one spike many times, and forgets the past.
        """
        contract, one = self.graph.contract, torch.ones(())
        rate, synapse = (
            None if share is None else _tensor(share, drive.device).reshape(1, -1, 1, 1)
            for share in (self.cell.rate, self.cell.synapse)
        )
        drive, shape = drive[..., None, None], (*drive.shape[:2], *self.shape)
        if synapse is not None:
            drive, _ = scan(drive / synapse, None, synapse, one, Dynamics(leaky=True, fires=False))
        floor = -math.inf if contract.v_min is None else contract.v_min
        reset: Any = contract.reset
        alpha = ALPHA * max(1, micro / MICRO)
        dynamics = Dynamics(rate is not None, True, reset, floor, alpha, contract.fire)
        rate = torch.ones((), device=drive.device) if rate is None else rate
        return scan(drive / rate, None, rate, one, dynamics)[0].reshape(shape)

    def _propagated(self, inputs: Mapping[str, Tensor], parameters: Parameters) -> Tensor:
        """Inputs (frames, *shape) through all nodes up to the population."""
        values = dict(inputs)
        for name in (*self.nodes, self.name):
            parts = [values[source] for source in self.graph.inputs_of(name)]
            total = sum(parts[1:], parts[0])
            if name == self.name:
                return total
            node = self.graph.nodes[name]
            if name in parameters:
                values[name] = _weighted(node, total, *parameters[name])
            else:
                values[name] = stateless(node, partial(_tensor, device=total.device))(total)
        raise AssertionError


@dataclass(frozen=True)
class Whole(Layer):
    """Several layers together, the last ones up to the output, each with its own number of micro-steps.

    A spike on its way to a layer with more micro-steps than its source arrives in one of these, at random.
    """

    micro: Mapping[str, int]  # by population

    @cached_property
    def layers(self) -> list[Layer]:
        """In order, the output last."""
        return [Layer(self.graph, name, self.student) for name in self.micro]

    @property
    def sources(self) -> list[str]:
        """What feeds the first of them."""
        feeding = (name for layer in self.layers for name in layer.sources)
        return list(dict.fromkeys(name for name in feeding if name not in self.micro))

    @property
    def synapses(self) -> list[str]:
        """Those of all layers."""
        return [name for layer in self.layers for name in layer.synapses]

    @cached_property
    def ways(self) -> dict[str, tuple[int, bool]]:
        """Step by step, without loops: sources are heard at once."""
        return dict.fromkeys(self.sources, (0, False))

    @cached_property
    def adjacencies(self) -> None:
        """Spikes between layers carry gradients: they stay dense."""

    def own_micro(self, micro: int) -> int:
        """Those of the last layer."""
        return self.micro[self.name]

    def values(self, micro: int) -> float:
        """Of all layers."""
        return sum(layer.values(self.micro[layer.name]) for layer in self.layers)

    def grid(self, parameters: Parameters) -> Grid:
        """Every layer's own."""
        parts = (layer.grid({name: parameters[name] for name in layer.synapses}) for layer in self.layers)
        return {name: k for part in parts for name, k in part.items()}

    def fired(self, inputs: Inputs, parameters: Parameters, micro: int = 1) -> Tensor:
        """Spikes of the output in its own micro-steps, of inputs in `micro` of them."""
        values = {name: x for name, x in inputs.items() if isinstance(x, Tensor)}
        some = next(iter(values.values()))
        steps, dice = len(some) // micro, torch.Generator(some.device).manual_seed(0)  # the same every time
        for layer in self.layers:
            now = self.micro[layer.name]
            heard = {name: resampled(values[name], steps * now, dice) for name in layer.sources}
            own = {name: parameters[name] for name in layer.synapses}
            values[layer.name] = layer.fired(heard, own, now)
        return values[self.name]


def resampled(spikes: Tensor, times: int, dice: torch.Generator) -> Tensor:
    """The same spikes (times, ...) in fewer times, or in more, each at random in one of those of its own."""
    ratio = times // len(spikes)
    if ratio == 0:
        return spikes.reshape(times, -1, *spikes.shape[1:]).sum(1)
    if ratio == 1:
        return spikes
    chosen = torch.randint(ratio, (len(spikes), 1, *spikes.shape[1:]), generator=dice, device=spikes.device)
    here = torch.arange(ratio, device=spikes.device).reshape(1, -1, *(1,) * (spikes.ndim - 1)) == chosen
    return (spikes[:, None] * here).flatten(0, 1)


def layers(graph: Graph, student: Student) -> list[Layer]:
    """The populations that can be tuned, in order."""
    return [Layer(graph, name, student) for name in graph.neurons if isinstance(graph.nodes[name], SPIKING)]


def _weighted(node: nir.NIRNode, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A node with other parameters; a bias of zero has a gradient too."""
    if isinstance(node, nir.Affine):
        return F.linear(x, weight, bias)
    convolution = F.conv2d if isinstance(node, nir.Conv2d) else F.conv1d
    return convolution(x, weight, bias, node.stride, node.padding, node.dilation, node.groups)


def _tensor(value: Any, device: Any = "cpu") -> Tensor:
    if isinstance(value, Tensor):
        return value
    return torch.as_tensor(np.asarray(value, np.float32), device=device)


def _rounded(values: Tensor, unit: float, ends: tuple[int, int]) -> Tensor:
    whole = (values * unit).round().clamp(*ends) / unit
    return values + (whole - values).detach() if values.requires_grad else whole
