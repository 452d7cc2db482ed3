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
from dataclasses import replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nrf.backends.border import Spikes
from nrf.backends.lowering.calibration import Calibration
from nrf.backends.lowering.metrics import f1, matched
from nrf.backends.lowering.operators import Floats
from nrf.backends.speck.chip import Bits
from nrf.backends.speck.program import Core, SpeckProgram
from nrf.backends.speck.quantise import Integers, clipped, largest_scale, rounded
from nrf.backends.speck.run import session
from nrf.backends.speck.simulate import CoreSimulator, merged
from nrf.backends.speck.structure import Layer, Normal

STRETCH = (1.0, 1.2, 1.5, 2.0, 3.0)  # scales tried, in units of the largest without overflow
MEMORY = 0.1  # share of the newest step in the running sum of inputs
PATCHES = 4000
DAMPING = 0.01  # of the mean diagonal of H, for inputs that hardly occur


def arriving(layer: Layer, calibration: Calibration) -> list[Spikes]:
    """What arrives at a core in each clip in the reference, after pooling."""

    inputs = []
    for clip, recording in zip(calibration.clips, calibration.recordings, strict=True):
        heard = {calibration.graph.input: Spikes.from_dense(clip), **recording.spikes}
        ways = [(heard[source.name], source.pool, source.shape) for source in layer.sources]
        inputs.append(merged(ways, layer.conv.input_shape))
    return inputs


def agreement(wanted: list[Spikes], candidate: list[Spikes]) -> float:
    """F1 over all clips."""
    common = sum(matched(*pair) for pair in zip(wanted, candidate, strict=True))
    return f1(common, sum(spikes.count for spikes in wanted), sum(spikes.count for spikes in candidate))


def calibrated(
    layer: Layer, unit: Normal, bits: Bits, core_with: Callable[[Integers], Core], calibration: Calibration
) -> tuple[Core, float]:
    """The core whose integers keep the reference's spikes best, and its F1."""
    inputs, steps = arriving(layer, calibration), [len(clip) for clip in calibration.clips]
    wanted = [recording.events(layer.node) for recording in calibration.recordings]
    hessian = _hessian(inputs, steps, layer)
    scales = [largest_scale(unit, bits) * stretch for stretch in STRETCH]
    numbers = [rounded(unit, scale, bits) for scale in scales]
    numbers += [_compensated(unit, scale, bits, hessian) for scale in scales]
    candidates = [core_with(integers) for integers in numbers]
    scores = []
    for core in candidates:
        runs = zip(inputs, steps, strict=True)
        scores.append(agreement(wanted, [CoreSimulator(core, bits).advance(*run)[0] for run in runs]))
    best = int(np.argmax(scores))
    return candidates[best], scores[best]


def losses(program: SpeckProgram, calibration: Calibration) -> tuple[dict[str, float], dict[str, float]]:
    """What all cores together lose on the clips: F1 of every node, and how far coordinates move (pixels)."""
    outputs, contract = program.outputs, program.contract
    recordings = [session(program)(clip).read_out(outputs, contract) for clip in calibration.clips]
    pairs = list(zip(calibration.recordings, recordings, strict=True))
    scores = {
        core.node: agreement(*([run.events(core.node) for run in runs] for runs in zip(*pairs, strict=True)))
        for core in program.cores
    }
    moved = [
        np.linalg.norm(ours.answers[output] - theirs.answers[output], axis=-1).ravel()
        for theirs, ours in pairs
        for output in outputs
        if contract.readout is not None
    ]
    if not moved:
        return scores, {}
    pixels = np.concatenate(moved)
    return scores, {
        "coordinates_moved_px_median": float(np.median(pixels)),
        "coordinates_moved_px_p95": float(np.percentile(pixels, 95)),
    }


def _hessian(inputs: list[Spikes], steps: list[int], layer: Layer) -> Floats:
    """Mean of x x' over patches x of the running sum of inputs, damped so that it can be inverted."""
    conv, rng = layer.conv, np.random.default_rng(0)
    kernel, size = conv.weight.shape[2:], conv.weight[0].size
    around = (0, 0), *((pad, pad) for pad in conv.padding)
    total, seen = np.zeros((size, size)), 0
    for spikes, count in zip(inputs, steps, strict=True):
        running = np.zeros(conv.input_shape)
        chosen = set(rng.choice(count, min(count, 8), replace=False).tolist())
        for step, arriving_now in enumerate(spikes.dense(count, conv.input_shape)):
            running = running * (1 - MEMORY) + arriving_now
            if step in chosen:
                windows = sliding_window_view(np.pad(running, around), kernel, axis=(1, 2))
                windows = windows[:, :: conv.stride[0], :: conv.stride[1]]
                patches = windows.transpose(1, 2, 0, 3, 4).reshape(-1, size)
                patches = patches[patches.any(axis=1)]
                patches = patches[rng.permutation(len(patches))[: PATCHES // 8]]
                total += patches.T @ patches
                seen += len(patches)
    total /= max(seen, 1)
    damped: Floats = total + np.eye(size) * (DAMPING * np.trace(total) / size + 1e-9)
    return damped


def _compensated(unit: Normal, scale: float, bits: Bits, hessian: Floats) -> Integers:
    """Round weight by weight; what one loses, those still to come make up for, as far as H says they can."""
    weight = unit.weight.reshape(len(unit.weight), -1) * scale
    integers = np.zeros(weight.shape)
    upper = np.linalg.cholesky(np.linalg.inv(hessian)).T
    for j in range(weight.shape[1]):
        integers[:, j] = clipped(weight[:, j], bits.weight)
        error = (weight[:, j] - integers[:, j]) / upper[j, j]
        weight[:, j:] -= error[:, None] * upper[j, j:]
    weights = integers.reshape(unit.weight.shape).astype(np.int8)
    return replace(rounded(unit, scale, bits), weight=weights)
