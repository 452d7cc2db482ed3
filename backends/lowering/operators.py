"""Linear maps from the spikes of one population to the drive of another: convolutions and sparse matrices.

Both compose and add up exactly. Convolution after pooling stays a convolution wherever that is exact;
anything else becomes a sparse matrix.
"""

import itertools
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from nrf.arrays import Floats
from nrf.lazy import sparse

Pair = tuple[int, int]


class Operator:
    """A linear map from the spikes of one population to the drive of another: one of `KINDS`."""

    KINDS: ClassVar[tuple[type["Operator"], ...]]  # what a program file may hold in the place of an operator

    @property
    def inputs(self) -> int:
        """How many neurons it listens to."""
        raise NotImplementedError

    def matrix(self) -> "sparse.csr_array":
        """The operator as a sparse matrix (outputs, inputs)."""
        raise NotImplementedError

    def scaled(self, factors: Floats) -> "Operator":
        """Results multiplied by one factor per group of consecutive neurons."""
        matrix = self.matrix()
        each = np.repeat(factors, matrix.shape[0] // len(factors))
        return Matrix(sparse.csr_array(sparse.diags_array(each) @ matrix))


@dataclass(frozen=True)
class Conv(Operator):
    """Cross-correlation: y[o, h, w] = sum weight[o, i, j, k] x[i, h stride - padding + j dilation, ...]."""

    weight: NDArray[Any]  # (out, in / groups, kernel height, kernel width); integers once lowered
    input_shape: tuple[int, int, int]
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    kind: Literal["conv"] = "conv"

    @property
    def inputs(self) -> int:
        """Channels times places."""
        return prod(self.input_shape)

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of the result."""
        height, width = (
            (size + 2 * pad - gap * (kernel - 1) - 1) // step + 1
            for size, pad, gap, kernel, step in zip(
                self.input_shape[1:],
                self.padding,
                self.dilation,
                self.weight.shape[2:],
                self.stride,
                strict=True,
            )
        )
        return self.weight.shape[0], height, width

    @property
    def is_sound(self) -> bool:
        """Whether kernel, map and the other numbers fit each other."""
        out, per_group, *kernel = self.weight.shape
        positive = (
            min(out, per_group, *kernel, *self.input_shape, *self.stride, *self.dilation, self.groups) > 0
        )
        return (
            positive
            and min(self.padding) >= 0
            and out % self.groups == 0
            and per_group * self.groups == self.input_shape[0]
            and min(self.output_shape) > 0
        )

    def matrix(self) -> "sparse.csr_array":
        """The same operator as a sparse matrix (outputs, inputs)."""
        channels, height, width = self.input_shape
        out_channels, out_height, out_width = self.output_shape
        kernel_height, kernel_width = self.weight.shape[2:]
        o, i, j, k, h, w = np.ogrid[
            :out_channels, : self.weight.shape[1], :kernel_height, :kernel_width, :out_height, :out_width
        ]
        row = h * self.stride[0] - self.padding[0] + j * self.dilation[0]
        column = w * self.stride[1] - self.padding[1] + k * self.dilation[1]
        channel = i + (o // (out_channels // self.groups)) * self.weight.shape[1]
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        source = (channel * height + row) * width + column
        target = (o * out_height + h) * out_width + w
        value = self.weight[..., None, None]
        source, target, value, inside = np.broadcast_arrays(source, target, value, inside)
        keep = inside & (value != 0)
        size = (out_channels * out_height * out_width, channels * height * width)
        return sparse.csr_array((value[keep], (target[keep], source[keep])), shape=size)

    def scaled(self, factors: Floats) -> Operator:
        """A convolution again if there is one factor per channel."""
        if len(factors) != len(self.weight):
            return super().scaled(factors)
        return replace(self, weight=self.weight * factors[:, None, None, None])


@dataclass(frozen=True)
class Matrix(Operator):
    """y = weight @ x on flattened maps; `weight` is (outputs, inputs)."""

    weight: "sparse.csr_array"
    kind: Literal["matrix"] = "matrix"

    @property
    def inputs(self) -> int:
        """Columns."""
        return int(self.weight.shape[1])

    def matrix(self) -> "sparse.csr_array":
        """The operator itself."""
        return self.weight


Operator.KINDS = (Conv, Matrix)
ConvT = TypeVar("ConvT", bound=Conv)


def identity(shape: tuple[int, ...]) -> Matrix:
    return Matrix(sparse.eye_array(int(np.prod(shape)), format="csr"))


def summed(one: Operator, other: Operator) -> Operator | None:
    """Both operators at once; None where convolutions would have to become matrices."""
    if isinstance(one, Matrix) and isinstance(other, Matrix):
        return Matrix(sparse.csr_array(one.weight + other.weight))
    if isinstance(one, Conv) and isinstance(other, Conv) and _geometry(one) == _geometry(other):
        return replace(one, weight=one.weight + other.weight)
    return None


def _geometry(conv: Conv) -> tuple[Any, ...]:
    return conv.weight.shape, conv.input_shape, conv.stride, conv.padding, conv.dilation, conv.groups


def after(first: Operator | None, second: Operator) -> Operator:
    """`second` applied to the result of `first`, or alone."""
    if first is None:
        return second
    if isinstance(first, Conv) and isinstance(second, Conv):
        merged = _merge(first, second)
        if merged is not None:
            return merged
    if isinstance(first, Conv) and isinstance(second, Matrix):
        scales = _channel_scales(second, first.output_shape)
        if scales is not None:
            return first.scaled(scales)
    return Matrix(sparse.csr_array(second.matrix() @ first.matrix()))


def _channel_scales(matrix: Matrix, shape: tuple[int, int, int]) -> Floats | None:
    """One factor per channel, if that is all the matrix does."""
    coo = matrix.weight.tocoo()
    if matrix.weight.shape[0] != matrix.weight.shape[1] or np.any(coo.row != coo.col):
        return None
    factors = matrix.weight.diagonal().reshape(shape[0], -1)
    return np.asarray(factors[:, 0]) if np.all(factors == factors[:, :1]) else None


def _merge(first: Conv, second: Conv) -> Conv | None:
    """Two convolutions as one, or None where borders would make it inexact.

    kernel k1 + (k2 - 1) d2 s1, stride s1 s2, padding p1 + p2 s1. The second one's padding stands for zeros,
    so each window of the first that lies beyond its map must lie beyond the input as well.
    """
    first = undilated(first)
    for axis in (0, 1):
        size, kernel = first.input_shape[1 + axis], first.weight.shape[2 + axis]
        step, pad = first.stride[axis], first.padding[axis]
        before = -step - pad + kernel - 1 < 0  # last pixel of the window just before the map
        after = first.output_shape[1 + axis] * step - pad >= size  # first pixel of the window just after
        if second.padding[axis] and not (before and after):
            return None
    channel_wise = first.groups == first.input_shape[0] == first.weight.shape[0]  # pooling, for example
    if second.groups != 1 and not (channel_wise and first.groups == second.groups):
        second = replace(second, weight=ungrouped(second), groups=1)  # pooling after a convolution
    k1, k2 = first.weight.shape[2:], second.weight.shape[2:]
    gaps = [second.dilation[axis] * first.stride[axis] for axis in (0, 1)]
    kernel = [k1[axis] + (k2[axis] - 1) * gaps[axis] for axis in (0, 1)]
    inputs = first.input_shape[0] if second.groups == 1 else 1
    weight = np.zeros((second.weight.shape[0], inputs, *kernel))
    if channel_wise:  # all taps of the second at once for each of the first, which are few
        for j, k in itertools.product(*(reversed(range(size)) for size in k1)):
            tap = first.weight[:, 0, j, k]
            each = tap[None] if second.groups == 1 else np.repeat(tap, len(weight) // len(tap))[:, None]
            part = weight[:, :, j :: gaps[0], k :: gaps[1]][:, :, : k2[0], : k2[1]]
            part += second.weight * each[:, :, None, None]
    else:
        whole = ungrouped(first)
        for j, k in itertools.product(range(k2[0]), range(k2[1])):
            part = weight[:, :, j * gaps[0] :, k * gaps[1] :][:, :, : k1[0], : k1[1]]
            part += np.einsum("om,mihw->oihw", second.weight[:, :, j, k], whole)
    return Conv(
        weight,
        first.input_shape,
        (first.stride[0] * second.stride[0], first.stride[1] * second.stride[1]),
        (
            first.padding[0] + second.padding[0] * first.stride[0],
            first.padding[1] + second.padding[1] * first.stride[1],
        ),
        groups=second.groups,
    )


def undilated(conv: ConvT) -> ConvT:
    """The same convolution with the zeros between the taps of a dilated kernel written out."""
    rows, columns = conv.dilation
    features, channels, height, width = conv.weight.shape
    weight = np.zeros((features, channels, rows * (height - 1) + 1, columns * (width - 1) + 1))
    weight[:, :, ::rows, ::columns] = conv.weight
    return replace(conv, weight=weight, dilation=(1, 1))


def ungrouped(conv: Conv) -> Floats:
    """Weights (out, in, height, width) with the zeros between groups written out."""
    out, per_group = conv.weight.shape[:2]
    weight = np.zeros((out, conv.input_shape[0], *conv.weight.shape[2:]))
    size = out // conv.groups
    for group in range(conv.groups):
        rows = slice(group * size, (group + 1) * size)
        weight[rows, group * per_group : (group + 1) * per_group] = conv.weight[rows]
    return weight
