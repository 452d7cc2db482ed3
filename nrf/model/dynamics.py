"""One step of a neuron, forward and back: for backpropagation through time (BPTT).

    m[t] = v[t-1] + rate (x[t] - v[t-1])      leaky, rate = dt/tau per channel;  else  m[t] = v[t-1] + x[t]
    m[t] = max(m[t], v_min)
    z[t] = m[t] > threshold                   fire "gt";  "ge":  z[t] = m[t] >= threshold
    v[t] = m[t] (1 - z[t])                    reset "zero";  "subtract":  v[t] = m[t] - threshold z[t]

The output is z where the population fires, else m, or max(m, 0) if rectified.
The surrogate gradient of a spike is SuperSpike's, in units of the threshold:

    dz/dm = 1 / (threshold (1 + alpha |m/threshold - 1|)^2)

It also flows through the reset, as in Norse. The arithmetic of a step is written once, below. Torch gives it
whole maps; on a CPU it is compiled and goes from neuron to neuron, because one pass over memory is several
times faster than one per operation.
"""

from dataclasses import dataclass
from math import inf
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

Reset = Literal["zero", "subtract"]
Fire = Literal["gt", "ge"]


@dataclass(frozen=True)
class Dynamics:
    """What a scan does apart from its tensors."""

    leaky: bool  # m = v + rate (x - v), else m = v + x
    fires: bool  # the output is spikes, else the membrane potential
    reset: Reset = "zero"
    v_min: float = -inf  # volts
    alpha: float = 10.0  # steepness of the surrogate gradient
    fire: Fire = "gt"
    rectified: bool = False  # of those that do not fire


class Numbers(NamedTuple):
    """The same in the numbers of a step, in the precision of its tensors."""

    one: Any
    threshold: Any
    level: Any  # what m must exceed to fire: m >= threshold is m > the next smaller number
    v_min: Any
    leaky: Any
    alpha: Any
    fires: bool
    subtract: bool
    rectified: bool


# One step, of maps or of one neuron; `where` is torch's or a neuron's.


def integrate(where: Any, v: Any, x: Any, rate: Any, p: Numbers) -> Any:
    """The membrane potential before the reset."""
    m = v + rate * (x - p.leaky * v)
    return where(m > p.v_min, m, p.v_min)


def reset(where: Any, m: Any, p: Numbers) -> Any:
    """The membrane potential after the reset."""
    return where(m > p.level, m - p.threshold if p.subtract else m - m, m)


def step_back(where: Any, g: Any, later: Any, m: Any, rate: Any, p: Numbers) -> Any:
    """Gradients of the drive and of the potential before, from those of the output and of the one after."""
    zero = p.one - p.one
    if p.fires:
        width = p.one + p.alpha / p.threshold * abs(m - p.threshold)  # one division for all
        stays = later if p.subtract else where(m > p.level, zero, later)
        lost = later * p.threshold if p.subtract else later * m
        g = (g - lost) / (p.threshold * width * width) + stays
    elif p.rectified:
        g = where(m > zero, g, zero) + later
    else:
        g = g + later
    g = where(m > p.v_min, g, zero)
    return g * rate, g - p.leaky * g * rate


def numbers_of(threshold: Tensor, dynamics: Dynamics) -> Numbers:
    """What a step needs to know; a population that does not fire has a level that nothing exceeds."""
    below = torch.nextafter(threshold, threshold.new_tensor(-inf))
    level = (threshold if dynamics.fire == "gt" else below).item() if dynamics.fires else inf
    subtract = dynamics.reset == "subtract"
    figures = (1.0, threshold.item(), level, dynamics.v_min, float(dynamics.leaky), dynamics.alpha)
    return Numbers(*figures, dynamics.fires, subtract, dynamics.rectified)
