"""One population per value: Lava's populations on hardware share one pair of decays and one threshold.

    lif with 16 channels of 2 kinds  ->  lif#0 with 9 channels, lif#1 with 7

Simulations take arrays and need none of this. Spikes and states are the same, only filed differently.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nrf.backends.border import Recording, Spikes
from nrf.backends.loihi.program import PARAMETERS, LoihiProgram, Neurons, Synapses
from nrf.backends.lowering.layers import Conv, Matrix, ungrouped

SHARED = ("du", "dv", "vth")  # what a population of Lava has one of


@dataclass(frozen=True)
class Part:
    """Some groups (channels) of a population."""

    name: str
    groups: NDArray[np.int64]

    def neurons(self, whole: Neurons) -> NDArray[np.int64]:
        """Their neurons, as numbered in the whole population."""
        size = whole.size // len(whole.dv)
        return (self.groups[:, None] * size + np.arange(size)).ravel()


def split(program: LoihiProgram) -> tuple[LoihiProgram, dict[str, list[Part]]]:
    """The same program with one population per set of shared values, and which part came from where."""
    parts = {name: _parts(name, neurons) for name, neurons in program.neurons.items()}
    neurons = {
        part.name: _taken(program.neurons[name], part) for name, some in parts.items() for part in some
    }
    synapses = [
        _between(program, whole, source, target)
        for whole in program.synapses
        for source in parts.get(whole.source, [None])
        for target in parts[whole.target]
    ]
    output = parts[program.output][0].name
    return replace(program, neurons=neurons, synapses=tuple(synapses), output=output), parts


def merge(recording: Recording, program: LoihiProgram, parts: dict[str, list[Part]]) -> Recording:
    """A recording of the split program, filed as the whole program's."""
    spikes, states = {}, {}
    for name, neurons in program.neurons.items():
        numbers = {part.name: part.neurons(neurons) for part in parts[name]}
        some = [recording.spikes[part] for part in numbers]
        t, n = (np.concatenate([getattr(events, key) for events in some]) for key in "tn")
        i = np.concatenate([numbers[part][recording.spikes[part].i] for part in numbers])
        spikes[name] = Spikes.sorted(t, i, n)
        for suffix in ("", "/u"):
            whole = np.zeros((recording.steps, neurons.size), np.int32)
            for part, index in numbers.items():
                whole[:, index] = recording.membranes[part + suffix].reshape(recording.steps, -1)
            states[name + suffix] = whole.reshape(recording.steps, *neurons.shape)
    return replace(recording, shapes=program.shapes, spikes=spikes, membranes=states)


def _parts(name: str, neurons: Neurons) -> list[Part]:
    values = np.stack([getattr(neurons, key) for key in SHARED])
    _, kind = np.unique(values, axis=1, return_inverse=True)
    kind = kind.ravel()
    names = [name] if kind.max() == 0 else [f"{name}#{number}" for number in range(kind.max() + 1)]
    return [Part(part, np.flatnonzero(kind == number)) for number, part in enumerate(names)]


def _taken(neurons: Neurons, part: Part) -> Neurons:
    groups, shape = len(neurons.dv), neurons.shape
    if len(part.groups) < groups:
        by_channel = len(shape) == 3 and groups == shape[0]
        shape = (len(part.groups), *shape[1:]) if by_channel else (len(part.neurons(neurons)),)
    values = {key: getattr(neurons, key)[part.groups] for key in (*PARAMETERS, "scale", "offset")}
    return replace(neurons, shape=shape, **values)


def _between(program: LoihiProgram, synapses: Synapses, source: Part | None, target: Part) -> Synapses:
    """The synapses from one part to another; `source` is None for the input."""
    whole, operator = program.neurons[synapses.target], synapses.operator
    begin = source.name if source else synapses.source
    sources = program.neurons.get(synapses.source)
    groups = len(sources.dv) if sources else 0
    taken = source if source and len(source.groups) < groups else None  # None: all of the source
    if isinstance(operator, Conv):
        rows_fit = len(whole.dv) in (1, operator.weight.shape[0])
        if rows_fit and (taken is None or groups == operator.input_shape[0]):
            kernel = ungrouped(operator)
            kernel = kernel[target.groups] if len(whole.dv) > 1 else kernel
            kernel = kernel if taken is None else kernel[:, taken.groups]
            size = (kernel.shape[1], *operator.input_shape[1:])
            conv = replace(operator, weight=kernel.astype(np.int8), input_shape=size, groups=1)
            return replace(synapses, source=begin, target=target.name, operator=conv)
    matrix = sparse.csr_array(operator.matrix())[target.neurons(whole)]
    if taken is not None and sources is not None:
        matrix = matrix[:, taken.neurons(sources)]
    between = Matrix(sparse.csr_array(matrix))
    return replace(synapses, source=begin, target=target.name, operator=between)
