"""Which integers: scales, exponents and roundings chosen by measured error, population by population.

Each candidate is tried on the reference's own spikes (so that only this population's error shows), and the
one that keeps most of the reference's spikes wins; where nothing fires, the one whose membrane is nearest.
How large integers may get is measured on a long clip that runs through the program written so far.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.backends import reference
from nrf.backends.border.recording import Recording, Spikes
from nrf.backends.loihi.draft import Draft
from nrf.backends.loihi.neuron import LIMIT, NEVER, SHIFT
from nrf.backends.loihi.quantise import (
    BIAS_MAX,
    WEIGHT_MAX,
    Choice,
    Decay,
    Threshold,
    grid_steps,
    least_rounding,
    rounded,
    strength,
    strongest,
)
from nrf.backends.loihi.simulate import cut, initial_state, simulate
from nrf.backends.lowering.calibration import Clips, cropped, generated_clips, work_per_step
from nrf.backends.lowering.dynamics import Floats
from nrf.backends.lowering.layers import Operator
from nrf.backends.lowering.metrics import aligned, count, f1, matched
from nrf.errors import InputError
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
class Calibration:
    """Clips with the reference's recordings, and a long clip with what the chip fires on it so far."""

    graph: Graph  # the graph itself, or a patch of it
    clips: tuple[NDArray[np.float32], ...]
    recordings: tuple[Recording, ...]
    long: NDArray[np.float32]
    fired: dict[str, Spikes]  # by the populations that are written already, on the long clip
    about: dict[str, Any]  # for the report

    @classmethod
    def of(cls, graph: Graph, given: Clips | None) -> "Calibration":
        """Run the reference on the given clips, or on generated ones."""
        patch = cropped(graph, PATCH) if work_per_step(graph) > LARGE else None
        small = patch or graph
        steps = int(np.clip(WORK / work_per_step(small), 10, CLIPS * SHORT))
        longest = 4 * steps if patch else LONG
        shape = small.shapes[small.input]
        if given:
            if not all(map(len, given)):
                raise InputError(f"{graph.name}: a calibration clip has no steps; leave it out")
            given = [_middle(clip, shape) for clip in given]
            clips = [clip[:SHORT] for clip in given[: -(-steps // SHORT)]]
            long = np.concatenate([*given] * -(-LONG // sum(map(len, given))))[:longest]
        else:
            clips = generated_clips(shape, min(steps, SHORT), range(max(1, steps // SHORT)))
            long = generated_clips(shape, longest, [CLIPS])[0]
        about = {
            "clips": "given" if given else "generated",
            "patch": list(shape) if patch else None,
            "steps": [len(clip) for clip in clips],
            "long_steps": len(long),
        }
        return cls(small, tuple(clips), tuple(reference.run(small, clip) for clip in clips), long, {}, about)


def _middle(clip: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The middle of each frame, as large as `shape`."""
    first = [(size - wanted) // 2 for size, wanted in zip(clip.shape[1:], shape, strict=True)]
    return clip[(slice(None), *(slice(f, f + n) for f, n in zip(first, shape, strict=True)))]


def choose(draft: Draft, name: str, measured: Calibration) -> tuple[Choice, dict[str, Any]]:
    """The best way to write a population, and what it loses. `draft` is of the calibration's graph."""
    highest, _ = ceiling(draft, name, measured)
    errors: list[float] = []
    choices: list[Choice] = []
    for choice in _candidates(draft, name, highest, thorough=measured.about["patch"] is None):
        choices.append(choice)
        errors.append(_error(draft, name, choice, measured))
        if errors[-1] == 0:
            break
    best = int(np.argmin(errors))
    measured.fired[name] = _fired(draft, name, choices[best], measured)[0]
    loses = {"membrane_rms": errors[best]} if not draft.fires(name) else {"f1": 1 - errors[best]}
    return choices[best], loses | {
        "exponents": list(choices[best].exponents),
        "decay": choices[best].decay,
        "threshold": choices[best].threshold,
        "candidates": len(choices),
    }


def _candidates(draft: Draft, name: str, highest: Floats, thorough: bool) -> Iterator[Choice]:
    """Ways to write a population, the most promising first; other roundings only if `thorough`."""
    drives, dynamics = draft.drives[name], draft.dynamics[name]
    allowed = draft.numbers.exponents(drives)
    full = strength(drives, dynamics.groups)
    on_grid = grid_steps(drives, dynamics.groups)
    units = [on_grid] if on_grid is not None else [full / WEIGHT_MAX, least_rounding(drives, full)]
    for unit in units:  # volts per integer of weight
        fit = np.log2(highest * unit / 2**SHIFT)
        safe = int(np.clip(np.floor(fit.min() + 1e-9), allowed[0], allowed[-1]))
        for exponent in (one for one in (safe, safe - 1, safe + 1, safe + 2) if one in allowed):
            scale = np.minimum(2.0 ** (SHIFT + exponent) / unit, highest)
            # Negative exponents round sums down: only where everything else would overflow.
            exponents = _exponents(drives, scale, range(min(exponent, max(allowed[0], 0)), exponent + 1))
            seen = set()
            for decay, threshold in ROUNDINGS if exponent == safe and thorough else ROUNDINGS[:1]:
                choice = Choice(scale, exponents, decay, threshold)
                integers = rounded(dynamics, choice, draft.graph.contract.fire == "ge")
                if integers not in seen:  # on the grid there is nothing to round
                    seen.add(integers)
                    yield choice


def _exponents(drives: tuple[Operator, ...], scale: Floats, allowed: range) -> tuple[int, ...]:
    """For each connection the smallest exponent that still lets its largest weight fit 8 bits."""
    found = []
    for operator in drives:
        peak = (strongest(operator, len(scale)) * scale).max() / 2**SHIFT / (WEIGHT_MAX + 0.49)
        needed = int(np.ceil(np.log2(peak))) if peak > 0 else allowed[-1]
        found.append(int(np.clip(needed, allowed[0], allowed[-1])))
    return tuple(found)


def ceiling(draft: Draft, name: str, measured: Calibration) -> tuple[Floats, Spikes]:
    """Integers per volt, for each group, at which the largest state seen still fits with some margin.

    Bias and threshold have to fit as well. Also the spikes on the long clip at the scale that was tried.
    """
    dynamics, drives = draft.dynamics[name], draft.drives[name]
    threshold = np.where(np.isfinite(dynamics.threshold), np.abs(dynamics.threshold), 1e-30)
    largest_bias = BIAS_MAX * 2.0 ** draft.numbers.bias[-1]
    bias = np.maximum(np.abs(dynamics.bias), 1e-30)
    highest = np.minimum((NEVER - 1) * 2.0**SHIFT / threshold, largest_bias / bias)
    scale = np.minimum(2.0**SHIFT / (strength(drives, dynamics.groups) / WEIGHT_MAX), highest / 16)
    for _ in range(6):
        choice = Choice(scale, _exponents(drives, scale, draft.numbers.exponents(drives)))
        spikes, peak, overflowed = _fired(draft, name, choice, measured)
        if not overflowed:
            break
        scale = scale / 16
    return np.minimum(highest, (LIMIT - 1) / (MARGIN * np.maximum(peak / scale, threshold))), spikes


def _fired(draft: Draft, name: str, choice: Choice, measured: Calibration) -> tuple[Spikes, Floats, bool]:
    """Spikes of a population on the long clip, largest |u| and |v| of each group, whether any overflowed."""
    program = draft.added(draft.program(""), name, choice)
    state, overflowed = initial_state(program), False
    groups = len(choice.scale)
    peak = np.zeros(groups)
    parts = []
    for start in range(0, len(measured.long), PIECE):
        frames = measured.long[start : start + PIECE]
        teacher = {key: cut(spikes, start, start + PIECE) for key, spikes in measured.fired.items()}
        trace, state = simulate(program, frames, state=state, record=(name,), teacher=teacher)
        for values in (trace.u[name], trace.v[name]):
            peak = np.maximum(peak, np.abs(values).reshape(len(values), groups, -1).max(axis=(0, 2)))
        overflowed |= bool(trace.wrapped[name] or trace.saturated[name])
        parts.append(replace(trace.spikes[name], t=trace.spikes[name].t + start))
    joined = Spikes(*(np.concatenate([getattr(part, key) for part in parts]) for key in "tin"))
    return joined, peak, overflowed


def _error(draft: Draft, name: str, choice: Choice, measured: Calibration) -> float:
    """1 - F1 of the spikes of one population fed with the reference's, or the RMS error of its membrane."""
    program = draft.added(draft.program(""), name, choice)
    fires, late = draft.fires(name), draft.late[name]
    hits = ours = theirs = overflows = 0
    squares: list[float] = []
    for clip, wanted in zip(measured.clips, measured.recordings, strict=True):
        teacher = on_chip_clock(wanted, draft.late)
        trace, _ = simulate(program, clip, teacher=teacher, record=() if fires else (name,))
        overflows += trace.wrapped[name] + trace.saturated[name]
        if fires:
            r, c = aligned(wanted.spikes[name], trace.spikes[name], len(clip), late)
            hits, theirs, ours = hits + matched(r, c), theirs + count(r), ours + count(c)
        else:
            volts = program.neurons[name].volts(trace.v[name])[late:]
            squares.append(float(np.square(volts - wanted.membranes[name][: len(volts)]).mean()))
    error = 1 - f1(hits, theirs, ours) if fires else float(np.sqrt(np.mean(squares)))
    return error + overflows  # an overflow is worse than any rounding


def on_chip_clock(recording: Recording, late: dict[str, int]) -> dict[str, Spikes]:
    """The reference's spikes at the steps at which the chip should fire them."""
    return {
        name: replace(spikes, t=spikes.t + late[name])
        for name, spikes in recording.spikes.items()
        if name in late
    }
