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

from collections.abc import Sequence
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
BLOCK = 2048  # neurons that stay in a core's own cache through all time steps


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


# Flat loops without branches on the data: the compiler makes vector instructions of these. A band of rows
# goes through all time steps while it is in a core's own cache. The way back computes its membranes anew
# instead of fetching them from memory.


class Bands(NamedTuple):
    """How maps (B, H, W, C) are cut, and pooled: none with side 0."""

    size: int  # neurons of a band: whole rows, those of a pool together
    clip: int  # neurons of a clip
    width: int  # neurons of a row
    channels: int
    side: int  # of a pool
    factor: Any  # of its sum


@compiled(nogil=True, error_model="numpy")
def _forward(x: Array, v: Array, output: Array, pooled: Array, rate: Array, p: Numbers, bands: Bands) -> None:
    zero = p.one - p.one
    floor = zero if p.rectified else p.one * -np.inf
    spare = np.empty(bands.size, x.dtype)  # where nobody keeps the output
    for first in range(0, len(v), bands.size):
        part = slice(first, first + bands.size)
        state, rates = v[part], rate[part]
        for t in range(len(x)):
            drive = x[t, part]
            out = output[t, part] if len(output) else spare
            for n in range(len(state)):
                m = _integrate(_where, state[n], drive[n], rates[n], p)
                if p.fires:
                    out[n] = p.one if m > p.level else zero
                else:
                    out[n] = max(m, floor)
                state[n] = _reset(_where, m, p)
            if bands.side:
                _pool(out, pooled[t], first, bands, False)


@compiled(nogil=True, error_model="numpy")
def _pool(full: Array, pooled: Array, first: int, bands: Bands, back: bool) -> None:
    """Sums over the pools of a band, times the factor; with `back`, add to every neuron its pool's value."""
    side, channels, zero = bands.side, bands.channels, bands.factor - bands.factor
    small = bands.width // side  # of a pooled row
    for row in range(len(full) // bands.width):
        line = (first // bands.width + row) // side * small
        for column in range(bands.width // channels):
            place = line + column // side * channels
            to = pooled[place : place + channels]
            here = full[row * bands.width + column * channels :][:channels]
            if back:
                for c in range(channels):
                    here[c] += bands.factor * to[c]
            else:
                fresh = row % side == 0 and column % side == 0
                for c in range(channels):
                    to[c] = (zero if fresh else to[c]) + bands.factor * here[c]


@compiled(nogil=True, error_model="numpy")
def _backward(
    from_output: Array, from_clip: Array, from_pooled: Array, carried: Array, x: Array, start: Array,
    to_x: Array, rate: Array, to_rate: Array, add: bool, p: Numbers, bands: Bands,
) -> None:  # fmt: skip
    zero = p.one - p.one
    membrane, given = np.empty((len(x), bands.size), x.dtype), np.empty(bands.size, x.dtype)
    own, before = np.empty_like(given), np.empty_like(given)
    for first in range(0, len(carried), bands.size):
        part = slice(first, first + bands.size)
        later, rates, sums = carried[part], rate[part], to_rate[part]
        before[:] = start[part]
        for t in range(len(x)):
            drive, kept = x[t, part], membrane[t]
            for n in range(len(later)):
                kept[n] = _integrate(_where, before[n], drive[n], rates[n], p)
                before[n] = _reset(_where, kept[n], p)
        for t in range(len(x) - 1, -1, -1):
            kept, to_drive = membrane[t], to_x[t, part]
            if len(from_output):
                given[:] = from_output[t, part]
            else:
                given[:] = from_clip[first // bands.clip] if len(from_clip) else zero
            if len(from_pooled):
                _pool(given, from_pooled[t], first, bands, True)
            for n in range(len(later)):
                own[n], later[n] = _step_back(_where, given[n], later[n], kept[n], rates[n], p)
            if len(sums) and t:  # to_x = g rate and m - v = rate (x - v)
                past = membrane[t - 1]
                for n in range(len(sums)):
                    sums[n] += own[n] * (kept[n] - _reset(_where, past[n], p))
            elif len(sums):
                past = start[part]
                for n in range(len(sums)):
                    sums[n] += own[n] * (kept[n] - past[n])
            if add:
                for n in range(len(later)):
                    to_drive[n] += own[n]
            else:
                to_drive[:] = own


def forward_torch(x: Tensor, v: Tensor, membrane: Tensor, output: Tensor, rate: Tensor, p: Numbers) -> None:
    """The same on whole maps; here membranes are kept for the way back."""
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


def scan(
    x: Tensor, v: Tensor | None, rate: Tensor, threshold: Tensor, dynamics: Dynamics
) -> tuple[Tensor, Tensor]:
    """Output over time and last membrane potential for a drive (T, B, C, H, W); from rest where v is None."""
    output, _, end = scan_all(x, [Population(v, rate, numbers_of(threshold, dynamics))])[0]
    assert output is not None  # nothing is pooled
    return output, end


class Population(NamedTuple):
    """What a scan needs to know of neurons beside their drive."""

    v: Tensor | None  # (B, C, H, W), None at rest
    rate: Tensor
    numbers: Numbers


Scanned = tuple[Tensor | None, Tensor | None, Tensor]  # output, pooled output, last membrane potential


def scan_all(
    x: Tensor, populations: Sequence[Population], side: int = 0, factor: float = 1.0
) -> list[Scanned]:
    """Several populations with one drive; with a `side`, sums over pools times `factor` of what they give.

    Where pools are asked for, the output itself is kept of those that fire only.
    """
    start = torch.zeros_like(x[0])
    states = [start if one.v is None else one.v for one in populations]
    rates, numbers = [one.rate for one in populations], [one.numbers for one in populations]
    given: Any = _Scan.apply(x, numbers, side, factor, *states, *rates)  # type: ignore[no-untyped-call]
    return [given[k : k + 3] for k in range(0, len(given), 3)]


def can_pool(x: Tensor, side: int) -> bool:
    """Whether a scan of this drive can pool in one go."""
    return x.device.type == COMPILED_FOR and not any(size % side for size in x.shape[-2:])


def numbers_of(threshold: Tensor, dynamics: Dynamics) -> Numbers:
    """What a step needs to know; a population that does not fire has a level that nothing exceeds."""
    below = torch.nextafter(threshold, threshold.new_tensor(-inf))
    level = (threshold if dynamics.fire == "gt" else below).item() if dynamics.fires else inf
    subtract = dynamics.reset == "subtract"
    figures = (1.0, threshold.item(), level, dynamics.v_min, float(dynamics.leaky), dynamics.alpha)
    return Numbers(*figures, dynamics.fires, subtract, dynamics.rectified)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, numbers: list[Numbers], side: int, factor: float, *own: Tensor) -> Any:
        drive, count = channels_last(x), len(numbers)
        given: list[Tensor | None] = []
        membranes: list[Tensor] = []
        for v, rate, p in zip(own[:count], own[count:], numbers, strict=True):
            end, rates = channels_last(v).clone(), channels_last(rate.expand(v.shape))
            output = torch.empty_like(drive) if p.fires or not side else drive[:0]
            pooled = drive.new_empty(_pooled_shape(drive, side)) if side else drive[:0]
            if x.device.type == COMPILED_FOR:
                arguments: Any = (
                    *map(_flat, (drive, end, output, pooled, rates)),
                    *_typed(drive, p, side, factor),
                )
                _forward(*arguments)
            else:
                membranes.append(torch.empty_like(drive) if any(ctx.needs_input_grad) else drive[:0])
                forward_torch(drive, end, membranes[-1], output, rates, p)
            given += [_maps(output) if len(output) else None, _maps(pooled) if side else None, _maps(end)]
        ctx.asked, ctx.count = (numbers, side, factor), count
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(drive, *own, *membranes)
        return tuple(given)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        (drive, *own), (numbers, side, factor), count = ctx.saved_tensors, ctx.asked, ctx.count
        states, all_rates, membranes = own[:count], own[count : 2 * count], own[2 * count :]
        to_drive = torch.empty_like(drive)
        to_states, to_rates = [], []
        for k, (v, rate, p) in enumerate(zip(states, all_rates, numbers, strict=True)):
            from_output, from_pooled, from_end = gradients[3 * k : 3 * k + 3]
            none, rates, start = drive[:0], channels_last(rate.expand(v.shape)), channels_last(v)
            carried = torch.zeros_like(start) if from_end is None else channels_last(from_end).clone()
            learns = ctx.needs_input_grad[4 + count + k]
            sums = torch.zeros_like(start) if learns else start.new_empty(0)
            if drive.device.type == COMPILED_FOR:
                clips = from_output is not None and not any(from_output.stride()[n] for n in (0, 2, 3, 4))
                from_clip = (
                    from_output[0, :, 0, 0, 0] if clips and from_output is not None else carried.new_empty(0)
                )
                whole = none if clips or from_output is None else channels_last(from_output)
                small = none if from_pooled is None else channels_last(from_pooled)
                arrays = (whole, from_clip, small, carried, drive, start, to_drive, rates, sums)
                arguments: Any = (*map(_flat, arrays), k > 0, *_typed(drive, p, side, factor))
                _backward(*arguments)
            else:
                whole = torch.zeros_like(drive) if from_output is None else channels_last(from_output)
                mine = torch.empty_like(drive)
                backward_torch(whole, carried, membranes[k], mine, rates, start, sums, p)
                to_drive = to_drive + mine if k else mine
            to_states.append(_maps(carried))
            to_rates.append((_maps(sums) / rate.square()).sum_to_size(rate.shape) if learns else None)
        return _maps(to_drive), None, None, None, *to_states, *to_rates


def _maps(x: Tensor) -> Tensor:
    """(..., H, W, C) as (..., C, H, W)."""
    return x.movedim(-1, -3)


def _pooled_shape(x: Tensor, side: int) -> tuple[int, ...]:
    steps, clips, rows, columns, channels = x.shape
    return steps, clips, rows // side, columns // side, channels


def _flat(x: Tensor) -> Array:
    """(T, neurons), (neurons,) or (clips,), as NumPy's."""
    return (x.flatten(1) if x.ndim == 5 else x.flatten()).numpy()


def _typed(x: Tensor, p: Numbers, side: int, factor: float) -> tuple[Numbers, Bands]:
    """Numbers in the precision of the drive (T, B, H, W, C), and bands that fit a core's own cache."""
    kind = np.dtype(str(x.dtype).removeprefix("torch.")).type
    _, _, rows, columns, channels = x.shape
    lines = max(side, 1)
    while rows % (2 * lines) == 0 and 2 * lines * columns * channels <= BLOCK:
        lines *= 2
    clip, width = rows * columns * channels, columns * channels
    bands = Bands(lines * width, clip, width, channels, side, kind(factor))
    return Numbers(*(number if isinstance(number, bool) else kind(number) for number in p)), bands
