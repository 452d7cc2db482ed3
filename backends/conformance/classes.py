"""What the host decided: classes against those of the reference, of a golden recording, and the labels."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.arrays import Int64s

NONE = -1  # no label, or no decision: all classes have the same score
Matrix = list[list[int]]


@dataclass(frozen=True, eq=False)
class Decisions:
    """Classes over one clip or many; `a + b` are those of both."""

    classes: int
    labels: Int64s  # (clips,), NONE where nobody knows
    wanted: Int64s  # the reference's, or a golden recording's
    found: Int64s  # the candidate's
    margins: NDArray[np.float64]  # the candidate's best score minus its second best
    divergence: None = None

    def __add__(self, other: "Decisions") -> "Decisions":
        keys = ("labels", "wanted", "found", "margins")
        both: dict[str, Any] = {key: np.append(getattr(self, key), getattr(other, key)) for key in keys}
        return replace(self, **both)

    def figures(self) -> dict[str, float]:
        """All figures of `FIGURES` about classes. Where nobody decides anything there is no agreement."""
        counts = (self.wanted != NONE) | (self.found != NONE)
        agree = int((self.wanted == self.found)[counts].sum())
        figures = {
            "clips": len(self.found),
            "clips_agree": agree,
            "clips_decided": int(counts.sum()),
            "undecided": int((self.found == NONE).sum()),
            "margin": float(np.median(self.margins)),
        }
        if counts.any():
            figures["agreement"] = agree / int(counts.sum())
        known = self.labels != NONE
        if known.any():
            right, best = (float((each == self.labels)[known].mean()) for each in (self.found, self.wanted))
            figures |= {"accuracy": right, "accuracy_drop": best - right}
        return {name: float(value) for name, value in figures.items()}

    def confusion(self) -> dict[str, Matrix]:
        """How often (row) became (column), the last of each being no decision; against what there is."""
        pairs = {"reference": self.wanted, "labels": self.labels}
        return {name: self._matrix(rows) for name, rows in pairs.items() if np.any(rows != NONE)}

    def _matrix(self, rows: Int64s) -> Matrix:
        size = max(self.classes, int(self.labels.max(initial=0)) + 1) + 1
        matrix = np.zeros((size, size), np.int64)
        np.add.at(matrix, (rows % size, self.found % size), 1)
        return [[int(count) for count in row] for row in matrix]


def decide(wanted: NDArray[np.float64], found: NDArray[np.float64], label: int | None) -> Decisions:
    """The decisions of one clip from the scores of both sides.

    >>> decide(np.array([3.0, 1.0]), np.array([2.0, 2.5]), 0).figures()["agreement"]
    0.0
    """
    second, first = np.sort(found)[-2:]
    known = np.array([NONE if label is None else label])
    return Decisions(len(found), known, _best(wanted), _best(found), np.array([first - second]))


def _best(scores: NDArray[np.float64]) -> Int64s:
    return np.array([NONE if np.ptp(scores) == 0 else int(np.argmax(scores))])
