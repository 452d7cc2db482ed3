"""What a training run is made of; the keys of the TOML are the fields below and in `nrf.model.config`."""

from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import replace

from nrf.config import ConfigError, Section, from_table, read_toml
from nrf.events.synthetic import SyntheticConfig
from nrf.model.config import NetworkConfig, Share

Steps = Annotated[int, Meta(ge=1, le=10**9)]  # of the optimiser
Count = Annotated[int, Meta(ge=1, le=10**6)]
Positive = Annotated[float, Meta(gt=0)]
Weight = Annotated[float, Meta(ge=0, le=1e6)]  # of a term of the loss
Rate = Annotated[float, Meta(gt=0, le=1)]  # spikes per neuron and step


class FiringConfig(Section, frozen=True):
    """How often populations may fire."""

    firing_range: tuple[Rate, Rate] = (0.01, 0.2)  # mean rates (or activations) that cost nothing

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.firing_range[0] > self.firing_range[1]:
            raise ConfigError(f"firing_range is {self.firing_range}, expected the smaller one first")


class DataConfig(Section, frozen=True):
    """Clips that are made on the spot; `nrf train --data` uses a dataset on disk instead."""

    clips: Annotated[int, Meta(ge=2, le=10**7)] = 320
    validation: Share = 0.2  # of the clips, held out
    test: Annotated[int, Meta(ge=0, le=10**7)] = 0  # further clips that training never sees
    shapes: SyntheticConfig = SyntheticConfig()


class PretrainConfig(FiringConfig, frozen=True):
    """The same weights first as a frame network; see `nrf.training.pretraining`."""

    steps: Annotated[int, Meta(ge=0, le=10**9)] = 0  # 0: straight to backpropagation through time
    batch: Count = 64  # frames
    rate: Positive = 4e-3  # learning rate
    average: Annotated[float, Meta(gt=0, lt=1)] = 0.15  # weight of the newest frame in the running average
    noise: Annotated[float, Meta(ge=0, le=1e6)] = 0.1  # deviation of the noise on the activations


class TrainingConfig(FiringConfig, frozen=True):
    """Backpropagation through time with Adam."""

    steps: Steps = 200  # batches of clips
    batch: Count = 4  # clips, over all processes
    window: Count = 25  # time steps between truncations of the gradient
    segment: Annotated[int, Meta(ge=0, le=10**6)] = (
        0  # time steps whose activations are kept; 0: all of a window
    )
    warm_up: Annotated[int, Meta(ge=0, le=10**6)] = 10  # first time steps of a clip, not counted in the loss
    rate: Positive = 5e-4  # learning rate at its peak
    ramp: Share = 0.05  # of the steps, in which the rate rises; it then falls
    schedule: Literal["cosine", "exponential"] = "cosine"  # to 0, or by `decay` per epoch
    decay: Annotated[float, Meta(gt=0, le=1)] = 0.95
    weight_decay: Weight = 0.0  # as Adam has it, a part of the gradient
    clip: Positive = 1.0  # largest norm of the gradient
    units: Literal["cells", "normalised"] = (
        "cells"  # of the distance: cells of the map, or the sensor is [-1, 1]
    )
    heat: Weight = 1.0  # of the heat-map cross-entropy
    js: Weight = 0.0  # of the Jensen-Shannon divergence between heat map and target
    sigma: Annotated[float, Meta(ge=1e-3, le=1e6)] = 3.0  # pixels, width of the target's heat map
    firing: Weight = 1.0  # of the spike-rate penalty
    backlog: Weight = 0.0  # of the penalty on potentials that are still above threshold after firing
    augment: bool = True  # flips and transposes
    delay: Annotated[int, Meta(ge=0, le=1000)] = 0  # time steps by which labels come late
    thresholds: Literal["matched", "fixed"] = "matched"  # set by firing rates before BPTT, or as configured
    validate_every: Steps = 50
    pretrain: PretrainConfig = PretrainConfig()

    @property
    def all_steps(self) -> int:
        """Of the optimiser, pre-training included."""
        return self.pretrain.steps + self.steps


class Config(Section, frozen=True):
    """Everything that decides the result of a training run."""

    name: str
    network: NetworkConfig
    data: DataConfig = DataConfig()
    training: TrainingConfig = TrainingConfig()
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        network, clips, warm_up = self.network, self.data.shapes, self.training.warm_up
        if warm_up < self.training.delay:
            raise ConfigError(f"training.delay is {self.training.delay}, expected at most warm_up, {warm_up}")
        if warm_up >= clips.steps:
            raise ConfigError(f"training.warm_up is {warm_up}, a clip has {clips.steps} steps")
        for key, value, expected in (
            ("dt", network.dt, clips.dt),
            ("input", network.input, (2, clips.resolution, clips.resolution)),
            ("shapes", network.shapes, len(clips.shapes)),
        ):
            if value != expected:
                raise ConfigError(f"network.{key} is {value}, the clips have {expected}")

    def with_training(self, **changes: Any) -> "Config":
        """A copy with some training parameters changed."""
        return replace(self, training=replace(self.training, **changes))


def read_config(path: str | Path) -> Config:
    """A configuration from a TOML file."""
    return from_table(Config, read_toml(path), str(path))
