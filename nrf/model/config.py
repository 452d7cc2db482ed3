"""What a network is made of: the tables network, network.blocks and network.output of a configuration.

The upper ends of the ranges keep a slip of the finger from filling the memory, or from leaving float32.
"""

import math
from typing import Annotated, Literal

from msgspec import Meta

from nrf.config import ConfigError, Section

Side = Annotated[int, Meta(ge=1, le=65536)]  # rows or columns
KernelSide = Annotated[int, Meta(ge=1, le=255)]  # pixels, odd
Step = Annotated[int, Meta(ge=1, le=1024)]  # pixels from one window to the next
Seconds = Annotated[float, Meta(gt=0)]
TimeConstant = Annotated[float, Meta(ge=1e-9, le=1e6)]  # seconds
Factor = Annotated[float, Meta(gt=0, le=1e6)]
Share = Annotated[float, Meta(ge=0, lt=1)]


def _check_odd(kernel: int) -> None:
    if kernel % 2 == 0:
        raise ConfigError(f"kernel is {kernel}, expected an odd number")


class BlockConfig(Section, frozen=True):
    """One convolutional block: pooling, spatial convolution, temporal activation."""

    features: Annotated[int, Meta(ge=1, le=4096)]  # maps per temporal channel, or in all if not parallel
    kernel: KernelSide  # padded so that the map keeps its size
    stride: Step = 1
    pool: Step = 1  # pooling before the convolution, kernel = stride
    pooling: Literal["avg", "sum", "max"] = "avg"  # "max" has no counterpart in NIR
    space: Literal["rf", "uniform"] = "uniform"  # how the kernels start
    # Time constants: of the channels; the fastest channel's for all; the fastest of the series whatever was
    # drawn, and never learned.
    time: Literal["scales", "fastest", "pinned"] = "scales"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_odd(self.kernel)
        if self.space == "rf" and self.kernel < 3:  # a receptive field needs neighbours
            raise ConfigError(f"kernel is {self.kernel}, expected at least 3 with space = 'rf'")


class OutputConfig(Section, frozen=True):
    """The last block merges the channels into one map per shape; the host reads coordinates from the maps."""

    kernel: KernelSide = 5
    pool: Step = 1
    pooling: Literal["avg", "sum", "max"] = "avg"
    merge: Literal["sum", "mean"] = "sum"  # of the channels
    transposed: bool = False  # a transposed convolution without padding, which NIR cannot say
    neuron: Literal["li", "if"] = "li"  # maps are membrane potentials, or spikes
    tau: TimeConstant = 5e-3  # of "li" with time = "own"
    time: Literal["own", "fastest", "pinned"] = "own"  # tau, or as in a block
    dropout: Share = 0.0  # of the map's cells
    gain: Factor = 1.0  # of the readout, per volt or spike
    leak: Annotated[float, Meta(gt=0, le=1)] = 1.0  # dt / tau of the host's own leaky integrator; 1: none

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_odd(self.kernel)


class BitsConfig(Section, frozen=True):
    """Widths of a chip's integers, sign included."""

    weight: Annotated[int, Meta(ge=2, le=8)] = 8
    bias: Annotated[int, Meta(ge=2, le=32)] = 8
    # largest k of a threshold 2^k: 16-bit states then hold 32 of them, enough for the busiest neurons
    finest: Annotated[int, Meta(ge=0, le=24)] = 10


class NetworkConfig(Section, frozen=True):
    """The paper's network: blocks in K temporal scale channels, one merging block, leaky integrators."""

    blocks: Annotated[tuple[BlockConfig, ...], Meta(min_length=1)]
    input: tuple[Side, Side, Side] = (2, 64, 64)  # polarities, rows, columns
    shapes: Annotated[int, Meta(ge=1, le=1024)] = 3  # output maps, one per drawn shape
    neuron: Literal["lif", "if", "li", "relu"] = "lif"
    history: Annotated[int, Meta(ge=1, le=1024)] = 1  # stacked frames; 8 with "relu": the paper's frame model
    channels: Annotated[int, Meta(ge=1, le=64)] = 4  # K temporal scales
    parallel: bool = True  # K separate paths, else one path whose features take turns in the K time constants
    share: bool = False  # the K paths have the same weights; what is the same in all is computed once
    bias: bool = False
    dt: Seconds = 1e-3  # per step
    tau_max: TimeConstant = 8e-3  # of the slowest channel
    c: Annotated[float, Meta(gt=1, le=1e3)] = math.sqrt(2)  # ratio of neighbouring time constants
    time: Literal["rf", "uniform"] = "rf"  # time constants: geometric series, or uniform in the same range
    learn_tau: bool = False
    tie_tau: bool = (
        False  # one time constant per channel through all its blocks, and the readout if "fastest"
    )
    threshold: Annotated[float, Meta(ge=1e-6, le=1e6)] = 1.0  # volts
    reset: Literal["zero", "subtract"] = "zero"
    alpha: Factor = 10.0  # steepness of the surrogate gradient
    # "if" only: volts per step and temporal scale, at this threshold
    leak: tuple[Annotated[float, Meta(ge=-1e6, le=1e6)], ...] = (0.0,)
    v_min: Annotated[float, Meta(ge=-1e6, le=0)] | None = None  # "if" only: volts, at this threshold
    fire: Literal["gt", "ge"] = "gt"  # "if" only: above the threshold, or at it as well
    integers: bool = False  # "if" only: quantisation-aware training; see `nrf.model.integers`
    bits: BitsConfig = BitsConfig()  # of these integers
    dropout: Share = 0.0
    batch_norm: bool = False  # for comparison; such a network is never exported
    output: OutputConfig = OutputConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neuron != "if" and (self.integers or self.fire == "ge"):
            raise ConfigError(f"neuron is '{self.neuron}', integers and fire = 'ge' need neuron 'if'")
        if self.share and self.integers:
            raise ConfigError("share is true, expected integers = false with it: each channel has a grid")
        if self.tie_tau and not self.parallel:
            raise ConfigError("tie_tau is true, expected parallel = true with it: channels are paths then")
        if self.output.neuron == "if" and self.output.time != "own":
            raise ConfigError(f"output.time is '{self.output.time}', the output 'if' has no time constant")
        if self.neuron == "if" and len(self.leak) not in (1, self.channels):
            raise ConfigError(f"leak has {len(self.leak)} values, expected 1 or {self.channels}")
        rows, columns = self.input[1:]
        keys = [*(f"blocks[{index}]" for index in range(len(self.blocks))), "output"]
        for key, block in zip(keys, self.all_blocks, strict=True):
            if block.pool > min(rows, columns):
                raise ConfigError(
                    f"{key}.pool is {block.pool}, the map before it has only {rows}x{columns} cells"
                )
            rows, columns = (-(-(side // block.pool) // block.stride) for side in (rows, columns))

    @property
    def all_blocks(self) -> tuple[BlockConfig, ...]:
        """The blocks and the merging one."""
        output = self.output
        return *self.blocks, BlockConfig(self.shapes, output.kernel, pool=output.pool, pooling=output.pooling)

    @property
    def paths(self) -> int:
        """Paths from input to output; stateless channels that share their weights are one and the same."""
        return self.channels if self.parallel and not (self.share and self.neuron == "relu") else 1
