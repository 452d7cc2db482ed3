"""Figures of merit of runs, and of two groups of runs against each other.

    d = (mean a - mean b) / s,   s^2 = ((n_a - 1) s_a^2 + (n_b - 1) s_b^2) / (n_a + n_b - 2)         Cohen's d

d sqrt(n_a n_b / (n_a + n_b)) has a noncentral t distribution with n_a + n_b - 2 degrees of freedom, which
gives the exact confidence interval of d. (The paper's pooled deviation has n_2 - 2 where n_2 - 1 belongs.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, sqrt

import numpy as np
from scipy import optimize, stats


@dataclass(frozen=True)
class Effect:
    """How two groups differ; negative where the first has the smaller error."""

    d: float
    low: float  # of the 95 % confidence interval
    high: float
    percent: float | None = None  # difference of the means, of the second's mean

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


def cohens_d(a: Sequence[float], b: Sequence[float]) -> float:
    """The difference of means in pooled standard deviations.

    >>> cohens_d([2.0, 4.0, 6.0], [3.0, 5.0, 7.0])
    -0.5
    """
    freedom = len(a) + len(b) - 2
    pooled = sqrt(((len(a) - 1) * np.var(a, ddof=1) + (len(b) - 1) * np.var(b, ddof=1)) / freedom)
    return float((np.mean(a) - np.mean(b)) / pooled)


def interval(d: float, n_a: int, n_b: int) -> tuple[float, float]:
    """The exact 95 % confidence interval of Cohen's d."""
    scale, freedom = sqrt(n_a * n_b / (n_a + n_b)), n_a + n_b - 2
    t = d * scale

    def bound(tail: float) -> float:
        def excess(shift: float) -> float:
            below = float(stats.nct.cdf(t, freedom, shift))  # NaN where it is 0 or 1 to all digits
            return (float(shift < t) if isnan(below) else below) - tail

        reach = 1.0
        while excess(t - reach) < 0 or excess(t + reach) > 0:
            reach *= 2
        return float(optimize.brentq(excess, t - reach, t + reach)) / scale

    return bound(0.975), bound(0.025)


def effect(a: Sequence[float], b: Sequence[float]) -> Effect:
    """Cohen's d with its interval, and the difference in percent."""
    d = cohens_d(a, b)
    return Effect(d, *interval(d, len(a), len(b)), float(100 * (np.mean(a) / np.mean(b) - 1)))


def area(curve: Sequence[tuple[int, float]], start: float) -> float:
    """Mean over the steps of a learning curve that begins at `start`, in pixels."""
    steps, errors = np.array([(0, start), *curve]).T
    return float(np.trapezoid(errors, steps) / steps[-1])


def steps_to(curve: Sequence[tuple[int, float]], start: float, goal: float) -> float:
    """Steps in which a curve that begins at `start` first reaches `goal`, interpolated; inf if never."""
    before = (0, start)
    for step, error in curve:
        if error <= goal:
            return before[0] + (step - before[0]) * (before[1] - goal) / (before[1] - error)
        before = (step, error)
    return float("inf")
