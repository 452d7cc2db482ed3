"""The whole study, part by part: tune every arm, freeze, run the seeds; and what comes out of it.

`OUT/runs.jsonl` holds the finished runs. What is there is not done again, so the same call goes on where it
was stopped, and more seeds or parts cost only what is new.
"""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from nrf.errors import InputError
from nrf.experiments.design import Arm, Part, Run, Size, arms, configuration, tuning_runs
from nrf.experiments.runs import Result, Store, key_of, run_missing
from nrf.experiments.statistics import Effect, effect
from nrf.files import make_folder

PARTS: tuple[Part, ...] = ("main", "arms", "norm", "more")
MORE = 3  # seeds on top, where the interval of a comparison includes 0
Progress = Callable[[int, int, Result, bool], None]  # runs done, runs in all, the newest, run now
Figure = Callable[[Result], float]  # of merit


def error(result: Result) -> float:
    """Pixels on the test clips."""
    return result.error if result.error is not None else float("nan")


@dataclass(frozen=True)
class Study:
    """Finished runs of one size, by arm."""

    size: Size
    store: Store

    def settings(self, arm: Arm) -> tuple[float, float] | None:
        """Rate and gain of the grid with the smallest validation error; None until the grid is whole."""
        grid = tuning_runs(arm, self.size)
        if len(grid) == 1:
            return grid[0].rate, grid[0].gain
        tried = [self.find(run) for run in grid]
        if not all(tried):
            return None
        best = min((result for result in tried if result), key=lambda result: result.validation)
        return best.run.rate, best.run.gain

    def find(self, run: Run) -> Result | None:
        """The result of a run, if it is finished."""
        return self.store.results.get(key_of(configuration(run, self.size)))

    def run(self, arm: Arm, seed: int) -> Run:
        """A run of the table: the arm with its settings frozen."""
        settings = self.settings(arm)
        if settings is None:
            raise InputError(f"{self.store.path}: '{arm}' is not tuned yet; run its tuning first")
        return Run(arm, seed, *settings)

    def results(self, arm: Arm) -> list[Result]:
        """What is finished of an arm, by seed."""
        settings = self.settings(arm)
        runs = (result.run for result in self.store.results.values() if result.run.arm == arm)
        wanted = {run for run in runs if not run.tuning and (run.rate, run.gain) == settings}
        found = (self.find(run) for run in sorted(wanted, key=lambda run: run.seed))
        return [result for result in found if result]

    def compare(self, a: Arm, b: Arm, figure: Figure = error) -> Effect | None:
        """The effect of `a` instead of `b` in one figure of merit, as soon as both have two seeds."""
        first, second = ([figure(result) for result in self.results(arm)] for arm in (a, b))
        return effect(first, second) if min(len(first), len(second)) > 1 else None


def uniform_of(arm: Arm) -> Arm:
    """The arm with both initialisations uniform."""
    return Arm(arm.model, "uniform", "uniform", arm.dataset, arm.norm)


def reproduce(
    size: Size,
    out: Path,
    parts: Sequence[Part] = PARTS,
    *,
    seeds: int | None = None,
    jobs: int = 1,
    device: str = "auto",
    progress: Progress = lambda done, total, result, fresh: None,
) -> Study:
    """Do what is not there yet.

    >>> reproduce(SIZES["small"], Path("paper"), ["main"], jobs=2)  # doctest: +SKIP
    """
    study, count = Study(size, Store(make_folder(out) / "runs.jsonl")), seeds or size.seeds
    grid = len(size.rates) * len(size.gains)
    total = sum(len(arms(part)) * (count + (grid if grid > 1 else 0)) for part in parts if part != "more")
    done = 0

    def go(runs: Iterable[Run]) -> None:
        nonlocal done
        for result, fresh in run_missing(list(runs), size, study.store, jobs, device):
            done += 1
            progress(done, max(done, total), result, fresh)

    for part in parts:
        if part == "more":
            firsts = [arm for p in ("main", "norm") if p in parts for arm in arms(p) if arm.space == "rf"]
            pairs = [(arm, uniform_of(arm)) for arm in firsts]
            open_pairs = [pair for pair in pairs if (found := study.compare(*pair)) and not found.clear]
            chosen, numbers = [arm for pair in open_pairs for arm in pair], range(count, count + MORE)
        else:
            chosen, numbers = arms(part), range(count)
            if grid > 1:
                go(run for arm in chosen for run in tuning_runs(arm, size))
        go(study.run(arm, seed) for seed, arm in product(numbers, chosen))
    return study


def logged(out: Path, bar: Callable[[int, int | None], None]) -> Progress:
    """Moves a bar over the whole; a line for every new run goes to OUT/log.txt, the study's own log, and to
    standard error where that is no terminal.
    """
    log = make_folder(out) / "log.txt"

    def show(done: int, total: int, result: Result, fresh: bool) -> None:
        bar(done, total)
        if fresh:
            run, tuning = result.run, result.error is None
            what = f"tuning {run.rate:g} {run.gain:g}" if tuning else f"seed {run.seed}"
            figure = f"{result.validation:.2f} px held out" if tuning else f"{result.error:.2f} px"
            cost = f"{result.cpu_seconds:.0f} CPU-s"
            line = f"{time.strftime('%F %T')} {done}/{total} {run.arm} {what}: {figure}, {cost}"
            with log.open("a") as file:
                print(line, file=file)
            if not sys.stderr.isatty():
                print(line, file=sys.stderr, flush=True)

    return show
