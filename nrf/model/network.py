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

from nrf.model.config import BlockConfig, NetworkConfig, OutputConfig
from nrf.model.convolution import convolve
from nrf.model.initialisation import fastest_of, frame_weights, kernels_of, time_constants_of
from nrf.model.integers import Grid
from nrf.model.neurons import IF, LI, LIF, LIReLU, Neuron, ReLU
from nrf.model.readout import Readout
from nrf.model.scan import can_pool, scan_all

State = dict[str, Tensor]
Activate = Callable[[str, Neuron, Tensor], Tensor]
Together = Callable[[list[str], list[LI], Tensor, "AvgPool | None"], list[Tensor]]


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
    factor: float = 1.0  # on the weights, such as 1/K for a mean over K channels
    sparse: bool = True  # the maps are events or spikes
    grid: Grid | None

    @property
    def effective_weight(self) -> Tensor:
        """The weights that run: rounded where there is a grid."""
        weight = self.weight if self.factor == 1 else self.weight * self.factor
        return weight if self.grid is None else self.grid(weight)

    def forward(self, x: Tensor) -> Tensor:
        """All time steps at once."""
        if self.dropout:
            x = functional.dropout(x, self.dropout, self.training)
        weight = self.effective_weight
        stride, padding = self.stride[0], int(self.padding[0])
        return over_time(
            lambda frames: convolve(frames, weight, self.bias, stride, padding, sparse=self.sparse), x
        )


class TransposedConv(Conv):
    """A transposed convolution without padding: the map grows by kernel - 1. Has no counterpart in NIR."""

    def forward(self, x: Tensor) -> Tensor:
        """All time steps at once."""
        weight = self.effective_weight.transpose(0, 1)
        return over_time(lambda frames: functional.conv_transpose2d(frames, weight, self.bias), x)


class AvgPool(nn.AvgPool2d):
    """Average pooling over (T, B, C, H, W)."""

    _is_leaf_module = True
    kernel_size: int

    @property
    def factor(self) -> float:
        """Of the sum over a pool."""
        return 1 / (self.divisor_override or self.kernel_size**2)

    def forward(self, x: Tensor) -> Tensor:
        """All time steps at once, as a convolution: on a CPU several times as fast as torch's pooling."""
        side, maps = self.kernel_size, x.shape[-3]
        kernel = x.new_full((maps, 1, side, side), self.factor)
        return over_time(lambda frames: functional.conv2d(frames, kernel, stride=side, groups=maps), x)


class SumPool(AvgPool):
    """Sum pooling over (T, B, C, H, W): counts of events stay whole numbers."""

    def __init__(self, kernel: int) -> None:
        super().__init__(kernel, divisor_override=1)


class MaxPool(nn.MaxPool2d):
    """Maximum over windows of (T, B, C, H, W). Has no counterpart in NIR."""

    _is_leaf_module = True

    def forward(self, x: Tensor) -> Tensor:
        """All time steps at once."""
        return over_time(super().forward, x)


POOLING: dict[str, Callable[[int], nn.Module]] = {"avg": AvgPool, "sum": SumPool, "max": MaxPool}


class BatchNorm(nn.BatchNorm2d):
    """Normalisation over time and batch. For comparison only: it has no counterpart on a chip."""

    def forward(self, x: Tensor) -> Tensor:
        """All time steps at once."""
        return over_time(super().forward, x)


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
        self.out = _output_neuron(config, taus)
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
                conv = _convolution(config, b, inputs, bias, [taus[k]] if paths_differ else taus, rng)
                add(f"conv{b}" if config.share else f"conv{b}{suffix}", conv)
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

    def walk(self, x: Tensor, activate: Activate, together: Together | None = None) -> Tensor:
        """Follow the connections; `activate` says what a population answers to its drive.

        So does `together` for leaky populations with one drive, pooled if they are; it saves ways to memory.
        """

        def pool_after(names: list[str], drive: Tensor) -> AvgPool | None:
            pool = self.get_submodule(names[1]) if together and len(names) > 1 else None
            return pool if isinstance(pool, AvgPool) and can_pool(drive, pool.kernel_size) else None

        def follow(y: Tensor, names: list[str]) -> Tensor:
            while names:
                module, pool = self.get_submodule(names[0]), pool_after(names, y)
                if together and isinstance(module, LI) and pool:
                    (y,) = together(names[:1], [module], y, pool)
                elif isinstance(module, Neuron):
                    y = activate(names[0], module, y)
                else:
                    y = module(y)
                names = names[2 if isinstance(module, LI) and pool else 1 :]
            return y

        stages = zip(*(path[:-1] for path in self.paths), strict=True)
        stem = [names[0] for names in itertools.takewhile(lambda names: len(set(names)) == 1, stages)]
        common = follow(x, stem)
        rest = [path[len(stem) : -1] for path in self.paths]
        first = [self.get_submodule(names[0]) for names in rest if names]
        leaky = [module for module in first if isinstance(module, LI)]
        if together and len(rest) == len(leaky) > 1:
            pool = pool_after(rest[0], common)
            starts = together([names[0] for names in rest], leaky, common, pool)
            rest = [names[2 if pool else 1 :] for names in rest]
        else:
            starts = [common] * len(rest)
        ends = [follow(start, names) for start, names in zip(starts, rest, strict=True)]
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
        spikes: dict[str, Tensor] = {}

        def activate(name: str, neuron: Neuron, drive: Tensor) -> Tensor:
            output, v = neuron(drive, before.get(name))
            if neuron.spiking and name != "out":
                spikes[name] = output
            if v is not None:
                after[name] = v
            return output

        def together(
            names: list[str], neurons: list[LI], drive: Tensor, pool: AvgPool | None
        ) -> list[Tensor]:
            side, factor = (pool.kernel_size, pool.factor) if pool else (0, 1.0)
            populations = [n.population(before.get(name)) for name, n in zip(names, neurons, strict=True)]
            answers = []
            for name, neuron, (output, pooled, v) in zip(
                names, neurons, scan_all(drive, populations, side, factor), strict=True
            ):
                if neuron.spiking and output is not None:
                    spikes[name] = output
                after[name] = v
                answers.append(pooled if pool else output)
            return [answer for answer in answers if answer is not None]

        if self.config.history > 1:
            frames, after["frames"] = stack_frames(frames, before.get("frames"), self.config.history)
        x = over_time(lambda all_at_once: all_at_once.contiguous(memory_format=torch.channels_last), frames)
        maps = self.body.walk(x, activate, together)
        if self.config.output.dropout:
            maps = functional.dropout(maps, self.config.output.dropout, self.training)
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
    if config.output.transposed:
        offset -= stride * (config.output.kernel // 2)
    return Readout(gain=config.output.gain, stride=stride, offset=offset, leak=config.output.leak)


def _neuron(config: NetworkConfig, block: BlockConfig, taus: list[float], k: int) -> Neuron:
    """The temporal activation of a block: channel k's, or all channels' in turn where there is one path."""
    scales = [k] * block.features if config.parallel else [f % config.channels for f in range(block.features)]
    if block.time == "fastest":
        scales = [0] * block.features
    tau: float | list[float] = taus[scales[0]] if config.tie_tau else [taus[scale] for scale in scales]
    learns = config.learn_tau
    if block.time == "pinned":
        tau, learns = fastest_of(config), False
    match config.neuron:
        case "lif":
            return LIF(tau, config.threshold, config.dt, config.reset, config.alpha, learns)
        case "if":
            leaks = config.leak * config.channels if len(config.leak) == 1 else config.leak
            return _if(config, [leaks[scale] for scale in scales])
        case "li":
            return LIReLU(tau, config.dt, learns)
        case "relu":
            return ReLU()


def _output_neuron(config: NetworkConfig, taus: list[float]) -> Neuron:
    match config.output:
        case OutputConfig(neuron="if"):
            return _if(config, 0.0)
        case OutputConfig(time="fastest"):
            return LI(taus[0], config.dt, config.learn_tau)
        case OutputConfig(time="pinned"):
            return LI(fastest_of(config), config.dt)
    return LI(config.output.tau, config.dt)


def _convolution(
    config: NetworkConfig, b: int, inputs: int, bias: bool, taus: list[float], rng: torch.Generator
) -> Conv:
    """The convolution of block b, counted from 1; frames that are stacked serve these time constants."""
    block, last = config.all_blocks[b - 1], b == len(config.all_blocks)
    kind = TransposedConv if last and config.output.transposed else Conv
    conv = kind(inputs, block.features, block.kernel, block.stride, block.kernel // 2, bias=bias)
    weights = kernels_of(block, inputs, rng)
    if b == 1 and config.history > 1:
        weights = weights * frame_weights(config, taus)
    conv.weight = nn.Parameter(weights)
    conv.dropout = config.dropout if b > 1 else 0.0
    conv.sparse = b == 1 or config.neuron in ("lif", "if")
    conv.grid = Grid(config.bits) if config.integers else None
    if last and config.parallel:
        conv.factor = (1 if config.output.merge == "mean" else config.channels) / config.paths
    if conv.bias is not None:
        nn.init.zeros_(conv.bias)
    return conv


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
