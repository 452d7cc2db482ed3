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
from nrf.backends.lowering.feedback import inverse_factor
from nrf.backends.lowering.layers import Connection
from nrf.backends.lowering.metrics import aligned, f1, matched
from nrf.backends.lowering.operators import Operator
from nrf.backends.lowering.timing import on_chip_clock

LONG = 1000  # steps of the clip on which ranges are measured: slow channels take some hundred to fill
SHORT = 100  # steps of a clip on which spikes are compared
CLIPS = 4
PIECE = 50  # steps of the long clip in memory at once
ENOUGH = 300  # spikes on the calibration clips from which F1 decides
MANY = 3000  # spikes of one group from which the error of its membrane decides on its scale
ALIKE = 1.1  # mean square errors that differ by less are taken as equal
HEADROOM = 1.25  # the same for currents, which wrap
DEPTH = 1.5  # and for how far below reset a membrane has been that fired later
UNKNOWN = 4.0  # times both where clips were generated: nobody knows what real ones hold
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
        self.caution = 1.0 if options.calibration else UNKNOWN
        self.currents: dict[str, Floats] = {}  # largest seen of each group, in volts per step
        self.fired: dict[str, Spikes] = {}  # by the populations that are written, on the long clip
        most = max(map(len, clips))
        self.about = f"{len(clips)} {options.origin} clips of up to {most} steps, ranges on {len(self.long)}"
        self.about += f", on a patch of {PATCH}x{PATCH} pixels" if patch else ""

    def choose(self, name: str) -> tuple[Choice, Loss]:
        """The best way to write a population, and what it loses."""
        layer = self.draft.layers[name]
        highest, _ = self.ceiling(name)
        tried: list[tuple[float, Choice]] = []
        rounds = layer.grid_steps is None and not layer.numbers.single  # so that a second synapse has a use
        narrow = self.weights != "16" or not rounds
        for choice in _candidates(layer, highest, thorough=not self.is_patch) if narrow else ():
            tried.append((self._error(name, choice), choice))
            if tried[-1][0] == 0 and layer.grid_steps is not None:
                break
        if self.weights != "8" and rounds:
            for room in (1.0, 1.5, 2.5):  # more where currents wrapped
                choice = self._refined(name, self._wide(name, highest / room, HEADROOM * self.caution * room))
                tried.insert(0, (self._error(name, choice), choice))
                if tried[0][0] < 1:
                    break
        error, choice = min(tried, key=lambda candidate: candidate[0])
        if self.weights == "auto":
            error, choice = self._narrowed(name, error, choice)
        self.fired[name] = self._fired(name, choice)[0]
        notes = {
            "exponents": " ".join(map(str, choice.exponents)),
            "decay": choice.decay if choice.shift is None else "measured",
            "threshold": choice.threshold if choice.stretch is None else "measured",
            "candidates": str(len(tried)),
        }
        if layer.fires:
            left = np.sqrt(self._near(name, choice)[0].mean()) / np.abs(layer.dynamics.threshold).mean()
            notes["error left, thresholds"] = f"{left:.1e}"
        measure = {"f1": 1 - error} if self._fires(name) else {"membrane_rms": error}
        exact = error == 0 and layer.grid_steps is not None
        return choice, Loss(name, "exact" if exact else "measured", **measure, notes=notes)

    def _feedback(self, connection: Connection, drive: Operator) -> Floats | None:
        """How errors of weights cancel on what a connection hears in the reference (`lowering.feedback`)."""
        pairs = zip(self.calibration.clips, self.calibration.recordings, strict=True)
        heard = (clip if connection.external else wanted.dense(connection.source) for clip, wanted in pairs)
        return inverse_factor(drive, (counts.reshape(len(counts), -1) for counts in heard))

    def _wide(self, name: str, highest: Floats, headroom: float) -> Choice:
        """Two synapses per weight: then the scale decides how fine weights are, so it is as large as can be.

        A state that saturates at the lower end does no harm unless it comes back and fires: so what has to
        fit is not the lowest state but the lowest before a spike, with a margin. Groups with thousands of
        spikes can tell whether less is better. Currents must not wrap, threshold and bias must fit.
        """
        layer = self.draft.layers[name]
        bits, dynamics, whole = layer.numbers.bits, layer.dynamics, _whole(layer)
        wide = (True,) * len(layer.drives)
        feedback = tuple(map(self._feedback, layer.connections, layer.drives))

        def written(scale: Floats) -> Choice:
            scale = layer.snapped(scale)
            return Choice(scale, layer.exponents(scale, whole), wide=wide, feedback=feedback)

        fits = np.minimum(
            (bits.largest_weight + 0.49) * 2.0 ** (bits.shift + whole[-1]) / layer.strength,
            bits.largest_bias * 2.0 ** layer.numbers.bias[-1] / np.maximum(np.abs(layer.bias), 1e-30),
        )
        if not layer.fires or layer.subtracts:
            return written(np.minimum(highest, fits))
        deepest, fired = self._deepest(name)
        least = np.maximum(dynamics.threshold, self.currents[name] * headroom)
        choices = []
        most = DEPTH * self.caution
        for margin in (most, most / 1.5, most / 2, most / 3) if np.any(fired >= MANY) else (most,):
            depth = deepest * np.where(fired >= MANY, margin, most)
            room = (bits.limit - 2.0**bits.shift) / np.maximum(least, depth)
            choices.append(written(np.minimum(fits, room)))
        best = np.argmin([self._near(name, choice)[0] for choice in choices], axis=0)
        return written(np.stack([choice.scale for choice in choices])[best, np.arange(len(best))])

    def _deepest(self, name: str) -> tuple[Floats, Floats]:
        """How far the membranes of each group were below reset before they fired, and how often they fired.

        In the reference, volts. Groups that fired little are taken to be as deep as the deepest.
        """
        layer = self.draft.layers[name]
        shape, groups = layer.population.shape, layer.dynamics.groups
        depth, fired = np.zeros(shape), np.zeros(shape)
        offset = np.repeat(layer.dynamics.offset, depth.size // groups).reshape(shape)
        for wanted in self.calibration.recordings:
            lowest = np.zeros(shape)
            for volts, spikes in zip(wanted.membranes[name], wanted.dense(name), strict=True):
                lowest = np.minimum(lowest, volts - offset)
                depth = np.where(spikes > 0, np.maximum(depth, -lowest), depth)
                lowest = np.where(spikes > 0, 0, lowest)
                fired += spikes
        deepest, count = depth.reshape(groups, -1).max(axis=1), fired.reshape(groups, -1).sum(axis=1)
        return np.where(count < ENOUGH, deepest.max(), deepest), count

    def _refined(self, name: str, choice: Choice) -> Choice:
        """Decays up or down for every group, and a threshold that makes up for what they do to the membrane.

        A decay of 12 bits that is off by half a count changes what a slow neuron adds up by some per mille.
        """
        layer, groups = self.draft.layers[name], np.arange(len(choice.scale))
        decays = np.stack([layer.dynamics.decay_u, layer.dynamics.decay_v]) * layer.numbers.bits.unity
        inexact = np.abs(decays - np.round(decays)) > 1e-4
        if not layer.fires or not inexact.any():
            return choice
        found: list[tuple[Floats, Choice]] = []
        for shifts in itertools.product((0, -1, 1), repeat=2):
            moved = replace(choice, shift=(inexact * np.array(shifts)[:, None]).astype(np.int32))
            error, gain = self._near(name, moved)
            found.append((error, replace(moved, stretch=np.ones(len(gain)))))
            if not layer.subtracts:  # what a spike takes off would have to be stretched too
                stretched = replace(moved, stretch=1 / gain)
                found.append((self._near(name, stretched)[0], stretched))
        best = np.argmin([error for error, _ in found], axis=0)
        shift = np.stack([np.asarray(candidate.shift) for _, candidate in found])[best, :, groups].T
        stretch = np.stack([np.asarray(candidate.stretch) for _, candidate in found])[best, groups]
        return replace(choice, shift=np.ascontiguousarray(shift), stretch=stretch)

    def _near(self, name: str, choice: Choice) -> tuple[Floats, Floats]:
        """Mean square error of each group's membrane where it may fire, and the gain that makes it least.

        May fire: above half the threshold, in the reference. What lies below, perhaps saturated, moves none.
        """
        layer, late = self.draft.layers[name], self.draft.latencies[name]
        program = self.draft.added(self.draft.program(), name, choice)
        neurons, groups = program.neurons[name], layer.dynamics.groups
        offset, threshold = (neurons.each(x) for x in (layer.dynamics.offset, layer.dynamics.threshold))
        stretch = 1.0 if choice.stretch is None else neurons.each(choice.stretch)
        sums = np.zeros((4, groups))
        for clip, wanted in zip(self.calibration.clips, self.calibration.recordings, strict=True):
            teacher = on_chip_clock(wanted, self.draft.latencies)
            trace = Simulator(program).run(clip, teacher=teacher, record=(name,))
            ours = (neurons.volts(trace.membranes[name])[late:] - offset) / stretch
            theirs = wanted.membranes[name][: len(ours)] - offset
            limit = np.where(np.isfinite(threshold), threshold / 2, np.inf)
            near = theirs > np.where(np.isfinite(threshold), threshold / 2, -np.inf)
            wrong = np.clip(ours - theirs, -limit, limit)
            close = near & (np.abs(wrong) < limit / 2)
            for row, values in enumerate((near, near * wrong**2, close * ours * theirs, close * ours**2)):
                sums[row] += values.reshape(-1, groups, neurons.size // groups).sum(axis=(0, 2))
        gain = np.where(sums[3] > 0, sums[2] / np.where(sums[3] > 0, sums[3], 1), 1)
        return sums[1] / np.maximum(sums[0], 1), gain

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
                near, far = (self._near(name, one)[0].mean() for one in (choice, other))
                if far <= ALIKE * near and (loss := self._error(name, other)) <= error:
                    error, choice = loss, other
        return error, choice

    def ceiling(self, name: str) -> tuple[Floats, Spikes]:
        """Integers per volt, for each group, at which the largest state seen still fits with some margin.

        Bias and threshold have to fit as well. Also the spikes on the long clip at the scale that was tried.
        """
        layer, numbers = self.draft.layers[name], self.draft.numbers
        bits, dynamics = numbers.bits, layer.dynamics
        threshold = np.where(np.isfinite(dynamics.threshold), np.abs(dynamics.threshold), 1e-30)
        highest = _fits(layer)
        finest = layer.strength / bits.largest_weight
        scale = np.minimum(2.0**bits.shift / finest, highest / 16)
        for _ in range(6):
            scale = layer.snapped(scale)
            choice = Choice(scale, layer.exponents(scale, numbers.exponents(layer.drives)))
            spikes, peak, overflowed = self._fired(name, choice)
            if not overflowed:
                break
            scale = scale / 16
        self.currents[name] = peak[0] / scale
        room = (bits.limit - 1) / (MARGIN * np.maximum(peak.max(axis=0) / scale, threshold))
        return np.minimum(highest, room), spikes

    def _fired(self, name: str, choice: Choice) -> tuple[Spikes, Floats, bool]:
        """Spikes on the long clip, largest |u| and |v| of each group, and whether any overflowed."""
        simulator = Simulator(self.draft.added(self.draft.program(), name, choice))
        groups, overflowed = len(choice.scale), False
        peak = np.zeros((2, groups))
        parts = []
        # Where spikes subtract and nothing leaks, v grows: ranges hold for clips twice as long as these.
        grows = self.draft.layers[name].subtracts and np.any(self.draft.layers[name].dynamics.decay_v == 0)
        for start in range(0, min(len(self.long), self.horizon if grows else LONG), PIECE):
            stop = start + PIECE
            heard = [key for key in simulator.names if key in self.fired]
            teacher = {key: self.fired[key].between(start, stop) for key in heard}
            trace = simulator.run(self.long[start:stop], record=(name,), teacher=teacher)
            for row, values in zip(peak, (trace.u[name], trace.v[name]), strict=True):
                row[:] = np.maximum(row, np.abs(values).reshape(len(values), groups, -1).max(axis=(0, 2)))
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
        layer = self.draft.layers[name]
        harms = layer.subtracts or not layer.fires  # what saturates above its threshold fires, and is 0
        hits = ours = theirs = overflows = 0
        squares: list[float] = []
        clips = zip(self.calibration.clips, self.calibration.recordings, self._teachers, strict=True)
        for clip, wanted, teacher in clips:
            trace = Simulator(program).run(clip, teacher=teacher, record=() if fires else (name,))
            overflows += trace.wrapped[name] + trace.saturated[name] * harms
            if fires:
                r, c = aligned(wanted.spikes[name], trace.spikes[name], len(clip), late)
                hits, theirs, ours = hits + matched(r, c), theirs + r.count, ours + c.count
            else:
                volts = program.neurons[name].volts(trace.membranes[name])[late:]
                if len(volts):  # a clip may be shorter than the latency
                    squares.append(float(np.square(volts - wanted.membranes[name][: len(volts)]).mean()))
        error = 1 - f1(hits, theirs, ours) if fires else float(np.sqrt(np.mean(squares or [0.0])))
        return error + overflows  # worse than any rounding; what saturation below costs shows in the spikes


def _candidates(layer: Layer, highest: Floats, thorough: bool) -> Iterator[Choice]:
    """Ways to write a population, the most promising first; other roundings only if `thorough`."""
    bits, allowed = layer.numbers.bits, layer.numbers.exponents(layer.drives)
    finest = [layer.strength / bits.largest_weight, layer.least_rounding(layer.strength)]
    if layer.grid_steps is not None and layer.fires and not layer.subtracts:
        # Without a leak, inhibition drives a membrane down for ever. If saturation there harms, the error
        # tells; a negative exponent would round every sum of weights that are on the grid.
        scale = layer.snapped(2.0**bits.shift / layer.grid_steps)
        if np.any(scale > highest) and np.all(scale <= _fits(layer)):
            yield Choice(scale, layer.exponents(scale, range(allowed[-1] + 1)), *ROUNDINGS[0])
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


def _fits(layer: Layer) -> Floats:
    """Integers per volt, for each group, at which threshold and bias just fit."""
    numbers, threshold = layer.numbers, layer.dynamics.threshold
    threshold = np.where(np.isfinite(threshold), np.abs(threshold), 1e-30)
    largest_bias = numbers.bits.largest_bias * 2.0 ** numbers.bias[-1]
    bias = np.maximum(np.abs(layer.bias), 1e-30)
    return np.minimum((numbers.bits.never - 1) * 2.0**numbers.bits.shift / threshold, largest_bias / bias)


def _whole(layer: Layer) -> range:
    """Exponents that round no sum down."""
    return range(layer.numbers.exponents(layer.drives)[-1] + 1)


def _middle(clip: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The middle of each frame, as large as `shape`."""
    first = [(size - wanted) // 2 for size, wanted in zip(clip.shape[1:], shape, strict=True)]
    return clip[(slice(None), *(slice(f, f + n) for f, n in zip(first, shape, strict=True)))]
