"""Which integers: scales, exponents and roundings chosen by measured error, population by population.

Each candidate is tried on the reference's own spikes (so that only this population's error shows), and the
one that keeps most of the reference's spikes wins; where nothing fires, the one whose membrane is nearest.
How large integers may get is measured on a long clip that runs through the program written so far.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border import Clips, Loss, LowerOptions, Spikes
from nrf.backends.loihi.draft import Draft
from nrf.backends.loihi.quantise import (
    Choice,
    Decay,
    Threshold,
    grid_steps,
    least_rounding,
    rounded,
    strength,
    strongest,
)
from nrf.backends.loihi.simulate import Simulator
from nrf.backends.lowering.calibration import Calibration, cropped, generated_clips, work_per_step
from nrf.backends.lowering.dynamics import Floats
from nrf.backends.lowering.metrics import aligned, f1, matched
from nrf.backends.lowering.timing import on_chip_clock
from nrf.export.graph import Graph

LONG = 1000  # steps of the clip on which ranges are measured: slow channels take some hundred to fill
SHORT = 100  # steps of a clip on which spikes are compared
CLIPS = 4
PIECE = 50  # steps of the long clip in memory at once
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


@dataclass(frozen=True)
class Measured:
    """Calibration clips, and a long clip with what the chip fires on it so far."""

    calibration: Calibration
    long: NDArray[np.float32]
    fired: dict[str, Spikes]  # by the populations that are written already, on the long clip
    is_patch: bool  # a patch of the input stands for the whole
    about: str  # for the report

    @classmethod
    def of(cls, graph: Graph, options: LowerOptions) -> "Measured":
        """Run the reference on the given clips, or on generated ones."""
        patch = cropped(graph, PATCH) if work_per_step(graph) > LARGE else None
        small = patch or graph
        steps = int(np.clip(WORK / work_per_step(small), 10, CLIPS * SHORT))
        longest = 4 * steps if patch else LONG
        shape = small.shapes[small.input]
        if options.calibration:
            given: Clips = [_middle(clip, shape) for clip in options.calibration]
            clips: Clips = [clip[:SHORT] for clip in given[: -(-steps // SHORT)]]
        else:
            given = generated_clips(shape, longest, [CLIPS])
            clips = generated_clips(shape, min(steps, SHORT), range(max(1, steps // SHORT)))
        calibration = Calibration.of(small, clips)
        long = np.concatenate([*given] * -(-LONG // sum(map(len, given))))[:longest]
        longest_clip = max(map(len, clips))
        about = f"{len(clips)} {options.origin} clips of up to {longest_clip} steps, ranges on {len(long)}"
        about += f", on a patch of {PATCH}x{PATCH} pixels" if patch else ""
        return cls(calibration, long, {}, patch is not None, about)


def _middle(clip: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The middle of each frame, as large as `shape`."""
    first = [(size - wanted) // 2 for size, wanted in zip(clip.shape[1:], shape, strict=True)]
    return clip[(slice(None), *(slice(f, f + n) for f, n in zip(first, shape, strict=True)))]


def choose(draft: Draft, name: str, measured: Measured) -> tuple[Choice, Loss]:
    """The best way to write a population, and what it loses. `draft` is of the calibration's graph."""
    highest, _ = ceiling(draft, name, measured)
    errors: list[float] = []
    choices: list[Choice] = []
    for choice in _candidates(draft, name, highest, thorough=not measured.is_patch):
        choices.append(choice)
        errors.append(_error(draft, name, choice, measured.calibration))
        if errors[-1] == 0:
            break
    best = int(np.argmin(errors))
    choice, error, fires = choices[best], errors[best], draft.fires(name)
    measured.fired[name] = _fired(draft, name, choice, measured)[0]
    notes = {
        "exponents": " ".join(map(str, choice.exponents)),
        "decay": choice.decay,
        "threshold": choice.threshold,
        "candidates": str(len(choices)),
    }
    exact = "exact" if error == 0 else "measured"
    return choice, Loss(
        name, exact, f1=1 - error if fires else None, membrane_rms=None if fires else error, notes=notes
    )


def _candidates(draft: Draft, name: str, highest: Floats, thorough: bool) -> Iterator[Choice]:
    """Ways to write a population, the most promising first; other roundings only if `thorough`."""
    drives, dynamics, bits = draft.drives[name], draft.dynamics[name], draft.numbers.bits
    allowed = draft.numbers.exponents(drives)
    full = strength(drives, dynamics.groups)
    on_grid = grid_steps(drives, dynamics.groups, bits.largest_weight)
    finest = [full / bits.largest_weight, least_rounding(drives, full, bits.largest_weight)]
    for unit in finest if on_grid is None else [on_grid]:  # volts per integer of weight
        fit = np.log2(highest * unit / 2**bits.shift)
        safe = int(np.clip(np.floor(fit.min() + 1e-9), allowed[0], allowed[-1]))
        for exponent in (e for e in (safe, safe - 1, safe + 1, safe + 2) if e in allowed):
            scale = np.minimum(2.0 ** (bits.shift + exponent) / unit, highest)
            # Negative exponents round sums down: only where everything else would overflow.
            range_of = range(min(exponent, max(allowed[0], 0)), exponent + 1)
            exponents = _exponents(draft, name, scale, range_of)
            seen = set()
            for decay, threshold in ROUNDINGS if exponent == safe and thorough else ROUNDINGS[:1]:
                choice = Choice(scale, exponents, decay, threshold)
                integers = np.concatenate(
                    rounded(dynamics, choice, draft.graph.contract.fire == "ge", bits)
                ).tobytes()
                if integers not in seen:  # on the grid there is nothing to round
                    seen.add(integers)
                    yield choice


def _exponents(draft: Draft, name: str, scale: Floats, allowed: range) -> tuple[int, ...]:
    """For each connection the smallest exponent that still lets its largest weight fit the chip's bits."""
    bits = draft.numbers.bits
    exponents = []
    for operator in draft.drives[name]:
        peak = (strongest(operator, len(scale)) * scale).max() / 2**bits.shift / (bits.largest_weight + 0.49)
        needed = int(np.ceil(np.log2(peak))) if peak > 0 else allowed[-1]
        exponents.append(int(np.clip(needed, allowed[0], allowed[-1])))
    return tuple(exponents)


def ceiling(draft: Draft, name: str, measured: Measured) -> tuple[Floats, Spikes]:
    """Integers per volt, for each group, at which the largest state seen still fits with some margin.

    Bias and threshold have to fit as well. Also the spikes on the long clip at the scale that was tried.
    """
    dynamics, drives, numbers = draft.dynamics[name], draft.drives[name], draft.numbers
    bits = numbers.bits
    threshold = np.where(np.isfinite(dynamics.threshold), np.abs(dynamics.threshold), 1e-30)
    largest_bias = bits.largest_bias * 2.0 ** numbers.bias[-1]
    bias = np.maximum(np.abs(dynamics.bias), 1e-30)
    highest = np.minimum((bits.never - 1) * 2.0**bits.shift / threshold, largest_bias / bias)
    finest = strength(drives, dynamics.groups) / bits.largest_weight
    scale = np.minimum(2.0**bits.shift / finest, highest / 16)
    for _ in range(6):
        choice = Choice(scale, _exponents(draft, name, scale, numbers.exponents(drives)))
        spikes, peak, overflowed = _fired(draft, name, choice, measured)
        if not overflowed:
            break
        scale = scale / 16
    return np.minimum(highest, (bits.limit - 1) / (MARGIN * np.maximum(peak / scale, threshold))), spikes


def _fired(draft: Draft, name: str, choice: Choice, measured: Measured) -> tuple[Spikes, Floats, bool]:
    """Spikes of a population on the long clip, largest |u| and |v| of each group, whether any overflowed."""
    program = draft.added(draft.program(""), name, choice)
    simulator, overflowed = Simulator(program), False
    groups = len(choice.scale)
    peak = np.zeros(groups)
    parts = []
    for start in range(0, len(measured.long), PIECE):
        frames = measured.long[start : start + PIECE]
        teacher = {key: spikes.between(start, start + PIECE) for key, spikes in measured.fired.items()}
        trace = simulator.run(frames, record=(name,), teacher=teacher)
        for values in (trace.u[name], trace.v[name]):
            peak = np.maximum(peak, np.abs(values).reshape(len(values), groups, -1).max(axis=(0, 2)))
        overflowed |= bool(trace.wrapped[name] or trace.saturated[name])
        parts.append(trace.spikes[name].later(start))
    return Spikes.joined(parts), peak, overflowed


def _error(draft: Draft, name: str, choice: Choice, calibration: Calibration) -> float:
    """1 - F1 of the spikes of one population fed with the reference's, or the RMS error of its membrane."""
    program = draft.added(draft.program(""), name, choice)
    fires, late = draft.fires(name), draft.latencies[name]
    hits = ours = theirs = overflows = 0
    squares: list[float] = []
    for clip, wanted in zip(calibration.clips, calibration.recordings, strict=True):
        teacher = on_chip_clock(wanted, draft.latencies)
        trace = Simulator(program).run(clip, teacher=teacher, record=() if fires else (name,))
        overflows += trace.wrapped[name] + trace.saturated[name]
        if fires:
            r, c = aligned(wanted.spikes[name], trace.spikes[name], len(clip), late)
            hits, theirs, ours = hits + matched(r, c), theirs + r.count, ours + c.count
        else:
            volts = program.neurons[name].volts(trace.v[name])[late:]
            squares.append(float(np.square(volts - wanted.membranes[name][: len(volts)]).mean()))
    error = 1 - f1(hits, theirs, ours) if fires else float(np.sqrt(np.mean(squares)))
    return error + overflows  # an overflow is worse than any rounding
