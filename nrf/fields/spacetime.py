"""Receptive fields over space and time that follow a motion (Galilean, velocity-adapted).

    T(x, t; Sigma, tau, v) = g(x - v t; Sigma) h(t; tau)                             (paper, eq. 9)

with any spatial field of `nrf.fields.space` for g and any cascade of `nrf.fields.time` for h. Under

    x' = A x + u t,   t' = S_t t,    f'(x', t') = f(x, t)

the answers are the same, L'(x', t') = L(x, t), for Sigma' = A Sigma A^T, mu' = S_t mu and
v' = (A v + u) / S_t. (The paper also writes x' = A (x + u t); that u is our A^-1 u.)
"""

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import ArrayLike

from nrf.arrays import Floats
from nrf.fields.space import Field, integrate
from nrf.fields.time import density


def velocity_adapted(
    field: Field,
    constants: ArrayLike,
    velocity: tuple[float, float],
    size: int,
    steps: int,
    *,
    pixel: float = 1.0,
    dt: float = 1.0,
) -> Floats:
    """T integrated over every pixel and step, (steps, size, size); step k reaches k dt into the past.

    `velocity` is (x, y) per unit of time, in the unit of `pixel` and `dt`. What has moved beyond the
    border is not there: choose `size` for the longest time that matters.

    >>> velocity_adapted(Field(1.5), 4.0, (0.5, 0.0), size=21, steps=12).shape
    (12, 21, 21)
    """
    nodes, weights = leggauss(4)
    kernels = np.zeros((steps, size, size))
    for node, weight in zip(nodes, weights, strict=True):
        times = (np.arange(steps) + (1 + node) / 2) * dt
        for step, (time, height) in enumerate(zip(times, density(times, constants), strict=True)):
            centre = velocity[0] * time, velocity[1] * time
            kernels[step] += weight * dt / 2 * height * integrate(field, size, centre, pixel)
    return kernels
