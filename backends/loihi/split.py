"""One population per value: Lava's populations on hardware share one pair of decays and one threshold.

    lif with 16 channels of 2 kinds  ->  lif#0 with 9 channels, lif#1 with 7

Simulations take arrays and need none of this. Spikes and states are the same, only filed differently.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border import Recording, Spikes
from nrf.backends.loihi.program import PARAMETERS, LoihiProgram, Neurons, Synapses
from nrf.backends.lowering.operators import Conv, Matrix, ungrouped
from nrf.lazy import sparse

SHARED = ("du", "dv", "vth")  # what a population of Lava has one of


@dataclass(frozen=True)
class Part:
    """Some groups (channels) of a population."""

    name: str
    groups: NDArray[np.int64]
    whole: Neurons

    @property
    def is_all(self) -> bool:
        """Whether nothing is missing."""
        return len(self.groups) == len(self.whole.dv)

    @property
    def index(self) -> NDArray[np.int64]:
        """Its neurons, as numbered in the whole population."""
        size = self.whole.size // len(self.whole.dv)
        return (self.groups[:, None] * size + np.arange(size)).ravel()

    @property
    def neurons(self) -> Neurons:
        """The part as a population of its own."""
        shape = self.whole.shape
        if not self.is_all:
            by_channel = len(shape) == 3 and len(self.whole.dv) == shape[0]
            shape = (len(self.groups), *shape[1:]) if by_channel else (len(self.index),)
        values = {key: getattr(self.whole, key)[self.groups] for key in (*PARAMETERS, "scale", "offset")}
        return replace(self.whole, shape=shape, **values)


def split(program: LoihiProgram) -> tuple[LoihiProgram, dict[str, list[Part]]]:
    """The same program with one population per set of shared values, and which part came from where."""
    parts = {name: _parts(name, neurons) for name, neurons in program.neurons.items()}
    neurons = {part.name: part.neurons for some in parts.values() for part in some}
    synapses = [
        _between(whole, source, target)
        for whole in program.synapses
        for source in parts.get(whole.source, [None])
        for target in parts[whole.target]
    ]
    outputs = (next(iter(neurons)),)  # nobody reads it: the host waits for the whole
    whole = replace(program, neurons=neurons, synapses=tuple(synapses), outputs=outputs, readout=None)
    return whole, parts


def merge(recording: Recording, program: LoihiProgram, parts: dict[str, list[Part]]) -> Recording:
    """A recording of the split program, filed as the whole program's."""
    spikes, states = {}, {}
    for name, neurons in program.neurons.items():
        events = [(part, recording.spikes[part.name]) for part in parts[name]]
        renumbered = Spikes.joined(replace(one, i=part.index[one.i]) for part, one in events)
        spikes[name] = Spikes.sorted(renumbered.t, renumbered.i, renumbered.n)
        for suffix in ("", "/u", "/r") if neurons.subtracts else ("", "/u"):
            whole = np.zeros((recording.steps, neurons.size), np.int32)
            for part in parts[name]:
                state = recording.membranes[part.name + suffix]
                whole[:, part.index] = state.reshape(recording.steps, -1)
            states[name + suffix] = whole.reshape(recording.steps, *neurons.shape)
    return replace(recording, shapes=program.shapes, spikes=spikes, membranes=states)


def _parts(name: str, neurons: Neurons) -> list[Part]:
    values = np.stack([getattr(neurons, key) for key in SHARED])
    _, kind = np.unique(values, axis=1, return_inverse=True)
    kind = kind.ravel()
    names = [name] if kind.max() == 0 else [f"{name}#{number}" for number in range(kind.max() + 1)]
    return [Part(part, np.flatnonzero(kind == number), neurons) for number, part in enumerate(names)]


def _between(synapses: Synapses, source: Part | None, target: Part) -> Synapses:
    """The synapses from one part to another; `source` is None for the input."""
    begin, operator = source.name if source else synapses.source, synapses.operator
    between = replace(synapses, source=begin, target=target.name)
    some = None if source is None or source.is_all else source  # None: all of the source
    channels = len(target.whole.dv) > 1  # or one set of values for all
    if (
        isinstance(operator, Conv)
        and (not channels or len(target.whole.dv) == operator.weight.shape[0])
        and (some is None or len(some.whole.dv) == operator.input_shape[0])
    ):
        kernel = ungrouped(operator)
        kernel = kernel[target.groups] if channels else kernel
        kernel = kernel if some is None else kernel[:, some.groups]
        size = (kernel.shape[1], *operator.input_shape[1:])
        conv = replace(operator, weight=kernel.astype(np.int8), input_shape=size, groups=1)
        return replace(between, operator=conv)
    matrix = sparse.csr_array(operator.matrix())[target.index]
    matrix = matrix if some is None else matrix[:, some.index]
    return replace(between, operator=Matrix(sparse.csr_array(matrix)))
