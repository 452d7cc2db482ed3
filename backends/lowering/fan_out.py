"""How many neurons a spike reaches: the synapses behind every source neuron, exactly, borders included."""

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border import FanOut, Placement
from nrf.backends.lowering.operators import Conv, Operator


def placed_fan_out(source: str, target: str, operator: Operator, placement: Placement) -> FanOut:
    """The synapses of a connection into every core of its target."""
    parts = [fan_out(operator, use.first, use.last) for use in placement.of(target)]
    return FanOut(source, target, np.array(parts, np.int64).reshape(len(parts), -1))


def fan_out(operator: Operator, first: int = 0, last: int | None = None) -> NDArray[np.int64]:
    """Synapses from each source neuron (flat) to the target neurons `first` to `last`, inclusive.

    A kernel counts whole, zeros in it too, as it is walked for every spike; a matrix has no zeros.

    >>> fan_out(Conv(np.ones((3, 1, 2, 2)), (1, 3, 3))).reshape(3, 3).tolist()
    [[3, 6, 3], [6, 12, 6], [3, 6, 3]]
    """
    if not isinstance(operator, Conv):
        matrix = operator.matrix()
        rows = matrix[first : matrix.shape[0] if last is None else last + 1]
        return np.bincount(rows.indices, minlength=matrix.shape[1]).astype(np.int64)
    channels, height, width = operator.output_shape
    chosen = np.zeros(channels * height * width, np.int64)
    chosen[first : None if last is None else last + 1] = 1
    targets = chosen.reshape(operator.groups, -1, height, width).sum(1)  # that a tap of a group leads to
    sides, (top, left) = operator.input_shape[1:], operator.padding
    kernel = operator.weight.shape[2:]
    reach = [
        (n - 1) * s + (k - 1) * d + 1
        for n, s, k, d in zip((height, width), operator.stride, kernel, operator.dilation, strict=True)
    ]
    room = [max(side + 2 * pad, far) for side, pad, far in zip(sides, (top, left), reach, strict=True)]
    padded = np.zeros((operator.groups, *room), np.int64)
    for j in range(kernel[0]):
        for k in range(kernel[1]):
            y, x = j * operator.dilation[0], k * operator.dilation[1]
            taps = padded[:, y :: operator.stride[0], x :: operator.stride[1]]
            taps[:, :height, :width] += targets
    inside = padded[:, top : top + sides[0], left : left + sides[1]]
    return np.repeat(inside, operator.input_shape[0] // operator.groups, axis=0).ravel()
