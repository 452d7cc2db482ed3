"""All time steps of populations in one go, forward and back, with the steps of `nrf.model.dynamics`.

Torch gives it whole maps. On a CPU it is compiled (`nrf.model.scan_kernels`) and goes from neuron to neuron,
because one pass over memory is several times faster than one per operation.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nrf.model.dynamics import Dynamics, Numbers, integrate, numbers_of, reset, step_back
from nrf.model.scan_kernels import Bands, backward, forward
from nrf.model.threads import in_parallel

Array = NDArray[Any]
COMPILED_FOR = "cpu"
BLOCK = 2048  # neurons that stay in a core's own cache through all time steps
HELD = 1 << 20  # bytes of a drive that stay in its larger caches while one population after another hears it


class Population(NamedTuple):
    """What a scan needs to know of neurons beside their drive."""

    v: Tensor | None  # (B, C, H, W), None at rest
    rate: Tensor
    numbers: Numbers


class Scanned(NamedTuple):
    """What came out of one."""

    output: Tensor | None  # (T, B, C, H, W); None where sums over pools were asked for
    pooled: Tensor | None  # (T, B, C, rows, columns)
    firing: Tensor | None  # (T, B): the share of neurons that fire
    end: Tensor  # last membrane potential


def scan(
    x: Tensor, v: Tensor | None, rate: Tensor, threshold: Tensor, dynamics: Dynamics
) -> tuple[Tensor, Tensor]:
    """Output over time and last membrane potential for a drive (T, B, C, H, W); from rest where v is None."""
    scanned = scan_all(x, [Population(v, rate, numbers_of(threshold, dynamics))])[0]
    assert scanned.output is not None  # nothing is pooled
    return scanned.output, scanned.end


def scan_all(
    x: Tensor, populations: Sequence[Population], side: int = 0, factor: float = 1.0
) -> list[Scanned]:
    """Several populations with one drive; with a `side`, sums over pools times `factor` of what they give."""
    start = torch.zeros_like(x[0])
    states = [start if one.v is None else one.v for one in populations]
    rates, numbers = [one.rate for one in populations], [one.numbers for one in populations]
    given: Any = _Scan.apply(x, numbers, side, factor, *states, *rates)  # type: ignore[no-untyped-call]
    return [Scanned(*given[k : k + 4]) for k in range(0, len(given), 4)]


def can_pool(x: Tensor, side: int) -> bool:
    """Whether a scan of this drive can pool in one go."""
    return x.device.type == COMPILED_FOR and not any(size % side for size in x.shape[-2:])


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, numbers: list[Numbers], side: int, factor: float, *own: Tensor) -> Any:
        drive, count = channels_last(x), len(numbers)
        none, clips = drive[:0], drive.shape[1]
        results: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        membranes: list[Tensor] = []
        calls: list[Any] = []
        for v, rate, p in zip(own[:count], own[count:], numbers, strict=True):
            end, rates = channels_last(v).clone(), channels_last(rate.expand(v.shape))
            output = none if side else torch.empty_like(drive)
            pooled = drive.new_empty(_pooled_shape(drive, side)) if side else none
            if x.device.type == COMPILED_FOR:
                bands = _bands(drive, side, factor)
                fired = drive.new_empty(len(drive), drive[0].numel() // bands.size)
                arrays = map(_flat, (end, output, pooled, fired, rates))
                calls.append((*arrays, _typed(p, drive), bands))
            else:
                membranes.append(torch.empty_like(drive) if any(ctx.needs_input_grad) else none)
                forward_torch(drive, end, membranes[-1], output, rates, p)
                fired = output.flatten(1)
            results.append((output, pooled, fired, end))
        _in_turn(forward, calls, drive)
        given: list[Tensor | None] = []
        for p, (output, pooled, fired, end) in zip(numbers, results, strict=True):
            share = fired.reshape(len(drive), clips, -1).sum(2) / drive[0, 0].numel() if p.fires else None
            given += [None if side else _maps(output), _maps(pooled) if side else None, share, _maps(end)]
        ctx.asked, ctx.count = (numbers, side, factor), count
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(drive, *own, *membranes)
        return tuple(given)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        (drive, *own), (numbers, side, factor), count = ctx.saved_tensors, ctx.asked, ctx.count
        states, all_rates, membranes = own[:count], own[count : 2 * count], own[2 * count :]
        none, to_drive = drive[:0], torch.empty_like(drive)
        to_states, all_sums = [], []
        calls: list[Any] = []
        for k, (v, rate, p) in enumerate(zip(states, all_rates, numbers, strict=True)):
            from_output, from_pooled, from_firing, from_end = gradients[4 * k : 4 * k + 4]
            from_clips = torch.zeros(drive.shape[:2]).to(drive)  # one number for all neurons of a clip
            if from_firing is not None:
                from_clips += from_firing / drive[0, 0].numel()
            rates, start = channels_last(rate.expand(v.shape)), channels_last(v)
            carried = torch.zeros_like(start) if from_end is None else channels_last(from_end).clone()
            learns = ctx.needs_input_grad[4 + count + k]
            sums = torch.zeros_like(start) if learns else start.new_empty(0)
            if drive.device.type == COMPILED_FOR:
                whole = none if from_output is None else channels_last(from_output)
                small = none if from_pooled is None else channels_last(from_pooled)
                arrays = (whole, from_clips, small, carried, start, rates, sums)
                calls.append((*map(_flat, arrays), k > 0, _typed(p, drive), _bands(drive, side, factor)))
            else:
                whole = from_clips[..., None, None, None].expand(drive.shape)
                whole = whole if from_output is None else whole + channels_last(from_output)
                mine = torch.empty_like(drive)
                backward_torch(whole, carried, membranes[k], mine, rates, start, sums, p)
                to_drive = to_drive + mine if k else mine
            to_states.append(_maps(carried))
            all_sums.append(_maps(sums) if learns else None)
        _in_turn(backward, calls, drive, to_drive)
        to_rates = [
            None if sums is None else sums.sum_to_size(rate.shape) / rate.square()
            for rate, sums in zip(all_rates, all_sums, strict=True)
        ]
        return _maps(to_drive), None, None, None, *to_states, *to_rates


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


def _in_turn(
    kernel: Callable[..., None], calls: Sequence[Any], x: Tensor, to_x: Tensor | None = None
) -> None:
    """Call the kernel for every population on a few bands, then on the next.

    Several hear a drive from a copy in one piece: its steps lie so far apart in memory that they take each
    other's place in the cache. The same holds for its gradient.
    """
    if not calls:
        return
    drive, bands = _flat(x), calls[0][-1]
    shared = [drive] if to_x is None else [drive, _flat(to_x)]
    few = bands.size * max(1, HELD // (len(drive) * bands.size * drive.itemsize))

    def work(part: slice) -> None:
        last = min(part.stop * bands.size, drive.shape[1])
        room = np.empty((len(drive) + 2) * bands.size, drive.dtype)
        copies = [np.empty(len(drive) * few, drive.dtype) for _ in shared]
        for begin in range(part.start * bands.size, last, few):
            chunk = slice(begin, min(begin + few, last))
            if len(calls) == 1:
                kernel(*shared, 0, chunk.start, chunk.stop, room, *calls[0])
                continue
            pieces = [copy[: len(drive) * (chunk.stop - begin)].reshape(len(drive), -1) for copy in copies]
            pieces[0][:] = drive[:, chunk]
            for arguments in calls:
                kernel(*pieces, begin, chunk.start, chunk.stop, room, *arguments)
            if to_x is not None:
                shared[1][:, chunk] = pieces[1]

    in_parallel(work, drive.shape[1] // bands.size)


def _maps(x: Tensor) -> Tensor:
    """(..., H, W, C) as (..., C, H, W)."""
    return x.movedim(-1, -3)


def _pooled_shape(x: Tensor, side: int) -> tuple[int, ...]:
    steps, clips, rows, columns, channels = x.shape
    return steps, clips, rows // side, columns // side, channels


def _flat(x: Tensor) -> Array:
    """(T, neurons), (neurons,) or (T, parts), as NumPy's."""
    return (x.flatten() if x.ndim in (1, 4) else x.flatten(1)).numpy()


def _typed(p: Numbers, x: Tensor) -> Numbers:
    """Numbers in the precision of a drive."""
    kind = _kind(x)
    return Numbers(*(number if isinstance(number, bool) else kind(number) for number in p))


def _bands(x: Tensor, side: int, factor: float) -> Bands:
    """Bands of a drive (T, B, H, W, C) that fit a core's own cache."""
    _, _, rows, columns, channels = x.shape
    lines = max(side, 1)
    while rows % (2 * lines) == 0 and 2 * lines * columns * channels <= BLOCK:
        lines *= 2
    width = columns * channels
    return Bands(lines * width, rows * width, width, channels, side, _kind(x)(factor))


def _kind(x: Tensor) -> Any:
    return np.dtype(str(x.dtype).removeprefix("torch.")).type
