"""What the witnesses of torch frameworks share: random layers, and weights with which every layer fires."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from witness import SPREAD, TRIALS

Built = tuple[nn.Sequential, tuple[int, ...]]
Neuron = Callable[..., nn.Module]  # of random numbers and the shape of the population
Counts = dict[str, np.ndarray]


def uniform(rng: np.random.Generator, low: float, high: float, shape: tuple[int, ...]) -> torch.Tensor:
    """Random numbers as a tensor of the default dtype."""
    return torch.tensor(rng.uniform(low, high, shape), dtype=torch.get_default_dtype())


def weighted(rng: np.random.Generator, layer: Any) -> Any:
    """The layer with random weights, more excitation than inhibition, and small biases."""
    fan = layer.weight[0].numel()
    layer.weight.data = uniform(rng, -1, 2, tuple(layer.weight.shape)) / float(np.sqrt(fan))
    if layer.bias is not None:
        layer.bias.data = uniform(rng, -0.1, 0.1, tuple(layer.bias.shape))
    return layer


def dense(rng: np.random.Generator, neuron: Neuron, linear: Any = nn.Linear) -> Built:
    """Two or three fully connected layers."""
    sizes = rng.integers(6, 16, rng.integers(3, 5)).tolist()
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [weighted(rng, linear(inputs, outputs, bias=bool(rng.integers(2))))]
        layers += [neuron(rng, (outputs,))]
    return nn.Sequential(*layers), (sizes[0],)


def conv(rng: np.random.Generator, neuron: Neuron, pool: nn.Module, spiking: Any) -> Built:
    """Convolution, pooling, convolution and a fully connected layer, on 2 maps of 10 x 10."""
    stride, padding = int(rng.integers(1, 3)), int(rng.integers(0, 2))
    first = weighted(rng, nn.Conv2d(2, 3, 3, stride=stride, padding=padding, bias=bool(rng.integers(2))))
    groups = int(rng.choice([1, 3]))
    layers: list[nn.Module] = [first, neuron(rng, _shape([first], spiking))]
    if stride == 1:
        layers += [pool]
    layers += [weighted(rng, nn.Conv2d(3, 3, 3, padding=1, groups=groups))]
    layers += [neuron(rng, _shape(layers, spiking)), nn.Flatten()]
    layers += [weighted(rng, nn.Linear(_shape(layers, spiking)[0], 5)), neuron(rng, (5,))]
    return nn.Sequential(*layers), (2, 10, 10)


def _shape(layers: list[nn.Module], spiking: Any) -> tuple[int, ...]:
    """Output shape, without batch axis, of layers on 2 maps of 10 x 10."""
    value = torch.zeros(1, 2, 10, 10)
    for layer in layers:
        value = value if isinstance(layer, spiking) else layer(value)
    return tuple(value.shape[1:])


def synapses(network: nn.Sequential) -> list[list[nn.Parameter]]:
    """Weight and bias of every layer that has them."""
    return [list(layer.parameters()) for layer in network if isinstance(layer, nn.Linear | nn.Conv2d)]


def tune(run: Callable[[], Counts], driving: Sequence[Sequence[nn.Parameter]], least: float) -> Counts:
    """Scale what drives each layer, first layer first, until all rates are from `least` to SPREAD times that.

    Where a layer fires too little, its weights (the first parameter) grow; where too much, all shrink.
    """
    for _ in range(TRIALS):
        spikes = run()
        for parameters, counts in zip(driving, spikes.values(), strict=True):
            if counts.mean() < least:
                parameters[0].data *= 1.25
                break
            if counts.mean() > SPREAD * least:
                for parameter in parameters:
                    parameter.data *= 0.85
                break
        else:
            return spikes
    raise ValueError("no weights found with which every layer fires")


def round_weights(driving: Sequence[Sequence[nn.Parameter]]) -> None:
    """Round weights and biases to multiples of 1/16: membranes meet the threshold exactly."""
    for parameter in (parameter for parameters in driving for parameter in parameters):
        parameter.data = torch.round(16 * parameter.data) / 16
