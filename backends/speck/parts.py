"""What each core of the chip holds: a population, or some channels of one that is split over cores.

Every part of a population reads the same sources, and what reads the population reads all of its parts: each
adds the number of its first channel to its spikes on the way (samna: `feature_shift`).
"""

from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from nrf.backends.speck.program import Kernel, Population, Shape, SpeckProgram


@dataclass(frozen=True)
class Part:
    """Channels `first` to `last` of a population, on one core."""

    population: Population
    number: int  # of the core on the chip
    first: int
    last: int  # exclusive

    @property
    def shape(self) -> Shape:
        """(channels, height, width) of its neurons."""
        return self.last - self.first, *self.population.shape[1:]

    @property
    def neurons(self) -> int:
        """How many it holds."""
        return prod(self.shape)

    @property
    def kernel(self) -> Kernel:
        """Its share of the kernel."""
        conv = self.population.conv
        return replace(conv, weight=conv.weight[self.first : self.last])

    @property
    def bias(self) -> NDArray[np.int8]:
        """(channels,) of its own."""
        return self.population.bias[self.first : self.last]


def parts_of(program: SpeckProgram) -> list[Part]:
    """All cores of the chip that a program uses, population by population."""
    parts = []
    for population in program.populations:
        numbers, firsts = zip((population.core, 0), *population.more, strict=True)
        parts += [
            Part(population, *part)
            for part in zip(numbers, firsts, (*firsts[1:], population.shape[0]), strict=True)
        ]
    return parts


def destinations(parts: list[Part], source: str) -> list[tuple[int, int]]:
    """(index of the part, pooling) of everything that each part of `source` feeds."""
    return [
        (index, entry.pool)
        for index, part in enumerate(parts)
        for entry in part.population.sources
        if entry.name == source
    ]
