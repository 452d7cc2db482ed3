"""Lines of the speed table, and how two sides are compared."""

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    work: str
    figure: float
    unit: str
    goal: float | None  # at least; at most where the unit is a time
    lowest: float
    highest: float
    note: str = ""

    @property
    def missed(self) -> bool:
        """Whether the goal is."""
        if self.goal is None:
            return False
        return self.figure > self.goal if self.unit in ("us", "s", "GB") else self.figure < self.goal


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    short: bool
    repeats: int
    trained: Path  # what `nrf demo` made

    @property
    def steps(self) -> int:
        """Of a clip."""
        return 4 if self.short else 50

    @property
    def long(self) -> int:
        """Steps of a clip after which all layers have long been firing as they will."""
        return 4 if self.short else 200

    def side(self, pixels: int) -> int:
        """Of the sensor."""
        return 32 if self.short else pixels


Timed = Callable[[], tuple[list[int], float]]  # what came out, and CPU seconds


TURN = 0.05  # CPU seconds


def turn(side: Timed) -> float:
    """Seconds of a run in a side's turn, which is two runs, or as many as `TURN` has room for: their median.

    The first does not count: it finds the caches full of what the other side left.
    """
    spent, times = side()[1], list[float]()
    while not times or spent < TURN:
        times.append(side()[1])
        spent += times[-1]
    return statistics.median(times)


def compared(
    work: str, ours: Timed, theirs: Timed, goal: float | None, repeats: int, steps: int, unit: str = "x"
) -> Row:
    """How many times faster we are, or our share of their speed, after a check that results are equal."""
    (mine, _), (other, _) = ours(), theirs()
    if mine != other:
        sys.exit(f"error: {work}: spikes {mine} and {other} differ, no times")
    pairs = [(turn(ours), turn(theirs)) for _ in range(repeats)]
    ratios = [b / a for a, b in pairs]
    first, second = (statistics.median(side) for side in zip(*pairs, strict=True))
    scale = 100 if unit == "%" else 1
    note = f"{1e3 * first / steps:.3g} against {1e3 * second / steps:.3g} ms per step"
    return Row(work, scale * second / first, unit, goal, scale * min(ratios), scale * max(ratios), note)
