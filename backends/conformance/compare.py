"""One node, two recordings: what can be added up over clips, and the figures that follow from the sums."""

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

import nir
import numpy as np
from numpy.typing import NDArray

from nrf.arrays import Floats
from nrf.backends.border.figures import JITTER, TAU
from nrf.backends.border.recording import Recording, Spikes
from nrf.backends.lowering import metrics
from nrf.errors import InputError
from nrf.export.graph import Graph

REACH = 3  # steps around the declared latency in which the measured lag is searched
LAGS = 2 * REACH + 1
NOT_SUMMED = ("latency", "worst", "differ", "divergence")  # fields of a tally


@dataclass(frozen=True)
class Divergence:
    """Where a candidate first leaves the reference."""

    node: str
    step: int  # on the reference's clock
    neuron: tuple[int, ...]
    spikes: tuple[int, int]  # reference, candidate
    membranes: tuple[float | None, float | None]  # volts after the step; None where not recorded
    clip: str = ""

    def __str__(self) -> str:
        reference, candidate = (
            f"{count} spike{'s' * (count != 1)}" + (f", v = {v:.6g}" if v is not None else "")
            for count, v in zip(self.spikes, self.membranes, strict=True)
        )
        clip = f", clip '{self.clip}'" if self.clip else ""
        return (
            f"node '{self.node}', step {self.step}, neuron {self.neuron}{clip}: "
            f"reference {reference}; candidate {candidate}"
        )


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums over one clip, or over many: `a + b` is the tally of both."""

    latency: int = 0  # steps, declared; the same for all clips
    reference: int = 0  # spikes
    candidate: int = 0
    matched: int = 0
    near: int = 0  # matched with jitter
    neuron_difference: int = 0
    van_rossum: float = 0.0  # squared
    spikes_at_lag: NDArray[np.int64] = field(default_factory=lambda: np.zeros((LAGS, 3), np.int64))
    square: float = 0.0  # membrane error, in thresholds, or in |v| where that is larger
    samples: int = 0  # comparable membrane values
    square_at_lag: Floats = field(default_factory=lambda: np.zeros(LAGS))  # of a node that never spikes
    worst: float = 0.0  # membrane error as in `square`, comparable values
    differ: float = -math.inf  # volts, all values; -inf where a side has no membrane
    divergence: Divergence | None = None

    def __add__(self, other: "Tally") -> "Tally":
        names = [each.name for each in fields(self) if each.name not in NOT_SUMMED]
        sums: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in names}
        return replace(
            self,
            **sums,
            worst=max(self.worst, other.worst),
            differ=max(self.differ, other.differ),
            divergence=self.divergence or other.divergence,
        )

    @property
    def lag(self) -> int:
        """Measured best lag in steps; the declared latency unless another one is clearly better.

        Clearly: F1 higher by .02, or, where nothing spikes, less than a quarter of the mean square error.
        """
        scores = np.array([metrics.f1(*counts) for counts in self.spikes_at_lag])
        best = int(np.argmax(scores))
        if scores[best] > scores[REACH] + 0.02:
            return self.latency + best - REACH
        best = int(np.argmin(self.square_at_lag))
        better = self.square_at_lag[best] < self.square_at_lag[REACH] / 4 - 1e-12
        return self.latency + (best - REACH if better else 0)

    def figures(self) -> dict[str, float]:
        """All figures of `FIGURES` that this node has."""
        spikes = max(1, self.reference)
        figures = {
            "f1": metrics.f1(self.matched, self.reference, self.candidate),
            "f1_jitter": metrics.f1(self.near, self.reference, self.candidate),
            "precision": self.matched / self.candidate if self.candidate else 1.0,
            "recall": self.matched / self.reference if self.reference else 1.0,
            "count_error": abs(self.candidate - self.reference) / spikes,
            "neuron_count_error": self.neuron_difference / spikes,
            "van_rossum": math.sqrt(max(0.0, self.van_rossum) / spikes),
            "spikes_differ": self.reference + self.candidate - 2 * self.matched,
            "reference_spikes": self.reference,
            "candidate_spikes": self.candidate,
            "latency": self.latency,
            "lag": self.lag,
        }
        if self.differ >= 0:
            figures["membrane"] = self.worst
            figures["membrane_rms"] = math.sqrt(self.square / max(1, self.samples))
            figures["membrane_differ"] = self.differ
        return {name: float(value) for name, value in figures.items()}


@dataclass(frozen=True, eq=False)
class Pixels:
    """Distances of the coordinates in pixels, over one clip or many."""

    px: Floats  # to the reference's coordinates; empty for the reference itself
    truth: Floats  # to the true ones; empty where they are not known
    divergence: None = None

    def __add__(self, other: "Pixels") -> "Pixels":
        return Pixels(np.append(self.px, other.px), np.append(self.truth, other.truth))

    def figures(self) -> dict[str, float]:
        """Median and 95th percentile."""
        return {
            f"{name}_{title}": float(np.percentile(values, q))
            for name, values in (("px", self.px), ("truth", self.truth))
            for title, q in (("median", 50), ("p95", 95))
            if values.size
        }


def pixels(
    run: Recording, output: str, reference: NDArray[Any] | None, truth: NDArray[Any] | None = None
) -> Pixels:
    """Distances of an output's coordinates, its latency removed."""
    found, late = run.answers[output], run.latency(output)
    if truth is not None and truth.shape != found.shape:
        truth = None  # that of other shapes
    px, true = (np.zeros(0) if x is None else distances(x, found, late) for x in (reference, truth))
    return Pixels(px, true)


def tally(
    reference: Recording,
    candidate: Recording,
    node: str,
    threshold: Floats | None,
    clip: str = "",
    late_reset: bool = False,
    floor: NDArray[np.floating] | None = None,
) -> Tally:
    """Compare one node of two recordings of a clip, on the reference's clock.

    `threshold` (volts, shape of the node) is the unit of membrane errors, see `thresholds`; None leaves
    membranes out. Where a reset takes effect a step after the spike (`late_reset`), one side may record the
    membrane of that step before it and the other after it: such steps are not compared. Nor is a membrane
    that met the lowest number of the chip (`floor`, volts), until a spike resets it: lowering allows that
    where it costs no spikes, and the spike figures tell.
    """
    steps = reference.steps
    if candidate.steps != steps:
        raise InputError(
            f"cannot compare recordings of {steps} and {candidate.steps} steps; use the same clip"
        )
    latency = candidate.latency(node) - reference.latency(node)
    shape = reference.shapes[node]
    neurons = int(np.prod(shape))
    raw_r, raw_c = spikes_of(reference, node), spikes_of(candidate, node)
    r, c = metrics.aligned(raw_r, raw_c, steps, latency)
    counts = np.bincount(c.i, c.n, neurons) - np.bincount(r.i, r.n, neurons)
    v, raw_w = (
        None if x is None else np.asarray(x, np.float64).reshape(steps, -1)
        for x in (reference.membrane(node), candidate.membrane(node))
    )
    w = None
    if raw_w is not None:  # on the reference's clock; NaN where there is no answer
        ours, theirs = overlap(steps, latency)
        w = np.full_like(raw_w, np.nan)
        w[ours] = raw_w[theirs]
    result = Tally(
        latency=latency,
        reference=r.count,
        candidate=c.count,
        matched=metrics.matched(r, c),
        near=metrics.matched(r, c, JITTER),
        neuron_difference=int(abs(counts).sum()),
        van_rossum=metrics.van_rossum(r, c, TAU),
        spikes_at_lag=np.array(metrics.at_lags(raw_r, raw_c, steps, _searched(latency))),
        divergence=_divergence(node, shape, r, c, v, w, clip),
    )
    if v is None or w is None or raw_w is None or threshold is None:
        return result
    error = w - v
    mask = metrics.comparable(r, c, steps, neurons) & ~np.isnan(error)
    if late_reset:
        mask[r.t, r.i] = False
    if floor is not None:
        mask &= ~_held(w <= np.ravel(floor), r)
    with np.errstate(invalid="ignore"):  # a membrane that runs away to infinity fails, quietly
        scaled = np.abs(error / np.maximum(threshold.ravel(), np.abs(v)))[mask]
    silent = not len(raw_r.t) and not len(raw_c.t)
    return replace(
        result,
        square=float((scaled**2).sum()),
        samples=int(scaled.size),
        worst=float(scaled.max(initial=0.0)),
        differ=float(np.abs(error[~np.isnan(error)]).max(initial=0.0)),
        square_at_lag=_square_at_lag(v, raw_w, latency) if silent else np.zeros(LAGS),
    )


def _held(low: NDArray[np.bool_], spikes: Spikes) -> NDArray[np.bool_]:
    """(steps, neurons): from a step at the lower end on, until the neuron fires."""
    steps = np.arange(len(low))[:, None]
    fired = np.zeros_like(low)
    fired[spikes.t, spikes.i] = True
    last_low, last_fired = (np.maximum.accumulate(np.where(x, steps, -1)) for x in (low, fired))
    held: NDArray[np.bool_] = last_low > last_fired
    return held


def thresholds(graph: Graph, node: str, reference: Recording) -> Floats | None:
    """The unit of membrane errors: firing threshold, or the reference's largest |v| where nothing fires.

    None for a Threshold, which has no memory and so no membrane to compare.
    """
    parameters = graph.nodes[node]
    if isinstance(parameters, nir.Threshold):
        return None
    value = getattr(parameters, "v_threshold", None)
    if value is None:
        membrane = reference.membrane(node)
        value = 0.0 if membrane is None else np.abs(membrane).max(initial=0.0)
    unit = np.abs(np.broadcast_to(np.asarray(value, np.float64), graph.shapes[node]))
    return np.where(unit > 0, unit, 1.0)


def distances(reference: NDArray[Any], candidate: NDArray[Any], latency: int) -> Floats:
    """Distances in pixels between two (steps, objects, 2), the candidate `latency` steps late."""
    ours, theirs = overlap(len(reference), latency)
    distance: Floats = np.linalg.norm(candidate[theirs] - reference[ours], axis=-1)
    return distance.ravel()


def overlap(steps: int, latency: int) -> tuple[slice, slice]:
    """Steps of the reference that a candidate answers, and the candidate's steps with the answers."""
    start = max(0, -latency)
    stop = max(start, steps - max(0, latency))  # a clip may be shorter than the latency
    return slice(start, stop), slice(start + latency, stop + latency)


def spikes_of(recording: Recording, node: str) -> Spikes:
    """Spikes of a node; none for a node that has only a membrane."""
    return recording.spikes.get(node, Spikes.none())


def _searched(latency: int) -> range:
    """Lags around the declared latency."""
    return range(latency - REACH, latency + REACH + 1)


def _square_at_lag(v: Floats, w: Floats, latency: int) -> Floats:
    """Mean square difference of the membranes around the declared latency; infinite without overlap."""
    squares = []
    for lag in _searched(latency):
        ours, theirs = overlap(len(v), lag)
        difference = w[theirs] - v[ours]
        squares.append(float((difference**2).mean()) if difference.size else math.inf)
    return np.array(squares)


def _divergence(
    node: str, shape: tuple[int, ...], r: Spikes, c: Spikes, v: Floats | None, w: Floats | None, clip: str
) -> Divergence | None:
    """The first spike that differs, with both membranes of that neuron at that step."""
    first = metrics.first_difference(r, c)
    if first is None:
        return None
    step, neuron = first
    volts = [
        None if x is None or step < 0 or np.isnan(x[step, neuron]) else float(x[step, neuron]) for x in (v, w)
    ]
    counts = [int(s.n[(s.t == step) & (s.i == neuron)].sum()) for s in (r, c)]
    index = tuple(int(axis) for axis in np.unravel_index(neuron, shape))
    return Divergence(node, step, index, (counts[0], counts[1]), (volts[0], volts[1]), clip)
