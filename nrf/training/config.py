"""What a training run is made of, as frozen dataclasses; read from and written to TOML.

Tables and keys of the TOML are the fields below. A key that no field knows is an error, so that a
spelling mistake cannot pass for a default.
"""

import json
import math
import tomllib
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from nrf.errors import InputError
from nrf.events.synthetic import ShapesConfig
from nrf.training.ranges import Range, check

T = TypeVar("T")


@dataclass(frozen=True)
class BlockConfig:
    """One convolutional block: pooling, spatial convolution, temporal activation."""

    features: int  # maps per temporal channel, or in all if the channels are not parallel
    kernel: int  # pixels, odd; padded so that the map keeps its size
    stride: int = 1
    pool: int = 1  # pooling before the convolution, kernel = stride
    pooling: Literal["avg", "sum"] = "avg"
    space: Literal["rf", "uniform"] = "uniform"  # how the kernels start
    time: Literal["scales", "fastest"] = "scales"  # time constants of the channels, or the fastest for all


@dataclass(frozen=True)
class OutputConfig:
    """The last block merges the channels into one map per shape; the host reads coordinates from the maps."""

    kernel: int = 5  # pixels, odd
    pool: int = 1
    neuron: Literal["li", "if"] = "li"  # maps are membranes, or spikes
    tau: float = 5e-3  # seconds, of "li"
    gain: float = 1.0  # of the readout, per volt or spike
    leak: float = 1.0  # dt / tau of the host's own leaky integrator; 1 means none


@dataclass(frozen=True)
class NetworkConfig:
    """The paper's network: blocks in K temporal scale channels, one merging block, leaky integrators."""

    blocks: tuple[BlockConfig, ...]
    input: tuple[int, int, int] = (2, 64, 64)  # polarities, rows, columns
    shapes: int = 3  # output maps
    neuron: Literal["lif", "if", "li", "relu"] = "lif"
    history: int = 1  # frames seen at once; 8 with "relu" is the paper's multiple-frame model
    channels: int = 4  # K temporal scales
    parallel: bool = True  # K separate paths, else one path whose features take turns in the K time constants
    share: bool = False  # the K paths have the same weights
    bias: bool = False
    dt: float = 1e-3  # seconds per step
    tau_max: float = 8e-3  # seconds, time constant of the slowest channel
    c: float = math.sqrt(2)  # ratio of neighbouring time constants
    time: Literal["rf", "uniform"] = "rf"  # time constants: geometric series, or uniform in the same range
    learn_tau: bool = False
    threshold: float = 1.0  # volts
    reset: Literal["zero", "subtract"] = "zero"
    alpha: float = 10.0  # steepness of the surrogate gradient
    leak: tuple[float, ...] = (0.0,)  # "if" only: volts per step and temporal scale, at this threshold
    v_min: float | None = None  # "if" only: volts, at this threshold
    fire: Literal["gt", "ge"] = "gt"  # "if" only: above the threshold, or at it as well
    integers: bool = False  # "if" only: train on a chip's 8-bit weights; see `nrf.model.integers`
    dropout: float = 0.0
    batch_norm: bool = False  # for comparison; such a network is never exported
    output: OutputConfig = field(default_factory=OutputConfig)

    def __post_init__(self) -> None:
        if not self.blocks:
            raise InputError("network: blocks is empty, expected at least one")
        if self.neuron != "if" and (self.integers or self.fire == "ge"):
            raise InputError(f"network: integers and fire = 'ge' need neuron 'if', found '{self.neuron}'")
        if self.neuron == "if" and len(self.leak) not in (1, self.channels):
            raise InputError(f"network: leak has {len(self.leak)} values, expected 1 or {self.channels}")


@dataclass(frozen=True)
class DataConfig:
    """Clips that are made on the spot; `nrf train --data` uses a dataset on disk instead."""

    clips: int = 320
    validation: float = 0.2  # share of the clips that is held out
    shapes: ShapesConfig = field(default_factory=ShapesConfig)


@dataclass(frozen=True)
class PretrainConfig:
    """The same weights first as a frame network; see `nrf.training.pretraining`."""

    steps: int = 0  # 0: straight to backpropagation through time
    batch: int = 64  # frames
    rate: float = 4e-3  # learning rate
    average: float = 0.15  # weight of the newest frame in the running average
    noise: float = 0.1  # deviation of the noise on the activations
    firing_range: tuple[float, float] = (0.01, 0.2)  # mean activations that cost nothing


@dataclass(frozen=True)
class TrainingConfig:
    """Backpropagation through time with Adam."""

    steps: int = 200  # batches of clips
    batch: int = 4  # clips, over all processes
    window: int = 25  # time steps between cuts of the gradient
    warm_up: int = 10  # time steps at the start of a clip that do not count in the loss
    rate: float = 5e-4  # learning rate at its peak
    ramp: float = 0.05  # share of the steps in which it rises; it then falls as a cosine to 0
    clip: float = 1.0  # largest norm of the gradient
    heat: float = 1.0  # weight of the heat-map cross-entropy
    sigma: float = 3.0  # pixels, width of the target's heat map
    firing: float = 1.0  # weight of the spike-rate penalty
    firing_range: tuple[float, float] = (0.01, 0.2)  # spikes per neuron and step that cost nothing
    backlog: float = 0.0  # weight of the penalty on membranes that are still above threshold after firing
    augment: bool = True  # flips and transposes
    validate_every: int = 50  # steps
    pretrain: PretrainConfig = field(default_factory=PretrainConfig)


@dataclass(frozen=True)
class Config:
    """Everything that decides the result of a training run."""

    name: str
    network: NetworkConfig
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    seed: int = 0

    def __post_init__(self) -> None:
        _check_ranges(self)
        for name, (least, most) in (
            ("training.firing_range", self.training.firing_range),
            ("training.pretrain.firing_range", self.training.pretrain.firing_range),
        ):
            if least > most:
                raise InputError(f"{name} is {(least, most)}, expected the smaller one first")
        _check_maps(self.network)
        warm_up, steps = self.training.warm_up, self.data.shapes.steps
        if not 0 <= warm_up < steps:
            raise InputError(f"training.warm_up is {warm_up}, a clip has {steps} steps")
        side = self.data.shapes.resolution
        if self.network.dt != self.data.shapes.dt:
            raise InputError(f"network.dt is {self.network.dt}, the clips have {self.data.shapes.dt}")
        if self.network.input != (2, side, side):
            raise InputError(f"network.input is {self.network.input}, the clips are {(2, side, side)}")
        count = len(self.data.shapes.shapes)
        if self.network.shapes != count:
            raise InputError(f"network.shapes is {self.network.shapes}, the clips have {count}")

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries and lists."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    def with_training(self, **changes: Any) -> "Config":
        """A copy with some training parameters changed."""
        return replace(self, training=replace(self.training, **changes))


# The upper ends keep a slip of the finger from filling the memory, or from leaving single precision.
POSITIVE = Range(0, above=True)
VOLTS = Range(1e-6, 1e6)
SHARE = Range(0, 1, below=True)
RATES = Range(0, 1, above=True)  # spikes per neuron and step
RANGES: dict[type, dict[str, Range]] = {
    BlockConfig: {
        "features": Range(1, 4096),
        "kernel": Range(1, 255, odd=True),
        "stride": Range(1, 1024),
        "pool": Range(1, 1024),
    },
    OutputConfig: {
        "kernel": Range(1, 255, odd=True),
        "pool": Range(1, 1024),
        "tau": Range(1e-9, 1e6),
        "gain": Range(0, 1e6, above=True),
        "leak": Range(0, 1, above=True),
    },
    NetworkConfig: {
        "input": Range(1, 65536),
        "shapes": Range(1, 1024),
        "history": Range(1, 1024),
        "channels": Range(1, 64),
        "dt": POSITIVE,
        "tau_max": Range(1e-9, 1e6),
        "c": Range(1, 1e3, above=True),
        "threshold": VOLTS,
        "alpha": Range(0, 1e6, above=True),
        "leak": Range(-1e6, 1e6),
        "v_min": Range(-1e6, 0),
        "dropout": SHARE,
    },
    DataConfig: {"clips": Range(2, 10**7), "validation": SHARE},
    PretrainConfig: {
        "steps": Range(0, 10**9),
        "batch": Range(1, 10**6),
        "rate": POSITIVE,
        "average": Range(0, 1, above=True, below=True),
        "noise": Range(0, 1e6),
        "firing_range": RATES,
    },
    TrainingConfig: {
        "steps": Range(1, 10**9),
        "batch": Range(1, 10**6),
        "window": Range(1, 10**6),
        "warm_up": Range(0, 10**6),
        "rate": POSITIVE,
        "ramp": SHARE,
        "clip": POSITIVE,
        "heat": Range(0, 1e6),
        "sigma": Range(1e-3, 1e6),
        "firing": Range(0, 1e6),
        "firing_range": RATES,
        "backlog": Range(0, 1e6),
        "validate_every": Range(1, 10**9),
    },
    Config: {"seed": Range(0, 2**63 - 1)},
}


def _check_ranges(part: Any, place: str = "") -> None:
    """Every number of a configuration against its range; messages have keys like `network.blocks[0].pool`."""
    check(part, RANGES.get(type(part), {}), place)
    for name in (f.name for f in fields(part)):
        value = getattr(part, name)
        if isinstance(value, tuple):
            for index, item in enumerate(value):
                if is_dataclass(item):
                    _check_ranges(item, f"{place}{name}[{index}].")
        elif is_dataclass(value):
            _check_ranges(value, f"{place}{name}.")


def _check_maps(network: NetworkConfig) -> None:
    """Pooling must leave something of the map, and a receptive field needs neighbours."""
    sides = network.input[1:]
    for index, block in enumerate(network.blocks):
        place = f"network.blocks[{index}]"
        sides = _pooled(sides, block.pool, place)
        sides = ((sides[0] - 1) // block.stride + 1, (sides[1] - 1) // block.stride + 1)
        if block.space == "rf" and block.kernel < 3:
            raise InputError(f"{place}.kernel is {block.kernel}, expected at least 3 with space = 'rf'")
    _pooled(sides, network.output.pool, "network.output")


def _pooled(sides: tuple[int, int], pool: int, place: str) -> tuple[int, int]:
    if pool > min(sides):
        raise InputError(f"{place}.pool is {pool}, the map before it has only {sides[0]}x{sides[1]} cells")
    return sides[0] // pool, sides[1] // pool


def read_config(path: str | Path) -> Config:
    """A configuration from a TOML file."""
    try:
        with Path(path).open("rb") as file:
            table = tomllib.load(file)
    except (OSError, ValueError) as error:  # not TOML, or not UTF-8
        raise InputError(f"{path}: not a readable TOML file ({error})") from error
    return from_dict(table, str(path))


def from_dict(table: dict[str, Any], name: str = "config") -> Config:
    """A configuration from plain dictionaries; `name` is for messages."""
    return parse(Config, table, name)


def to_toml(config: Config) -> str:
    """The text of a TOML file that `read_config` reads back to an equal configuration."""
    return "\n".join(_table(config.to_dict(), ""))


def _table(values: dict[str, Any], name: str) -> list[str]:
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items() if not _nested(value)]
    lines = [line for line in lines if not line.endswith(" = null")]
    for key, value in values.items():
        inner = f"{name}.{key}" if name else key
        if isinstance(value, dict):
            lines += ["", f"[{inner}]", *_table(value, inner)]
        elif _nested(value):
            for item in value:
                lines += ["", f"[[{inner}]]", *_table(item, inner)]
    return lines


def _nested(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(v, dict) for v in value))


def parse(cls: type[T], table: Any, place: str) -> T:
    """A dataclass from a plain dictionary, every value of its declared type; `place` is for messages."""
    if not isinstance(table, dict):
        raise InputError(f"{place}: expected a table, found {table!r}")
    hints = get_type_hints(cls)
    known = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise InputError(f"{place}: key '{key}' is not known; known are {', '.join(known)}")
    for key, f in known.items():
        if key not in table and f.default is MISSING and f.default_factory is MISSING:
            raise InputError(f"{place}: key '{key}' is missing")
    try:
        return cls(**{key: _value(hints[key], value, f"{place}: {key}") for key, value in table.items()})
    except InputError as error:
        own = place.rpartition(": ")[2] + ": "  # a part that names itself is not named twice
        text = str(error)
        raise InputError(text if text.startswith(place) else f"{place}: {text.removeprefix(own)}") from error


def _value(hint: Any, value: Any, place: str) -> Any:
    if is_dataclass(hint):
        return parse(hint, value, place)  # type: ignore[arg-type]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"{place}: expected a list, found {value!r}")
        if arguments[-1] is not Ellipsis and len(value) != len(arguments):
            raise InputError(f"{place}: expected {len(arguments)} values, found {len(value)}")
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(_value(kind, item, place) for kind, item in zip(kinds, value, strict=True))
    if origin is Literal:
        if value not in arguments:
            raise InputError(f"{place}: is {value!r}, expected one of {', '.join(map(str, arguments))}")
        return value
    allowed = arguments or (hint,)
    if float in allowed and isinstance(value, int) and not isinstance(value, bool):
        return float(value) if abs(value) < 2**1023 else math.inf  # no range holds the latter
    if type(value) not in allowed:
        raise InputError(f"{place}: is {value!r}, expected {' or '.join(kind.__name__ for kind in allowed)}")
    return value
