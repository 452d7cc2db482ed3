"""Temporal receptive fields: what a leaky integrator, and a cascade of them, does to the past.

    h_exp(t; mu) = exp(-t / mu) / mu     t > 0                 mean mu, variance mu^2
    cascade:  h_exp(mu_1) * h_exp(mu_2) * ... * h_exp(mu_n)    mean sum mu_k, variance tau = sum mu_k^2

    parallel channels   tau_k = c^(2 (k - K)) tau_max,   mu_k = sqrt(tau_k),   k = 1 .. K
    limit kernel        Psi(omega; tau, c) = prod_k 1 / (1 + i c^-k sqrt(c^2 - 1) sqrt(tau) omega)

Times are in any one unit; networks count in steps.
"""

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from nrf.errors import InputError

Floats = NDArray[np.float64]


def time_scales(tau_max: float, count: int = 4, c: float = sqrt(2)) -> Floats:
    """The geometric series of variances tau_k, smallest first, the last is tau_max.

    >>> time_scales(16.0)
    array([ 2.,  4.,  8., 16.])
    """
    if tau_max <= 0 or count < 1 or c <= 1:
        raise InputError(f"time scales: tau_max {tau_max} and count {count} must be above 0, c {c} above 1")
    return np.asarray(tau_max * c ** (2.0 * (np.arange(1, count + 1) - count)))


def time_constants(mu_max: float, count: int = 4, c: float = sqrt(2)) -> Floats:
    """Time constants mu_k = sqrt(tau_k) of parallel channels, smallest first, the last is mu_max.

    >>> time_constants(4.0, count=3, c=2.0)
    array([1., 2., 4.])
    """
    return np.sqrt(time_scales(mu_max**2, count, c))
