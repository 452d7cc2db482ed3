"""LIF on a chip that leaks linearly: per channel the leak and gain that keep most of the spikes.

    LIF    v <- v + dt/tau (r x - v)          exponential, towards 0
    chip   v <- max(v + g dt/tau r x - l, -1) linear, the floor stops it at minus one threshold

Both in units of the threshold. The chip has one threshold per core, so the gain g of a channel moves into its
weights. l and g are fitted by F1 on the calibration clips, every population fed with the reference's spikes.
Good for rates, not for single spikes: expect an F1 of .4 to .8, worse for slower neurons. A v_leak other than
0 is left out, and a rule says so: as a constant input dt/tau v_leak it kept no more spikes. What is kept is
measured on clips that nothing was fitted on, step by step and event by event.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from nrf.arrays import Floats
from nrf.backends.border import Clips, Loss, RunOptions, Spikes
from nrf.backends.lowering.calibration import Calibration
from nrf.backends.lowering.metrics import f1, f1_of
from nrf.backends.speck.calibrate import arriving
from nrf.backends.speck.layers import FLOOR, Layer, Normal
from nrf.backends.speck.neuron import agreement
from nrf.backends.speck.program import SpeckProgram
from nrf.backends.speck.run import run
from nrf.findings import Finding
from nrf.lazy import sparse

LEAKS = (0.0, 0.01, 0.02, 0.04, 0.07, 0.1, 0.14, 0.19, 0.25, 0.32, 0.4)  # thresholds per step
GAINS = (0.6, 0.75, 0.9, 1.0, 1.1, 1.3, 1.6)
POOR = 0.7  # F1 below which a warning says so


def fitted(layer: Layer, calibration: Calibration) -> tuple[Normal, dict[str, str]]:
    """The layer with leak and gain of every channel fitted, and how many spikes that keeps."""
    channels, unit, contract = layer.shape[0], layer.unit, layer.contract
    wanted = [run.dense(layer.node).reshape(run.steps, channels, -1) for run in calibration.recordings]
    inputs = zip(arriving(layer, calibration), wanted, strict=True)
    drives = [_drive(layer, spikes, len(counts)) for spikes, counts in inputs]
    best = np.full(channels, -1.0)
    leak, gain, common, total = np.zeros((4, channels))
    for new_leak in LEAKS:
        for new_gain in GAINS:
            counts = np.zeros((2, channels))
            for drive, spikes in zip(drives, wanted, strict=True):
                neuron = new_leak, FLOOR, contract.reset == "zero", contract.max_spikes
                counts += agreement(drive * new_gain, spikes, *neuron)
            score = np.array([f1(matches, both, 0) for matches, both in counts.T])
            better = score > best
            best[better], leak[better], gain[better] = score[better], new_leak, new_gain
            common[better], total[better] = counts[:, better]
    weight = unit.weight * gain[:, None, None, None]
    notes = {
        "leak": f"{leak.mean():.3g} thresholds per step",
        "F1 of the fit": f"{f1(common.sum(), total.sum(), 0):.3f}",
    }
    return Normal(weight, unit.bias * gain - leak, FLOOR, unit.volts), notes


def _drive(layer: Layer, spikes: Spikes, steps: int) -> Floats:
    """Input of every neuron (steps, channels, places) in thresholds."""
    matrix = replace(layer.conv, weight=layer.unit.weight).matrix()
    counts = sparse.csr_array((spikes.n, (spikes.i, spikes.t)), shape=(matrix.shape[1], steps))
    drive = np.asarray((matrix @ counts).todense()).T.reshape(steps, layer.shape[0], -1)
    return np.asarray(drive + layer.unit.bias[:, None])


def held_out(clips: Clips) -> tuple[Clips, Clips]:
    """Clips to fit on, and a third of them to judge by; of a single clip the last third of its steps."""
    if len(clips) == 1:
        cut = max(2 * len(clips[0]) // 3, 1)
        return [clips[0][:cut]], [clips[0][cut:]]
    cut = max(len(clips) // 3, 1)
    return clips[:-cut], clips[-cut:]


def kept(program: SpeckProgram, held: Calibration) -> dict[str, dict[str, str]]:
    """Per population: F1 and counts (over the reference's) of all of them together, in both modes."""
    notes: dict[str, dict[str, str]] = {each.node: {} for each in program.populations}
    for mode, name in (("builtin", ""), ("asynchronous", ", asynchronous")):
        runs = [run(program, clip, mode, RunOptions()) for clip in held.clips]
        for node, said in notes.items():
            wanted, found = ([each.events(node) for each in side] for side in (held.recordings, runs))
            spikes = [sum(each.count for each in side) for side in (found, wanted)]
            said[f"F1 held out{name}"] = f"{f1_of(zip(wanted, found, strict=True)):.3f}"
            said[f"counts held out{name}"] = f"{spikes[0] / max(spikes[1], 1):.2f}"
    return notes


def poor(losses: tuple[Loss, ...]) -> Iterator[Finding]:
    """A warning for every population that does not keep its spikes."""
    for loss in losses:
        said = {key: value for key, value in loss.notes.items() if "held out" in key}
        if any(float(value) < POOR for key, value in said.items() if key.startswith("F1")):
            figures = ", ".join(f"{key} {value}" for key, value in said.items())
            remedy = "good for rates at best; see nrf tune, or train with the preset speck2f"
            yield Finding("approximation_keeps_spikes", "warning", loss.population, figures, remedy)
