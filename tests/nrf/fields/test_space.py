"""Spatial receptive fields against closed forms, quadrature and pyscsp (Lindeberg's own package)."""

from itertools import combinations
from math import cos, pi, sin, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyscsp.affscsp import sampldirderaffgausskernelfromlambda12phi
from pyscsp.gaussders import make1Dintgaussderfilter
from scipy.integrate import dblquad
from scipy.special import erf

from nrf.errors import InputError
from nrf.fields.space import Field, evaluate, fields, from_covariance, integrate, kernel, spatial_bank

SCALES = st.floats(0.5, 4.0)
ANGLES = st.floats(-4.0, 4.0)
PLACES = st.floats(-3, 3)
SKEWS = st.floats(0.2, 6.0)
LOW_ORDERS = [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)]
ORDERS = st.tuples(st.integers(0, 4), st.integers(0, 4))


@settings(deadline=None, max_examples=60)
@given(
    scale=SCALES,
    angle=ANGLES,
    skew=SKEWS,
    order=st.sampled_from([(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)]),
)
def test_continuous_field_is_pyscsp_s_times_the_scale_normalisation(scale, angle, skew, order):
    field = Field(scale, angle, skew, order)
    along, across = field.deviations
    theirs = sampldirderaffgausskernelfromlambda12phi(along**2, across**2, angle, *order, 6)
    if order == (1, 1):
        theirs = theirs / (along * across) ** 2
    x = np.arange(-6, 7.0)
    ours = evaluate(field, x[None, :], -x[:, None])  # their y points up, ours down the rows
    assert np.allclose(ours, along ** order[0] * across ** order[1] * theirs, atol=1e-13)


@pytest.mark.parametrize("scale", [0.2, 0.5, 0.8, 2.0, 8.0])
@pytest.mark.parametrize("order", [(0, 0), (1, 0), (1, 1), (0, 2), (3, 1), (2, 4)])
def test_integrals_over_pixels_are_pyscsp_s_where_space_separates(scale, order):
    along, across = (make1Dintgaussderfilter(m, scale, 4) for m in order)
    ours = integrate(Field(scale, 0.0, 1.0, order), 9)
    assert np.allclose(ours, scale ** sum(order) * np.outer(across, along), rtol=0, atol=1e-13)
    swapped = integrate(Field(scale, pi / 2, 1.0, order), 9)
    assert np.allclose(swapped, (-1) ** order[1] * ours.T, rtol=0, atol=1e-13)


def test_smoothing_over_a_pixel_is_the_error_function():
    edges = (np.arange(10) - 4.5) / (1.3 * sqrt(2))
    line = np.diff(erf(edges)) / 2
    assert np.allclose(integrate(Field(1.3), 9), np.outer(line, line), atol=1e-15)


@pytest.mark.parametrize(
    ("angle", "skew", "order"), [(0.6, 4.0, (0, 0)), (0.6, 2.5, (1, 1)), (2.1, 3.0, (2, 1))]
)
def test_integrals_of_turned_fields_are_those_of_adaptive_quadrature(angle, skew, order):
    field = Field(1.1, angle, skew, order)
    ours = integrate(field, 5)
    for row, column in [(2, 2), (0, 1), (3, 4)]:
        box = column - 2.5, column - 1.5, row - 2.5, row - 1.5
        expected, _ = dblquad(lambda y, x: float(evaluate(field, x, y)), *box, epsabs=1e-12)
        assert ours[row, column] == pytest.approx(expected, abs=1e-12)


@settings(deadline=None, max_examples=40)
@given(
    scale=st.floats(0.8, 3.0), angle=ANGLES, skew=SKEWS, order=ORDERS, x=st.floats(-3, 3), y=st.floats(-3, 3)
)
def test_each_order_is_the_derivative_of_the_one_before(scale, angle, skew, order, x, y):
    """sigma_phi d_phi T_(m1, m2) = T_(m1+1, m2), by central differences; and the same across."""
    field, step = Field(scale, angle, skew, order), 1e-5
    directions = (cos(angle), sin(angle)), (-sin(angle), cos(angle))
    for axis, ((dx, dy), deviation) in enumerate(zip(directions, field.deviations, strict=True)):
        higher = tuple(m + (i == axis) for i, m in enumerate(order))
        ahead = evaluate(field, x + step * dx, y + step * dy)
        behind = evaluate(field, x - step * dx, y - step * dy)
        slope = deviation * (ahead - behind) / (2 * step)
        assert slope == pytest.approx(float(evaluate(Field(scale, angle, skew, higher), x, y)), abs=1e-6)


@settings(deadline=None, max_examples=60)
@given(scale=SCALES, angle=ANGLES, skew=SKEWS, order=ORDERS, size=st.integers(3, 13))
def test_smoothing_sums_to_one_and_every_derivative_to_zero(scale, angle, skew, order, size):
    made = kernel(Field(scale, angle, skew, order), size)
    assert made.shape == (size, size)
    assert made.sum() == pytest.approx(1.0 if order == (0, 0) else 0.0, abs=1e-9)


def test_putting_the_sum_right_changes_nothing_where_nothing_is_cut_off():
    for field in (Field(1.2, 0.5, 2.0, (2, 0)), Field(1.2, 0.5, 2.0), Field(1.2, 0.5, 2.0, (1, 1))):
        assert np.allclose(kernel(field, 31), integrate(field, 31), atol=1e-12)


@settings(deadline=None, max_examples=30)
@given(scale=st.floats(1.2, 2.0), angle=ANGLES, skew=st.floats(0.5, 2.0))
def test_a_smoothing_kernel_has_its_covariance_and_the_pixel_s(scale, angle, skew):
    """Integrating over a pixel adds the pixel's own variance, 1/12, and nothing else."""
    field = Field(scale, angle, skew)
    size = 2 * int(8 * max(field.deviations)) + 1
    weights, axis = kernel(field, size), np.arange(size) - size // 2
    points = np.stack(np.meshgrid(axis, axis)).reshape(2, -1)
    spread = (points * weights.reshape(-1)) @ points.T
    assert np.allclose(spread, field.covariance + np.eye(2) / 12, atol=1e-6)


@settings(deadline=None, max_examples=30)
@given(scale=SCALES, angle=ANGLES, skew=SKEWS)
def test_field_and_covariance_say_the_same(scale, angle, skew):
    field = Field(scale, angle, skew)
    back = from_covariance(field.covariance)
    assert np.allclose(back.covariance, field.covariance)
    x = np.linspace(-4, 4, 9)
    assert np.allclose(evaluate(back, x[None], x[:, None]), evaluate(field, x[None], x[:, None]), atol=1e-12)


def test_bank_of_the_paper_has_144_kernels_of_9_by_9_and_no_two_alike():
    bank = spatial_bank()
    assert bank.shape == (144, 9, 9)
    unit = bank.reshape(144, -1) / np.linalg.norm(bank.reshape(144, -1), axis=1, keepdims=True)
    alike = max(abs(unit[i] @ unit[j]) for i, j in combinations(range(144), 2))
    assert alike < 0.999, "neither equal nor opposite, not even after scaling"


def test_bank_covers_the_paper_s_parameters():
    chosen = fields()
    assert len({field.scale for field in chosen}) == 4 and len({field.skew for field in chosen}) == 3
    assert {round(field.orientation * 180 / pi) for field in chosen} == {0, 45, 90, 135}
    assert {field.order for field in chosen} == {(0, 0), (1, 0), (0, 1), (1, 1)}


def test_round_derivatives_in_other_directions_are_sums_of_the_two_in_the_bank():
    """Why the bank can do without them."""
    straight, across = (kernel(Field(1.2, 0.0, 1.0, order)) for order in ((1, 0), (0, 1)))
    turned = kernel(Field(1.2, pi / 4, 1.0, (1, 0)))
    assert np.allclose(turned, (straight + across) * cos(pi / 4), atol=1e-15)


@pytest.mark.parametrize(
    "wrong", [{"scale": 0.0}, {"scale": 1.0, "skew": -1.0}, {"scale": 1.0, "order": (-1, 0)}]
)
def test_impossible_fields_are_refused(wrong):
    with pytest.raises(InputError, match="receptive field: "):
        Field(**wrong)
    with pytest.raises(InputError, match="eigenvalue -1, expected above 0"):
        from_covariance([[1, 2], [2, 1]])
