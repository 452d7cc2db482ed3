"""Neurons of a graph as one pair of difference equations, in volts above reset:

    i[t] = (1 - decay_u) i[t-1] + gain x[t]                  decay_u = 1: no current of its own
    v[t] = (1 - decay_v) v[t-1] + i[t] + bias
    spike if v[t] > threshold, then v[t] = 0

`x` is what the synapses give. Forward Euler's dt/tau, the resistance and the leak voltage are folded in here,
once, and exactly: subtracting the reset voltage moves it to 0, where Loihi resets.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import nir
import numpy as np
from numpy.typing import NDArray

from nrf.backends.lowering.layers import Population
from nrf.errors import InputError
from nrf.export.contract import Contract

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Dynamics:
    """One value per group of consecutive neurons (a channel, or a neuron)."""

    decay_u: Floats  # fraction of the current lost per step
    decay_v: Floats  # fraction of the voltage lost per step
    gain: Floats  # volts per unit of x
    bias: Floats  # volts per step
    threshold: Floats  # volts above reset; infinite for neurons that do not fire
    offset: Floats  # volts; the reset voltage
    start_u: Floats  # volts per step, the current before the first step
    start_v: Floats  # volts above reset before the first step

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.gain)


def dynamics_of(population: Population, contract: Contract) -> Dynamics:
    """The equations of a population, grouped by channel where its parameters allow that."""
    node, shape = population.node, population.shape
    dt = contract.dt or 1.0

    def value(key: str, default: float = 0.0) -> Floats:
        raw = getattr(node, key, None)
        return np.broadcast_to(np.asarray(default if raw is None else raw, np.float64), shape)

    reset, leak, resistance = value("v_reset"), value("v_leak"), value("r", 1.0)
    zero, one = np.zeros(shape), np.ones(shape)
    decay_u, start_u = one, zero
    unit = contract.membrane == "unit"

    def forgets(key: str) -> Floats:
        share = dt / value(key)
        return share if contract.integration == "euler" else -np.expm1(-share)

    match node:
        case nir.LIF() | nir.LI():
            decay_v = forgets("tau")
            gain = one if unit else decay_v * resistance
            bias = decay_v * (leak - reset) + gain * population.bias
        case nir.IF() | nir.I():
            decay_v, gain = zero, one if unit else dt * resistance
            bias = gain * population.bias
        case nir.CubaLIF() | nir.CubaLI():
            decay_u, decay_v = forgets("tau_syn"), forgets("tau_mem")
            entering = {"scaled": decay_u, "unit": one, "decayed": 1 - decay_u}[contract.synapse]
            gain = entering * value("w_in", 1.0) * (one if unit else decay_v * resistance)
            # A constant input builds up with tau_syn: its full value at once, less a start that decays.
            full = gain / decay_u
            start_u = -full * population.bias
            bias = decay_v * (leak - reset) + full * population.bias
        case nir.Threshold():
            decay_v, gain, bias = one, one, population.bias
        case _:
            raise InputError(f"node '{population.name}': {type(node).__name__} is no neuron that a chip has")
    threshold = value("threshold") if isinstance(node, nir.Threshold) else value("v_threshold", np.inf)
    start_v = (leak if hasattr(node, "v_leak") and contract.start == "leak" else zero) - reset
    if contract.start == "reset" and hasattr(node, "v_reset"):
        start_v = zero
    parts = decay_u, decay_v, gain, bias, threshold - reset, reset, start_u, start_v
    return _grouped(Dynamics(*parts), shape)


def _grouped(dynamics: Dynamics, shape: tuple[int, ...]) -> Dynamics:
    """One value per channel if that says it all, else one per neuron."""
    arrays = {key.name: getattr(dynamics, key.name) for key in fields(dynamics)}
    by_channel: dict[str, Any] = {key: np.reshape(array, (shape[0], -1)) for key, array in arrays.items()}
    if all(np.all(array == array[:, :1]) for array in by_channel.values()):
        return replace(dynamics, **{key: array[:, 0] for key, array in by_channel.items()})
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
        v = np.where(keep_v > 0, push / np.where(keep_v > 0, keep_v, 1), 0)
        u = before
    return replace(dynamics, start_u=u, start_v=np.minimum(v, dynamics.threshold))
