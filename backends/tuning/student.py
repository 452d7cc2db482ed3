"""The graph on a chip's own neuron, in units of its thresholds, and its layers in torch.

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
from numpy.typing import NDArray
from torch import Tensor

from nrf.backends.border.student import Setting, Student
from nrf.backends.lowering.layers import paths_into
from nrf.backends.reference.coefficients import lags, neuron
from nrf.backends.reference.nodes import stateless
from nrf.backends.tuning.fanout import Events, Fanout, Scattered, fanouts
from nrf.errors import InputError
from nrf.export.contract import Contract
from nrf.export.graph import NEURONS, SPIKING, Graph
from nrf.model.scan import Dynamics, scan

WEIGHTED = (nir.Conv1d, nir.Conv2d, nir.Affine)
COVERED = 0.998  # share of a layer's weights that must fit without clipping
ALPHA, MICRO = 5.0, 4  # steepness of the surrogate gradient, with up to so many micro-steps
ARRAYS = 8  # of the size of the drive that are alive at once
Floats = NDArray[np.float64]
Parameters = dict[str, tuple[Tensor, Tensor]]  # weight and bias by node, in thresholds
Grid = dict[str, int]  # k by node
Inputs = Mapping[str, Tensor | Events]  # by source


def on_chip_neuron(graph: Graph, student: Student, setting: Setting) -> Graph:
    """The graph with the chip's contract and neurons of threshold 1; weights are not rounded yet."""
    if graph.recurrent and not student.recurrent:
        raise InputError(f"{graph.name}: has recurrent connections; the chip has none, tune cannot help")
    for name, node in graph.nodes.items():
        if isinstance(node, nir.Delay):
            raise InputError(f"{graph.name}: node '{name}': tune takes no Delay")
    nodes, contract = dict(graph.nodes), graph.contract
    for name in graph.neurons:
        node = nodes[name]
        if not isinstance(node, SPIKING):  # a membrane that the host reads
            continue
        if not isinstance(node, nir.IF | nir.LIF) and not (
            student.currents and isinstance(node, nir.CubaLIF)
        ):
            kind = type(node).__name__
            known = "IF, LIF and CubaLIF" if student.currents else "IF and LIF"
            raise InputError(
                f"{graph.name}: node '{name}': tune knows {known} neurons on this chip, not {kind}"
            )
        cell, own = neuron(node, graph.contract_of(name)), graph.contract_of(name)
        assert cell.threshold is not None and cell.reset is not None
        unit = cell.threshold - (cell.reset if own.reset == "zero" else 0)
        rate = np.zeros_like(unit) if cell.rate is None else cell.rate
        gain = cell.gain * (rate if cell.rate is not None and own.membrane == "scaled" else 1)
        push = rate * (cell.rest - (cell.reset if own.reset == "zero" else 0))
        if student.leak == "linear":
            push, rate = push - setting.leak * rate * unit, np.zeros_like(rate)
        elif cell.rate is None:
            rate = np.full_like(rate, setting.leak)
        current = None
        if cell.synapse is not None and cell.w_in is not None:
            entering = {
                "scaled": cell.synapse,
                "unit": np.ones_like(cell.synapse),
                "decayed": 1 - cell.synapse,
            }[own.synapse]
            gain, push = gain * cell.w_in * entering, push * cell.synapse  # a constant grows to 1 / synapse
            current = np.round(cell.synapse * student.decay_steps) / student.decay_steps
        rate = np.round(rate * student.decay_steps) / student.decay_steps
        for number, synapse in enumerate(synapses(graph, name)):
            constant = push if number == 0 else 0 * push
            factors = (_by_channel(graph, name, values / unit, nodes[synapse]) for values in (gain, constant))
            nodes[synapse] = _scaled(nodes[synapse], *factors)
        nodes[name] = _neuron(rate, contract.dt or 1.0, current)
    reset = None if setting.own_reset else student.contract["reset"][0]
    dt = contract.dt or 1.0  # neurons with a leak have a time constant
    chip = student.adopted(contract).with_(
        integration="euler", membrane="scaled", synapse="scaled", dt=dt, reset=reset
    )
    chip = replace(chip, v_min=setting.floor)
    return replace(graph, nodes=nodes, contract=chip, node_contracts={}, origins={})


def synapses(graph: Graph, population: str) -> list[str]:
    """The nodes whose weights drive a population: the last ones on every way into it."""
    found: list[str] = []
    for source in graph.inputs_of(population):
        if isinstance(graph.nodes[source], WEIGHTED):
            found.append(source)
            if len(graph.outputs_of(source)) > 1:
                raise InputError(f"{graph.name}: node '{source}' feeds several nodes; copy it for each")
        elif source == graph.input or isinstance(graph.nodes[source], (*NEURONS, nir.Delay)):
            raise InputError(f"{graph.name}: node '{population}': no weights between '{source}' and it")
        else:
            found += synapses(graph, source)
    return list(dict.fromkeys(found))


def _by_channel(graph: Graph, name: str, values: Floats, node: nir.NIRNode) -> Floats:
    """One value per output channel of the synapse, from one per neuron."""
    whole = np.broadcast_to(values, graph.shapes[name]).reshape(graph.shapes[name][0], -1)
    if np.ptp(whole) == 0:
        return np.full(len(node.weight), whole[0, 0])
    if np.any(np.ptp(whole, axis=1) > 1e-9 * np.abs(whole).max()) or len(whole) != len(node.weight):
        raise InputError(f"{graph.name}: node '{name}': parameters differ within a channel, tune takes one")
    return whole[:, 0]


def _scaled(node: nir.NIRNode, gain: Floats, push: Floats) -> nir.NIRNode:
    """Weights and bias multiplied per output channel, and a constant input added."""
    copied = copy.copy(node)
    weight = np.asarray(node.weight, np.float64)
    if weight.ndim == 2 or not isinstance(node, nir.Affine):
        copied.weight = weight * gain.reshape(-1, *(1,) * (weight.ndim - 1))
    else:
        raise InputError("tune takes no Affine node with a matrix for every leading index")
    copied.bias = np.asarray(node.bias, np.float64) * gain + push
    return copied


def _neuron(rate: Floats, dt: float, synapse: Floats | None = None) -> nir.NIRNode:
    """Threshold 1, reset 0, input as it comes: r dt = 1, or r dt / tau = 1 with a leak."""
    one = np.ones(rate.shape)
    if synapse is not None:
        rate, synapse = np.maximum(rate, 1e-6), np.maximum(synapse, 1e-6) * one
        return nir.CubaLIF(dt / synapse, dt / rate, 1 / rate, 0 * one, one, 0 * one, 1 / synapse)
    if not np.any(rate):
        return nir.IF(one / dt, one, 0 * one)
    rate = np.maximum(rate, 1e-6)
    return nir.LIF(dt / rate, 1 / rate, 0 * one, one, 0 * one)


@dataclass(frozen=True)
class Layer:
    """One population of a graph that `on_chip_neuron` made, and all that lies between it and its sources."""

    graph: Graph
    name: str
    student: Student

    @cached_property
    def nodes(self) -> list[str]:
        """Between sources and population, in order."""
        found, todo = set(), self.graph.inputs_of(self.name)
        while todo:
            node = todo.pop()
            if node != self.graph.input and not isinstance(self.graph.nodes[node], NEURONS):
                found.add(node)
                todo += self.graph.inputs_of(node)
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

    @property
    def contract(self) -> Contract:
        """Of the chip."""
        return self.graph.contract

    @cached_property
    def fanouts(self) -> list[Fanout] | None:
        """Its synapses one by one, or None where they cannot be told apart."""
        return fanouts(self)

    @cached_property
    def rate(self) -> Floats | None:
        """Share of the membrane that is lost per step, or None."""
        return neuron(self.graph.nodes[self.name], self.contract).rate

    @cached_property
    def synapse(self) -> Floats | None:
        """Share of the synaptic current that is lost per step, or None."""
        return neuron(self.graph.nodes[self.name], self.contract).synapse

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
        events = {name: x for name, x in inputs.items() if isinstance(x, Events)}
        dense = {name: x for name, x in inputs.items() if isinstance(x, Tensor)}
        if events:
            times, clips = next((x.times, x.clips) for x in events.values())
            shape = times * clips, math.prod(self.shape)
            parts = [
                Scattered.apply(way.values(parameters[way.node][0]), way, events[way.source], shape)  # type: ignore[no-untyped-call]
                for way in self.fanouts or ()
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
        contract, rate = self.contract, torch.ones((), device=drive.device)
        if self.synapse is not None:
            forgotten = _tensor(self.synapse, drive.device).reshape(1, -1, 1, 1)
            filtered = Dynamics(leaky=True, fires=False)
            drive = scan(drive[..., None, None] / forgotten, None, forgotten, torch.ones(()), filtered)[0][
                ..., 0, 0
            ]
        if self.rate is not None:
            rate = _tensor(self.rate, drive.device).reshape(1, -1, 1, 1)
        floor = -math.inf if contract.v_min is None else contract.v_min
        reset: Any = contract.reset
        alpha = ALPHA * max(1, micro / MICRO)
        dynamics = Dynamics(self.rate is not None, True, reset, floor, alpha, contract.fire)
        output, _ = scan(drive[..., None, None] / rate, None, rate, torch.ones(()), dynamics)
        return output.reshape(*drive.shape[:2], *self.shape)

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
    def fanouts(self) -> None:
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
