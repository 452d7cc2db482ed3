"""A recording of any length, written while it is made: only a piece of it is in memory at a time."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border.archive import Growing, write_archive
from nrf.backends.border.recording import Recording
from nrf.errors import InputError
from nrf.export.contract import Contract
from nrf.model.readout import integrated, positions, step_scores


@dataclass(frozen=True)
class Summary:
    """What a recording says in few words."""

    recording: Recording  # without spikes and membranes; coordinates are those of the last step
    counts: dict[str, int]  # spikes of every population that fires


def summary(recording: Recording) -> Summary:
    """Of a recording in memory."""
    counts = {name: spikes.count for name, spikes in recording.spikes.items()}
    last = {name: each[-1:] if each.ndim == 3 else each for name, each in recording.answers.items()}
    return Summary(replace(recording, spikes={}, membranes={}, answers=last), counts)


def write_pieces(
    path: str | Path,
    pieces: Iterable[Recording],
    outputs: Sequence[str],
    contract: Contract,
    after: Iterable[Recording] = (),
) -> Summary:
    """Write pieces of one run, each as a session gave it, as one recording; equal to that of the whole.

    What the host reads is added here. It hears what comes `after` as well, which is not kept.
    """
    arrays: dict[str, Growing] = {}
    whole: Recording | None = None
    counts: Counter[str] = Counter()
    h, scores = {name: np.zeros(1) for name in outputs}, [_Scores(name, contract) for name in outputs]
    for piece in pieces:
        for each in scores:
            each.hear(piece)
        if contract.classes is None and (readout := contract.readout) is not None:
            h = {name: integrated(piece.maps(name, contract), readout, h[name][-1]) for name in outputs}
            piece = replace(piece, answers={name: positions(maps, readout) for name, maps in h.items()})
        done = 0 if whole is None else whole.steps
        later = {name: spikes.later(done) for name, spikes in piece.spikes.items()}
        for name, values in replace(piece, spikes=later).arrays.items():
            arrays.setdefault(name, Growing()).append(values)
        counts.update(summary(piece).counts)
        origin = piece.provenance if whole is None else whole.provenance + piece.provenance
        whole = replace(summary(piece).recording, steps=done + piece.steps, provenance=origin)
    if whole is None:
        raise InputError(f"{path}: nothing to record, the input has no steps")
    for piece in after:  # one at most; an output that is less late than others has answered before its end
        for each in scores:
            each.hear(piece.cut(max(0, piece.latencies.get(each.output, 0))))
    if contract.classes is not None:
        whole = replace(whole, answers={each.output: each.total for each in scores})
    totals = {f"{name}/scores": answer for name, answer in whole.answers.items() if answer.ndim == 1}
    write_archive(path, whole.header, {**arrays, **totals})
    return Summary(whole, dict(counts))


class _Scores:
    """What every class got in the steps that may count in the end; those that all do are one sum.

    The first steps of a chip that is late answer nothing, and the last ones of a chip that is early answer to
    what is still to come.
    """

    def __init__(self, output: str, contract: Contract) -> None:
        self.output, self.contract, self.heard = output, contract, 0
        self.rows: NDArray[np.float64] | None = None

    def hear(self, piece: Recording) -> None:
        """The next piece."""
        window, late = self.contract.classes, piece.latencies.get(self.output, 0)
        if window is None:
            return
        now = step_scores(piece.maps(self.output, self.contract))[max(0, late - self.heard) :]
        self.heard += piece.steps
        self.early = max(0, -late)
        rows = now if self.rows is None else np.concatenate([self.rows, now])
        sure = max(0, len(rows) - self.early)
        past = rows[max(0, sure - window) : sure] if window else rows[:sure].sum(0, keepdims=True)
        self.rows = np.concatenate([past, rows[sure:]]) if sure else rows

    @property
    def total(self) -> NDArray[np.float64]:
        """Of all classes, in the end."""
        rows = np.zeros((0, 0)) if self.rows is None else self.rows
        return np.asarray(rows[: max(0, len(rows) - self.early)].sum(0))
