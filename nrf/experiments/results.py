"""What the runs say: the table of all arms, the paper's claims one by one, and the two confounds.

A comparison is an effect with its interval on one figure of merit. In all of them less is better, so that a
negative d speaks for the first arm. A claim holds if all its comparisons are clear and as large as it says,
partly if some are. If none is, it is contradicted where one is clear the other way round, else not shown; and
it stays open while runs are missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import isinf, log
from typing import Any, Literal

import numpy as np

from nrf.config import to_table
from nrf.experiments.design import (
    DATASETS,
    STATEFUL,
    STATELESS,
    Arm,
    DatasetName,
    ModelName,
    Time,
    arms,
    tuning_runs,
)
from nrf.experiments.runs import Result
from nrf.experiments.statistics import Effect, area, effect, steps_to
from nrf.experiments.study import Figure, Study, error, uniform_of


def curve_area(result: Result) -> float:
    """Mean validation error over the training, in pixels."""
    return area(result.curve, result.centre)


def half_way(result: Result) -> float:
    """Steps until the validation error is half of the centre's; twice the training where it never is."""
    steps = steps_to(result.curve, result.centre, result.centre / 2)
    return 2.0 * result.curve[-1][0] if isinf(steps) else steps


def spread(result: Result) -> float:
    """Deviation over scales or velocities in pixels."""
    return float(np.std([value for _, value in result.by_condition]))


def unevenness(result: Result) -> float:
    """Deviation over scales or velocities as a share of the mean error: 0 is flat."""
    return spread(result) / float(np.mean([value for _, value in result.by_condition]))


def drift(result: Result) -> float:
    """Mean |ln(tau at the end / tau at the start)| over the channels."""
    pairs = zip(result.taus[0][:-1], result.taus[-1][:-1], strict=True)
    return float(np.mean([abs(log(end / start)) for start, end in pairs]))


@dataclass(frozen=True)
class Comparison:
    """One arm against another."""

    text: str
    effect: Effect | None  # None while runs are missing
    needed: float = 0.0  # size of d that is claimed
    expected: Literal["less", "different", "same"] = "less"  # "same": no clear effect is left

    @property
    def holds(self) -> bool | None:
        """Whether it is as expected: clear and large enough, or not clear where nothing should be left."""
        if self.effect is None or self.expected == "same":
            return None if self.effect is None else not self.effect.clear
        return self.effect.clear and (self.expected == "different" or self.effect.d <= -self.needed)

    @property
    def opposite(self) -> bool:
        """Whether what was measured is clear and the other way round."""
        return self.effect is not None and self.expected == "less" and self.effect.low > 0


@dataclass(frozen=True)
class Claim:
    """What is said, and what speaks for it."""

    text: str
    comparisons: tuple[Comparison, ...]

    @property
    def verdict(self) -> str:
        """holds | partly | contradicted | not shown | open."""
        answers = [comparison.holds for comparison in self.comparisons]
        if None in answers:
            return "open"
        if any(answers):
            return "holds" if all(answers) else "partly"
        return "contradicted" if any(comparison.opposite for comparison in self.comparisons) else "not shown"


def claims(study: Study) -> list[Claim]:
    """The paper's five claims, then the confounds."""

    def initialised(
        model: ModelName, data: DatasetName, figure: Figure = error, needed: float = 0.0, norm: bool = False
    ) -> Comparison:
        rf, text = Arm(model, "rf", "rf", data, norm), f"{model} {data}: RF against uniform"
        return Comparison(text, study.compare(rf, uniform_of(rf), figure), needed)

    def against(a: ModelName, b: ModelName, data: DatasetName) -> Comparison:
        effect = study.compare(Arm(a, "rf", "rf", data), Arm(b, "rf", "rf", data))
        return Comparison(f"{data}: {a} against {b}, both RF", effect)

    def times(model: ModelName, data: DatasetName) -> list[Comparison]:
        """With RF in space: the effect of time, what pinning gives of it, what is left for the series."""
        found = []
        pairs: list[tuple[Time, Time]] = [("rf", "uniform"), ("pinned", "uniform"), ("rf", "pinned")]
        for a, b in pairs:
            text = f"{model} {data}, RF in space: {a} time against {b}"
            effect = study.compare(Arm(model, "rf", a, data), Arm(model, "rf", b, data))
            found.append(Comparison(text, effect))
        return [*found[:2], replace(found[2], expected="same")]

    def smaller(model: ModelName, data: DatasetName) -> Comparison:
        """Whether |d| is smaller with batch normalisation than without."""
        text = f"{model} {data}: effect of RF without against with batch normalisation"
        normed = initialised(model, data, norm=True).effect
        return Comparison(text, difference(initialised(model, data).effect, normed))

    def larger(other: ModelName, data: DatasetName) -> Comparison:
        text = f"{data}: effect of RF on LI against that on {other}"
        return Comparison(text, difference(initialised("LI", data).effect, initialised(other, data).effect))

    order: tuple[tuple[ModelName, ModelName], ...] = (("LI", "MF"), ("LIF", "MF"), ("MF", "SF"))
    both = list(product(STATEFUL, DATASETS))
    return [
        Claim(
            "RF priors help LI strongly (d of 1.9 or more), LIF in space, ReLU less",
            (
                *(initialised("LI", d, needed=1.9) for d in DATASETS),
                initialised("LIF", "spatial"),
                *(larger(m, d) for d, m in product(DATASETS, STATELESS)),
            ),
        ),
        Claim(
            "stateful models beat the eight-frame ReLU, which beats the single-frame one",
            tuple(against(a, b, d) for d in DATASETS for a, b in order),
        ),
        Claim(
            "RF models are flatter over scales, in pixels", tuple(initialised(m, d, spread) for m, d in both)
        ),
        Claim(
            "the same, as a share of the mean error", tuple(initialised(m, d, unevenness) for m, d in both)
        ),
        Claim(
            "learned time constants stay nearer to where they start with RF",
            tuple(initialised(m, d, drift) for m, d in both),
        ),
        Claim("batch normalisation removes part of the effect", tuple(smaller(m, d) for m, d in both)),
        Claim(
            "confound, readout speed: fast block 3 and readout, not the series, make the effect of time",
            tuple(comparison for m, d in both for comparison in times(m, d)),
        ),
        Claim(
            "confound, gain: the effect of RF depends on the readout's gain",
            tuple(by_gain(study, m, d) for m, d in both),
        ),
    ]


def by_gain(study: Study, model: ModelName, data: DatasetName) -> Comparison:
    """RF minus uniform, px on validation clips at the rates of the grid: at low and at high gain."""
    low, high = min(study.size.gains), max(study.size.gains)
    rows = [row for row in gains(study) if (row["model"], row["dataset"]) == (model, data)]
    sides = [[row["rf"] - row["uniform"] for row in rows if row["gain"] == gain] for gain in (low, high)]
    text = f"{model} {data}: RF minus uniform at gain {low:g} against {high:g}, {len(sides[0])} rates"
    found = effect(*sides) if min(map(len, sides)) > 1 else None
    return Comparison(text, found and replace(found, percent=None), expected="different")


def difference(a: Effect | None, b: Effect | None) -> Effect | None:
    """a.d - b.d with the interval of two independent effects (their half widths add in squares)."""
    if a is None or b is None:
        return None
    low = a.d - b.d - np.hypot(a.d - a.low, b.high - b.d)
    high = a.d - b.d + np.hypot(a.high - a.d, b.d - b.low)
    return Effect(a.d - b.d, float(low), float(high))


def table(study: Study, chosen: Sequence[Arm]) -> list[dict[str, Any]]:
    """One row per arm that has runs: means and deviations over the seeds."""
    rows = []
    for arm in chosen:
        if results := study.results(arm):
            figures = {f.__name__: [f(result) for result in results] for f in FIGURES}
            if results[0].taus[0]:
                figures["drift"] = [drift(result) for result in results]
            run = results[0].run
            rows.append(
                {
                    **to_table(arm), "seeds": len(results), "rate": run.rate, "gain": run.gain,
                    "cpu_seconds": round(float(np.mean([r.cpu_seconds for r in results])), 1),
                    "by_condition": [
                        [value, round(float(np.mean([dict(r.by_condition)[value] for r in results])), 3)]
                        for value, _ in results[0].by_condition
                    ],
                    **{name: _mean_and_deviation(values) for name, values in figures.items()},
                }
            )  # fmt: skip
    return rows


FIGURES: tuple[Figure, ...] = (error, curve_area, half_way, spread, unevenness)


def _mean_and_deviation(values: Sequence[float]) -> list[float]:
    return [
        round(float(np.mean(values)), 4),
        round(float(np.std(values, ddof=1)) if len(values) > 1 else 0.0, 4),
    ]


def gains(study: Study) -> list[dict[str, Any]]:
    """The second confound, on the tuning grid: both initialisations at equal rate and gain (validation)."""
    rows = []
    for arm in (arm for arm in arms("main") if arm.space == "rf"):
        other = Arm(arm.model, "uniform", "uniform", arm.dataset)
        for mine, theirs in zip(tuning_runs(arm, study.size), tuning_runs(other, study.size), strict=True):
            if (a := study.find(mine)) and (b := study.find(theirs)):
                rows.append(
                    {
                        "model": arm.model, "dataset": arm.dataset, "rate": mine.rate, "gain": mine.gain,
                        "rf": a.validation, "uniform": b.validation,
                    }
                )  # fmt: skip
    return rows
