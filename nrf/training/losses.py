"""What training minimises.

    loss = mean |c - y| / unit  +  heat * cross-entropy(Gaussian around y, softmax map)  +  firing * penalty
           + js * Jensen-Shannon divergence(Gaussian around y, softmax map)

c are the coordinates that the readout gives, y the true ones, both in pixels; the unit is the size of a
map's cell, or half of the sensor's side. The cross-entropy pulls the map into one peak where the mean alone
would be content with two. The penalty keeps the rate of every spiking population, per clip, inside a range:
silent neurons have no gradient, busy ones cost energy on a chip. A further penalty, if asked for, keeps
neurons from falling behind.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nrf.model.network import Network, Output
from nrf.model.readout import Readout
from nrf.training.config import TrainingConfig


@dataclass(frozen=True)
class Loss:
    """The loss of a window, and what to show."""

    total: Tensor
    error: float  # pixels
    firing: float  # spikes per neuron and step
    readout: Tensor | None  # state of the host's leaky integrator


def heat_map(coordinates: Tensor, readout: Readout, rows: int, columns: int, sigma: float) -> Tensor:
    """Gaussians (..., rows, columns) around coordinates (..., 2), each of sum 1; sigma in pixels."""
    x = readout.offset + readout.stride * torch.arange(columns, device=coordinates.device)
    y = readout.offset + readout.stride * torch.arange(rows, device=coordinates.device)
    near_x = (x - coordinates[..., :1]).square()[..., None, :]
    near_y = (y - coordinates[..., 1:]).square()[..., :, None]
    exponent = -(near_x + near_y) / (2 * sigma**2)
    return exponent.flatten(-2).softmax(-1).reshape(exponent.shape)


def firing_penalty(rates: Tensor, limits: tuple[float, float]) -> Tensor:
    """Mean over populations and clips of the squared excess over or lack below the limits, in their units."""
    low, high = limits
    return ((rates / high - 1).relu().square() + (1 - rates / low).relu().square()).mean()


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """Divergence in nats of maps (..., rows, columns) of sum 1, at most ln 2."""
    middle = (p + q) / 2
    terms = [torch.xlogy(a, a / middle.clamp(min=1e-30)).sum(dim=(-2, -1)) for a in (p, q)]
    return (terms[0] + terms[1]) / 2


def backlog_penalty(network: Network, state: dict[str, Tensor]) -> Tensor:
    """Mean excess of membrane potentials over the threshold at the end of a window, in thresholds.

    With reset by subtraction, a neuron that is driven by more than a threshold per step falls behind. It then
    fires long after its cause, more often on a chip that works event by event, and 16 bits overflow.
    """
    excess = [
        (state[name] / neuron.threshold - 1).relu().mean()
        for name, neuron in network.body.spiking.items()
        if name in state
    ]
    return torch.stack(excess).mean() if excess else torch.zeros(())


def loss_of(
    network: Network,
    output: Output,
    coordinates: Tensor,
    config: TrainingConfig,
    readout: Tensor | None = None,
) -> Loss:
    """The loss of a window with true coordinates (T, B, shapes, 2)."""
    predicted, log_map, readout = network.coordinates(output.membrane, readout)
    distance = (predicted - coordinates).norm(dim=-1).mean()
    rows, columns = log_map.shape[-2:]
    target = heat_map(coordinates, network.readout, rows, columns, config.sigma)
    unit = network.readout.stride if config.units == "cells" else network.config.input[-1] / 2
    total = distance / unit - config.heat * (target * log_map).sum(dim=(-2, -1)).mean()
    if config.js:
        total = total + config.js * jensen_shannon(target, log_map.exp()).mean()
    firing = 0.0
    if output.firing:
        rates = torch.stack([share.mean(0) for share in output.firing.values()])  # (populations, B)
        firing = float(rates.detach().mean())
        total = total + config.firing * firing_penalty(rates, config.firing_range)
    if config.backlog:
        total = total + config.backlog * backlog_penalty(network, output.state)
    return Loss(total, float(distance.detach()), firing, readout)
