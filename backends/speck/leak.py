"""LIF on a chip that leaks linearly: per channel the leak and gain that keep most of the spikes.

    LIF    v <- v + dt/tau (r x - v)          exponential, towards 0
    chip   v <- max(v + g dt/tau r x - l, 0)  linear, the floor stops it at 0

Both in units of the threshold. The chip has one threshold per core, so the gain g of a channel moves into its
weights. l and g are fitted by F1 on the calibration clips, every population fed with the reference's spikes.
Good for rates, not for single spikes: expect an F1 of .4 to .8, worse for slower neurons. A v_leak other than
0 is left out, and a rule says so: as a constant input dt/tau v_leak it kept no more spikes.
"""

from dataclasses import dataclass, replace

import numba
import numpy as np
from scipy import sparse

from nrf.backends.lowering.layers import Floats
from nrf.backends.speck.calibrate import Calibration
from nrf.backends.speck.structure import Layer, Normal, normal, per_channel
from nrf.backends.speck.tables import Events
from nrf.export.contract import Contract

LEAKS = (0.0, 0.01, 0.02, 0.04, 0.07, 0.1, 0.14, 0.19, 0.25, 0.32, 0.4)  # thresholds per step
GAINS = (0.6, 0.75, 0.9, 1.0, 1.1, 1.3, 1.6)


@dataclass(frozen=True)
class Fit:
    """What was fitted, and how many spikes it keeps."""

    unit: Normal
    leak: Floats  # (channels,) thresholds per step
    f1: float


def lif_normal(layer: Layer, contract: Contract) -> Normal:
    """A LIF layer in units of its thresholds, as if it did not leak: weights carry dt/tau r."""
    unit = normal(layer, contract)
    rate = 1 / per_channel(layer, "tau")  # dt is in `unit` already
    return Normal(unit.weight * rate[:, None, None, None], unit.bias * rate, 0.0, unit.volts)


def fitted(layer: Layer, calibration: Calibration) -> Fit:
    """Leak and gain of every channel, by F1 against the reference's spikes on the calibration clips."""
    contract = calibration.graph.contract
    unit = lif_normal(layer, contract)
    drives, wanted = [], []
    for events, spikes, clip in zip(
        calibration.inputs(layer), calibration.spikes(layer), calibration.clips, strict=True
    ):
        drives.append(_drive(layer, unit, events, len(clip)))
        counts = np.zeros((len(clip), *layer.shape), np.bool_)
        counts[spikes.t, spikes.c, spikes.y, spikes.x] = True
        wanted.append(counts.reshape(len(clip), layer.shape[0], -1))
    best = np.full(layer.shape[0], -1.0)
    leak, gain = np.zeros(layer.shape[0]), np.ones(layer.shape[0])
    common_best, total_best = np.zeros(layer.shape[0]), np.zeros(layer.shape[0])
    for one_leak in LEAKS:
        for one_gain in GAINS:
            common, total = np.zeros(layer.shape[0]), np.zeros(layer.shape[0])
            for drive, spikes_wanted in zip(drives, wanted, strict=True):
                more = _agreement(drive * one_gain, spikes_wanted, one_leak, contract.reset == "zero")
                common, total = common + more[0], total + more[1]
            score = np.where(total > 0, 2 * common / np.maximum(total, 1), 1.0)
            better = score > best
            best, leak, gain = (
                np.where(better, new, old) for new, old in ((score, best), (one_leak, leak), (one_gain, gain))
            )
            common_best = np.where(better, common, common_best)
            total_best = np.where(better, total, total_best)
    f1 = float(2 * common_best.sum() / total_best.sum()) if total_best.sum() else 1.0
    weight = unit.weight * gain[:, None, None, None]
    return Fit(Normal(weight, unit.bias * gain - leak, 0.0, unit.volts), leak, f1)


def _drive(layer: Layer, unit: Normal, events: Events, steps: int) -> Floats:
    """Input of every neuron (steps, channels, places) in thresholds."""
    channels, height, width = layer.conv.input_shape
    matrix = replace(layer.conv, weight=unit.weight).matrix()
    place = (events.c * height + events.y) * width + events.x
    spikes = sparse.csr_array((events.n, (place, events.t)), shape=(channels * height * width, steps))
    drive = np.asarray((matrix @ spikes).todense()).T.reshape(steps, layer.shape[0], -1)
    return drive + unit.bias[:, None]


@numba.njit(cache=True)
def _agreement(drive, wanted, leak, zero_reset):  # type: ignore[no-untyped-def]
    """Per channel: spikes in common with `wanted`, and all spikes of both."""
    steps, channels, places = drive.shape
    common, total = np.zeros(channels), np.zeros(channels)
    v = np.zeros((channels, places))
    for t in range(steps):
        for c in range(channels):
            for i in range(places):
                now = max(v[c, i] + drive[t, c, i] - leak, 0.0)
                spiked = now >= 1.0
                if spiked:
                    now = 0.0 if zero_reset else now - 1.0
                v[c, i] = now
                common[c] += spiked and wanted[t, c, i]
                total[c] += spiked + wanted[t, c, i]
    return common, total
