"""All time steps of one population in one go: forward, and backpropagation through time (BPTT).

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

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nrf.kernels import compiled

Reset = Literal["zero", "subtract"]
Fire = Literal["gt", "ge"]
Array = NDArray[Any]
COMPILED_FOR = "cpu"
BLOCK = 4096  # neurons whose state and rates stay in a core's own cache through all time steps


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
    return where(m > p.level, m - (p.threshold if p.subtract else m), m)


def step_back(where: Any, g: Any, later: Any, m: Any, rate: Any, p: Numbers) -> Any:
    """Gradients of the drive and of the potential before, from those of the output and of the one after."""
    zero = p.one - p.one
    if p.fires:
        width = p.one + p.alpha * abs(m / p.threshold - p.one)
        stays = later if p.subtract else where(m > p.level, zero, later)
        g = (g - later * (p.threshold if p.subtract else m)) / (p.threshold * width * width) + stays
    elif p.rectified:
        g = where(m > zero, g, zero) + later
    else:
        g = g + later
    g = where(m > p.v_min, g, zero)
    return g * rate, g - p.leaky * g * rate


_inlined = compiled(error_model="numpy", inline="always")


@_inlined
def _where(condition: Any, yes: Any, no: Any) -> Any:
    return yes if condition else no


_integrate, _reset, _step_back = _inlined(integrate), _inlined(reset), _inlined(step_back)


# Flat loops without branches on the data: the compiler makes vector instructions of these.


@compiled(nogil=True, error_model="numpy")
def _forward(x: Array, v: Array, membrane: Array, output: Array, rate: Array, p: Numbers) -> None:
    zero, keeps = p.one - p.one, len(membrane) > 0
    floor = zero if p.rectified else p.one * -np.inf
    for first in range(0, len(v), BLOCK):
        part = slice(first, first + BLOCK)
        state, rates = v[part], rate[part]
        for t in range(len(x)):
            drive, out = x[t, part], output[t, part]
            if keeps:
                kept = membrane[t, part]
                for n in range(len(state)):
                    kept[n] = _integrate(_where, state[n], drive[n], rates[n], p)
            for n in range(len(state)):
                m = _integrate(_where, state[n], drive[n], rates[n], p)
                if p.fires:
                    out[n] = p.one if m > p.level else zero
                else:
                    out[n] = max(m, floor)
                state[n] = _reset(_where, m, p)


@compiled(nogil=True, error_model="numpy")
def _backward(
    from_output: Array,
    carried: Array,
    membrane: Array,
    to_x: Array,
    rate: Array,
    start: Array,
    to_rate: Array,
    p: Numbers,
) -> None:
    for first in range(0, len(carried), BLOCK):
        part = slice(first, first + BLOCK)
        later, rates, sums = carried[part], rate[part], to_rate[part]
        for t in range(len(membrane) - 1, -1, -1):
            given, kept, to_drive = from_output[t, part], membrane[t, part], to_x[t, part]
            for n in range(len(later)):
                to_drive[n], later[n] = _step_back(_where, given[n], later[n], kept[n], rates[n], p)
            if len(sums) and t:  # to_x = g rate and m - v = rate (x - v)
                past = membrane[t - 1, part]
                for n in range(len(sums)):
                    sums[n] += to_drive[n] * (kept[n] - _reset(_where, past[n], p))
            elif len(sums):
                past = start[part]
                for n in range(len(sums)):
                    sums[n] += to_drive[n] * (kept[n] - past[n])


def forward_torch(x: Tensor, v: Tensor, membrane: Tensor, output: Tensor, rate: Tensor, p: Numbers) -> None:
    """The same on whole maps."""
    for t, drive in enumerate(x):
        m = integrate(torch.where, v, drive, rate, p)
        if len(membrane):
            membrane[t] = m
        output[t] = m > p.level if p.fires else m.relu() if p.rectified else m
        v.copy_(reset(torch.where, m, p))


def backward_torch(
    from_output: Tensor,
    carried: Tensor,
    membrane: Tensor,
    to_x: Tensor,
    rate: Tensor,
    start: Tensor,
    to_rate: Tensor,
    p: Numbers,
) -> None:
    """The same on whole maps."""
    for t in reversed(range(len(membrane))):
        to_x[t], earlier = step_back(torch.where, from_output[t], carried, membrane[t], rate, p)
        carried.copy_(earlier)
        if len(to_rate):
            to_rate += to_x[t] * (membrane[t] - (reset(torch.where, membrane[t - 1], p) if t else start))


def channels_last(x: Tensor) -> Tensor:
    """(..., C, H, W) as contiguous (..., H, W, C); free where a convolution left it so."""
    return x.detach().movedim(-3, -1).contiguous()


def _run(kernel: Callable[..., None], in_torch: Callable[..., None], *tensors: Tensor, p: Numbers) -> None:
    """Run a kernel on NumPy's views, (T, neurons) or (neurons,), on a CPU; in torch everywhere else."""
    if tensors[0].device.type != COMPILED_FOR:
        in_torch(*tensors, p)
        return
    arrays = [(x.flatten(1) if x.ndim == 5 else x.flatten()).numpy() for x in tensors]
    kind = arrays[0].dtype.type
    kernel(*arrays, Numbers(*(number if isinstance(number, bool) else kind(number) for number in p)))


def scan(
    x: Tensor, v: Tensor | None, rate: Tensor, threshold: Tensor, dynamics: Dynamics
) -> tuple[Tensor, Tensor]:
    """Output over time and last membrane potential for a drive (T, B, C, H, W); from rest where v is None."""
    start = torch.zeros_like(x[0]) if v is None else v
    output, end = _Scan.apply(x, start, rate, numbers_of(threshold, dynamics))  # type: ignore[no-untyped-call]
    return output, end


def numbers_of(threshold: Tensor, dynamics: Dynamics) -> Numbers:
    """What a step needs to know; a population that does not fire has a level that nothing exceeds."""
    below = torch.nextafter(threshold, threshold.new_tensor(-inf))
    level = (threshold if dynamics.fire == "gt" else below).item() if dynamics.fires else inf
    subtract = dynamics.reset == "subtract"
    figures = (1.0, threshold.item(), level, dynamics.v_min, float(dynamics.leaky), dynamics.alpha)
    return Numbers(*figures, dynamics.fires, subtract, dynamics.rectified)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, v: Tensor, rate: Tensor, p: Numbers) -> Any:
        drive, end, rates = channels_last(x), channels_last(v).clone(), channels_last(rate.expand(v.shape))
        output = torch.empty_like(drive)
        membrane = torch.empty_like(drive) if any(ctx.needs_input_grad[:3]) else drive[:0]
        _run(_forward, forward_torch, drive, end, membrane, output, rates, p=p)
        ctx.numbers = p
        ctx.save_for_backward(membrane, v, rate)
        return output.movedim(-1, -3), end.movedim(-1, -3)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (kept, start, rate), p = ctx.saved_tensors, ctx.numbers
        from_output, carried = channels_last(gradients[0]), channels_last(gradients[1]).clone()
        to_drive, rates = torch.empty_like(kept), channels_last(rate.expand(start.shape))
        learns = ctx.needs_input_grad[2]
        sums = torch.zeros_like(kept[0]) if learns else kept.new_empty(0)
        before = channels_last(start)
        _run(_backward, backward_torch, from_output, carried, kept, to_drive, rates, before, sums, p=p)
        to_rate = (sums.movedim(-1, -3) / rate.square()).sum_to_size(rate.shape) if learns else None
        return to_drive.movedim(-1, -3), carried.movedim(-1, -3), to_rate, None
