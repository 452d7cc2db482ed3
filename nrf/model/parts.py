"""The modules that a configuration asks for: the neurons and the convolution of each block."""

import torch
from torch import nn

from nrf.model.config import BlockConfig, NetworkConfig, OutputConfig
from nrf.model.initialisation import fastest_of, frame_weights, kernels_of
from nrf.model.integers import Grid
from nrf.model.layers import Conv, TransposedConv
from nrf.model.neurons import IF, LI, LIF, LIReLU, Neuron, ReLU


def neuron_of(config: NetworkConfig, block: BlockConfig, taus: list[float], k: int) -> Neuron:
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


def output_neuron_of(config: NetworkConfig, taus: list[float]) -> Neuron:
    match config.output:
        case OutputConfig(neuron="if"):
            return _if(config, 0.0)
        case OutputConfig(time="fastest"):
            return LI(taus[0], config.dt, config.learn_tau)
        case OutputConfig(time="pinned"):
            return LI(fastest_of(config), config.dt)
    return LI(config.output.tau, config.dt)


def convolution_of(
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
