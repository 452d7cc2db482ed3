"""The program: a frozen dataclass of integers. The file, its checksum and its types come from the border."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse

from nrf.arrays import Int64s
from nrf.backends.border import Lowered
from nrf.backends.border.program import StoredProgram, load_program
from nrf.errors import InputError
from nrf.export import Contract


@dataclass(frozen=True)
class Synapses:
    """Integer weights (neurons, sources)."""

    source: str
    weight: sparse.csr_array


@dataclass(frozen=True)
class Population:
    """Neurons of one core; one volt is `scale` units of their integers."""

    name: str
    shape: tuple[int, ...]
    scale: float
    threshold: Int64s
    bias: Int64s
    synapses: tuple[Synapses, ...]


@dataclass(frozen=True, eq=False, repr=False)
class MiniProgram(StoredProgram):
    """What the chip would get."""

    name: str  # of the graph
    target: str
    contract: Contract
    input: str
    input_shape: tuple[int, ...]
    outputs: tuple[str, ...]
    state_bits: int
    populations: tuple[Population, ...]  # sources first
    lowered: Lowered

    @property
    def latencies(self) -> Mapping[str, int]:
        """Spikes arrive in the step in which they were sent, as the contract says."""
        return {population.name: 0 for population in self.populations}


def load(path: str | Path) -> MiniProgram:
    """Read what `save` wrote; a program file is a stranger's file."""
    return load_program(path, MiniProgram, check_program)


def check_program(program: MiniProgram) -> None:
    """What types cannot say: that everything fits together."""
    sizes = {program.input: int(np.prod(program.input_shape))}
    for population in program.populations:
        size = int(np.prod(population.shape))
        if population.threshold.shape != (size,) or population.bias.shape != (size,):
            raise InputError(f"population '{population.name}': expected {size} thresholds and biases")
        for synapses in population.synapses:
            if synapses.source not in sizes or synapses.weight.shape != (size, sizes[synapses.source]):
                raise InputError(
                    f"population '{population.name}': synapses from '{synapses.source}' do not fit"
                )
        sizes[population.name] = size
    if not program.outputs or not set(program.outputs) <= sizes.keys():
        raise InputError(f"there are not all of {program.outputs} to read")
