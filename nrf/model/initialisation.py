"""How weights and time constants start: from the receptive fields, or uniformly."""

from math import exp, sqrt

import numpy as np
import torch
from torch import Tensor

from nrf.fields.space import fields, spatial_bank
from nrf.fields.time import time_constants
from nrf.model.config import BlockConfig, NetworkConfig


def time_constants_of(network: NetworkConfig, rng: torch.Generator) -> list[float]:
    """One time constant per temporal channel in seconds, fastest first.

    "rf" is the geometric series; "uniform" is drawn from the range that the series spans.
    """
    series = time_constants(network.tau_max, network.channels, network.c)
    if network.time == "uniform":
        draw = torch.rand(network.channels, generator=rng).numpy()
        series = np.sort(series[0] + (series[-1] - series[0]) * draw)
    return [float(tau) for tau in series]


def fastest_of(network: NetworkConfig) -> float:
    """The fastest time constant of the geometric series in seconds, whatever was drawn."""
    return float(time_constants(network.tau_max, network.channels, network.c)[0])


def kernels_of(block: BlockConfig, inputs: int, rng: torch.Generator) -> Tensor:
    """Convolution weights (features, inputs, kernel, kernel).

    Both ways have the deviation of torch's default, 1 / sqrt(3 fan-in): one learning rate serves both.
    "rf": feature f is the f-th of so many fields spread evenly over the paper's bank, with random weights
    from the input maps.
    """
    bound = 1 / sqrt(inputs * block.kernel**2)
    if block.space == "uniform":
        shape = (block.features, inputs, block.kernel, block.kernel)
        return (torch.rand(shape, generator=rng) * 2 - 1) * bound
    bank = fields()
    chosen = [bank[round(i)] for i in np.linspace(0, len(bank) - 1, block.features)]
    kernels = torch.as_tensor(spatial_bank(chosen, block.kernel), dtype=torch.get_default_dtype())
    mixing = torch.rand((block.features, inputs, 1, 1), generator=rng) * 2 - 1
    weights = mixing * kernels[:, None].flip(2, 3)  # torch correlates
    deviation = weights.square().mean(dim=(1, 2, 3), keepdim=True).sqrt()
    return weights / deviation * bound / sqrt(3)


def frame_weights(network: NetworkConfig, taus: list[float]) -> Tensor:
    """Weights of the stacked frames' maps (maps, 1, 1), oldest frame first, of mean square 1.

    "rf" forgets like leaky integrators of these time constants, on average; "uniform" weighs all alike.
    """
    ages = range(network.history - 1, -1, -1)
    weights = torch.tensor([sum(exp(-age * network.dt / tau) / tau for tau in taus) for age in ages])
    if network.time == "uniform":
        weights = torch.ones(network.history)
    weights = weights / weights.square().mean().sqrt()
    return weights.repeat_interleave(network.input[0])[:, None, None]
