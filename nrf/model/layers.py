"""Convolutions and pooling over time: all steps and clips of (T, B, C, H, W) at once."""

import operator
from collections.abc import Callable
from functools import reduce

from torch import Tensor, nn
from torch.nn import functional

from nrf.model.convolution import convolve
from nrf.model.integers import Grid


def over_time(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Apply a layer for (N, C, H, W) to all time steps and clips of (T, B, C, H, W) at once."""
    y = layer(x.flatten(0, 1))
    return y.reshape(*x.shape[:2], *y.shape[1:])


class Conv(nn.Conv2d):
    """A convolution over (T, B, C, H, W); with a `grid`, of the weights rounded to a chip's numbers."""

    _is_leaf_module = True  # nirtorch's tracer stops here
    dropout: float = 0.0
    factor: float = 1.0  # on the weights, such as 1/K for a mean over K channels
    sparse: bool = True  # the maps are events or spikes
    grid: Grid | None

    @property
    def effective_weight(self) -> Tensor:
        """The weights that run: rounded where there is a grid."""
        weight = self.weight if self.factor == 1 else self.weight * self.factor
        return weight if self.grid is None else self.grid(weight)

    def forward(self, x: Tensor) -> Tensor:
        """All time steps at once."""
        if self.dropout:
            x = functional.dropout(x, self.dropout, self.training)
        weight = self.effective_weight
        stride, padding = self.stride[0], int(self.padding[0])
        how = {"sparse": self.sparse, "exact": self.grid is not None}
        return over_time(lambda frames: convolve(frames, weight, self.bias, stride, padding, **how), x)


class TransposedConv(Conv):
    """A transposed convolution without padding: the map grows by kernel - 1. Has no counterpart in NIR."""

    def forward(self, x: Tensor) -> Tensor:
        """All time steps at once."""
        weight = self.effective_weight.transpose(0, 1)
        return over_time(lambda frames: functional.conv_transpose2d(frames, weight, self.bias), x)


class AvgPool(nn.AvgPool2d):
    """Average pooling over (T, B, C, H, W)."""

    _is_leaf_module = True
    kernel_size: int

    @property
    def factor(self) -> float:
        """Of the sum over a pool."""
        return 1 / (self.divisor_override or self.kernel_size**2)

    def forward(self, x: Tensor) -> Tensor:
        """All time steps at once: on a CPU several times as fast as torch's pooling.

        Frames, map by map in memory, as sums of every second row and column; else as a convolution.
        """
        side, maps = self.kernel_size, x.shape[-3]
        if x.is_contiguous():
            rows, columns = (size // side * side for size in x.shape[-2:])
            x = reduce(operator.add, (x[..., k:rows:side, :] for k in range(side)))
            x = reduce(operator.add, (x[..., k:columns:side] for k in range(side)))
            return x * self.factor
        kernel = x.new_full((maps, 1, side, side), self.factor)
        return over_time(lambda frames: functional.conv2d(frames, kernel, stride=side, groups=maps), x)


class SumPool(AvgPool):
    """Sum pooling over (T, B, C, H, W): counts of events stay whole numbers."""

    def __init__(self, kernel: int) -> None:
        super().__init__(kernel, divisor_override=1)


class MaxPool(nn.MaxPool2d):
    """Maximum over windows of (T, B, C, H, W). Has no counterpart in NIR."""

    _is_leaf_module = True

    def forward(self, x: Tensor) -> Tensor:
        """All time steps at once."""
        return over_time(super().forward, x)


POOLING: dict[str, Callable[[int], nn.Module]] = {"avg": AvgPool, "sum": SumPool, "max": MaxPool}


class BatchNorm(nn.BatchNorm2d):
    """Normalisation over time and batch. For comparison only: it has no counterpart on a chip."""

    def forward(self, x: Tensor) -> Tensor:
        """All time steps at once."""
        return over_time(super().forward, x)
