"""Neurons of a graph as one pair of difference equations, in volts above reset:

    i[t] = (1 - decay_u) i[t-1] + gain x[t]                  decay_u = 1: no current of its own
    v[t] = (1 - decay_v) v[t-1] + i[t] + bias
    spike if v[t] > threshold, then v[t] = 0

`x` is what the synapses give. Forward Euler's dt/tau, the resistance and the leak voltage are folded in here,
once, and exactly: subtracting the reset voltage moves it to 0, where Loihi resets. A reset by subtraction

    v[t] = v[t] - taken

counts from 0 V. One that comes a step later, and so does not decay, is one at once that has not decayed yet.
"""

from dataclasses import dataclass, fields, replace
from math import prod

import nir
import numpy as np

from nrf.arrays import Floats, compact, distinct
from nrf.backends.lowering.layers import Population
from nrf.backends.reference.coefficients import neuron
from nrf.export.contract import Contract
from nrf.export.shape_inference import PARAMETERS, edited


@dataclass(frozen=True)
class Dynamics:
    """One value per group of consecutive neurons (a channel, or a neuron)."""

    decay_u: Floats  # fraction of the current lost per step
    decay_v: Floats  # fraction of the voltage lost per step
    gain: Floats  # volts per unit of x
    bias: Floats  # volts per step
    threshold: Floats  # volts above reset; infinite for neurons that do not fire
    offset: Floats  # volts; the reset voltage
    taken: Floats  # volts that a spike takes off, where it does not reset to 0
    start_u: Floats  # volts per step, the current before the first step
    start_v: Floats  # volts above reset before the first step

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.gain)


def dynamics_of(population: Population, contract: Contract) -> Dynamics:
    """The equations of a population, grouped by channel where its parameters allow that."""
    node, shape = population.node, population.shape
    slim = {key: distinct(np.asarray(getattr(node, key))) for key in PARAMETERS[type(node)]}
    cell = neuron(edited(node, **slim), contract)

    def whole(values: Floats | None, default: float = 0.0) -> Floats:
        return distinct(np.broadcast_to(default if values is None else values, shape))

    memoryless = isinstance(node, nir.Threshold)
    decay_u, decay_v = whole(cell.synapse, 1.0), whole(cell.rate, float(memoryless))
    gain, start_u = whole(cell.gain), whole(None)
    reset = whole(cell.reset if contract.reset == "zero" else None)
    if cell.rate is not None and contract.membrane == "scaled":
        gain = decay_v * gain
    if cell.synapse is not None:
        entering = {"scaled": decay_u, "unit": whole(None, 1.0), "decayed": 1 - decay_u}[contract.synapse]
        gain = entering * whole(cell.w_in) * gain
    full = gain / decay_u * whole(population.bias)  # what a constant input adds per step in the end
    if (
        cell.synapse is not None
    ):  # it builds up with tau_syn: its full value at once, less a start that decays
        start_u = -full
    bias = decay_v * (whole(cell.rest) - reset) + full
    threshold, start_v = whole(cell.threshold, np.inf) - reset, whole(cell.start) - reset
    kept = 1 - decay_v if contract.reset_at == "next" else whole(None, 1.0)
    taken = np.where(np.isfinite(threshold) & (kept > 0), threshold / np.where(kept > 0, kept, 1), 0)
    dynamics = Dynamics(decay_u, decay_v, gain, bias, threshold, reset, taken, start_u, start_v)
    return _grouped(dynamics, shape)


def _grouped(dynamics: Dynamics, shape: tuple[int, ...]) -> Dynamics:
    """One value per channel if that says it all, else one per neuron."""
    values = (compact(np.broadcast_to(getattr(dynamics, key.name), shape)) for key in fields(dynamics))
    arrays = dict(zip((key.name for key in fields(dynamics)), values, strict=True))
    if all(prod(distinct(array).shape[1:]) == 1 for array in arrays.values()):
        return replace(dynamics, **{key: array.reshape(shape[0], -1)[:, 0] for key, array in arrays.items()})
    return replace(dynamics, **{key: np.ravel(array) for key, array in arrays.items()})


def rewound(dynamics: Dynamics, steps: int) -> Dynamics:
    """The same neurons started `steps` earlier, so that without input they come to where they should start.

    A population that runs late by some steps would otherwise be ahead by what bias and leak do meanwhile.
    """
    u, v = dynamics.start_u, np.minimum(dynamics.start_v, dynamics.threshold)  # must not fire before its time
    keep_u, keep_v = 1 - dynamics.decay_u, 1 - dynamics.decay_v
    for _ in range(steps):
        before = np.where(keep_u > 0, u / np.where(keep_u > 0, keep_u, 1), 0)
        push = v - u - dynamics.bias
        earlier = np.where(keep_v > 0, push / np.where(keep_v > 0, keep_v, 1), 0)
        if np.array_equal(before, u) and np.array_equal(earlier, v):
            break  # at rest: it was there always
        u, v = before, earlier
    return replace(dynamics, start_u=u, start_v=np.minimum(v, dynamics.threshold))
