"""Rounding with error feedback: weights are rounded so that errors cancel on the inputs that really occur.

Weights are rounded one by one, and the error of each is made up for by those still to come, as far as the
inputs allow (Hessian-based rounding, as in "optimal brain quantisation"):

    H = mean of x x' over patches x of the input         U = upper Cholesky factor of H^-1
    w[j:] <- w[j:] - (w[j] - round(w[j])) / U[j, j] U[j, j:]

Since a neuron adds its input up until it fires, x is the input added up over the last steps.
"""

from collections.abc import Iterable

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from nrf.arrays import Floats
from nrf.backends.lowering.operators import Conv, Operator

MEMORY = 0.1  # share of the newest step in the running sum of inputs
PATCHES = 4000
SAMPLES = 8  # steps of a clip that patches are taken from
DAMPING = 0.01  # of the mean diagonal of H, for inputs that hardly occur
SCARCE = 1.0  # the same for a matrix, of which a step is one sample only
LARGEST = 2048  # inputs of a neuron from which H would take too long


def inverse_factor(operator: Operator, clips: Iterable[NDArray[np.number]]) -> Floats | None:
    """U for an operator and what it hears, (steps, inputs) per clip; None where there is no such H.

    A convolution has one H for all its places; groups have none in common.
    """
    if isinstance(operator, Conv):
        if operator.groups != 1:
            return None
        size, damping = operator.weight[0].size, DAMPING
    else:
        size, damping = operator.inputs, SCARCE
    if size > LARGEST:
        return None
    rng, total, seen = np.random.default_rng(0), np.zeros((size, size)), 0
    for counts in clips:
        running = np.zeros(counts.shape[1])
        chosen = {*rng.choice(len(counts), min(len(counts), SAMPLES), replace=False).tolist()}
        for step, arriving in enumerate(counts):
            running = running * (1 - MEMORY) + arriving
            if step in chosen or not isinstance(operator, Conv):
                patches = _patches(operator, running)
                patches = patches[patches.any(axis=1)]
                patches = patches[rng.permutation(len(patches))[: PATCHES // SAMPLES]]
                total += patches.T @ patches
                seen += len(patches)
    total /= max(seen, 1)
    damped = total + np.eye(size) * (damping * np.trace(total) / size + 1e-9)
    return np.asarray(np.linalg.cholesky(np.linalg.inv(damped)).T)


def _patches(operator: Operator, signal: Floats) -> Floats:
    """What neurons hear of a signal (inputs,), each with a row of its own."""
    if not isinstance(operator, Conv):
        return signal[None]
    around = (0, 0), *((pad, pad) for pad in operator.padding)
    sides = zip(operator.dilation, operator.weight.shape[2:], strict=True)
    reach = [gap * (side - 1) + 1 for gap, side in sides]
    windows = sliding_window_view(np.pad(signal.reshape(operator.input_shape), around), reach, axis=(1, 2))
    windows = windows[:, :: operator.stride[0], :: operator.stride[1]]
    windows = windows[..., :: operator.dilation[0], :: operator.dilation[1]]
    return windows.transpose(1, 2, 0, 3, 4).reshape(-1, operator.weight[0].size)


def rounded(weight: Floats, upper: Floats | None, lowest: float, highest: float) -> Floats:
    """Weights (rows, ...) as whole numbers within these ends; to the nearest without U. A 0 stays one."""

    def nearest(values: Floats) -> Floats:
        whole = np.round(values)
        return np.clip(whole, lowest, highest, out=whole)

    if upper is None:
        return nearest(weight)
    left = weight.reshape(len(weight), -1).T.copy()  # input by input
    whole, used = np.zeros(left.shape), left != 0
    for j in range(len(left)):
        whole[j] = nearest(left[j]) * used[j]
        error = (left[j] - whole[j]) * used[j] / upper[j, j]
        left[j + 1 :] -= upper[j, j + 1 :, None] * error
    return np.ascontiguousarray(whole.T).reshape(weight.shape)
