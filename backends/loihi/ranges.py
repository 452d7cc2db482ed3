"""How large integers may get: measured on a long clip that runs through the populations written so far."""

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from nrf.arrays import Floats
from nrf.backends.border import Spikes
from nrf.backends.loihi.draft import Draft
from nrf.backends.loihi.quantise import Choice, Layer
from nrf.backends.loihi.simulate import Simulator, Trace

LONG = 1000  # steps of the clip at least: slow channels take some hundred to fill
PIECE = 1 << 20  # states of a population in memory at once
MARGIN = 2.0  # largest integer allowed is this much beyond the largest seen


class Ranges:
    """A long clip, and what it made of the populations so far.

    Where nothing leaks, v may grow with every step: ranges then hold for `LONG` steps, and where spikes
    subtract, so that it does grow, for clips of `horizon` steps.
    """

    def __init__(self, draft: Draft, clip: NDArray[np.float32], horizon: int) -> None:
        self.draft, self.clip, self.horizon = draft, clip, horizon
        self.currents: dict[str, Floats] = {}  # largest seen of each group, in volts per step
        self.spikes: dict[str, Spikes] = {}  # of the populations that are written

    def written(self, name: str, choice: Choice) -> None:
        """Let a population fire for those after it that hear it."""
        if any(connection.source == name for connection in self.draft.connections):
            traces = self._traces(name, choice, len(self.clip))
            self.spikes[name] = Spikes.joined([trace.spikes[name].later(start) for start, trace in traces])

    def ceiling(self, name: str) -> tuple[Floats, Choice]:
        """Integers per volt, for each group, at which the largest state seen still fits with some margin.

        Bias and threshold have to fit as well. Also the way to write the population that was tried.
        """
        layer, numbers = self.draft.layers[name], self.draft.numbers
        bits, highest = numbers.bits, fitting(layer)
        scale = np.minimum(2.0**bits.shift / (layer.strength / bits.largest_weight), highest / 16)
        for _ in range(6):
            scale = layer.snapped(scale)
            choice = Choice(scale, layer.exponents(scale, numbers.exponents(layer.drives)))
            peak, overflowed = self._peak(name, choice)
            if not overflowed:
                break
            scale = scale / 16
        self.currents[name] = peak[0] / choice.scale
        largest = np.maximum(peak.max(axis=0) / choice.scale, _threshold(layer))
        return np.minimum(highest, (bits.limit - 1) / (MARGIN * largest)), choice

    def _peak(self, name: str, choice: Choice) -> tuple[Floats, bool]:
        """Largest |u| and |v| of each group on the long clip, and whether any overflowed."""
        peak, overflowed = np.zeros((2, len(choice.scale))), False
        steps = LONG if np.any(self.draft.layers[name].dynamics.decay_v == 0) else len(self.clip)
        for _, trace in self._traces(name, choice, steps, record=(name,)):
            for row, values in zip(peak, (trace.u[name], trace.v[name]), strict=True):
                each = values.reshape(len(values), len(row), -1)
                row[:] = np.maximum(row, np.maximum(each.max(axis=(0, 2)), -each.min(axis=(0, 2))))
            overflowed |= any(
                counts[name] for counts in (trace.wrapped, trace.saturated, trace.saturated_below)
            )
        return peak, overflowed

    def _traces(
        self, name: str, choice: Choice, most: int, record: Sequence[str] = ()
    ) -> Iterator[tuple[int, Trace]]:
        """The long clip piece by piece: the step at which each begins, and what a population does there."""
        layer = self.draft.layers[name]
        simulator = Simulator(self.draft.added(self.draft.program(), name, choice))
        grows = layer.subtracts and np.any(layer.dynamics.decay_v == 0)
        piece = max(1, PIECE // prod(layer.population.shape))
        steps = min(len(self.clip), most, self.horizon if grows else most)
        for start in range(0, steps, piece):
            stop = min(start + piece, steps)
            teacher = {
                key: self.spikes[key].between(start, stop) for key in simulator.names if key in self.spikes
            }
            yield start, simulator.run(self.clip[start:stop], record=record, teacher=teacher)


def _threshold(layer: Layer) -> Floats:
    """In volts; next to nothing where a population does not fire."""
    threshold = layer.dynamics.threshold
    return np.where(np.isfinite(threshold), np.abs(threshold), 1e-30)


def fitting(layer: Layer) -> Floats:
    """Integers per volt, for each group, at which threshold and bias just fit."""
    bits = layer.numbers.bits
    return np.minimum((bits.never - 1) * 2.0**bits.shift / _threshold(layer), bias_fits(layer))


def bias_fits(layer: Layer) -> Floats:
    """Integers per volt, for each group, at which the bias just fits."""
    largest = layer.numbers.bits.largest_bias * 2.0 ** layer.numbers.bias[-1]
    return largest / np.maximum(np.abs(layer.bias), 1e-30)
