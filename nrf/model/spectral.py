"""Dense convolution by discrete Fourier transforms: where kernels are large, it takes fewer multiplications.

    y[o] = sum over s of w[s] x[o + s]      is      Y[k] = X[k] conj(W[k])

for every frequency k of maps with room for the padding: one product of matrices over the channels instead of
one for every tap of the kernel. The transforms are products with small matrices too, down the columns and
across the rows; at these sizes the many steps of a fast transform cost more than they save. Of a few maps,
one wave down the columns after the other goes all the way, so that spectra stay in a core's cache.
"""

import operator
from collections.abc import Sequence
from functools import lru_cache, reduce
from math import inf
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from nrf.lanes import LANES
from nrf.model.scan import channels_last
from nrf.model.spectral_kernels import (
    Axes,
    Axis,
    Room,
    filter_and_correlate,
    transform,
    transform_back,
)
from nrf.model.threads import in_parallel

Array = NDArray[Any]
Sizes = Sequence[int]

# Times as long as torch's dense convolution takes for a multiplication, measured with AVX-512.
TRANSFORM, PRODUCT = 2.7, 1.35
MOST = 16 << 20  # bytes of a kernel's spectra
GROUP = 1 << 20  # bytes of the waves of the maps that are worked on together


class Plan(NamedTuple):
    """What the convolution of maps of one size with kernels of one size needs."""

    inputs: Axes
    outputs: Axes
    kernel: Axes
    weights: Array  # (frequencies,): how often each counts on the way back


@lru_cache(maxsize=64)
def plan(rows: int, columns: int, kernel: int, padding: int, dtype: np.dtype[Any]) -> Plan:
    """For maps and kernels of these sizes, with so many zeros around the maps."""
    axes, counts = [], []
    for size in (rows, columns):
        outputs = size + 2 * padding - kernel + 1
        period = max(size + padding, outputs) | 1  # odd, so that frequency 0 alone has no negative
        axes.append([_axis(places, period, dtype) for places in (size, outputs, kernel)])
        counts.append(np.repeat([1.0, 2.0], [1, period // 2]) / period)
    both_signs = np.repeat(counts[1] / 2, 2)  # of the frequencies along rows
    weights = np.multiply.outer(counts[0], both_signs).ravel().astype(dtype)
    inputs, outputs_, taps = zip(*axes, strict=True)
    return Plan(inputs, outputs_, taps, weights)


def _axis(size: int, period: int, dtype: np.dtype[Any]) -> Axis:
    places = (size - 1) / 2 - np.arange((size + 1) // 2)
    frequencies = period // 2 + 1
    angles = 2 * np.pi / period * np.outer(places, np.arange(frequencies))
    cosines, sines = np.cos(angles), np.sin(angles)
    once = np.where(places == 0, 0.5, 1.0)[:, None]
    waves = cosines * once, sines, cosines.T, sines.T
    return Axis(size, frequencies, *(each.astype(dtype).ravel() for each in waves))


def cost(maps: Sizes, weight: Sizes, padding: int) -> float:
    """Of maps (N, C, H, W) with kernels (F, C, K, K), per map: in multiplications of torch's convolution."""
    (count, inputs, rows, columns), (features, _, kernel, _) = maps, weight
    height, width = (size + 2 * padding - kernel + 1 for size in (rows, columns))
    down, across = (max(size + padding, out) // 2 + 1 for size, out in ((rows, height), (columns, width)))
    wide_inputs, wide_features = _wide(inputs), _wide(features)
    pairs = wide_inputs * wide_features
    if not count or 2 * down * across * 2 * pairs * 4 > MOST:
        return inf

    def of_a_map(height: int, width: int) -> int:
        return down * width * (height + 2 * across)

    transforms = wide_inputs * of_a_map(rows, columns) + wide_features * of_a_map(height, width)
    once = pairs * of_a_map(kernel, kernel) / count
    return TRANSFORM * (transforms + once) + PRODUCT * 8 * down * across * pairs


def dense_cost(maps: Sizes, weight: Sizes, padding: int) -> float:
    """The same of torch's, which fills features up to whole vectors as well."""
    (_, inputs, *sizes), (features, _, kernel, _) = maps, weight
    height, width = (size + 2 * padding - kernel + 1 for size in sizes)
    return float(inputs * _wide(features) * kernel**2 * height * width)


def _wide(channels: int) -> int:
    return channels + -channels % LANES


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, padding: int) -> Tensor:
    """Convolution of maps (N, C, H, W) with square kernels (F, C, K, K), zeros around.

    >>> convolve(torch.zeros(1, 16, 8, 8), torch.ones(32, 16, 5, 5), None, padding=2).shape
    torch.Size([1, 32, 8, 8])
    """
    y: Tensor = _Spectral.apply(x, weight, bias, padding)  # type: ignore[no-untyped-call]
    return y


class _Spectral(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, padding: int) -> Tensor:
        ctx.save_for_backward(x)
        here = ctx.plan = _plan(x.shape, weight, padding)
        ctx.kernel, ctx.features = _kernel(weight, here), len(weight)
        y, _ = _filtered(x, here.inputs, ctx.kernel, here.outputs)
        return y[:, : len(weight)] if bias is None else y[:, : len(weight)] + bias[:, None, None]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (g,), (x,), here = gradients, ctx.saved_tensors, ctx.plan
        wants_x, wants_weight, wants_bias, _ = ctx.needs_input_grad
        others = x if wants_weight else None
        to_x, products = _filtered(g, here.outputs, _turned(ctx.kernel), here.inputs, wants_x, others)
        to_weight = _weights(products, here)[: ctx.features, : x.shape[1]] if wants_weight else None
        to_bias = g.sum((0, 2, 3)) if wants_bias else None
        return to_x[:, : x.shape[1]] if wants_x else None, to_weight, to_bias, None


def input_gradient(shape: torch.Size, weight: Tensor, g: Tensor, padding: int) -> Tensor:
    """The gradient of maps of a shape (N, C, H, W) from that of what the convolution gives."""
    here = _plan(shape, weight, padding)
    to_x, _ = _filtered(g, here.outputs, _turned(_kernel(weight, here)), here.inputs)
    return to_x[:, : shape[1]]


def pays_back(shape: Sizes, weight: Sizes, padding: int) -> bool:
    """Whether it is faster than torch's, which has the inputs in its vectors here."""
    (count, inputs, *_), (features, _, kernel, _) = shape, weight
    height, width = (size + 2 * padding - kernel + 1 for size in shape[2:])
    back = (count, features, height, width), (inputs, features, kernel, kernel), kernel - 1 - padding
    return cost(shape, weight, padding) < dense_cost(*back)


def _plan(shape: torch.Size, weight: Tensor, padding: int) -> Plan:
    return plan(*shape[-2:], weight.shape[-1], padding, weight.detach().numpy().dtype)


def _whole(x: Tensor) -> Array:
    """Maps (N, C, H, W) as (N, H, W, C), channels filled up to whole vectors."""
    maps = channels_last(x)
    missing = -maps.shape[-1] % LANES
    return (functional.pad(maps, (0, missing)) if missing else maps).numpy()


def _filtered(
    x: Tensor, before: Axes, kernel: Array, after: Axes, filters: bool = True, others: Tensor | None = None
) -> tuple[Tensor, Array]:
    """What a kernel (frequencies, 2, C, F) makes of maps (N, C, H, W), if asked for: (N, F, H', W').

    With others of that size, also how these correlate with the maps: (frequencies, 2, F, C). Both are of
    whole vectors of channels.
    """
    inputs, outputs = kernel.shape[2:]
    maps = _whole(x).reshape(len(x), -1)
    size = after[0].size * after[1].size * outputs
    to = np.empty((len(x) if filters else 0, size), maps.dtype)
    far = to[:0] if others is None else _whole(others).reshape(len(x), -1)

    def work(part: slice) -> Array:
        correlated = np.zeros(kernel.size if len(far) else 0, kernel.dtype)
        each = before[0].frequencies * 2 * (before[1].size * inputs + after[1].size * outputs)
        few = max(4, min(GROUP // (each * maps.itemsize), part.stop - part.start)) | 1  # odd: see `_room`
        room = _room(few, (before, inputs), (after, outputs), maps.dtype)
        for first in range(part.start, part.stop, few):
            group = slice(first, min(first + few, part.stop))
            filter_and_correlate(
                maps[group], inputs, before, kernel.reshape(-1), to[group], far[group], correlated, outputs,
                after, room,
            )  # fmt: skip
        return correlated

    correlated = reduce(operator.add, in_parallel(work, len(x)))
    filtered = torch.from_numpy(to.reshape(len(to), after[0].size, after[1].size, outputs))
    return filtered.movedim(-1, 1), correlated.reshape(-1, 2, outputs, inputs)


def _room(count: int, before: tuple[Axes, int], after: tuple[Axes, int], dtype: np.dtype[Any]) -> Room:
    """For so many maps of the sizes and channels before and after.

    With an odd number, spectra do not lie powers of two apart, where they would share one place in the cache.
    """
    ends = before, after
    (down, across), _ = before
    waves = [count * down.frequencies * axes[1].size * 2 * channels for axes, channels in ends]
    spectra = [count * 2 * across.frequencies * 2 * channels for _, channels in ends]
    return Room(*(np.empty(size, dtype) for size in (*waves, *spectra)))


def _kernel(weight: Tensor, here: Plan) -> Array:
    """The spectra of kernels (frequencies, 2, C, F), real parts first, for whole vectors of channels."""
    taps = weight.detach().permute(2, 3, 1, 0)
    missing = [-size % LANES for size in taps.shape[2:]]
    taps = functional.pad(taps, (0, missing[1], 0, missing[0]))
    inputs, features = taps.shape[2:]
    flat, pairs = taps.reshape(1, -1).numpy(), inputs * features
    spectra = np.empty((len(here.weights), 2, inputs, features), flat.dtype)
    room = _room(1, (here.kernel, pairs), (here.kernel, pairs), flat.dtype)
    transform(flat, pairs, here.kernel, spectra.reshape(-1), room)
    spectra *= here.weights[:, None, None, None]
    return spectra


def _turned(kernel: Array) -> Array:
    """The kernel for the way back: conjugate, and inputs and features change places."""
    back = np.ascontiguousarray(kernel.swapaxes(2, 3))
    np.negative(back[:, 1], out=back[:, 1])
    return back


def _weights(products: Array, here: Plan) -> Tensor:
    """The gradient of weights (F, C, K, K) from that of their spectra."""
    inputs, features = products.shape[2:]
    pairs, (down, across) = inputs * features, here.kernel
    taps = np.empty((1, down.size * across.size * pairs), products.dtype)
    room = _room(1, (here.kernel, pairs), (here.kernel, pairs), taps.dtype)
    spectra = products * here.weights[:, None, None, None]
    transform_back(spectra.reshape(-1), pairs, here.kernel, taps, room)
    return torch.from_numpy(taps.reshape(down.size, across.size, inputs, features)).permute(3, 2, 0, 1)
