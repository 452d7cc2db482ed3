"""What is compared with what: models, initialisations, datasets, seeds, and the configuration of each run.

    model      LI, LIF, SF (ReLU on a single frame), MF (ReLU on eight frames)
    space      rf | uniform              how the kernels of blocks 1 and 2 start
    time       rf | uniform | pinned     pinned: uniform, but block 3 and readout keep the series' fastest
    dataset    spatial | temporal        four sizes, or four velocities
    norm       batch normalisation before every temporal activation

Every arm, a combination of these, is tuned alike: a grid over learning rate and readout gain, on validation
clips, with a seed that no run of the table has. Then it is frozen; the test clips are opened once per run.
"""

from itertools import product
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from nrf.config import Section
from nrf.events.dataset import GENERATORS
from nrf.training.config import Config
from nrf.training.presets import load_preset

ModelName = Literal["LI", "LIF", "SF", "MF"]
DatasetName = Literal["spatial", "temporal"]
Init = Literal["rf", "uniform"]
Time = Literal["rf", "uniform", "pinned"]
Part = Literal["main", "arms", "norm", "more"]

MODELS: tuple[ModelName, ...] = ("LI", "LIF", "MF", "SF")
DATASETS: tuple[DatasetName, ...] = ("temporal", "spatial")
TUNING_SEED = 1000
STATEFUL: tuple[ModelName, ...] = ("LI", "LIF")
STATELESS: tuple[ModelName, ...] = ("SF", "MF")
VELOCITIES = (0.16, 0.32, 0.64, 1.28)  # pixels per step
Conditions = dict[DatasetName, tuple[tuple[float, ...], tuple[float, ...]]]  # scales in pixels, velocities
SMALL: Conditions = {"spatial": ((6.0, 9.0, 13.0, 19.0), (0.64,)), "temporal": ((15.0,), VELOCITIES)}
MINI: Conditions = {"spatial": ((3.0, 4.0, 5.0, 6.0), (0.64,)), "temporal": ((5.0,), VELOCITIES)}
PUBLISHED: dict[str, Conditions] = {
    generator: {name: (sets[name].scales, sets[name].velocities) for name in DATASETS}
    for generator, sets in GENERATORS.items()
}


class Arm(Section, frozen=True):
    """One row of the table."""

    model: ModelName
    space: Init
    time: Time
    dataset: DatasetName
    norm: bool = False

    def __str__(self) -> str:
        space_time = self.space if self.space == self.time else f"{self.space}/{self.time}"
        return f"{self.model} {space_time} {self.dataset}" + (" +norm" if self.norm else "")


class Size(Section, frozen=True):
    """A scale at which the whole is done."""

    preset: str
    rates: tuple[float, ...]  # of the tuning grid
    gains: tuple[float, ...]
    conditions: Conditions
    tuning_steps: int  # of the optimiser
    seeds: int = 5


SIZES = {
    "small": Size("paper-small", (6e-3, 1.5e-2), (20.0, 80.0), SMALL, tuning_steps=96),
    "mini": Size("paper-mini", (1e-2,), (20.0, 80.0), MINI, tuning_steps=2, seeds=2),
    "paper": Size("paper", (5e-4, 2e-3), (1.0, 4.0), PUBLISHED["text"], tuning_steps=2000),
    "paper-code": Size("paper-code", (5e-3, 1e-3), (1.0, 4.0), PUBLISHED["code"], tuning_steps=2000),
}


class Run(Section, frozen=True):
    """One training run: an arm with a seed, and the two settings that are tuned."""

    arm: Arm
    seed: Annotated[int, Meta(ge=0)]
    rate: float
    gain: float
    tuning: bool = False


def arms(part: Part) -> list[Arm]:
    """The arms of a part of the table: the four models, the single factors, batch normalisation."""
    if part == "arms":
        others: tuple[tuple[Init, Time], ...] = (
            ("rf", "uniform"), ("uniform", "rf"), ("rf", "pinned"), ("uniform", "pinned"),
        )  # fmt: skip
        return [Arm(m, space, time, d) for d, m, (space, time) in product(DATASETS, STATEFUL, others)]
    inits: tuple[Init, ...] = ("rf", "uniform")
    return [Arm(m, init, init, d, part == "norm") for d, m, init in product(DATASETS, MODELS, inits)]


def tuning_runs(arm: Arm, size: Size) -> list[Run]:
    """The grid of an arm."""
    return [Run(arm, TUNING_SEED, rate, gain, True) for rate, gain in product(size.rates, size.gains)]


def configuration(run: Run, size: Size) -> Config:
    """Everything that decides the result of a run."""
    base, arm = load_preset(size.preset), run.arm
    network, stateless = base.network, arm.model in STATELESS
    blocks = [
        replace(block, space=arm.space if block.space == "rf" else block.space) for block in network.blocks
    ]
    pin = arm.time == "pinned" or stateless  # a stateless model has no memory in its readout either
    if pin:
        blocks = [replace(b, time="pinned" if b.time == "fastest" else b.time) for b in blocks]
    network = replace(
        network,
        neuron="relu" if stateless else "li" if arm.model == "LI" else "lif",
        history=8 if arm.model == "MF" else 1,
        time="rf" if arm.time == "rf" else "uniform",
        blocks=tuple(blocks),
        batch_norm=arm.norm,
        output=replace(network.output, gain=run.gain, time="pinned" if pin else network.output.time),
    )
    scales, velocities = size.conditions[arm.dataset]
    shapes = replace(base.data.shapes, scales=scales, velocities=velocities)
    training = replace(
        base.training, rate=run.rate, steps=size.tuning_steps if run.tuning else base.training.steps
    )
    data = replace(base.data, shapes=shapes)
    return Config(f"{base.name} {arm}", network, data, training, run.seed)
