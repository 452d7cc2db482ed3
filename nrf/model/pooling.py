"""Sum pooling: forward one addition per cell of the window, backward one copy to each."""

import itertools
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def sum_pool(x: Tensor, kernel: int) -> Tensor:
    """Sums of maps (N, C, H, W) over windows of kernel x kernel side by side; an incomplete edge is left out.

    Several times faster than torch's avg_pool2d where maps are few (the two polarities of a camera).

    >>> import torch
    >>> sum_pool(torch.ones(1, 2, 4, 4), 2)[0, 0].tolist()
    [[4.0, 4.0], [4.0, 4.0]]
    """
    y: Tensor = _SumPool.apply(x, kernel)  # type: ignore[no-untyped-call]
    return y


class _SumPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: int) -> Tensor:
        ctx.shape, ctx.kernel = x.shape, kernel
        height, width = (size // kernel * kernel for size in x.shape[-2:])
        whole = x[..., :height, :width]
        first, *others = itertools.product(range(kernel), repeat=2)
        y = whole[..., first[0] :: kernel, first[1] :: kernel].clone()
        for row, column in others:
            y += whole[..., row::kernel, column::kernel]
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        if not ctx.needs_input_grad[0]:
            return None, None
        to_x = functional.interpolate(gradients[0], scale_factor=ctx.kernel, mode="nearest")
        below, right = (size - done for size, done in zip(ctx.shape[-2:], to_x.shape[-2:], strict=True))
        return functional.pad(to_x, (0, right, 0, below)) if below or right else to_x, None
