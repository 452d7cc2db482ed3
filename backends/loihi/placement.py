"""Which neurons go onto which core, and what each core then holds.

A population is cut into runs of consecutive neurons that fit a core in number and in memory:

    memory = neurons (state)  +  synapses into them, or one kernel per channel where they are convolved

Lists of axons are left out: how Intel's compiler packs them is not public. So the figures are a lower bound.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from nrf.backends.border import CoreUse, Memory, Placement, Shape
from nrf.backends.loihi.chip import Loihi
from nrf.backends.lowering.operators import Conv, Operator
from nrf.errors import InputError


def place(
    populations: Mapping[str, Shape], operators: Mapping[str, Sequence[Operator]], chip: Loihi
) -> Placement:
    """Place populations (name -> shape) with the operators into them, in order, cores filled one by one."""
    cores: list[CoreUse] = []
    synapses = held_in_all = 0
    for name, shape in populations.items():
        size = int(np.prod(shape))
        fixed, each, count = memory(operators[name], size, chip)
        synapses += count
        room = min(chip.cores.neurons, int((chip.cores.memory - fixed) // each))
        if room < 1:
            raise InputError(
                f"node '{name}': one neuron with its synapses takes {int(fixed + each)} bytes, a core of "
                f"{chip.name} holds {chip.cores.memory}; reduce its fan-in"
            )
        share = -(-size // -(-size // room))  # even runs, so that the last core is not nearly empty
        for first in range(0, size, share):
            last = min(first + share, size) - 1
            held = int(np.ceil(fixed + each * (last - first + 1)))
            held_in_all += held
            cores.append(CoreUse(len(cores), name, first, last, (Memory("bytes", held, chip.cores.memory),)))
    neurons = sum(int(np.prod(shape)) for shape in populations.values())
    needed = (
        len(cores) / chip.cores.usable,
        neurons / chip.chip.neurons,
        held_in_all / chip.memory.synapse / chip.chip.synapses,
    )
    totals = {"neurons": neurons, "synapses": synapses}
    return Placement(tuple(cores), chip.cores.usable, int(np.ceil(max(needed))), totals)


def memory(operators: Sequence[Operator], size: int, chip: Loihi) -> tuple[float, float, int]:
    """Bytes of a core that all its neurons share, bytes per neuron, and the number of synapses.

    A shared kernel counts as often as it is used.
    """
    fixed, each, count = 0.0, chip.memory.neuron, 0
    for operator in operators:
        if isinstance(operator, Conv):
            kernel = int(np.prod(operator.weight.shape[1:]))
            per_channel = size // operator.weight.shape[0]
            fixed += kernel * chip.memory.kernel_weight  # a run may begin inside a channel
            each += kernel * chip.memory.kernel_weight / per_channel
            count += kernel * size
        else:
            entries = int(operator.matrix().nnz)
            count += entries
            each += entries * chip.memory.synapse / size
    return fixed, each, count
