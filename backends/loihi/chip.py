"""Loihi 2 as its TOML file describes it: sizes for placement, and the widths of all integers."""

from typing import Annotated

from msgspec import Meta

from nrf.backends.border import Chip
from nrf.config import Section

Count = Annotated[int, Meta(ge=1)]


class Cores(Section, frozen=True):
    """The cores of one chip."""

    count: Count
    usable: Count
    neurons: Count  # per core
    memory: Count  # bytes per core


class Total(Section, frozen=True):
    """What a whole chip holds."""

    neurons: Count
    synapses: Count


class Costs(Section, frozen=True):
    """Bytes of a core's memory."""

    neuron: Annotated[float, Meta(gt=0)]
    synapse: Annotated[float, Meta(gt=0)]
    kernel_weight: Annotated[float, Meta(gt=0)]


class Bits(Section, frozen=True):
    """Widths of all integers, from which every constant of the arithmetic follows; sign included."""

    weight: Annotated[int, Meta(ge=2, le=8)]  # stored as int8
    weight_exponent: Annotated[int, Meta(ge=1, le=4)]  # signed
    decay: Annotated[int, Meta(ge=1, le=16)]  # unsigned fraction
    state: Annotated[int, Meta(ge=8, le=24)]  # u and v; sums in between are 32 bit, as Lava's
    threshold: Annotated[int, Meta(ge=1, le=22)]  # unsigned
    bias_mantissa: Annotated[int, Meta(ge=2, le=24)]
    bias_exponent: Annotated[int, Meta(ge=1, le=4)]  # unsigned
    message: Annotated[int, Meta(ge=1, le=32)]  # graded spikes

    @property
    def shift(self) -> int:
        """Drive and threshold are aligned to the upper bits of the state: 6 bits for 24 and 17."""
        return max(0, self.state - 1 - self.threshold)

    @property
    def limit(self) -> int:
        """States are at most this minus 1, and at least its negative plus 1."""
        return 1 << (self.state - 1)

    @property
    def unity(self) -> int:
        """Decays are fractions of this."""
        return 1 << self.decay

    @property
    def never(self) -> int:
        """A threshold that a saturated membrane cannot pass."""
        return 1 << self.threshold

    @property
    def largest_weight(self) -> int:
        """The other end is one further."""
        return (1 << (self.weight - 1)) - 1

    @property
    def largest_message(self) -> int:
        """What a graded spike carries, with a sign; of one bit it is there or not."""
        return max(1, (1 << (self.message - 1)) - 1)

    @property
    def largest_bias(self) -> int:
        """Of the mantissa."""
        return (1 << (self.bias_mantissa - 1)) - 1


class Delays(Section, frozen=True):
    """Of synapses."""

    steps: Annotated[int, Meta(ge=0)]


class Loihi(Chip, frozen=True, kw_only=True):
    """A chip of the Loihi 2 family."""

    cores: Cores
    chip: Total
    memory: Costs
    bits: Bits
    delay: Delays
