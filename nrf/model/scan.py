"""All time steps of one population in one go: forward, and backpropagation through time (BPTT).

    m[t] = v[t-1] + rate (x[t] - v[t-1])      leaky, rate = dt/tau per channel;  else  m[t] = v[t-1] + x[t]
    m[t] = max(m[t], v_min)
    z[t] = m[t] > threshold                   fire "gt";  "ge":  z[t] = m[t] >= threshold
    v[t] = m[t] (1 - z[t])                    reset "zero";  "subtract":  v[t] = m[t] - threshold z[t]

The surrogate gradient of a spike is SuperSpike's, in units of the threshold:

    dz/dm = 1 / (threshold (1 + alpha |m/threshold - 1|)^2)

It also flows through the reset, as in Norse. The arithmetic is here twice: in numba for the CPU, where one
pass over memory is several times faster than one per operation, and in torch for everything else. A test
holds the two together.
"""

from dataclasses import dataclass
from math import inf
from typing import Any, Literal

import torch
from numpy.typing import NDArray
from torch import Tensor

from nrf.kernels import compiled

Reset = Literal["zero", "subtract"]
Fire = Literal["gt", "ge"]
Array = NDArray[Any]


@dataclass(frozen=True)
class Dynamics:
    """What a scan does apart from its tensors."""

    leaky: bool  # m = v + rate (x - v), else m = v + x
    fires: bool  # the output is spikes, else the membrane potential
    reset: Reset = "zero"
    v_min: float = -inf  # volts
    alpha: float = 10.0  # steepness of the surrogate gradient
    fire: Fire = "gt"


def scan(
    x: Tensor, v: Tensor | None, rate: Tensor, threshold: Tensor, dynamics: Dynamics
) -> tuple[Tensor, Tensor]:
    """Output over time and last membrane potential for a drive (T, B, C, H, W); from rest where v is None."""
    start = torch.zeros_like(x[0]) if v is None else v
    output, end = _Scan.apply(x, start, rate, threshold, dynamics)  # type: ignore[no-untyped-call]
    return output, end


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, v: Tensor, rate: Tensor, threshold: Tensor, dynamics: Dynamics) -> Any:
        run = _forward_numba if x.device.type == "cpu" else forward_torch
        membrane, output, end = run(x, v, rate, threshold, dynamics)
        ctx.dynamics = dynamics
        ctx.save_for_backward(membrane, v, rate, threshold)
        return output, end

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        membrane, start, rate, threshold = ctx.saved_tensors
        run = _backward_numba if membrane.device.type == "cpu" else backward_torch
        from_output, from_end = gradients
        to_x, to_v = run(from_output, from_end, membrane, rate, threshold, ctx.dynamics)
        to_rate = None
        if ctx.needs_input_grad[2]:  # to_x = g rate and m - v = rate (x - v)
            before = torch.cat([start[None], _reset(membrane[:-1], threshold, ctx.dynamics)])
            to_rate = (to_x * (membrane - before) / rate.square()).sum_to_size(rate.shape)
        return to_x, to_v, to_rate, None, None


def forward_torch(
    x: Tensor, v: Tensor, rate: Tensor, threshold: Tensor, dynamics: Dynamics
) -> tuple[Tensor, Tensor, Tensor]:
    """Membrane potential before reset, output, and last membrane potential."""
    membrane = torch.empty_like(x)
    for drive, m in zip(x, membrane, strict=True):
        torch.sub(drive, v, out=m).mul_(rate).add_(v) if dynamics.leaky else torch.add(drive, v, out=m)
        m.clamp_(min=dynamics.v_min)
        v = _reset(m, threshold, dynamics)
    fired = membrane > _spike_level(threshold, dynamics)
    output = fired.to(x.dtype) if dynamics.fires else membrane.clone()
    return membrane, output, v.clone()


def _reset(m: Tensor, threshold: Tensor, dynamics: Dynamics) -> Tensor:
    if not dynamics.fires:
        return m
    fired = m > _spike_level(threshold, dynamics)
    return torch.where(fired, m.new_zeros(()) if dynamics.reset == "zero" else m - threshold, m)


def _spike_level(threshold: Tensor, dynamics: Dynamics) -> Tensor:
    """What m must exceed to fire: m >= threshold is m > the next smaller number."""
    return threshold if dynamics.fire == "gt" else torch.nextafter(threshold, threshold.new_tensor(-inf))


def backward_torch(
    from_output: Tensor,
    from_end: Tensor,
    membrane: Tensor,
    rate: Tensor,
    threshold: Tensor,
    dynamics: Dynamics,
) -> tuple[Tensor, Tensor]:
    """Gradients of the drive and of the first membrane potential."""
    to_x, carried = torch.empty_like(membrane), from_end
    for t in reversed(range(len(membrane))):
        m = membrane[t]
        g = from_output[t] + carried
        if dynamics.fires:
            slope = 1 / (threshold * (1 + dynamics.alpha * (m / threshold - 1).abs()).square())
            stays = m <= _spike_level(threshold, dynamics)
            removed, kept = (m, carried * stays) if dynamics.reset == "zero" else (threshold, carried)
            g = (from_output[t] - carried * removed) * slope + kept
        g = g * (m > dynamics.v_min)
        to_x[t] = g * rate
        carried = g - to_x[t] if dynamics.leaky else g
    return to_x, carried


def _forward_numba(
    x: Tensor, v: Tensor, rate: Tensor, threshold: Tensor, dynamics: Dynamics
) -> tuple[Tensor, Tensor, Tensor]:
    drive, end = channels_last(x), channels_last(v).clone()
    membrane, output = torch.empty_like(drive), torch.empty_like(drive)
    numbers = _numbers(rate, threshold, dynamics, v)
    _forward(_rows(drive), _rows(end), _rows(membrane), _rows(output), dynamics.fires, *numbers)
    return membrane.movedim(-1, -3), output.movedim(-1, -3), end.movedim(-1, -3)


def _backward_numba(
    from_output: Tensor,
    from_end: Tensor,
    membrane: Tensor,
    rate: Tensor,
    threshold: Tensor,
    dynamics: Dynamics,
) -> tuple[Tensor, Tensor]:
    m, g, carried = channels_last(membrane), channels_last(from_output), channels_last(from_end).clone()
    to_x = torch.empty_like(m)
    numbers = _numbers(rate, threshold, dynamics, from_end)
    alpha = numbers[1].dtype.type(dynamics.alpha)
    _backward(_rows(g), _rows(carried), _rows(m), _rows(to_x), dynamics.fires, alpha, *numbers)
    return to_x.movedim(-1, -3), carried.movedim(-1, -3)


def channels_last(x: Tensor) -> Tensor:
    """(..., C, H, W) as contiguous (..., H, W, C); free where a convolution left it so."""
    return x.detach().movedim(-3, -1).contiguous()


def _rows(x: Tensor) -> Array:
    """NumPy's view of contiguous memory, (T, neurons) or (neurons,)."""
    array: Array = (x.flatten(1) if x.ndim == 5 else x.flatten()).numpy()
    return array


def _numbers(
    rate: Tensor, threshold: Tensor, dynamics: Dynamics, like: Tensor
) -> tuple[Array, Any, Any, Any, Any, bool]:
    rates = _rows(channels_last(rate.expand(like.shape)))
    kind = rates.dtype.type
    level = kind(_spike_level(threshold, dynamics).item())
    subtract = dynamics.reset == "subtract"
    return rates, kind(threshold.item()), level, kind(dynamics.v_min), kind(dynamics.leaky), subtract


# Flat loops without branches on the data: the compiler makes vector instructions of these.


@compiled(nogil=True, error_model="numpy")
def _forward(
    x: Array, v: Array, membrane: Array, output: Array, fires: bool, rate: Array, threshold: Any, level: Any,
    v_min: Any, leaky: Any, subtract: bool,
) -> None:  # fmt: skip
    one, zero = rate.dtype.type(1), rate.dtype.type(0)
    for t in range(len(x)):
        drive, kept, out = x[t], membrane[t], output[t]
        for n in range(len(v)):
            m = v[n] + rate[n] * (drive[n] - leaky * v[n])
            m = m if m > v_min else v_min
            kept[n] = m
            fired = fires and m > level
            out[n] = (one if fired else zero) if fires else m
            v[n] = m - (threshold if subtract else m) if fired else m


@compiled(nogil=True, error_model="numpy")
def _backward(
    from_output: Array, carried: Array, membrane: Array, to_x: Array, fires: bool, alpha: Any, rate: Array,
    threshold: Any, level: Any, v_min: Any, leaky: Any, subtract: bool,
) -> None:  # fmt: skip
    one, zero = rate.dtype.type(1), rate.dtype.type(0)
    for t in range(len(membrane) - 1, -1, -1):
        given, kept, to_drive = from_output[t], membrane[t], to_x[t]
        for n in range(len(carried)):
            m, g, later = kept[n], given[n], carried[n]
            if fires:
                width = one + alpha * abs(m / threshold - one)
                stays = later if subtract or m <= level else zero
                g = (g - later * (threshold if subtract else m)) / (threshold * width * width) + stays
            else:
                g = g + later
            g = g if m > v_min else zero
            to_drive[n] = g * rate[n]
            carried[n] = g - leaky * g * rate[n]
