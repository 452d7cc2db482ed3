"""Which integers: scales, exponents and roundings chosen by measured error, population by population.

Each candidate is tried on the reference's own spikes (so that only this population's error shows), and the
one that keeps most of the reference's spikes wins; where nothing fires, the one whose membrane is nearest.
How large integers may get is measured on a long clip that runs through the program written so far.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nrf.arrays import Floats
from nrf.backends.border import Clips, Loss, LowerOptions
from nrf.backends.loihi.draft import Draft
from nrf.backends.loihi.quantise import Choice, Layer
from nrf.backends.loihi.ranges import LONG, Ranges, bias_fits, fitting
from nrf.backends.loihi.trials import WORST, Error, Trials
from nrf.backends.lowering.calibration import Calibration, cropped, generated_clips, work_per_step

SHORT = 100  # steps of a clip on which spikes are compared
CLIPS = 4
CHEAP = 2e7  # multiplications up to which small graphs see more of the clips given
MOST = 3000  # steps of these
MANY = 3000  # membranes of one group near its threshold that tell how deep it gets
ALIKE = 1.1  # mean square errors that differ by less are taken as equal
HEADROOM = 1.25  # the same for currents, which wrap
DEPTH = 2.0  # and for how far below reset a membrane has been that came near its threshold later
SHALLOWER = (1.5, 1.0, 0.75, 0.5)  # the same where `MANY` tell; less than the first only where a leak forgets
UNKNOWN = 4.0  # times both where clips were generated: nobody knows what real ones hold
LARGE = 2e9  # multiplications per step from which a patch of the input stands for the whole
PATCH = 32  # rows and columns of that patch
WORK = 1.5e10  # multiplications that the reference may spend: large graphs get shorter clips


class Calibrator:
    """Chooses how to write populations: `trials` say what a choice loses, `ranges` how large it may be."""

    def __init__(self, draft: Draft, options: LowerOptions) -> None:
        """On the clips given, or on generated ones."""
        graph, self.weights = draft.graph, options.weights
        patch = cropped(graph, PATCH) if work_per_step(graph) > LARGE else None
        self.is_patch = patch is not None  # a patch of the input stands for the whole
        self.draft = Draft(patch, draft.chip, options.format) if patch else draft
        graph = self.draft.graph
        work = work_per_step(graph)
        most = np.clip(CHEAP / work, CLIPS * SHORT, MOST) if options.calibration else CLIPS * SHORT
        steps = int(np.clip(WORK / work, 10, most))
        longest = 4 * steps if patch else max(LONG, steps)
        shape = graph.shapes[graph.input]
        if options.calibration:
            given: Clips = [_middle(clip, shape) for clip in options.calibration]
            each = max(SHORT, steps // len(given))
            count = -(-steps // min(each, max(map(len, given))))
            self.clips: Clips = [clip[:each] for clip in given[:count]]
        else:
            given = generated_clips(shape, longest, [CLIPS])
            self.clips = generated_clips(shape, min(steps, SHORT), range(max(1, steps // SHORT)))
        long = np.concatenate([*given] * -(-longest // sum(map(len, given))))[:longest]
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
        tried: list[tuple[Error, Choice]] = []
        if self.weights != "8" and layer.grid_steps is None and not layer.numbers.single:
            for room in (1.0, 1.5, 2.5):  # more where currents wrapped
                choice = self._refined(name, self._wide(name, highest / room, HEADROOM * self.caution * room))
                tried.append((self.trials.error(name, choice), choice))
                if not tried[-1][0].overflows:
                    break
        least = min((error for error, _ in tried), default=WORST)
        narrow = not tried or (self.weights == "auto" and least.overflows > 0)
        for choice in _candidates(layer, highest) if narrow else ():
            tried.append((self.trials.error(name, choice, enough=least), choice))
            least = min(least, tried[-1][0])
            if not any(least) and layer.grid_steps is not None:
                break
        error, choice = min(tried, key=lambda candidate: candidate[0])
        near = self.trials.near_threshold(name, choice).error if layer.fires else None
        if self.weights == "auto":
            error, choice, near = self._narrowed(name, error, choice, near)
        self.ranges.written(name, choice)
        notes = {
            "exponents": " ".join(map(str, choice.exponents)),
            "decays": "nearest" if choice.shift is None else "measured",
            "candidates": str(len(tried)),
        }
        if near is not None:
            notes["error left, thresholds"] = f"{np.sqrt(near.mean()):.1e}"
        lost, by_spikes = error.lost, self.trials.go_by_spikes(name)
        measure = {"f1": 1 - lost} if by_spikes else {"membrane_rms": lost}
        exact = not any(error) and layer.grid_steps is not None
        return choice, Loss(name, "exact" if exact else "measured", **measure, notes=notes)

    def _wide(self, name: str, highest: Floats, headroom: float) -> Choice:
        """Two synapses per weight: then the scale decides how fine weights are, so it is as large as can be.

        A state that saturates at the lower end does no harm unless it comes back and fires: so what has to
        fit is not the lowest state but the lowest before it came near its threshold, with a margin. Where a
        leak makes it forget, the error of the membrane tells whether less is better. Currents must not wrap,
        threshold and bias must fit.
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
        deepest, came_near = self.trials.deepest(name)
        least = np.maximum(dynamics.threshold, self.ranges.currents[name] * headroom)
        tells, forgets = came_near >= MANY, dynamics.decay_v > 0
        choices = []
        for margin in SHALLOWER if np.any(tells & forgets) else SHALLOWER[:1]:
            margins = np.where(tells, np.where(forgets, margin, SHALLOWER[0]), DEPTH)
            room = (bits.limit - 2.0**bits.shift) / np.maximum(least, self.caution * margins * deepest)
            choices.append(written(np.minimum(fits, room)))
        if len(choices) > 1:
            left = [self.trials.near_threshold(name, choice).left for choice in choices]
            scales = np.stack([choice.scale for choice in choices])
            choices = [written(np.take_along_axis(scales, np.argmin(left, axis=0)[None], axis=0)[0])]
        return choices[0]

    def _refined(self, name: str, choice: Choice) -> Choice:
        """Decays up or down for every group, and threshold and bias that make up for what is rounded.

        Also for sums of second synapses that are rounded down, as below exponent 0: with many spikes in a
        step that loses less than rounding every weight, with few more.
        """
        layer = self.draft.layers[name]
        if not layer.fires or not any(layer.inexact):
            return choice
        tried = []
        for finest in (0, layer.numbers.exponents(layer.drives)[0]):
            trial = replace(choice, finest=finest)
            fit = self.trials.near_threshold(name, trial)
            stretch = np.ones_like(fit.gain) if layer.subtracts else 1 / fit.gain
            push = fit.bias * stretch * np.where(fit.bias != 0, layer.dynamics.threshold, 0)
            scale = layer.at_thresholds(choice.scale, stretch, push)
            trial = replace(trial, scale=scale, shift=fit.shift, stretch=stretch, push=push)
            tried.append((fit.left.mean(), trial))
        return min(tried, key=lambda candidate: candidate[0])[1]

    def _narrowed(
        self, name: str, error: Error, choice: Choice, near: Floats | None
    ) -> tuple[Error, Choice, Floats | None]:
        """The same with one synapse per weight wherever the second keeps no more spikes."""
        for number, wide in enumerate(choice.wide):
            if wide:
                single = (*choice.wide[:number], False, *choice.wide[number + 1 :])
                other, far = replace(choice, wide=single), None
                if near is not None:
                    far = self.trials.near_threshold(name, other).error
                    if far.mean() > ALIKE * near.mean():
                        continue
                if (loss := self.trials.error(name, other)) <= error:
                    error, choice, near = loss, other, far
        return error, choice, near


def _candidates(layer: Layer, highest: Floats) -> Iterator[Choice]:
    """Ways to write a population with one synapse per weight, the most promising first."""
    bits, allowed = layer.numbers.bits, layer.numbers.exponents(layer.drives)
    finest = [layer.strength / bits.largest_weight, layer.least_rounding(layer.strength)]
    if layer.grid_steps is not None and layer.fires and not layer.subtracts:
        # Without a leak, inhibition drives a membrane down for ever. If saturation there harms, the error
        # tells; a negative exponent would round every sum of weights that are on the grid.
        scale = layer.snapped(2.0**bits.shift / layer.grid_steps)
        if np.any(scale > highest) and np.all(scale <= fitting(layer)):
            yield Choice(scale, layer.exponents(scale, range(allowed[-1] + 1)))
    for unit in finest if layer.grid_steps is None else [layer.grid_steps]:  # volts per integer of weight
        fit = np.log2(highest * unit / 2**bits.shift)
        safe = int(np.clip(np.floor(fit.min() + 1e-9), allowed[0], allowed[-1]))
        beyond = () if layer.subtracts else (safe + 1, safe + 2)  # what overflows only later would not show
        for exponent in (e for e in (safe, safe - 1, *beyond) if e in allowed):
            scale = layer.snapped(np.minimum(2.0 ** (bits.shift + exponent) / unit, highest))
            # Negative exponents round sums down: only where everything else would overflow.
            exponents = layer.exponents(scale, range(min(exponent, max(allowed[0], 0)), exponent + 1))
            for nearest in (False, True) if exponent == safe else (False,):
                yield Choice(scale, exponents, nearest)


def _whole(layer: Layer) -> range:
    """Exponents that round no sum down."""
    return range(layer.numbers.exponents(layer.drives)[-1] + 1)


def _middle(clip: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The middle of each frame, as large as `shape`."""
    first = [(size - wanted) // 2 for size, wanted in zip(clip.shape[1:], shape, strict=True)]
    return clip[(slice(None), *(slice(f, f + n) for f, n in zip(first, shape, strict=True)))]
