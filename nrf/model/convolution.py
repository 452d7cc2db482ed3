"""Event-driven convolution of sparse maps: on a CPU, work is done for the events only.

    y[n, :, r, s] = sum over i, j, c of x[n, c, i, j] w[:, c, i - r + p, j - s + p]

Every x that is not 0 is scattered: it adds its share of the kernel to the K x K outputs around it. The
gradient of the weights is gathered the same way back. A row of those outputs lies in one piece in
channels-last memory, so the inner loop is one long vector operation. The gradient of the input is dense,
because surrogate gradients are: that of large kernels goes through spectra (`nrf.model.spectral`), the others
stay with torch. So does every convolution for which this would not be faster.
"""

from math import inf
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv2d_input

from nrf.kernels import compiled, reach
from nrf.lanes import LANES, put, take
from nrf.model import spectral
from nrf.model.scan import channels_last
from nrf.model.threads import in_parallel
from nrf.vectors import BLOCK, count, lowest_bit, nonzero_bits

Array = NDArray[Any]

# Times as long as torch's dense convolution takes for a multiplication, measured with AVX-512.
ROW, LANE = 160, 3  # of an event: to begin with each row of the kernel, and for each of its weights
SHORT = 4  # lanes of the shortest vectors


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: int,
    padding: int,
    *,
    sparse: bool = True,
    exact: bool = True,
) -> Tensor:
    """Convolution of maps (N, C, H, W) with square kernels (features, C, K, K), zeros around.

    Where maps cannot be `sparse`, nobody counts. Unless sums of whole numbers have to be `exact`, dense maps
    that a gradient is wanted of may go through their spectra.

    >>> import torch
    >>> convolve(torch.zeros(1, 2, 8, 8), torch.ones(16, 2, 5, 5), None, stride=1, padding=2).shape
    torch.Size([1, 16, 8, 8])
    """
    if stride > 1 or x.device.type != "cpu" or not len(x):
        return functional.conv2d(x, weight, bias, stride, padding)
    dense = spectral.dense_cost(x.shape, weight.shape, padding)
    spectra = inf if exact or not torch.is_grad_enabled() else spectral.cost(x.shape, weight.shape, padding)
    if sparse and _events_cost(x, weight) < min(dense, spectra):
        y: Tensor = _EventDriven.apply(x, weight, bias, padding)  # type: ignore[no-untyped-call]
        return y
    if spectra < dense:
        return spectral.convolve(x, weight, bias, padding)
    return functional.conv2d(x, weight, bias, stride, padding)


def _events_cost(x: Tensor, weight: Tensor) -> float:
    """Like `spectral.cost`."""
    features, _, kernel, _ = weight.shape
    maps = x.detach() if x.is_contiguous() else channels_last(x)
    events: float = count(maps.flatten().numpy()) / len(x)
    return events * kernel * (ROW + LANE * kernel * features)


class _EventDriven(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, padding: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.padding = padding
        features, _, kernel, _ = weight.shape
        events, taps = channels_last(x), _taps(weight)
        rows, columns = (size + 2 * padding - kernel + 1 for size in x.shape[-2:])
        y = x.new_empty(len(x), rows, columns, taps.shape[-1])
        in_parallel(lambda part: _visit(events[part], taps, y[part], padding, learn=False), len(x))
        y = y[..., :features]
        return (y if bias is None else y + bias).movedim(-1, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (g,), (x, weight) = gradients, ctx.saved_tensors
        to_x = to_weight = None
        to_bias = g.sum((0, 2, 3)) if ctx.needs_input_grad[2] else None
        if ctx.needs_input_grad[0]:
            fast = spectral.pays_back(x.shape, weight.shape, ctx.padding)
            gradient = spectral.input_gradient if fast else conv2d_input
            to_x = gradient(x.shape, weight, g, padding=ctx.padding)
        if ctx.needs_input_grad[1]:
            events, errors = channels_last(x), _filled(channels_last(g))

            def learn(part: slice) -> Tensor:
                taps = torch.zeros_like(_taps(weight))
                _visit(events[part], taps, errors[part], ctx.padding, learn=True)
                return taps

            taps = torch.stack(in_parallel(learn, len(x))).sum(0)
            to_weight = taps.flip(1, 2).permute(3, 0, 1, 2)[: len(weight)]
        return to_x, to_weight, to_bias, None


def _taps(weight: Tensor) -> Tensor:
    """(features, C, K, K) as (C, K, K, features), backwards: in the order of an event's outputs."""
    return _filled(weight.detach().permute(1, 2, 3, 0).flip(1, 2).contiguous())


def _filled(x: Tensor) -> Tensor:
    """Maps (..., features) with features filled up to short vectors."""
    missing = -x.shape[-1] % SHORT
    return functional.pad(x, (0, missing)) if missing else x


def _visit(x: Tensor, taps: Tensor, y: Tensor, padding: int, *, learn: bool) -> None:
    """For every event of x (N, H, W, C), scatter its taps (C, K, K, F) to its outputs, y (N, R, S, F) in all.

    With `learn`, gather the gradient of the taps from that of the outputs instead.
    """
    sizes = *taps.shape, *y.shape[1:3], padding
    _visit_events(x.flatten(2).numpy(), taps.flatten().numpy(), y.flatten().numpy(), sizes, learn)


@compiled(nogil=True, error_model="numpy", allocates=False)
def _visit_events(x: Array, taps: Array, y: Array, sizes: tuple[int, ...], learn: bool) -> None:
    """The same of x (N, H, W C), and of flat taps and outputs."""
    inputs, kernel, _, features, rows, columns, padding = sizes
    size = rows * columns * features
    for n in range(len(x)):
        if not learn:
            y[n * size : (n + 1) * size] = 0
        for i in range(x.shape[1]):
            line = x[n, i]
            _, top, first_row, end_row = reach(i, padding, 1, kernel, rows)
            for begin in range(0, len(line), BLOCK):
                events = nonzero_bits(line, begin)
                while events:
                    place = np.uint32(begin + lowest_bit(events))
                    events &= events - np.uint64(1)
                    j = np.int64(place // np.uint32(inputs))  # few bits without a sign are divided quickly
                    _, left, first, end = reach(j, padding, 1, kernel, columns)
                    out = (((n * rows + top + first_row) * columns) + left + first) * features
                    tap = ((place - j * inputs) * kernel + first_row) * kernel * features + first * features
                    for _ in range(first_row, end_row):
                        if learn:
                            _add_scaled(taps, tap, y, out, (end - first) * features, line[place])
                        else:
                            _add_scaled(y, out, taps, tap, (end - first) * features, line[place])
                        out += columns * features
                        tap += kernel * features


@compiled(inline="always", allocates=False)
def _add_scaled(cells: Array, cell: int, row: Array, first: int, lanes: int, factor: Any) -> None:
    """cells[cell + k] += factor row[first + k] for all k below `lanes`, a multiple of SHORT."""
    k = 0
    while k + LANES <= lanes:
        put(cells, cell + k, take(cells, cell + k, LANES) + take(row, first + k, LANES) * factor)
        k += LANES
    while k < lanes:
        put(cells, cell + k, take(cells, cell + k, SHORT) + take(row, first + k, SHORT) * factor)
        k += SHORT
