"""Dense convolution by discrete Fourier transforms: where kernels are large, it takes fewer multiplications.

    y[o] = sum over s of w[s] x[o + s]      is      Y[k] = X[k] conj(W[k])

for every frequency k of maps with room for the padding: one product of matrices over the channels instead of
one for every tap of the kernel. The transforms are products with small matrices too: down the rows,
then across the columns; at these sizes the many steps of a fast transform cost more than they save.
"""

import operator
from collections.abc import Iterator, Sequence
from functools import lru_cache, reduce
from math import inf
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from nrf.model.scan import channels_last
from nrf.model.spectral_kernels import (
    LANES,
    Axis,
    conjugate_products,
    conjugate_products_back,
    products,
    transform,
    transform_back,
)
from nrf.model.threads import in_parallel

Array = NDArray[Any]
Sizes = Sequence[int]
Axes = tuple[Axis, Axis]  # down the rows of a map, and across its columns

# Times as long as torch's dense convolution takes for a multiplication, measured with AVX-512.
TRANSFORM, PRODUCT = 2.7, 1.35
MOST = 32 << 20  # bytes of a kernel's spectra
GROUP = 4 << 20  # bytes of the spectra of the maps that are worked on together


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
    places = np.arange(size) - (size - 1) / 2
    frequencies = period // 2 + 1
    angles = 2 * np.pi / period * np.outer(np.arange(frequencies), places)
    half = (size + 1) // 2
    cosines, sines = np.cos(angles[:, :half]), np.sin(angles[:, half:])
    return Axis(size, frequencies, cosines.astype(dtype).ravel(), sines.astype(dtype).ravel())


def cost(maps: Sizes, weight: Sizes, padding: int) -> float:
    """Of maps (N, C, H, W) with kernels (F, C, K, K), per map: in multiplications of torch's convolution."""
    (count, inputs, rows, columns), (features, _, kernel, _) = maps, weight
    height, width = (size + 2 * padding - kernel + 1 for size in (rows, columns))
    down, across = (max(size + padding, out) // 2 + 1 for size, out in ((rows, height), (columns, width)))
    wide_inputs, wide_features = _wide(inputs), _wide(features)
    pairs = wide_inputs * wide_features
    if not count or 2 * down * across * 4 * pairs * 4 > MOST:
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
        ctx.plan = _plan(x.shape, weight, padding)
        ctx.kernel, ctx.features = _kernel(weight, ctx.plan), len(weight)
        y = _filtered(x, ctx.kernel, ctx.plan.inputs, ctx.plan.outputs)[:, : len(weight)]
        return y if bias is None else y + bias[:, None, None]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (g,), (x,) = gradients, ctx.saved_tensors
        to_x, to_weight = _gradients(x, g, ctx.kernel, ctx.plan, *ctx.needs_input_grad[:2])
        to_bias = g.sum((0, 2, 3)) if ctx.needs_input_grad[2] else None
        return to_x, None if to_weight is None else to_weight[: ctx.features, : x.shape[1]], to_bias, None


def input_gradient(shape: torch.Size, weight: Tensor, g: Tensor, padding: int) -> Tensor:
    """The gradient of maps of a shape (N, C, H, W) from that of what the convolution gives."""
    here = _plan(shape, weight, padding)
    return _filtered(g, _kernel(weight, here).swapaxes(1, 2), here.outputs, here.inputs)[:, : shape[1]]


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


def _filtered(x: Tensor, kernel: Array, before: Axes, after: Axes) -> Tensor:
    """Maps (N, C, H, W) of one size as maps of another, through a kernel (frequencies, 2 C, 2 F)."""
    maps, kernel = _whole(x), np.ascontiguousarray(kernel)
    filtered = np.empty((len(maps), after[0].size, after[1].size, kernel.shape[2] // 2), maps.dtype)

    def work(part: slice) -> None:
        for group in _groups(part, kernel):
            _maps(_product(_spectra(maps[group], before), kernel), after, filtered[group])

    in_parallel(work, len(maps))
    return torch.from_numpy(filtered).movedim(-1, 1)


def _gradients(
    x: Tensor, g: Tensor, kernel: Array, here: Plan, wants_x: bool, wants_weight: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Those of the maps and of the weights; both need the spectra of `g`."""
    maps, errors, back = _whole(x), _whole(g), np.ascontiguousarray(kernel.swapaxes(1, 2))
    to_maps = np.empty_like(maps) if wants_x else None

    def work(part: slice) -> Array:
        products = np.zeros_like(kernel)
        for group in _groups(part, kernel):
            spectra = _spectra(errors[group], here.outputs)
            if to_maps is not None:
                _maps(_product(spectra, back), here.inputs, to_maps[group])
            if wants_weight:
                _correlate(_spectra(maps[group], here.inputs), spectra, products)
        return products

    products = reduce(operator.add, in_parallel(work, len(maps)))
    to_x = None if to_maps is None else torch.from_numpy(to_maps).movedim(-1, 1)[:, : x.shape[1]]
    return to_x, _weights(products, here) if wants_weight else None


def _groups(part: slice, kernel: Array) -> Iterator[slice]:
    """A few maps at a time, whose spectra stay in a core's own cache."""
    size = max(8, GROUP // (len(kernel) * sum(kernel.shape[1:]) * kernel.itemsize))
    for first in range(part.start, part.stop, size):
        yield slice(first, min(first + size, part.stop))


def _spectra(maps: Array, axes: Axes) -> Array:
    """Of maps (N, H, W, C): (frequencies, N, 2 C)."""
    count, _, _, channels = maps.shape
    down, across = axes
    spectra = np.empty((2 * down.frequencies * across.frequencies, count, 2 * channels), maps.dtype)
    transform(maps.reshape(count, -1), channels, down, across, spectra.reshape(-1), _room(axes, spectra))
    return spectra


def _maps(spectra: Array, axes: Axes, maps: Array) -> None:
    """Maps (N, H, W, C) of spectra (frequencies, N, 2 C)."""
    transform_back(
        spectra.reshape(-1), maps.shape[-1], *axes, maps.reshape(len(maps), -1), _room(axes, spectra)
    )


def _room(axes: Axes, spectra: Array) -> Array:
    """For one map on its way to and fro: folded, its waves along columns, and one of them along rows."""
    down, across = axes
    places = down.size * across.size + 2 * down.frequencies * across.size + 4 * across.frequencies
    return np.empty(places * spectra.shape[2] // 2, spectra.dtype)


def _product(spectra: Array, kernel: Array) -> Array:
    """(frequencies, N, 2 C) times (frequencies, 2 C, 2 F)."""
    frequencies, count, inputs = spectra.shape
    outputs = kernel.shape[2]
    y = np.empty((frequencies, count, outputs), spectra.dtype)
    products(
        y.reshape(-1), spectra.reshape(-1), kernel.reshape(-1), (frequencies, count, inputs, outputs),
        (0, count * outputs, outputs), (0, count * inputs, inputs, 1), (0, inputs * outputs, outputs), False,
    )  # fmt: skip
    return y


def _correlate(spectra: Array, errors: Array, to: Array) -> None:
    """Add (frequencies, 2 C, N) times (frequencies, N, 2 F) to (frequencies, 2 C, 2 F)."""
    frequencies, count, inputs = spectra.shape
    outputs = errors.shape[2]
    products(
        to.reshape(-1), spectra.reshape(-1), errors.reshape(-1), (frequencies, inputs, count, outputs),
        (0, inputs * outputs, outputs), (0, count * inputs, 1, inputs), (0, count * outputs, outputs), True,
    )  # fmt: skip


def _kernel(weight: Tensor, here: Plan) -> Array:
    """The product with conj(W) as one of real numbers (frequencies, 2 C, 2 F), real parts first."""
    taps = weight.detach().permute(2, 3, 1, 0)
    missing = [-size % LANES for size in taps.shape[2:]]
    taps = functional.pad(taps, (0, missing[1], 0, missing[0]))
    inputs, features = taps.shape[2:]
    spectra = _spectra(taps.flatten(2).numpy()[None], here.kernel)
    kernel = np.empty((len(spectra), 2 * inputs, 2 * features), spectra.dtype)
    conjugate_products(spectra.reshape(-1), here.weights, kernel)
    return kernel


def _weights(products: Array, here: Plan) -> Tensor:
    """The gradient of weights (F, C, K, K) from the products of all parts of X and of G."""
    inputs, features = (size // 2 for size in products.shape[1:])
    spectra = np.empty((len(products), 1, 2 * inputs * features), products.dtype)
    conjugate_products_back(products, here.weights, spectra.reshape(-1))
    down, across = here.kernel
    taps = np.empty((1, down.size, across.size, inputs * features), products.dtype)
    _maps(spectra, here.kernel, taps)
    return torch.from_numpy(taps.reshape(down.size, across.size, inputs, features)).permute(3, 2, 0, 1)
