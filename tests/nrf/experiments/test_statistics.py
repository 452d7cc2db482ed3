"""Effect sizes and intervals are those of established libraries; curves are read as they are drawn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from nrf.experiments.statistics import area, cohens_d, effect, interval, steps_to

groups = st.lists(st.floats(0, 100), min_size=2, max_size=9).filter(lambda values: np.std(values) > 0.1)


@settings(deadline=None, max_examples=50)
@given(groups, groups)
def test_d_is_the_t_statistic_of_scipy_without_its_sample_size(a, b):
    t = stats.ttest_ind(a, b).statistic
    assert cohens_d(a, b) == pytest.approx(t * np.sqrt(1 / len(a) + 1 / len(b)), rel=1e-9, abs=1e-12)


@settings(deadline=None, max_examples=30)
@given(groups, groups)
def test_the_interval_leaves_out_0_exactly_where_the_t_test_is_significant(a, b):
    p = stats.ttest_ind(a, b).pvalue
    if abs(p - 0.05) > 1e-4:
        assert effect(a, b).clear == (p < 0.05)


@pytest.mark.parametrize("d, n_a, n_b", [(-2.0, 5, 5), (0.4, 5, 8), (0.0, 3, 3), (-4.5, 8, 8)])
def test_the_interval_is_that_of_statsmodels(d, n_a, n_b):
    module = pytest.importorskip("statsmodels.stats.effect_size")
    scale = np.sqrt(n_a * n_b / (n_a + n_b))
    theirs = np.array(module._noncentrality_t(d * scale, n_a + n_b - 2).confint) / scale
    np.testing.assert_allclose(interval(d, n_a, n_b), theirs, atol=1e-5)


def test_the_interval_as_statsmodels_0_15_gives_it_where_that_is_not_installed():
    np.testing.assert_allclose(interval(-2.0, 5, 5), (-3.532145, -0.392655), atol=1e-5)
    np.testing.assert_allclose(interval(0.0, 2, 2), (-1.959964, 1.959964), atol=1e-5)


def test_an_effect_beyond_the_tables_still_has_an_interval():
    low, high = interval(-35.0, 5, 5)
    assert low < -35 < high < 0


def test_curves():
    curve = [(10, 6.0), (20, 4.0), (40, 4.0)]
    assert area(curve, start=8.0) == pytest.approx((70 + 50 + 80) / 40)
    assert steps_to(curve, 8.0, goal=7.0) == 5 and steps_to(curve, 8.0, goal=4.0) == 20
    assert steps_to(curve, 8.0, goal=1.0) == float("inf")
