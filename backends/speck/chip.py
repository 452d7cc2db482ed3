"""Speck as data: what `hw_configs/speck2f.toml` says, typed and checked when it is read."""

from typing import Annotated

from msgspec import Meta

from nrf.backends.border import Chip
from nrf.config import ConfigError, Section

Count = Annotated[int, Meta(ge=1)]


class Cores(Section, frozen=True):
    """The convolution cores; they differ in memory."""

    count: Count
    kernel_words: tuple[Count, ...]  # of each core
    neuron_words: tuple[Count, ...]  # of each core
    biases: Count  # per core
    destinations: Count  # cores that a core, or the sensor, can send to
    stochastic: tuple[Annotated[int, Meta(ge=0)], ...] = ()  # cores that are used only where no others fit

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("kernel_words", "neuron_words"):
            if len(getattr(self, key)) != self.count:
                raise ConfigError(
                    f"{key} has {len(getattr(self, key))} entries, expected {self.count} (count)"
                )


class Kernel(Section, frozen=True):
    """Convolution kernels."""

    max_side: Count
    strides: tuple[Count, ...]
    max_padding: Annotated[int, Meta(ge=0)]


class Pool(Section, frozen=True):
    """Sum pooling between cores."""

    sizes: tuple[Count, ...]


class Map(Section, frozen=True):
    """Feature maps, in pixels per side."""

    max_input: Count
    max_output: Count
    max_channels: Count


class Bits(Section, frozen=True):
    """Widths of the chip's signed integers. A program carries them: its arithmetic needs nothing else."""

    weight: Annotated[int, Meta(ge=2, le=8)]  # stored as int8
    bias: Annotated[int, Meta(ge=2, le=8)]  # stored as int8
    # At most 16: a step may add 2^15 times as much before 32 bits overflow, in which simulators count, and
    # single precision, in which Sinabs counts, holds 24 bits.
    state: Annotated[int, Meta(ge=2, le=16)]


class Speck(Chip, frozen=True, kw_only=True):
    """A chip of the Speck family."""

    cores: Cores
    kernel: Kernel
    pool: Pool
    map: Map
    bits: Bits


def signed(bits: int) -> tuple[int, int]:
    """Lowest and highest signed integer of a width.

    >>> signed(8)
    (-128, 127)
    """
    return -(1 << bits - 1), (1 << bits - 1) - 1
