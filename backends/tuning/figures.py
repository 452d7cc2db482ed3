"""How far a chip is from the teacher, on clips: decisions, output counts, and the spikes of every layer.

With clip counts t of the teacher's and c of the chip's output neurons, summed over the steps of a clip:

    agreement    share of clips with argmax c = argmax t; for coordinates instead the mean distance in pixels
    ratio        sum c / sum t
    error        sum |c - t| / sum t                          over clips and neurons
    loss         of a clip: sum |c - t| / (mean over clips of sum t) + 1 if its decision differs

The chip's latency is taken off: it plays as many empty frames more as it is late.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.arrays import Floats
from nrf.backends.border import Backend, Chip, Program, Recording, RunOptions, Spikes
from nrf.backends.lowering.metrics import f1_of
from nrf.events.clips import Label, label_for
from nrf.export.graph import Graph
from nrf.model.readout import scores


@dataclass(frozen=True, eq=False)
class TaughtClip:
    """Input frames, what the teacher makes of them, and the true class where somebody told it."""

    frames: NDArray[Any]
    teacher: Recording
    label: Label | None = None


@dataclass(frozen=True)
class Figures:
    """A chip against the teacher."""

    ratio: float
    error: float
    agreement: float | None = None  # of decisions
    pixels: float | None = None  # distance of coordinates
    accuracy: float | None = None  # of the chip, where labels are known
    layers: dict[str, tuple[float, float]] = field(default_factory=dict)  # ratio of counts, F1
    losses: Floats = field(default_factory=lambda: np.zeros(0), repr=False)  # of every clip

    @property
    def loss(self) -> float:
        """Mean over clips."""
        return float(self.losses.mean())

    def to_json(self) -> dict[str, object]:
        """Without the losses of the clips."""
        return {key: value for key, value in vars(self).items() if key != "losses" and value is not None}

    def better_than(self, other: "Figures") -> bool:
        """Whether the loss is lower by more than one standard error of the difference, clip by clip."""
        gain = other.losses - self.losses
        return bool(gain.mean() > gain.std() / max(len(gain) - 1, 1) ** 0.5) and gain.mean() > 0


def play(
    backend: Backend[Chip, Program], program: Program, frames: NDArray[Any], runtime: str, seed: int = 0
) -> Recording:
    """A clip on a runtime of the chip, on the teacher's clock."""
    steps, late = len(frames), max(0, *program.latencies.values())
    padded = np.concatenate([frames, np.zeros((late, *frames.shape[1:]), frames.dtype)])
    run = backend.run(program, padded, runtime, RunOptions(seed=seed))

    def on_time(name: str, spikes: Spikes) -> Spikes:
        early = spikes.later(-run.latency(name))
        return early.where((early.t >= 0) & (early.t < steps))

    return Recording(
        steps=steps,
        shapes=run.shapes,
        spikes={name: on_time(name, spikes) for name, spikes in run.spikes.items()},
        provenance=run.provenance,
        membranes={name: volts[max(0, run.latency(name)) :][:steps] for name, volts in run.membranes.items()},
        answers={
            name: each[max(0, run.latency(name)) :][:steps]
            for name, each in run.answers.items()
            if program.contract.readout is not None
        },
    )


def counts(run: Recording, graph: Graph) -> list[Floats]:
    """What the host reads of a clip, summed over steps: of each output one number per neuron."""
    maps = (np.asarray(run.maps(name, graph.contract), np.float64) for name in graph.read_populations)
    return [each.sum(axis=0).ravel() for each in maps]


def decisions(run: Recording, graph: Graph) -> list[int]:
    """The class that the host reads of each output, the first of equals."""
    maps = (run.maps(name, graph.contract) for name in graph.read_populations)
    return [int(scores(each, graph.contract.classes or 0).argmax()) for each in maps]


def compare(runs: Sequence[Recording], clips: Sequence[TaughtClip], graph: Graph) -> Figures:
    """Figures of a chip's recordings of some clips; `graph` is the teacher's."""
    ours = np.stack([np.concatenate(counts(run, graph)) for run in runs])
    theirs = np.stack([np.concatenate(counts(clip.teacher, graph)) for clip in clips])
    chosen = np.array([decisions(run, graph) for run in runs])  # (clips, outputs)
    total = max(float(np.abs(theirs).sum()), 1.0)
    off = np.abs(ours - theirs).sum(axis=1)
    same, pixels = chosen == [decisions(clip.teacher, graph) for clip in clips], None
    wrong = 1.0 - same.mean(axis=1)
    readout = graph.contract.readout
    if readout is not None:
        pixels = np.array([_moved(run, clip.teacher) for run, clip in zip(runs, clips, strict=True)])
        sides = [max(graph.shapes[name][1:]) for name in graph.read_populations]
        wrong = pixels / (readout.stride * max(sides))
    labels = [[label_for(clip.label, n) for n in range(chosen.shape[1])] for clip in clips]
    unknown = any(clip.label is None for clip in clips)
    right = None if unknown or pixels is not None else chosen == labels
    return Figures(
        ratio=float(ours.sum() / total),
        error=float(off.sum() / total),
        agreement=float(same.mean()) if pixels is None else None,
        pixels=None if pixels is None else float(pixels.mean()),
        accuracy=None if right is None else float(np.mean(right)),
        layers={
            name: _layer(name, runs, clips) for name in runs[0].spikes if name in clips[0].teacher.spikes
        },
        losses=wrong + off / total * len(clips),
    )


def _moved(run: Recording, teacher: Recording) -> float:
    """Mean distance of the coordinates of all outputs."""
    places = ((answer, teacher.answers[name]) for name, answer in run.answers.items())
    return float(np.mean([np.linalg.norm(a - b, axis=-1).mean() for a, b in places]))


def _layer(name: str, runs: Sequence[Recording], clips: Sequence[TaughtClip]) -> tuple[float, float]:
    pairs = [(clip.teacher.spikes[name], run.spikes[name]) for clip, run in zip(clips, runs, strict=True)]
    wanted, found = (sum(pair[side].count for pair in pairs) for side in (0, 1))
    return found / max(wanted, 1), f1_of(pairs)


def margin(clips: Sequence[TaughtClip], graph: Graph) -> tuple[float, float]:
    """How clear the teacher's decisions are: mean lead of the first class as a share of its count, and the
    share of them in which it leads by at most one spike."""
    ranked = [np.sort(np.append(each, 0)) for clip in clips for each in counts(clip.teacher, graph)]
    best, lead = (np.array(values) for values in zip(*((x[-1], x[-1] - x[-2]) for x in ranked), strict=True))
    return float(np.mean(lead / np.maximum(best, 1))), float(np.mean(lead <= 1))
