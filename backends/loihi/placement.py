"""Which neurons go onto which core, and what each core then holds.

A population is cut into runs of consecutive neurons that fit a core in number and in memory:

    memory = neurons (state)  +  synapses into them, or one kernel per channel where they are convolved

Lists of axons are left out: how Intel's compiler packs them is not public. So the figures are a lower bound.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nrf.backends.border.chip import Target
from nrf.backends.lowering.layers import Conv, Operator
from nrf.errors import InputError


@dataclass(frozen=True)
class Core:
    """Neurons `first` to `last` of a population on one core."""

    core: int
    population: str
    first: int
    last: int  # inclusive
    bytes: int


@dataclass(frozen=True)
class Placement:
    """All cores in use."""

    cores: tuple[Core, ...]
    usable: int  # cores of a chip
    memory: int  # bytes of a core
    synapses: int  # single synapses, shared kernels counted as often as they are used
    chips: int

    @property
    def neurons(self) -> int:
        """Number of neurons."""
        return sum(core.last - core.first + 1 for core in self.cores)

    def of(self, population: str) -> list[Core]:
        """Cores of one population."""
        return [core for core in self.cores if core.population == population]

    def to_json(self) -> dict[str, Any]:
        """Per core and in sum."""
        return {
            "chips": self.chips,
            "cores": len(self.cores),
            "synapses": self.synapses,
            "memory_per_core": self.memory,
            "per_core": [asdict(core) for core in self.cores],
        }


def place(
    populations: dict[str, tuple[int, ...]], operators: dict[str, list[Operator]], target: Target
) -> Placement:
    """Place populations (name -> shape) with the operators into them, in order, cores filled one by one."""
    cores: list[Core] = []
    total = 0
    for name, shape in populations.items():
        size = int(np.prod(shape))
        fixed, each, count = _memory(operators[name], size, target)
        total += count
        room = min(target["cores.neurons"], int((target["cores.memory"] - fixed) // each))
        if room < 1:
            raise InputError(
                f"node '{name}': one neuron with its synapses takes {int(fixed + each)} bytes, a core of "
                f"{target.name} holds {target['cores.memory']}; reduce its fan-in"
            )
        share = -(-size // -(-size // room))  # even runs, so that the last core is not nearly empty
        for first in range(0, size, share):
            last = min(first + share, size) - 1
            held = int(np.ceil(fixed + each * (last - first + 1)))
            cores.append(Core(len(cores), name, first, last, held))
    needed = (
        len(cores) / target["cores.usable"],
        sum(core.last - core.first + 1 for core in cores) / target["chip.neurons"],
        sum(core.bytes for core in cores) / target["memory.synapse"] / target["chip.synapses"],
    )
    chips = int(np.ceil(max(needed)))
    return Placement(tuple(cores), target["cores.usable"], target["cores.memory"], total, chips)


def _memory(operators: list[Operator], size: int, target: Target) -> tuple[float, float, int]:
    """Bytes of a core that all its neurons share, bytes per neuron, and the number of synapses."""
    fixed, each, count = 0.0, float(target["memory.neuron"]), 0
    for operator in operators:
        if isinstance(operator, Conv):
            kernel = int(np.prod(operator.weight.shape[1:]))
            per_channel = size // operator.weight.shape[0]
            fixed += kernel * target["memory.kernel_weight"]  # a run may begin inside a channel
            each += kernel * target["memory.kernel_weight"] / per_channel
            count += kernel * size
        else:
            count += operator.weight.nnz
            each += operator.weight.nnz * target["memory.synapse"] / size
    return fixed, each, count
