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

from nrf.arrays import Floats
from nrf.backends.border import Clips, Loss, LowerOptions
from nrf.backends.loihi.draft import Draft
from nrf.backends.loihi.quantise import Choice, Decay, Layer, Threshold
from nrf.backends.loihi.ranges import LONG, Ranges, bias_fits, fitting
from nrf.backends.loihi.trials import Trials
from nrf.backends.lowering.calibration import Calibration, cropped, generated_clips, work_per_step

SHORT = 100  # steps of a clip on which spikes are compared
CLIPS = 4
MANY = 3000  # spikes of one group from which the error of its membrane decides on its scale
ALIKE = 1.1  # mean square errors that differ by less are taken as equal
HEADROOM = 1.25  # the same for currents, which wrap
DEPTH = 1.5  # and for how far below reset a membrane has been that fired later
UNKNOWN = 4.0  # times both where clips were generated: nobody knows what real ones hold
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
    """Chooses how to write populations: `trials` say what a choice loses, `ranges` how large it may be."""

    def __init__(self, draft: Draft, options: LowerOptions) -> None:
        """On the clips given, or on generated ones."""
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
            self.clips: Clips = [clip[:SHORT] for clip in given[: -(-steps // SHORT)]]
        else:
            given = generated_clips(shape, longest, [CLIPS])
            self.clips = generated_clips(shape, min(steps, SHORT), range(max(1, steps // SHORT)))
        long = np.concatenate([*given] * -(-LONG // sum(map(len, given))))[:longest]
        self.ranges = Ranges(self.draft, long, max(map(len, given)) if options.calibration else 2 * SHORT)
        self.caution = 1.0 if options.calibration else UNKNOWN
        most = max(map(len, self.clips))
        self.about = f"{len(self.clips)} {options.origin} clips of up to {most} steps, ranges on {len(long)}"
        self.about += f", on a patch of {PATCH}x{PATCH} pixels" if patch else ""

    @cached_property
    def trials(self) -> Trials:
        """The reference runs when it is first asked: going on the grid needs ranges only."""
        return Trials(self.draft, Calibration.of(self.draft.graph, self.clips))

    def choose(self, name: str) -> tuple[Choice, Loss]:
        """The best way to write a population, and what it loses."""
        layer = self.draft.layers[name]
        highest, _ = self.ranges.ceiling(name)
        tried: list[tuple[float, Choice]] = []
        rounds = layer.grid_steps is None and not layer.numbers.single  # so that a second synapse has a use
        narrow = self.weights != "16" or not rounds
        if self.weights != "8" and rounds:
            for room in (1.0, 1.5, 2.5):  # more where currents wrapped
                choice = self._refined(name, self._wide(name, highest / room, HEADROOM * self.caution * room))
                tried.insert(0, (self.trials.error(name, choice), choice))
                if tried[0][0] < 1:
                    break
        least = min((error for error, _ in tried), default=np.inf)
        for choice in _candidates(layer, highest, thorough=not self.is_patch) if narrow else ():
            tried.append((self.trials.error(name, choice, enough=least), choice))
            least = min(least, tried[-1][0])
            if tried[-1][0] == 0 and layer.grid_steps is not None:
                break
        error, choice = min(tried, key=lambda candidate: candidate[0])
        near = self.trials.near_threshold(name, choice)[0] if layer.fires or any(choice.wide) else None
        if self.weights == "auto" and near is not None:
            error, choice, near = self._narrowed(name, error, choice, near)
        self.ranges.written(name, choice)
        notes = {
            "exponents": " ".join(map(str, choice.exponents)),
            "decay": choice.decay if choice.shift is None else "measured",
            "threshold": choice.threshold if choice.stretch is None else "measured",
            "candidates": str(len(tried)),
        }
        if layer.fires and near is not None:
            share = np.sqrt(near.mean()) / np.abs(layer.dynamics.threshold).mean()
            notes["error left, thresholds"] = f"{share:.1e}"
        measure = {"f1": 1 - error} if self.trials.go_by_spikes(name) else {"membrane_rms": error}
        exact = error == 0 and layer.grid_steps is not None
        return choice, Loss(name, "exact" if exact else "measured", **measure, notes=notes)

    def _wide(self, name: str, highest: Floats, headroom: float) -> Choice:
        """Two synapses per weight: then the scale decides how fine weights are, so it is as large as can be.

        A state that saturates at the lower end does no harm unless it comes back and fires: so what has to
        fit is not the lowest state but the lowest before a spike, with a margin. Groups with thousands of
        spikes can tell whether less is better. Currents must not wrap, threshold and bias must fit.
        """
        layer = self.draft.layers[name]
        bits, dynamics, whole = layer.numbers.bits, layer.dynamics, _whole(layer)
        wide = (True,) * len(layer.drives)
        feedback = self.trials.feedback(name)

        def written(scale: Floats) -> Choice:
            scale = layer.at_thresholds(layer.snapped(scale))
            return Choice(scale, layer.exponents(scale, whole), wide=wide, feedback=feedback)

        fits = np.minimum(
            (bits.largest_weight + 0.49) * 2.0 ** (bits.shift + whole[-1]) / layer.strength,
            bias_fits(layer),
        )
        if not layer.fires or layer.subtracts:
            return written(np.minimum(highest, fits))
        deepest, fired = self.trials.deepest(name)
        least = np.maximum(dynamics.threshold, self.ranges.currents[name] * headroom)
        choices = []
        most = DEPTH * self.caution
        for margin in (most, most / 1.5, most / 2, most / 3) if np.any(fired >= MANY) else (most,):
            depth = deepest * np.where(fired >= MANY, margin, most)
            room = (bits.limit - 2.0**bits.shift) / np.maximum(least, depth)
            choices.append(written(np.minimum(fits, room)))
        if len(choices) > 1:
            best = np.argmin([self.trials.near_threshold(name, choice)[0] for choice in choices], axis=0)
            choices = [written(np.stack([choice.scale for choice in choices])[best, np.arange(len(best))])]
        return self._finer(name, choices[0])

    def _finer(self, name: str, choice: Choice) -> Choice:
        """The same with all bits of the second synapses, where sums that are rounded down cost less.

        Below exponent 0 a whole sum is rounded once per step; at 0 every weight of it is. With many spikes
        in a step the first loses less, with few the second.
        """
        layer = self.draft.layers[name]
        if np.any(layer.dynamics.decay_v == 0):  # without a leak what is lost adds up
            return choice
        finer = replace(choice, finest=layer.numbers.exponents(layer.drives)[0])
        return finer if self.trials.error(name, finer) < self.trials.error(name, choice) else choice

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
        for shifts in itertools.product(*((0, -1, 1) if row.any() else (0,) for row in inexact)):
            moved = replace(choice, shift=(inexact * np.array(shifts)[:, None]).astype(np.int32))
            error, gain = self.trials.near_threshold(name, moved)
            found.append((error, replace(moved, stretch=np.ones(len(gain)))))
            if not layer.subtracts:  # what a spike takes off would have to be stretched too
                stretched = replace(moved, stretch=1 / gain)
                found.append((self.trials.near_threshold(name, stretched)[0], stretched))
        best = np.argmin([error for error, _ in found], axis=0)
        shift = np.stack([np.asarray(candidate.shift) for _, candidate in found])[best, :, groups].T
        stretch = np.stack([np.asarray(candidate.stretch) for _, candidate in found])[best, groups]
        scale = layer.at_thresholds(choice.scale, stretch)
        return replace(choice, scale=scale, shift=np.ascontiguousarray(shift), stretch=stretch)

    def _narrowed(
        self, name: str, error: float, choice: Choice, near: Floats
    ) -> tuple[float, Choice, Floats]:
        """The same with one synapse per weight wherever the second keeps no more spikes."""
        for number, wide in enumerate(choice.wide):
            if wide:
                single = (*choice.wide[:number], False, *choice.wide[number + 1 :])
                other = replace(choice, wide=single)
                far, _ = self.trials.near_threshold(name, other)
                if far.mean() <= ALIKE * near.mean() and (loss := self.trials.error(name, other)) <= error:
                    error, choice, near = loss, other, far
        return error, choice, near


def _candidates(layer: Layer, highest: Floats, thorough: bool) -> Iterator[Choice]:
    """Ways to write a population, the most promising first; other roundings only if `thorough`."""
    bits, allowed = layer.numbers.bits, layer.numbers.exponents(layer.drives)
    finest = [layer.strength / bits.largest_weight, layer.least_rounding(layer.strength)]
    if layer.grid_steps is not None and layer.fires and not layer.subtracts:
        # Without a leak, inhibition drives a membrane down for ever. If saturation there harms, the error
        # tells; a negative exponent would round every sum of weights that are on the grid.
        scale = layer.snapped(2.0**bits.shift / layer.grid_steps)
        if np.any(scale > highest) and np.all(scale <= fitting(layer)):
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


def _whole(layer: Layer) -> range:
    """Exponents that round no sum down."""
    return range(layer.numbers.exponents(layer.drives)[-1] + 1)


def _middle(clip: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The middle of each frame, as large as `shape`."""
    first = [(size - wanted) // 2 for size, wanted in zip(clip.shape[1:], shape, strict=True)]
    return clip[(slice(None), *(slice(f, f + n) for f, n in zip(first, shape, strict=True)))]
