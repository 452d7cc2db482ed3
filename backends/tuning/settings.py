"""What can be set without training: floor, leak, and one gain per layer that matches the teacher's counts."""

from collections.abc import Sequence

import numpy as np
import torch

from nrf.backends.tuning.student import Layer, Parameters
from nrf.backends.tuning.training import Lesson, Plan, batches, stacked

HALVINGS = 8  # of an interval of gains from 1/8 to 8
CLIPS = 16


def matched_gain(layer: Layer, lessons: Sequence[Lesson], plan: Plan) -> Parameters:
    """Weights and biases times the gain at which the layer fires as often as the teacher's, by bisection."""
    some, parameters = lessons[:CLIPS], layer.parameters(plan.device)
    wanted = sum(lesson.target.count for lesson in some)
    low, high = -3.0, 3.0
    for _ in range(HALVINGS if wanted else 0):
        middle = (low + high) / 2
        found = _count(layer, _times(parameters, 2**middle), some, plan)
        low, high = (low, middle) if found > wanted else (middle, high)
    return _times(parameters, 2 ** ((low + high) / 2))


def _times(parameters: Parameters, gain: float) -> Parameters:
    return {name: (weight * gain, bias * gain) for name, (weight, bias) in parameters.items()}


def _count(layer: Layer, parameters: Parameters, some: Sequence[Lesson], plan: Plan) -> int:
    """Spikes in all, rounded to the grid."""
    rng, total = np.random.default_rng(plan.seed), 0
    size = batches(layer, some[0].steps, plan.micro, len(some))
    with torch.no_grad():
        rounded = layer.rounded(parameters, layer.grid(parameters))
        for start in range(0, len(some), size):
            inputs, _ = stacked(layer, some[start : start + size], plan, rng)
            total += int(layer.spikes(inputs, rounded, plan.micro).sum())
    return total
