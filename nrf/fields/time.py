"""Temporal receptive fields: what a leaky integrator, and a cascade of them, keeps of the past.

    h_exp(t; mu) = exp(-t / mu) / mu     t > 0                 mean mu, variance mu^2
    cascade:  h_exp(mu_1) * h_exp(mu_2) * ... * h_exp(mu_n)    mean sum mu_k, variance tau = sum mu_k^2

    parallel channels   tau_k = c^(2 (k - K)) tau_max,   mu_k = sqrt(tau_k),   k = 1 .. K
    limit kernel        Psi^(omega; tau, c) = prod_k 1 / (1 + i c^-k sqrt(c^2 - 1) sqrt(tau) omega)

A cascade is a chain of states that decay into each other, so h and its integral are exact through the
exponential of the chain's matrix S, also where time constants coincide:

    S = bidiagonal(-1 / mu_k, 1 / mu_k),   h(t) = e_1 exp(S t) s,   integral_0^t h = 1 - e_1 exp(S t) 1

Times are in any one unit; networks count in steps.
"""

from math import sqrt

import numpy as np
from numpy.typing import ArrayLike

from nrf.arrays import Floats
from nrf.errors import InputError


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


def limit_constants(tau: float, c: float = sqrt(2), depth: int = 16) -> Floats:
    """Time constants of a cascade that is the time-causal limit kernel down to tau / c^(2 (depth - 1)).

    mu_k = c^-k sqrt(c^2 - 1) sqrt(tau), and one last stage for all finer ones, so that the variances
    sum to tau exactly. What is lost is the shape of that last stage, c^(1 - depth) of the whole.
    """
    steps = np.diff(time_scales(tau, depth, c), prepend=0.0)
    return np.sqrt(steps)[::-1]


def _chain(constants: ArrayLike) -> Floats:
    rates = 1 / np.atleast_1d(np.asarray(constants, dtype=np.float64))
    if not (np.isfinite(rates).all() and (rates > 0).all()):
        raise InputError(f"temporal kernel: time constants {constants!r} must be above 0")
    return np.diag(-rates) + np.diag(rates[:-1], 1)


def _exponential(matrix: Floats) -> Floats:
    """exp of (a stack of) chain matrices: Taylor on 2^-n of it, squared n times.

    scipy's expm (1.17.1) is off by up to 4 % where two rates differ in their last digit only, as they may
    in the limit kernel with c = sqrt 2: for triangular matrices it divides by that difference.
    """
    halvings = max(0, int(np.ceil(np.log2(max(np.abs(matrix).max(), 1e-300)))) + 2)
    part = matrix / 2.0**halvings
    result = term = np.broadcast_to(np.eye(matrix.shape[-1]), matrix.shape)
    for k in range(1, 16):
        term = term @ part / k
        result = result + term
    for _ in range(halvings):
        result = result @ result
    return np.asarray(result)


def density(t: ArrayLike, constants: ArrayLike) -> Floats:
    """h(t), the impulse response of a cascade of leaky integrators; 0 for t <= 0.

    >>> density([-1.0, 2.0], 2.0)
    array([0.        , 0.18393972])
    """
    chain = _chain(constants)
    time = np.asarray(t, dtype=np.float64)
    states = _exponential(chain * np.maximum(time, 0)[..., None, None])[..., 0, :]
    return np.where(time > 0, states[..., -1] * -chain[-1, -1], 0.0)


def kernel(constants: ArrayLike, steps: int, dt: float = 1.0) -> Floats:
    """Integrals of h over `steps` steps of `dt`; the sum falls short of 1 by what lies beyond.

    >>> kernel(2.0, steps=2)
    array([0.39346934, 0.23865122])
    """
    chain = _chain(constants)
    step = _exponential(chain * dt)
    state = np.zeros(len(chain))
    state[0] = 1
    left = np.empty(steps + 1)  # what has not come out yet
    for k in range(steps + 1):
        left[k] = state.sum()
        state = state @ step
    return -np.diff(left)
