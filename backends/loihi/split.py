"""One population per value: Lava's populations on hardware share one pair of decays and one threshold.

    lif with 16 channels of 2 kinds  ->  lif#0 with 9 channels, lif#1 with 7

Simulations take arrays and need none of this. Spikes and states are the same, only filed differently.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nrf.backends.border.recording import Recording, Spikes
from nrf.backends.loihi.program import PARAMETERS, LoihiProgram, Neurons, Synapses
from nrf.backends.lowering.layers import Conv, Matrix, Operator, ungrouped

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
    parts = {name: _parts(one) for name, one in program.neurons.items()}
    neurons = {
        part.name: _taken(program.neurons[name], part) for name, some in parts.items() for part in some
    }
    synapses = []
    for one in program.synapses:
        for source in parts.get(one.source, [None]):
            for target in parts[one.target]:
                synapses.append(_between(program, one, source, target))
    return replace(program, neurons=neurons, synapses=tuple(synapses), output=""), parts


def merge(recording: Recording, program: LoihiProgram, parts: dict[str, list[Part]]) -> Recording:
    """A recording of the split program, filed as the whole program's."""
    spikes, states = {}, {}
    for name, one in program.neurons.items():
        places = {part.name: part.neurons(one) for part in parts[name]}
        some = [(recording.spikes[part], place) for part, place in places.items()]
        t = np.concatenate([found.t for found, _ in some])
        i = np.concatenate([place[found.i] for found, place in some])
        n = np.concatenate([found.n for found, _ in some])
        order = np.lexsort((i, t))
        spikes[name] = Spikes(t[order], i[order], n[order])
        for suffix in ("", "/u"):
            whole = np.zeros((recording.steps, one.size), np.int32)
            for part, place in places.items():
                whole[:, place] = recording.membranes[part + suffix].reshape(recording.steps, -1)
            states[name + suffix] = whole.reshape(recording.steps, *one.shape)
    shapes = {name: one.shape for name, one in program.neurons.items()}
    return replace(recording, shapes=shapes, spikes=spikes, membranes=states)


def _parts(one: Neurons) -> list[Part]:
    values = np.stack([getattr(one, key) for key in SHARED])
    _, kind = np.unique(values, axis=1, return_inverse=True)
    kind = kind.ravel()
    names = [one.name] if kind.max() == 0 else [f"{one.name}#{number}" for number in range(kind.max() + 1)]
    return [Part(name, np.flatnonzero(kind == number)) for number, name in enumerate(names)]


def _taken(one: Neurons, part: Part) -> Neurons:
    groups = len(one.dv)
    by_channel = len(one.shape) == 3 and groups == one.shape[0]
    shape = (len(part.groups), *one.shape[1:]) if by_channel else (len(part.neurons(one)),)
    shape = one.shape if len(part.groups) == groups else shape
    values = {key: getattr(one, key)[part.groups] for key in (*PARAMETERS, "scale", "offset")}
    return replace(one, name=part.name, shape=shape, **values)


def _between(program: LoihiProgram, one: Synapses, source: Part | None, target: Part) -> Synapses:
    """The synapses from one part to another; `source` is None for the input."""
    whole = program.neurons[one.target]
    operator: Operator = one.operator
    columns = source.neurons(program.neurons[one.source]) if source else None
    whole_source = source is None or len(source.groups) == len(program.neurons[one.source].dv)
    if isinstance(operator, Conv):
        rows_fit = len(whole.dv) in (1, operator.weight.shape[0])
        columns_fit = whole_source or len(program.neurons[one.source].dv) == operator.input_shape[0]
        if rows_fit and columns_fit:
            kernel = ungrouped(operator)[target.groups] if len(whole.dv) > 1 else ungrouped(operator)
            channels = np.arange(kernel.shape[1]) if whole_source or source is None else source.groups
            size = (len(channels), *operator.input_shape[1:])
            conv = replace(operator, weight=kernel[:, channels], input_shape=size, groups=1)
            return replace(one, source=_name(one, source), target=target.name, operator=conv)
    matrix = sparse.csr_array(operator.matrix())[target.neurons(whole)]
    matrix = matrix if whole_source or columns is None else matrix[:, columns]
    return replace(
        one, source=_name(one, source), target=target.name, operator=Matrix(sparse.csr_array(matrix))
    )


def _name(one: Synapses, source: Part | None) -> str:
    return source.name if source else one.source
