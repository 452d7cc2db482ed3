"""Quantisation-aware training on a chip's integers, by the straight-through estimator: weights are rounded in
the forward pass, and the gradient passes as if they were not.

    q(w) = clip(round(gain w 2^k), -2^(b-1), 2^(b-1) - 1) / 2^k        volts, at a threshold of 1 V

On the chip the weight is the integer q 2^k and the threshold 2^k, so the deployed network is the trained one.
Its b bits, those of biases and the largest k are the chip's (`network.bits`; `nrf train --target` sets them).
Every membrane potential is a multiple of 2^-k, and far fewer than 2^24 of them: float32 holds it exactly.

The parameter w keeps its usual scale, so that one learning rate serves all layers; `gain` takes it to volts.
Gain and k are fixed when training through time begins (`fix_grids`); before that weights pass unchanged.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from nrf.model.config import BitsConfig
from nrf.model.neurons import IF, Neuron

COVERED = 0.998  # share of a layer's weights that must fit without clipping


class Grid(nn.Module):
    """Integers for the weights of one convolution."""

    gain: Tensor  # volts per unit of weight
    exponent: Tensor  # k; below 0 where not fixed yet

    def __init__(self, bits: BitsConfig) -> None:
        super().__init__()
        self.bits = bits
        self.register_buffer("gain", torch.tensor(1.0))
        self.register_buffer("exponent", torch.tensor(-1.0))

    def forward(self, weight: Tensor) -> Tensor:
        """Rounded weights in volts; their gradient is that of `gain w` (straight-through estimator)."""
        if self.exponent < 0:
            return weight
        scaled, unit = self.gain * weight, torch.exp2(self.exponent)
        largest = _largest(self.bits.weight)
        rounded = (scaled * unit).round().clamp(-largest - 1, largest) / unit
        return scaled + (rounded - scaled).detach()

    @torch.no_grad()
    def round_(self, weight: Tensor) -> None:
        """Round the parameter in place; the grid then leaves it as it is."""
        weight.copy_(self(weight))
        if self.exponent >= 0:
            self.gain.fill_(1.0)


@torch.no_grad()
def fix_grids(feeds: Iterable[tuple[nn.Module, Neuron]], volts: float) -> None:
    """Fix the grid of every convolution from its weights and the threshold of the neurons that it feeds.

    The threshold becomes `volts`, a power of two of the grid's steps; what it was moves into the gain.
    """
    for conv, neuron in feeds:
        grid = getattr(conv, "grid", None)
        if not isinstance(conv, nn.Conv2d) or not isinstance(grid, Grid) or not isinstance(neuron, IF):
            continue
        grid.gain.copy_(volts / neuron.threshold)
        sizes = (conv.weight * grid.gain).abs().flatten()
        reach = float(sizes.kthvalue(math.ceil(COVERED * sizes.numel())).values)
        neuron.set_threshold(volts)
        finest = math.log2(_largest(grid.bits.weight) / reach)
        if leak := float(neuron.leak.abs().max()):  # a bias on the chip
            finest = min(finest, math.log2(_largest(grid.bits.bias) / leak))
        grid.exponent.fill_(min(max(math.floor(finest), 0), grid.bits.finest))
        unit = torch.exp2(grid.exponent)
        neuron.leak.copy_((neuron.leak * unit).round() / unit)
        neuron.v_min.copy_((neuron.v_min * unit).round() / unit)


def _largest(bits: int) -> int:
    """The largest signed integer; the other end is one further."""
    return (1 << bits - 1) - 1
