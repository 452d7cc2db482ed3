"""On the grid: a graph whose own parameters are numbers that Loihi 2 has.

If each group of neurons (a channel) has weights that are whole multiples of one step, at most 127 of them,
then nothing is lost by writing them in 8 bits, and lowering finds that step by itself.
"""

import numpy as np

from nrf.backends.layers import Operator
from nrf.backends.loihi.dynamics import Floats
from nrf.backends.loihi.quantise import WEIGHT_MAX, weights_by_group

TOLERANCE = 2e-3  # of a step: float32 keeps 127 steps apart to 1e-5


def grid_steps(drives: tuple[Operator, ...], groups: int) -> Floats | None:
    """Volts per integer for each group if all its weights are whole multiples of that, or None.

    Of all such steps the finest is taken, so that the integers are as large as 8 bits allow.
    """
    parts = [weights_by_group(operator, groups) for operator in drives]
    steps = np.zeros(groups)
    for group in range(groups):
        weights = np.abs(np.concatenate([part[group] for part in parts]))
        weights = weights[weights > 0]
        if not len(weights):
            continue
        whole = np.arange(WEIGHT_MAX, 0, -1)
        ratios = weights[None] / weights.max() * whole[:, None]
        fits = np.all(np.abs(ratios - np.round(ratios)) < TOLERANCE, axis=1)
        if not fits.any():
            return None
        steps[group] = weights.max() / whole[np.argmax(fits)]
    return np.where(steps > 0, steps, steps.max() or 1.0)
