"""What can be set without training: floor, leak, and one gain per layer that matches the teacher's counts."""

from collections.abc import Sequence

import numpy as np
import torch

from nrf.backends.tuning.student import Layer, Parameters
from nrf.backends.tuning.training import MEMORY, Lesson, Plan, batches, stacked

HALVINGS = 9  # of an interval of gains from 1/8 to 8


def matched_gain(layer: Layer, lessons: Sequence[Lesson], plan: Plan) -> Parameters:
    """Weights and biases times the gain at which the layer fires as often as the teacher's, by bisection.

    The drive is proportional to the gain and computed once; what rounding changes is left to training.
    """
    parameters, rng = layer.parameters(plan.device), np.random.default_rng(plan.seed)
    held = 4 * lessons[0].steps * plan.micro * int(np.prod(layer.shape))
    some = lessons[: max(1, int(MEMORY // held))]
    size, drives = batches(layer, some[0].steps, plan.micro, len(some)), []
    with torch.no_grad():
        for start in range(0, len(some), size):
            inputs, _ = stacked(layer, some[start : start + size], plan, rng)
            drives.append(layer.drive(inputs, parameters, plan.micro))
        wanted, low, high = sum(lesson.target.count for lesson in some), -3.0, 3.0
        for _ in range(HALVINGS if wanted else 0):
            middle = (low + high) / 2
            found = sum(float(layer.fire(drive * 2**middle).sum()) for drive in drives)
            low, high = (low, middle) if found > wanted else (middle, high)
    gain = 2 ** ((low + high) / 2)
    return {name: (weight * gain, bias * gain) for name, (weight, bias) in parameters.items()}
