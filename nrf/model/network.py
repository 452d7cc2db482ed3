"""The paper's network: convolutional blocks in parallel temporal channels, merged into one map per shape.

    frames -> (pool -> conv -> neuron) per block, in K channels -> sum over channels of conv -> LI -> readout

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

from nrf.model.config import BlockConfig, NetworkConfig
from nrf.model.convolution import convolve
from nrf.model.initialisation import frame_weights, kernels_of, time_constants_of
from nrf.model.integers import Grid
from nrf.model.neurons import IF, LI, LIF, LIReLU, Neuron, ReLU
from nrf.model.readout import Readout

State = dict[str, Tensor]
Activate = Callable[[str, Neuron, Tensor], Tensor]


@dataclass(frozen=True)
class Output:
    """What the network gives for a clip or a window of one."""

    membrane: Tensor  # (T, B, shapes, rows, columns): the maps that the readout reads
    spikes: dict[str, Tensor]  # per spiking population before the output, (T, B, features, rows, columns)
    state: State  # membrane potentials after the last step, to go on from


def over_time(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Apply a layer for (N, C, H, W) to all time steps and clips of (T, B, C, H, W) at once."""
    y = layer(x.flatten(0, 1))
    return y.reshape(*x.shape[:2], *y.shape[1:])


class Conv(nn.Conv2d):
    """A convolution over (T, B, C, H, W); with a `grid`, of the weights rounded to a chip's numbers."""

    _is_leaf_module = True  # nirtorch's tracer stops here
    dropout: float = 0.0
    grid: Grid | None

    @property
    def effective_weight(self) -> Tensor:
        """The weights that run: rounded where there is a grid."""
        return self.weight if self.grid is None else self.grid(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """All time steps at once."""
        if self.dropout:
            x = functional.dropout(x, self.dropout, self.training)
        weight = self.effective_weight
        stride, padding = self.stride[0], int(self.padding[0])
        return over_time(lambda frames: convolve(frames, weight, self.bias, stride, padding), x)


class AvgPool(nn.AvgPool2d):
    """Average pooling over (T, B, C, H, W)."""

    _is_leaf_module = True
    kernel_size: int

    def forward(self, x: Tensor) -> Tensor:
        """All time steps at once."""
        return over_time(super().forward, x)


class SumPool(AvgPool):
    """Sum pooling over (T, B, C, H, W): counts of events stay whole numbers."""

    def __init__(self, kernel: int) -> None:
        super().__init__(kernel, divisor_override=1)


class BatchNorm(nn.BatchNorm2d):
    """Normalisation over time and batch. For comparison only: it has no counterpart on a chip."""

    def forward(self, x: Tensor) -> Tensor:
        """All time steps at once."""
        return over_time(super().forward, x)


class Body(nn.Module):
    """From input to the last membrane potential: what goes to a chip.

    Nodes are named pool1, conv1, lif1, ..., out; in parallel channels conv1_0, lif1_0, conv1_1, lif1_1, ...
    """

    def __init__(self, config: NetworkConfig, rng: torch.Generator) -> None:
        super().__init__()
        taus = time_constants_of(config, rng)
        paths = config.channels if config.parallel else 1
        self.paths = [self._path(config, taus, k, f"_{k}" if paths > 1 else "", rng) for k in range(paths)]
        self.out = _if(config, 0.0) if config.output.neuron == "if" else LI(config.output.tau, config.dt)
        if config.share:
            for first, *others in zip(*self.paths, strict=True):
                for other in others:
                    if isinstance(conv := self.get_submodule(first), Conv):
                        self.get_submodule(other).weight = conv.weight

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
        for b, block in enumerate(blocks, 1):
            last = b == len(blocks)
            if block.pool > 1:
                add(f"pool{b}", SumPool(block.pool) if block.pooling == "sum" else AvgPool(block.pool))
            bias = config.bias and (not last or k == 0)  # channels add up: one bias is enough
            conv = Conv(inputs, block.features, block.kernel, block.stride, block.kernel // 2, bias=bias)
            weights = kernels_of(block, inputs, rng)
            if b == 1 and config.history > 1:
                weights = weights * frame_weights(config, taus[k], rng)
            conv.weight = nn.Parameter(weights)
            conv.dropout = config.dropout if b > 1 else 0.0
            conv.grid = Grid() if config.integers else None
            if conv.bias is not None:
                nn.init.zeros_(conv.bias)
            add(f"conv{b}{suffix}", conv)
            if not last:
                if config.batch_norm:
                    add(f"norm{b}{suffix}", BatchNorm(block.features))
                add(f"{config.neuron}{b}{suffix}", _neuron(config, block, taus, k))
            inputs = block.features
        return names

    @property
    def spiking(self) -> dict[str, Neuron]:
        """The populations that spike, by name."""
        return {name: n for name, n in self.named_children() if isinstance(n, Neuron) and n.spiking}

    def walk(self, x: Tensor, activate: Activate) -> Tensor:
        """Follow the connections; `activate` says what a population answers to its drive."""
        ends = []
        for path in self.paths:
            y = x
            for name in path:
                module = self.get_submodule(name)
                y = activate(name, module, y) if isinstance(module, Neuron) else module(y)
            ends.append(y)
        return activate("out", self.out, reduce(operator.add, ends))

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
        spikes: dict[str, Tensor] = {}

        def activate(name: str, neuron: Neuron, drive: Tensor) -> Tensor:
            output, v = neuron(drive, before.get(name))
            if neuron.spiking and name != "out":
                spikes[name] = output
            if v is not None:
                after[name] = v
            return output

        if self.config.history > 1:
            frames, after["frames"] = stack_frames(frames, before.get("frames"), self.config.history)
        x = over_time(lambda all_at_once: all_at_once.contiguous(memory_format=torch.channels_last), frames)
        maps = self.body.walk(x, activate)
        return Output(maps, spikes, after)

    def step(self, frame: Tensor, state: State | None = None) -> Output:
        """One time step (B, C, H, W) of a stream; hand the state of the last one in.

        >>> from nrf.model.config import BlockConfig, NetworkConfig
        >>> network, state = build(NetworkConfig(blocks=(BlockConfig(4, kernel=3),))), None
        >>> for frame in torch.zeros(10, 1, 2, 64, 64):
        ...     output = network.step(frame, state)
        ...     state = output.state
        """
        output = self(frame[None], state)
        spikes = {name: z[0] for name, z in output.spikes.items()}
        return Output(output.membrane[0], spikes, output.state)

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
    return Readout(gain=config.output.gain, stride=stride, offset=offset, leak=config.output.leak)


def _neuron(config: NetworkConfig, block: BlockConfig, taus: list[float], k: int) -> Neuron:
    """The temporal activation of a block: channel k's, or all channels' in turn where there is one path."""
    scales = [k] * block.features if config.parallel else [f % config.channels for f in range(block.features)]
    if block.time == "fastest":
        scales = [0] * block.features
    tau = [taus[scale] for scale in scales]
    match config.neuron:
        case "lif":
            return LIF(tau, config.threshold, config.dt, config.reset, config.alpha, config.learn_tau)
        case "if":
            leaks = config.leak * config.channels if len(config.leak) == 1 else config.leak
            return _if(config, [leaks[scale] for scale in scales])
        case "li":
            return LIReLU(tau, config.dt, config.learn_tau)
        case "relu":
            return ReLU()


def _if(config: NetworkConfig, leak: float | list[float]) -> IF:
    return IF(config.threshold, config.v_min, leak, config.dt, config.reset, config.alpha, config.fire)


def stack_frames(frames: Tensor, past: Tensor | None, history: int) -> tuple[Tensor, Tensor]:
    """Frame stacking: each frame (T, B, C, H, W) with those before it as further maps, oldest first.

    Returns the stacked frames and the past that the next ones need.
    """
    if past is None:
        past = torch.zeros_like(frames[:1]).expand(history - 1, *frames.shape[1:])
    known = torch.cat([past, frames])
    steps = len(frames)
    return torch.cat([known[lag : lag + steps] for lag in range(history)], dim=2), known[steps:]
