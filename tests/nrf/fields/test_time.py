"""Temporal kernels against closed forms and pytempscsp (Lindeberg's own package)."""

from itertools import pairwise
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytempscsp.tempscsp import limitkernfilt
from scipy.stats import gamma

from nrf.errors import InputError
from nrf.fields.time import density, kernel, limit_constants, time_constants, time_scales

CONSTANTS = st.lists(st.floats(0.3, 5.0), min_size=1, max_size=5)
CS = st.sampled_from([sqrt(2), 2 ** (3 / 4), 2.0])


def test_paper_series():
    """tau_k = c^(2 (k - K)) tau_max with c = sqrt 2 and K = 4: halving variances."""
    assert np.allclose(time_scales(16.0), [2, 4, 8, 16])
    assert np.allclose(time_constants(4.0), np.sqrt([2, 4, 8, 16]))


def test_one_stage_is_the_truncated_exponential():
    t = np.linspace(-2, 9, 50)
    assert np.allclose(density(t, 1.7), np.where(t > 0, np.exp(-t / 1.7) / 1.7, 0))
    assert np.allclose(kernel(1.7, 30), np.exp(-np.arange(30) / 1.7) * (1 - np.exp(-1 / 1.7)))


def test_two_stages_are_the_difference_of_exponentials():
    t = np.linspace(0.01, 20, 50)
    expected = (np.exp(-t / 3) - np.exp(-t / 1.2)) / (3 - 1.2)
    assert np.allclose(density(t, [1.2, 3.0]), expected) and np.allclose(density(t, [3.0, 1.2]), expected)


@pytest.mark.parametrize("stages", [2, 5])
def test_equal_stages_are_the_gamma_density(stages):
    t = np.linspace(0.01, 30, 60)
    assert np.allclose(density(t, [1.5] * stages), gamma.pdf(t, stages, scale=1.5))
    assert np.allclose(
        kernel([1.5] * stages, 40, dt=0.5), np.diff(gamma.cdf(np.arange(41) / 2, stages, scale=1.5))
    )


@settings(deadline=None, max_examples=30)
@given(constants=CONSTANTS)
def test_delay_and_variance_add_up_over_a_cascade(constants):
    dt = min(constants) / 20
    steps = int(60 * sum(constants) / dt / 2)
    h, t = kernel(constants, steps, dt), (np.arange(steps) + 0.5) * dt
    mean = (h * t).sum()
    assert h.sum() == pytest.approx(1, abs=1e-6) and (h >= -1e-15).all()
    assert mean == pytest.approx(sum(constants), rel=1e-2)
    assert (h * (t - mean) ** 2).sum() == pytest.approx(sum(mu**2 for mu in constants), rel=1e-2)


@settings(deadline=None, max_examples=20)
@given(constants=CONSTANTS, dt=st.floats(0.1, 1.0))
def test_kernel_is_the_integral_of_the_density_over_each_step(constants, dt):
    nodes, weights = np.polynomial.legendre.leggauss(12)
    t = (np.arange(8)[:, None] + (nodes + 1) / 2) * dt
    assert np.allclose(kernel(constants, 8, dt), density(t, constants) @ weights * dt / 2, atol=1e-9)


def transform(h: np.ndarray, t: np.ndarray, omega: np.ndarray) -> np.ndarray:
    return np.exp(-1j * omega[:, None] * t) @ h


@settings(deadline=None, max_examples=8)
@given(tau=st.floats(2.0, 20.0), c=CS)
def test_limit_kernel_has_its_fourier_transform(tau, c):
    """Against the infinite product of the paper's appendix, taken to 200 factors."""
    omega = np.linspace(0, 4, 9) / sqrt(tau)
    k = np.arange(1, 201)[:, None]
    exact = np.prod(1 / (1 + 1j * c**-k * sqrt(c**2 - 1) * sqrt(tau) * omega), axis=0)
    dt = sqrt(tau) / 200
    h = kernel(limit_constants(tau, c), 6000, dt)
    assert np.abs(transform(h, (np.arange(6000) + 0.5) * dt, omega) - exact).max() < 0.01


def test_limit_kernel_comes_nearer_with_depth():
    omega = np.linspace(0.1, 4, 9)
    k = np.arange(1, 201)[:, None]
    exact = np.prod(1 / (1 + 1j * 2.0 ** (-k / 2) * omega), axis=0)
    errors = []
    for depth in (4, 6, 8, 10, 12):
        factors = 1 / (1 + 1j * limit_constants(1.0, sqrt(2), depth)[:, None] * omega)
        errors.append(np.abs(factors.prod(axis=0) - exact).max())
    assert all(later < 0.6 * earlier for earlier, later in pairwise(errors))


@settings(deadline=None, max_examples=20)
@given(tau=st.floats(0.5, 50.0), c=CS, depth=st.integers(2, 20))
def test_limit_constants_have_the_variance_and_the_paper_s_recursion(tau, c, depth):
    constants = limit_constants(tau, c, depth)
    assert (constants**2).sum() == pytest.approx(tau)
    assert constants[0] == pytest.approx(sqrt(c**2 - 1) / c * sqrt(tau))
    finer = limit_constants(tau / c**2, c, depth - 1)  # Psi(tau) = h_exp * Psi(tau / c^2)
    assert np.allclose(constants[1:], finer)


def test_limit_kernel_scales_with_time():
    """Psi(t; tau) = S Psi(S t; S^2 tau)."""
    t = np.linspace(0.05, 6, 40)
    assert np.allclose(density(t, limit_constants(1.0)), 3 * density(3 * t, limit_constants(9.0)), rtol=1e-10)


@pytest.mark.parametrize("c", [sqrt(2), 2.0])
def test_limit_kernel_agrees_with_pytempscsp_ever_better_on_finer_grids(c):
    """Theirs is a cascade of discrete recursive filters, which tends to ours as the steps get small."""
    errors = []
    for deviation in (8, 16, 32, 64):  # steps
        impulse = np.zeros(deviation * 12)
        impulse[0] = 1
        theirs = limitkernfilt(impulse, deviation, c, 6)
        ours = kernel(limit_constants(deviation**2, c, 6), len(impulse))
        errors.append(np.abs(ours - theirs).sum())
    assert errors[-1] < 0.04
    assert all(later < 0.62 * earlier for earlier, later in pairwise(errors))


def test_rates_that_differ_in_their_last_digit_do_no_harm():
    t = np.linspace(0.1, 9, 20)
    nearly = density(t, [1.0, np.nextafter(1.0, 2.0), 1.0])
    assert np.allclose(nearly, gamma.pdf(t, 3), rtol=1e-12)


def test_impossible_constants_are_refused():
    with pytest.raises(InputError, match="must be above 0"):
        density([1.0], [1.0, -2.0])
    with pytest.raises(InputError, match=r"c 1\.0 above 1"):
        time_scales(4.0, c=1.0)
