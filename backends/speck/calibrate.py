"""Off the chip's grid: choose scale and rounding of a core by measured error.

Every core is judged alone, fed with the reference's spikes on the calibration clips: the candidate whose
spikes agree best with the reference (F1) wins. Candidates:

    scale      the largest one without overflow, and larger ones that clip the few largest weights
    rounding   to the nearest, or so that errors cancel on the inputs that really occur:
               weights are rounded one by one, and the error of each is made up for by those still to come
               (Hessian-based rounding, as in "optimal brain quantisation"; H = mean of x x' over patches)

Since a neuron adds its input up until it fires, x is the input patch added up over the last steps.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from nrf.backends import reference
from nrf.backends.border.recording import Recording
from nrf.backends.lowering.calibration import Clips
from nrf.backends.lowering.layers import Floats
from nrf.backends.speck import simulate as synchronous
from nrf.backends.speck.program import Core, Source, SpeckProgram
from nrf.backends.speck.quantise import Integers, largest_scale, rounded
from nrf.backends.speck.structure import Layer, Normal
from nrf.backends.speck.structure import Source as LayerSource
from nrf.backends.speck.tables import Events, events_of, merged, pooled
from nrf.export.graph import Graph
from nrf.model.readout import coordinates

STRETCH = (1.0, 1.2, 1.5, 2.0, 3.0)  # scales tried, in units of the largest without overflow
MEMORY = 0.1  # share of the newest step in the running sum of inputs
PATCHES = 4000
DAMPING = 0.01  # of the mean diagonal of H, for inputs that hardly occur


@dataclass(frozen=True)
class Calibration:
    """Reference recordings of the clips, and what each core sees in them."""

    graph: Graph
    clips: Clips
    recordings: tuple[Recording, ...]

    @classmethod
    def of(cls, graph: Graph, clips: Clips) -> "Calibration":
        """Run the reference on every clip."""
        return cls(graph, clips, tuple(reference.run(graph, clip) for clip in clips))

    def inputs(self, layer: Layer) -> list[Events]:
        """What arrives at a core in each clip, after pooling."""
        return [
            merged([self._source(index, source, layer) for source in layer.sources])
            for index in range(len(self.clips))
        ]

    def _source(self, index: int, source: LayerSource, layer: Layer) -> Events:
        clip, recording = self.clips[index], self.recordings[index]
        dense = clip if source.name == self.graph.input else recording.dense(source.name)
        counts = np.asarray(dense).reshape(len(clip), *source.shape).astype(np.int64)
        return pooled(events_of(counts), source.pool, *layer.conv.input_shape[1:])

    def spikes(self, layer: Layer) -> list[Events]:
        """The reference's spikes of a layer in each clip."""
        return [
            events_of(recording.dense(layer.node).reshape(len(clip), *layer.shape))
            for clip, recording in zip(self.clips, self.recordings, strict=True)
        ]


def calibrated(
    layer: Layer, unit: Normal, core_with: Callable[[Integers], Core], calibration: Calibration
) -> tuple[Core, float]:
    """The core whose integers keep the reference's spikes best, and its F1."""
    inputs, wanted = calibration.inputs(layer), calibration.spikes(layer)
    hessian = _hessian(inputs, [len(clip) for clip in calibration.clips], layer)
    base = largest_scale(unit)
    numbers = [rounded(unit, base * stretch) for stretch in STRETCH]
    numbers += [_compensated(unit, base * stretch, hessian) for stretch in STRETCH]
    candidates = [core_with(one) for one in numbers]
    scores = []
    for core in candidates:
        found = [
            _alone(core, events, len(clip)) for events, clip in zip(inputs, calibration.clips, strict=True)
        ]
        scores.append(_f1(wanted, found, layer.shape))
    best = int(np.argmax(scores))
    return candidates[best], scores[best]


def losses(program: SpeckProgram, calibration: Calibration) -> tuple[dict[str, float], dict[str, float]]:
    """What all cores together lose on the clips: F1 of every node, and how far coordinates move (pixels)."""
    found: dict[str, list[Events]] = {core.node: [] for core in program.cores}
    wanted: dict[str, list[Events]] = {core.node: [] for core in program.cores}
    moved = []
    for clip, reference_run in zip(calibration.clips, calibration.recordings, strict=True):
        events = events_of(np.asarray(clip).reshape(len(clip), *program.input_shape).astype(np.int64))
        result = synchronous.simulate(program, events, len(clip), synchronous.new_state(program))
        for core in program.cores:
            found[core.node].append(result.spikes[core.node])
            wanted[core.node].append(
                events_of(reference_run.dense(core.node).reshape(len(clip), *core.shape))
            )
        if reference_run.coordinates is not None and program.contract.output == "spikes":
            maps = np.zeros((len(clip), *reference_run.shapes[program.output]))
            spikes = result.spikes[program.output]
            maps[spikes.t, spikes.c, spikes.y, spikes.x] = spikes.n
            assert program.contract.readout is not None
            difference = coordinates(maps, program.contract.readout) - reference_run.coordinates
            moved.append(np.linalg.norm(difference, axis=-1).ravel())
    f1 = {core.node: _f1(wanted[core.node], found[core.node], core.shape) for core in program.cores}
    if not moved:
        return f1, {}
    every = np.concatenate(moved)
    return f1, {
        "coordinates_moved_px_median": float(np.median(every)),
        "coordinates_moved_px_p95": float(np.percentile(every, 95)),
    }


def _alone(core: Core, events: Events, steps: int) -> Events:
    """Spikes of one core on its own."""
    single = replace(core, node="core", sources=(Source("input"),))
    program = SpeckProgram("", None, core.input_shape, (single,), "core")  # type: ignore[arg-type]
    return synchronous.simulate(program, events, steps, synchronous.new_state(program)).spikes["core"]


def _f1(wanted: list[Events], found: list[Events], shape: tuple[int, int, int]) -> float:
    """2 common / all, over all clips; 1 where both are silent."""
    common = total = 0
    for one, other in zip(wanted, found, strict=True):
        keys = [np.ravel_multi_index((e.c, e.y, e.x), shape) + e.t * np.prod(shape) for e in (one, other)]
        common += len(np.intersect1d(keys[0], keys[1], assume_unique=True))
        total += len(keys[0]) + len(keys[1])
    return 2 * common / total if total else 1.0


def _hessian(inputs: list[Events], steps: list[int], layer: Layer) -> Floats:
    """Mean of x x' over patches x of the running sum of inputs, damped so that it can be inverted."""
    channels, height, width = layer.conv.input_shape
    kernel, (pad_y, pad_x) = layer.conv.weight.shape[2], layer.conv.padding
    rng = np.random.default_rng(0)
    size = channels * kernel * kernel
    total, seen = np.zeros((size, size)), 0
    for events, count in zip(inputs, steps, strict=True):
        total_now = np.zeros((channels, height + 2 * pad_y, width + 2 * pad_x))
        dense = np.zeros((count, channels, height, width))
        np.add.at(dense, (events.t, events.c, events.y, events.x), events.n)
        chosen = set(rng.choice(count, min(count, 8), replace=False).tolist())
        for step in range(count):
            total_now *= 1 - MEMORY
            total_now[:, pad_y : pad_y + height, pad_x : pad_x + width] += dense[step]
            if step in chosen:
                windows = np.lib.stride_tricks.sliding_window_view(total_now, (kernel, kernel), axis=(1, 2))
                windows = windows[:, :: layer.conv.stride[0], :: layer.conv.stride[1]]
                patches = windows.transpose(1, 2, 0, 3, 4).reshape(-1, size)
                patches = patches[patches.any(axis=1)]
                patches = patches[rng.permutation(len(patches))[: PATCHES // 8]]
                total += patches.T @ patches
                seen += len(patches)
    total /= max(seen, 1)
    damped: Floats = total + np.eye(size) * (DAMPING * np.trace(total) / size + 1e-9)
    return damped


def _compensated(unit: Normal, scale: float, hessian: Floats) -> Integers:
    """Round weight by weight; what one loses, those still to come make up for, as far as H says they can."""
    numbers = rounded(unit, scale)
    weight = unit.weight.reshape(len(unit.weight), -1) * scale
    integers = np.zeros(weight.shape)
    upper = np.linalg.cholesky(np.linalg.inv(hessian)).T
    for j in range(weight.shape[1]):
        integers[:, j] = np.clip(np.round(weight[:, j]), -128, 127)
        error = (weight[:, j] - integers[:, j]) / upper[j, j]
        weight[:, j:] -= error[:, None] * upper[j, j:]
    return replace(numbers, weight=integers.reshape(unit.weight.shape).astype(np.int8))
