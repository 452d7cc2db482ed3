"""Train the weights as a frame network first, which is many times cheaper than through time.

Over time a population answers with its firing rate, roughly a clipped ramp of its drive. So on the running
average of the events, a frame

    xbar[t] = xbar[t-1] + average (x[t] - xbar[t-1])

every population becomes  clamp(drive / threshold, 0, 1) + noise,  the noise standing for the variation of
spike counts. Afterwards each population gets the threshold at which it fires, through time, as often as its
ramp answered. Weights keep their scale throughout, so one learning rate serves all; thresholds set the gain.

Populations that do not spike answer with their rectified drive: no threshold, no noise, nothing to match. A
network that sees stacked frames sees the averaged frame in every place of the stack.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from nrf.model.network import Network, Output, share_of, stack_frames
from nrf.model.neurons import LI, Neuron
from nrf.training.batches import Batch, LabelledClips, flip_and_transpose
from nrf.training.config import TrainingConfig


def running_average(frames: Tensor, average: float) -> Tensor:
    """Running average over time of frames (T, B, C, H, W)."""
    return LI(1 / average, dt=1.0).to(frames)(frames)[0]


def running_average_at(
    clips: LabelledClips,
    numbers: Sequence[int],
    symmetries: Sequence[int],
    times: Sequence[int],
    average: float,
) -> Batch:
    """The running average of every clip at one time, side by side as one step; a 1 % tail is left out."""
    reach = math.ceil(math.log(0.01) / math.log(1 - average))
    frames, coordinates = [], []
    for number, symmetry, t in zip(numbers, symmetries, times, strict=True):
        events, centres = flip_and_transpose(*clips[number], symmetry)
        recent = events[max(0, t + 1 - reach) : t + 1]
        weights = average * (1 - average) ** np.arange(len(recent) - 1, -1, -1)
        frames.append(np.tensordot(weights.astype(np.float32), recent.astype(np.float32), axes=1))
        coordinates.append(centres[t])
    return Batch(torch.from_numpy(np.stack(frames))[None], torch.from_numpy(np.stack(coordinates))[None])


def run_frames(network: Network, frames: Tensor, noise: float = 0.0) -> Output:
    """The output of the frame network for averaged frames (T, B, C, H, W), each of them on its own."""
    firing: dict[str, Tensor] = {}

    def activate(name: str, neuron: Neuron, drive: Tensor) -> Tensor:
        if name == "out":
            return drive
        ramp = neuron.ramp(drive)
        if not neuron.spiking:
            return ramp
        firing[name] = share_of(ramp)
        return ramp + noise * _noise_like(drive) if noise else ramp

    stacked = torch.cat([frames] * network.config.history, dim=2)  # each with copies of itself
    return Output(network.body.walk(stacked, activate), firing, {})


def _noise_like(x: Tensor) -> Tensor:
    """Normal noise in channels-last memory, as convolutions leave it: 9 times as fast as randn_like."""
    return torch.randn(x.movedim(-3, -1).shape, device=x.device).movedim(-1, -3)


@torch.no_grad()
def scale_ramps(network: Network, frames: Tensor, deviations: float = 1.5) -> None:
    """Set thresholds for the frame network: so many root mean squares of each population's drive."""

    def activate(name: str, neuron: Neuron, drive: Tensor) -> Tensor:
        if name == "out":
            return drive
        size = float(drive.square().mean().sqrt())
        if neuron.spiking and size > 0:  # what nothing drives keeps its threshold
            neuron.set_threshold(deviations * size)
        return neuron.ramp(drive)

    network.body.walk(torch.cat([frames] * network.config.history, dim=2), activate)


@torch.no_grad()
def match_rates(network: Network, frames: Tensor, config: TrainingConfig, halvings: int = 12) -> None:
    """Give every spiking population the threshold at which it fires, on these clips, at the mean of its ramp.

    The rate stays in the range that costs nothing; without pre-training it is the geometric mean of the two.
    """
    wanted: dict[str, float] = {}
    if config.pretrain.steps:
        firing = run_frames(network, running_average(frames, config.pretrain.average)).firing
        wanted = {name: float(share.mean()) for name, share in firing.items()}

    def activate(name: str, neuron: Neuron, drive: Tensor) -> Tensor:
        low, high = 0.0, float(drive.abs().max())
        if neuron.spiking and high > 0:
            least, most = config.firing_range
            rate = min(max(wanted.get(name, math.sqrt(least * most)), least), most)
            for _ in range(halvings):
                middle = (low + high) / 2
                neuron.set_threshold(middle)
                low, high = (middle, high) if float(neuron(drive)[0].mean()) > rate else (low, middle)
        return neuron(drive)[0]

    network.body.walk(stack_frames(frames, None, network.config.history)[0], activate)
