"""Off the chip's grid: choose scale and rounding of a population by measured error.

Every population is judged alone, fed with the reference's spikes on the calibration clips: the candidate
whose spikes agree best with the reference (F1) wins. Candidates:

    scale      the largest one without overflow, and larger ones that clip the few largest weights
    rounding   to the nearest, or so that errors cancel on the inputs that really occur (`lowering.feedback`)
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from nrf.backends.border import Spikes
from nrf.backends.lowering.calibration import Calibration
from nrf.backends.lowering.feedback import inverse_factor
from nrf.backends.lowering.feedback import rounded as with_feedback
from nrf.backends.lowering.metrics import f1_of
from nrf.backends.speck.chip import Bits, signed
from nrf.backends.speck.layers import Layer, Normal
from nrf.backends.speck.program import Population, SpeckProgram
from nrf.backends.speck.quantise import Quantised, largest_scale, rounded
from nrf.backends.speck.run import session
from nrf.backends.speck.simulate import alone, merged

STRETCH = (1.0, 1.2, 1.5, 2.0, 3.0)  # scales tried, in units of the largest without overflow


def arriving(layer: Layer, calibration: Calibration) -> list[Spikes]:
    """What arrives at a population in each clip in the reference, after pooling."""

    inputs = []
    for clip, recording in zip(calibration.clips, calibration.recordings, strict=True):
        heard = {calibration.graph.input: Spikes.from_dense(clip), **recording.spikes}
        ways = [(heard[source.name], source.pool, source.shape) for source in layer.sources]
        inputs.append(merged(ways, layer.conv.input_shape))
    return inputs


def calibrated(
    layer: Layer, unit: Normal, bits: Bits, make: Callable[[Quantised], Population], calibration: Calibration
) -> tuple[Population, float]:
    """The population whose integers keep the reference's spikes best, and its F1."""
    inputs, steps = arriving(layer, calibration), [len(clip) for clip in calibration.clips]
    wanted = [recording.events(layer.node) for recording in calibration.recordings]
    shape = layer.conv.input_shape
    heard = (spikes.dense(count, shape) for spikes, count in zip(inputs, steps, strict=True))
    upper = inverse_factor(layer.conv, (counts.reshape(len(counts), -1) for counts in heard))
    scales = [largest_scale(unit, bits) * stretch for stretch in STRETCH]
    nearest = [rounded(unit, scale, bits) for scale in scales]
    fed_back = (with_feedback(unit.weight * scale, upper, *signed(bits.weight)) for scale in scales)
    others = (
        replace(one, weight=weight.astype(np.int8)) for one, weight in zip(nearest, fed_back, strict=True)
    )
    candidates = [make(integers) for integers in (*nearest, *others)]
    scores = []
    for population in candidates:
        runs = (alone(population, bits, *clip) for clip in zip(inputs, steps, strict=True))
        scores.append(f1_of(zip(wanted, runs, strict=True)))
    best = int(np.argmax(scores))
    return candidates[best], scores[best]


def losses(program: SpeckProgram, calibration: Calibration) -> tuple[dict[str, float], dict[str, float]]:
    """What all of them together lose on the clips: F1 of every node, how far coordinates move (pixels)."""
    outputs, contract = program.outputs, program.contract
    recordings = [session(program)(clip).read_out(outputs, contract) for clip in calibration.clips]
    pairs = list(zip(calibration.recordings, recordings, strict=True))
    scores = {
        each.node: f1_of((theirs.events(each.node), ours.events(each.node)) for theirs, ours in pairs)
        for each in program.populations
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
