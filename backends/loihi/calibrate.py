"""Which integers: scales, exponents and roundings chosen by measured error, population by population.

Each candidate is tried on the reference's own spikes (so that only this population's error shows), and the
one that keeps most of the reference's spikes wins; where nothing fires, the one whose membrane is nearest.
How large integers may get is measured on a long clip that runs through the program written so far.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border import Clips, Loss, LowerOptions, Spikes
from nrf.backends.loihi.draft import Draft
from nrf.backends.loihi.quantise import Choice, Decay, Layer, Threshold
from nrf.backends.loihi.simulate import Simulator
from nrf.backends.lowering.calibration import Calibration, cropped, generated_clips, work_per_step
from nrf.backends.lowering.dynamics import Floats
from nrf.backends.lowering.metrics import aligned, f1, matched
from nrf.backends.lowering.timing import on_chip_clock

LONG = 1000  # steps of the clip on which ranges are measured: slow channels take some hundred to fill
SHORT = 100  # steps of a clip on which spikes are compared
CLIPS = 4
PIECE = 50  # steps of the long clip in memory at once
ENOUGH = 300  # spikes on the calibration clips from which F1 decides
MARGIN = 2.0  # largest integer allowed is this much beyond the largest seen
LARGE = 2e9  # multiplications per step from which a patch of the input stands for the whole
PATCH = 32  # rows and columns of that patch
WORK = 1.5e10  # multiplications that the reference may spend: large graphs get shorter clips
ROUNDINGS: tuple[tuple[Decay, Threshold], ...] = (
    ("nearest", "down"),
    ("nearest", "nearest"),
    ("down", "down"),
    ("up", "down"),
)


class Calibrator:
    """Tries choices on clips, on the reference's spikes and on what the populations written so far fire."""

    def __init__(self, draft: Draft, options: LowerOptions) -> None:
        """Run the reference on the given clips, or on generated ones."""
        graph, self.weights = draft.graph, options.weights
        patch = cropped(graph, PATCH) if work_per_step(graph) > LARGE else None
        self.is_patch = patch is not None  # a patch of the input stands for the whole
        self.draft = Draft(patch, draft.chip, options.format) if patch else draft
        graph = self.draft.graph
        steps = int(np.clip(WORK / work_per_step(graph), 10, CLIPS * SHORT))
        longest = 4 * steps if patch else LONG
        shape = graph.shapes[graph.input]
        if options.calibration:
            given: Clips = [_middle(clip, shape) for clip in options.calibration]
            clips: Clips = [clip[:SHORT] for clip in given[: -(-steps // SHORT)]]
        else:
            given = generated_clips(shape, longest, [CLIPS])
            clips = generated_clips(shape, min(steps, SHORT), range(max(1, steps // SHORT)))
        self.calibration = Calibration.of(graph, clips)
        self.long = np.concatenate([*given] * -(-LONG // sum(map(len, given))))[:longest]
        self.horizon = max(map(len, given)) if options.calibration else 2 * SHORT
        self.fired: dict[str, Spikes] = {}  # by the populations that are written, on the long clip
        most = max(map(len, clips))
        self.about = f"{len(clips)} {options.origin} clips of up to {most} steps, ranges on {len(self.long)}"
        self.about += f", on a patch of {PATCH}x{PATCH} pixels" if patch else ""

    def choose(self, name: str) -> tuple[Choice, Loss]:
        """The best way to write a population, and what it loses."""
        layer = self.draft.layers[name]
        highest, _ = self.ceiling(name)
        tried: list[tuple[float, Choice]] = []
        narrow = _candidates(layer, highest, thorough=not self.is_patch) if self.weights != "16" else ()
        wide = _wide_candidates(layer, highest) if self.weights != "8" else ()
        for choice in itertools.chain(narrow, wide):
            tried.append((self._error(name, choice), choice))
            if tried[-1][0] == 0:
                break
        error, choice = min(tried, key=lambda candidate: candidate[0])
        if self.weights == "auto":
            error, choice = self._narrowed(name, error, choice)
        self.fired[name] = self._fired(name, choice)[0]
        notes = {
            "weight bits": " ".join("16" if wide else "8" for wide in choice.wide) or "8",
            "exponents": " ".join(map(str, choice.exponents)),
            "decay": choice.decay,
            "threshold": choice.threshold,
            "candidates": str(len(tried)),
        }
        measure = {"f1": 1 - error} if self._fires(name) else {"membrane_rms": error}
        return choice, Loss(name, "exact" if error == 0 else "measured", **measure, notes=notes)

    def _fires(self, name: str) -> bool:
        """Whether there are spikes enough to go by; where there are hardly any, the membrane tells more."""
        layer = self.draft.layers[name]
        if not layer.fires or layer.grid_steps is not None:  # on the grid nothing is rounded
            return layer.fires
        return sum(recording.spikes[name].count for recording in self.calibration.recordings) >= ENOUGH

    def _narrowed(self, name: str, error: float, choice: Choice) -> tuple[float, Choice]:
        """The same with one synapse per weight wherever the second keeps no more spikes."""
        for number, wide in enumerate(choice.wide):
            if wide:
                single = (*choice.wide[:number], False, *choice.wide[number + 1 :])
                other = replace(choice, wide=single)
                if (loss := self._error(name, other)) <= error:
                    error, choice = loss, other
        return error, choice

    def ceiling(self, name: str) -> tuple[Floats, Spikes]:
        """Integers per volt, for each group, at which the largest state seen still fits with some margin.

        Bias and threshold have to fit as well. Also the spikes on the long clip at the scale that was tried.
        """
        layer, numbers = self.draft.layers[name], self.draft.numbers
        bits, dynamics = numbers.bits, layer.dynamics
        threshold = np.where(np.isfinite(dynamics.threshold), np.abs(dynamics.threshold), 1e-30)
        largest_bias = bits.largest_bias * 2.0 ** numbers.bias[-1]
        bias = np.maximum(np.abs(layer.bias), 1e-30)
        highest = np.minimum((bits.never - 1) * 2.0**bits.shift / threshold, largest_bias / bias)
        finest = layer.strength / bits.largest_weight
        scale = np.minimum(2.0**bits.shift / finest, highest / 16)
        for _ in range(6):
            scale = layer.snapped(scale)
            choice = Choice(scale, layer.exponents(scale, numbers.exponents(layer.drives)))
            spikes, peak, overflowed = self._fired(name, choice)
            if not overflowed:
                break
            scale = scale / 16
        room = (bits.limit - 1) / (MARGIN * np.maximum(peak / scale, threshold))
        return np.minimum(highest, room), spikes

    def _fired(self, name: str, choice: Choice) -> tuple[Spikes, Floats, bool]:
        """Spikes on the long clip, largest |u| and |v| of each group, and whether any overflowed."""
        simulator = Simulator(self.draft.added(self.draft.program(), name, choice))
        groups, overflowed = len(choice.scale), False
        peak = np.zeros(groups)
        parts = []
        # Where spikes subtract and nothing leaks, v grows: ranges hold for clips twice as long as these.
        grows = self.draft.layers[name].subtracts and np.any(self.draft.layers[name].dynamics.decay_v == 0)
        for start in range(0, min(len(self.long), self.horizon if grows else LONG), PIECE):
            stop = start + PIECE
            heard = [key for key in simulator.names if key in self.fired]
            teacher = {key: self.fired[key].between(start, stop) for key in heard}
            trace = simulator.run(self.long[start:stop], record=(name,), teacher=teacher)
            for values in (trace.u[name], trace.v[name]):
                peak = np.maximum(peak, np.abs(values).reshape(len(values), groups, -1).max(axis=(0, 2)))
            beyond = (trace.wrapped, trace.saturated, trace.saturated_below)
            overflowed |= any(counts[name] for counts in beyond)
            parts.append(trace.spikes[name].later(start))
        return Spikes.joined(parts), peak, overflowed

    @cached_property
    def _teachers(self) -> list[dict[str, Spikes]]:
        """The reference's spikes of every clip, when the chip should fire them."""
        return [on_chip_clock(wanted, self.draft.latencies) for wanted in self.calibration.recordings]

    def _error(self, name: str, choice: Choice) -> float:
        """1 - F1 of the spikes of a population fed with the reference's, or the RMS error of its membrane."""
        program = self.draft.added(self.draft.program(), name, choice)
        fires, late = self._fires(name), self.draft.latencies[name]
        hits = ours = theirs = overflows = 0
        squares: list[float] = []
        clips = zip(self.calibration.clips, self.calibration.recordings, self._teachers, strict=True)
        for clip, wanted, teacher in clips:
            trace = Simulator(program).run(clip, teacher=teacher, record=() if fires else (name,))
            overflows += trace.wrapped[name] + trace.saturated[name]
            if fires:
                r, c = aligned(wanted.spikes[name], trace.spikes[name], len(clip), late)
                hits, theirs, ours = hits + matched(r, c), theirs + r.count, ours + c.count
            else:
                volts = program.neurons[name].volts(trace.membranes[name])[late:]
                squares.append(float(np.square(volts - wanted.membranes[name][: len(volts)]).mean()))
        error = 1 - f1(hits, theirs, ours) if fires else float(np.sqrt(np.mean(squares)))
        return error + overflows  # worse than any rounding; what saturation below costs shows in the spikes


def _candidates(layer: Layer, highest: Floats, thorough: bool) -> Iterator[Choice]:
    """Ways to write a population, the most promising first; other roundings only if `thorough`."""
    bits, allowed = layer.numbers.bits, layer.numbers.exponents(layer.drives)
    finest = [layer.strength / bits.largest_weight, layer.least_rounding(layer.strength)]
    for unit in finest if layer.grid_steps is None else [layer.grid_steps]:  # volts per integer of weight
        fit = np.log2(highest * unit / 2**bits.shift)
        safe = int(np.clip(np.floor(fit.min() + 1e-9), allowed[0], allowed[-1]))
        beyond = () if layer.subtracts else (safe + 1, safe + 2)  # what overflows only later would not show
        for exponent in (e for e in (safe, safe - 1, *beyond) if e in allowed):
            scale = layer.snapped(np.minimum(2.0 ** (bits.shift + exponent) / unit, highest))
            # Negative exponents round sums down: only where everything else would overflow.
            exponents = layer.exponents(scale, range(min(exponent, max(allowed[0], 0)), exponent + 1))
            seen = set()
            for decay, threshold in ROUNDINGS if exponent == safe and thorough else ROUNDINGS[:1]:
                choice = Choice(scale, exponents, decay, threshold)
                integers = np.concatenate(layer.rounded(choice)).tobytes()
                if integers not in seen:  # on the grid there is nothing to round
                    seen.add(integers)
                    yield choice


def _wide_candidates(layer: Layer, highest: Floats) -> Iterator[Choice]:
    """Two synapses per weight: then the scale, as large as the states allow, decides how fine weights are.

    States may saturate at the lower end, from where most neurons never come back in time to fire: so larger
    scales are tried as well, as long as threshold and bias fit; the spikes tell.
    """
    if layer.grid_steps is not None or layer.numbers.single:
        return
    bits, allowed = layer.numbers.bits, layer.numbers.exponents(layer.drives)
    largest = (bits.largest_weight + 0.49) * 2.0 ** (bits.shift + allowed[-1]) / layer.strength
    threshold = np.where(np.isfinite(layer.dynamics.threshold), layer.dynamics.threshold, 1e-30)
    bias = np.maximum(np.abs(layer.bias), 1e-30)
    fits = np.minimum(
        (bits.never - 1) * 2.0**bits.shift / threshold,
        bits.largest_bias * 2.0 ** layer.numbers.bias[-1] / bias,
    )
    wide = (True,) * len(layer.drives)
    for factor in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0) if not layer.subtracts else (1.0,):
        scale = layer.snapped(np.minimum(np.minimum(highest * factor, fits), largest))
        exponents = layer.exponents(scale, range(allowed[-1] + 1))
        for decay, rounding in ROUNDINGS[:2]:
            yield Choice(scale, exponents, decay, rounding, wide)
        if np.all(highest * factor >= np.minimum(fits, largest)):
            return


def _middle(clip: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The middle of each frame, as large as `shape`."""
    first = [(size - wanted) // 2 for size, wanted in zip(clip.shape[1:], shape, strict=True)]
    return clip[(slice(None), *(slice(f, f + n) for f, n in zip(first, shape, strict=True)))]
