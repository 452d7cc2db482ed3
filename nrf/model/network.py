"""The paper's network: convolutional blocks in parallel temporal channels, merged into one map per shape.

    frames -> (pool -> conv -> neuron) per block, in K channels -> sum over channels of conv -> LI -> readout

Channels that share weights are one module called K times, which the exporter unfolds; what they have in
common, up to the first neurons and from the sum on, is computed once.

Built from convolutions, pooling, neurons and additions only, so that `Network.body` is a NIR graph; the
readout runs on the host. Convolutions see all T*B frames at once in channels-last memory, then the neurons
scan over time.
"""

import copy
import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from nrf.model.config import NetworkConfig
from nrf.model.initialisation import time_constants_of
from nrf.model.layers import POOLING, AvgPool, BatchNorm, Conv
from nrf.model.neurons import LI, Neuron
from nrf.model.parts import convolution_of, neuron_of, output_neuron_of
from nrf.model.readout import Readout
from nrf.model.scan import can_pool, scan_all

State = dict[str, Tensor]
Activate = Callable[[str, Neuron, Tensor], Tensor]
Together = Callable[[list[str], list[LI], Tensor, "AvgPool | None"], list[Tensor]]


@dataclass(frozen=True)
class Output:
    """What the network gives for a clip or a window of one."""

    membrane: Tensor  # (T, B, shapes, rows, columns): the maps that the readout reads
    firing: dict[str, Tensor]  # of each spiking population before the output: share that spikes, (T, B)
    state: State  # membrane potentials after the last step, to go on from


class Body(nn.Module):
    """From input to the last membrane potential: what goes to a chip.

    Nodes are named pool1, conv1, lif1, ..., out; in parallel channels conv1_0, lif1_0, conv1_1, lif1_1, ...
    or, where these share weights, conv1, lif1_0, lif1_1, ...
    """

    def __init__(self, config: NetworkConfig, rng: torch.Generator) -> None:
        super().__init__()
        taus = time_constants_of(config, rng)
        paths = config.paths
        self.paths = [self._path(config, taus, k, f"_{k}" if paths > 1 else "", rng) for k in range(paths)]
        self.out = output_neuron_of(config, taus)
        if config.tie_tau:
            self._tie_time_constants(config)

    def _path(
        self, config: NetworkConfig, taus: list[float], k: int, suffix: str, rng: torch.Generator
    ) -> list[str]:
        """Make the modules of channel k; the names in the order in which they are called."""
        names: list[str] = []

        def add(name: str, module: nn.Module) -> None:
            self.add_module(name, module)
            names.append(name)

        inputs = config.input[0] * config.history
        blocks = config.all_blocks
        paths_differ = config.parallel and not config.share
        for b, block in enumerate(blocks, 1):
            last = b == len(blocks)
            if block.pool > 1:
                add(f"pool{b}", POOLING[block.pooling](block.pool))
            if config.share and k > 0:
                names.append(f"conv{b}")
            else:
                bias = config.bias and (not last or k == 0)  # channels add up: one bias is enough
                conv = convolution_of(config, b, inputs, bias, [taus[k]] if paths_differ else taus, rng)
                add(f"conv{b}" if config.share else f"conv{b}{suffix}", conv)
            if not last:
                if config.batch_norm:
                    add(f"norm{b}{suffix}", BatchNorm(block.features))
                add(f"{config.neuron}{b}{suffix}", neuron_of(config, block, taus, k))
            inputs = block.features
        return names

    @property
    def spiking(self) -> dict[str, Neuron]:
        """The populations that spike, by name."""
        return {name: n for name, n in self.named_children() if isinstance(n, Neuron) and n.spiking}

    def walk(self, x: Tensor, activate: Activate, together: Together | None = None) -> Tensor:
        """Follow the connections; `activate` says what a population answers to its drive.

        So does `together` for leaky populations with one drive, pooled if they are; it saves ways to memory.
        """

        def begin(y: Tensor, paths: list[list[str]]) -> list[tuple[Tensor, list[str]]]:
            """What the populations at the head of each path answer to one drive, and the rest of the path."""
            names = [path[0] for path in paths]
            neurons = [n for name in names if isinstance(n := self.get_submodule(name), Neuron)]
            leaky = [neuron for neuron in neurons if isinstance(neuron, LI)]
            second = self.get_submodule(paths[0][1]) if len(paths[0]) > 1 else None
            pool = None
            if together and len(leaky) == len(neurons):
                if isinstance(second, AvgPool) and can_pool(y, second.kernel_size):
                    pool = second
                answers = together(names, leaky, y, pool)
            else:
                answers = [activate(name, neuron, y) for name, neuron in zip(names, neurons, strict=True)]
            return [(answer, path[2 if pool else 1 :]) for answer, path in zip(answers, paths, strict=True)]

        def follow(y: Tensor, path: list[str]) -> Tensor:
            while path:
                if isinstance(module := self.get_submodule(path[0]), Neuron):
                    [(y, path)] = begin(y, [path])
                else:
                    y, path = module(y), path[1:]
            return y

        stages = zip(*(path[:-1] for path in self.paths), strict=True)
        stem = [names[0] for names in itertools.takewhile(lambda names: len(set(names)) == 1, stages)]
        rest = [path[len(stem) : -1] for path in self.paths]
        y = follow(x, stem)
        forks = together and all(path and isinstance(self.get_submodule(path[0]), LI) for path in rest)
        starts = begin(y, rest) if forks else [(y, path) for path in rest]
        ends = [follow(*start) for start in starts]
        last = [path[-1] for path in self.paths]
        if last.count(last[0]) == len(last):  # the same convolution for all: of their sum
            drive = follow(reduce(operator.add, ends), last[:1])
        else:
            drive = reduce(operator.add, [follow(end, [name]) for end, name in zip(ends, last, strict=True)])
        return activate("out", self.out, drive)

    def _tie_time_constants(self, config: NetworkConfig) -> None:
        """Give all neurons of a channel, and those that go with the fastest, one parameter."""
        leaky = [[n for name in path if isinstance(n := self.get_submodule(name), LI)] for path in self.paths]
        for neurons in leaky:
            for block, neuron in zip(config.blocks, neurons, strict=False):
                if block.time != "pinned":
                    neuron.log_steps = (leaky[0] if block.time == "fastest" else neurons)[0].log_steps
        if config.output.time == "fastest" and leaky[0] and isinstance(self.out, LI):
            self.out.log_steps = leaky[0][0].log_steps

    def time_constants(self) -> dict[str, Tensor]:
        """Of every leaky population by name, in steps."""
        leaky = {name: n for name, n in self.named_children() if isinstance(n, LI)}
        return {name: (1 / n.rate.detach()).flatten() for name, n in leaky.items()}

    def forward(self, x: Tensor) -> Tensor:
        """Maps over time from rest. This is what a tracer follows."""
        return self.walk(x, lambda _, neuron, drive: neuron(drive)[0])


class Network(nn.Module):
    """The body, its readout, and the stack of frames that it sees. Made by `build`."""

    def __init__(self, config: NetworkConfig, rng: torch.Generator) -> None:
        super().__init__()
        self.config = config
        self.body = Body(config, rng)
        self.readout = readout_of(config)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    if TYPE_CHECKING:

        def __call__(self, frames: Tensor, state: State | None = None) -> Output: ...

    def forward(self, frames: Tensor, state: State | None = None) -> Output:
        """Maps, spikes and state for frames (T, B, C, H, W), starting from rest or from `state`."""
        before, after = state or {}, {}
        firing: dict[str, Tensor] = {}

        def keep(name: str, neuron: Neuron, share: Tensor | None, v: Tensor | None) -> None:
            if share is not None and neuron.spiking and name != "out":
                firing[name] = share
            if v is not None:
                after[name] = v

        def activate(name: str, neuron: Neuron, drive: Tensor) -> Tensor:
            output, v = neuron(drive, before.get(name))
            keep(name, neuron, share_of(output) if neuron.spiking else None, v)
            return output

        def together(names: list[str], leaky: list[LI], drive: Tensor, pool: AvgPool | None) -> list[Tensor]:
            populations = [n.population(before.get(name)) for name, n in zip(names, leaky, strict=True)]
            side, factor = (pool.kernel_size, pool.factor) if pool else (0, 1.0)
            scanned = scan_all(drive, populations, side, factor)
            for name, neuron, (_, _, share, v) in zip(names, leaky, scanned, strict=True):
                keep(name, neuron, share, v)
            answers = [each.pooled if pool else each.output for each in scanned]
            return [answer for answer in answers if answer is not None]

        if self.config.history > 1:
            frames, after["frames"] = stack_frames(frames, before.get("frames"), self.config.history)
        maps = self.body.walk(frames, activate, together)
        if self.config.output.dropout:
            maps = functional.dropout(maps, self.config.output.dropout, self.training)
        return Output(maps, firing, after)

    def step(self, frame: Tensor, state: State | None = None) -> Output:
        """One time step (B, C, H, W) of a stream; hand the state of the last one in.

        >>> from nrf.model.config import BlockConfig, NetworkConfig
        >>> network, state = build(NetworkConfig(blocks=(BlockConfig(4, kernel=3),))), None
        >>> for frame in torch.zeros(10, 1, 2, 64, 64):
        ...     output = network.step(frame, state)
        ...     state = output.state
        """
        output = self(frame[None], state)
        firing = {name: share[0] for name, share in output.firing.items()}
        return Output(output.membrane[0], firing, output.state)

    def coordinates(self, maps: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
        """The torch form of `nrf.model.readout.coordinates` for maps (T, B, shapes, rows, columns).

        Returns coordinates (T, B, shapes, 2) in pixels, the logarithm of the softmax maps that they are the
        means of, and the state of the host's leaky integrator.
        """
        h = maps
        if self.readout.leak != 1.0:
            h, state = LI(self.config.dt / self.readout.leak, self.config.dt).to(maps)(maps, state)
        rows, columns = maps.shape[-2:]
        heat = (self.readout.gain * h).flatten(-2).log_softmax(-1).reshape(maps.shape)
        weight = heat.exp()
        x = (weight.sum(-2) * torch.arange(columns, device=h.device)).sum(-1)
        y = (weight.sum(-1) * torch.arange(rows, device=h.device)).sum(-1)
        return self.readout.offset + self.readout.stride * torch.stack([x, y], -1), heat, state


def share_of(spikes: Tensor) -> Tensor:
    """Of the neurons of each step and clip, those that spike: (T, B).

    Not mean(): the gradient of a sum is one number that is read many times, not as many numbers.
    """
    return spikes.sum((2, 3, 4)) / spikes[0, 0].numel()


def build(config: NetworkConfig, seed: int = 0) -> Network:
    """A network with fresh weights, the same for the same seed.

    >>> from nrf.model.config import BlockConfig, NetworkConfig
    >>> network = build(NetworkConfig(blocks=(BlockConfig(4, kernel=5, pool=2),)))
    >>> network(torch.zeros(10, 1, 2, 64, 64)).membrane.shape
    torch.Size([10, 1, 3, 32, 32])
    """
    return Network(config, torch.Generator().manual_seed(seed))


def feeds(body: Body) -> list[tuple[nn.Module, Neuron]]:
    """Every population with what feeds it: a convolution, or its normalisation."""
    pairs = [pair for path in body.paths for pair in itertools.pairwise([*path, "out"])]
    modules = [(body.get_submodule(source), body.get_submodule(target)) for source, target in pairs]
    return [(source, neuron) for source, neuron in modules if isinstance(neuron, Neuron)]


@torch.no_grad()
def normalised(network: Network) -> Network:
    """A copy that spikes the same with every threshold as configured: the weights carry the gain instead.

    Training sets gains by thresholds. Where channels share weights, a gain per channel has to stay there.
    """
    network = copy.deepcopy(network)
    body = network.body
    if network.config.share:
        return network
    for source, neuron in feeds(body):
        if isinstance(source, Conv) and source.grid is not None:
            source.grid.round_(source.weight)
        if neuron.spiking:
            for parameter in source.parameters(recurse=False):
                parameter.mul_(network.config.threshold / neuron.threshold)
    for neuron in body.spiking.values():
        neuron.set_threshold(network.config.threshold)
    return network


def readout_of(config: NetworkConfig) -> Readout:
    """Where the cells of the last map lie on the sensor: follows pooling and strides."""
    stride, offset = 1.0, 0.0
    for block in config.all_blocks:
        offset += stride * (block.pool - 1) / 2
        stride *= block.pool * block.stride
    if config.output.transposed:
        offset -= stride * (config.output.kernel // 2)
    return Readout(gain=config.output.gain, stride=stride, offset=offset, leak=config.output.leak)


def stack_frames(frames: Tensor, past: Tensor | None, history: int) -> tuple[Tensor, Tensor]:
    """Frame stacking: each frame (T, B, C, H, W) with those before it as further maps, oldest first.

    Returns the stacked frames and the past that the next ones need.
    """
    if past is None:
        past = torch.zeros_like(frames[:1]).expand(history - 1, *frames.shape[1:])
    known = torch.cat([past, frames])
    steps = len(frames)
    return torch.cat([known[lag : lag + steps] for lag in range(history)], dim=2), known[steps:]
