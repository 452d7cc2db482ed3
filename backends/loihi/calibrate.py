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
from nrf.backends.calibration import Clips, generated_clips
from nrf.backends.conformance.metrics import aligned, count, f1, matched
from nrf.backends.layers import Operator
from nrf.backends.loihi.draft import Draft
from nrf.backends.loihi.dynamics import Floats
from nrf.backends.loihi.grid import grid_steps
from nrf.backends.loihi.neuron import LIMIT, NEVER, SHIFT
from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.loihi.quantise import (
    WEIGHT_MAX,
    Choice,
    Decay,
    Threshold,
    least_rounding,
    strength,
    strongest,
)
from nrf.backends.loihi.simulator import initial_state, simulate
from nrf.backends.recording import Recording, Spikes
from nrf.export.graph import Graph

LONG = 1000  # steps of the clip on which ranges are measured: slow channels take some hundred to fill
SHORT = 100  # steps of a clip on which spikes are compared
MARGIN = 2.0  # largest integer allowed is this much beyond the largest seen
ROUNDINGS: tuple[tuple[Decay, Threshold], ...] = (
    ("nearest", "down"),
    ("nearest", "nearest"),
    ("down", "down"),
    ("up", "down"),
)
WORK = 6e10  # multiplications that calibration may spend in the reference


@dataclass(frozen=True)
class Calibration:
    """Clips with the reference's recordings, and a long clip."""

    clips: tuple[NDArray[np.float32], ...]
    recordings: tuple[Recording, ...]
    long: NDArray[np.float32]
    about: dict[str, Any]  # for the report

    @classmethod
    def of(cls, graph: Graph, given: Clips | None) -> "Calibration":
        """Run the reference on the given clips, or on generated ones; large graphs get shorter clips."""
        shape = graph.shapes[graph.input]
        budget = int(np.clip(WORK / _work_per_step(graph), 10, 4 * SHORT))
        steps = min(SHORT, budget)
        if given:
            clips = [clip[:SHORT] for clip in given][: max(1, budget // steps)]
            repeats = -(-LONG // max(len(clip) for clip in given))
            long = np.concatenate([*given] * repeats)[:LONG]
        else:
            clips = generated_clips(shape, steps, range(max(1, budget // steps)))
            long = generated_clips(shape, LONG if budget > SHORT else 3 * steps, [99])[0]
        recordings = tuple(reference.run(graph, clip) for clip in clips)
        about = {
            "clips": "given" if given else "generated",
            "steps": [len(clip) for clip in clips],
            "long_steps": len(long),
        }
        return cls(tuple(clips), recordings, long, about)


def _work_per_step(graph: Graph) -> float:
    """Multiplications of one step of the reference."""
    total = 1.0
    for name, node in graph.nodes.items():
        weight = getattr(node, "weight", None)
        if weight is not None:
            total += float(np.size(weight)) * float(np.prod(graph.shapes[name][1:]))
    return total


def choose(
    draft: Draft, program: LoihiProgram, name: str, measured: Calibration
) -> tuple[Choice, dict[str, Any]]:
    """The best way to write a population, and what it loses; `program` holds the populations before it."""
    ceiling = _ceiling(draft, program, name, measured.long)
    best: tuple[float, Choice] | None = None
    tried = 0
    for choice in _candidates(draft, name, ceiling):
        error = _error(draft, name, choice, measured)
        tried += 1
        if best is None or error < best[0]:
            best = error, choice
        if error == 0:
            break
    assert best is not None  # there is always a first candidate
    error, choice = best
    fires = bool(np.isfinite(draft.dynamics[name].threshold).any())
    return choice, {
        ("f1" if fires else "membrane_rms"): 1 - error if fires else error,
        "exponents": list(choice.exponents),
        "decay": choice.decay,
        "threshold": choice.threshold,
        "candidates": tried,
    }


def _candidates(draft: Draft, name: str, ceiling: Floats) -> Iterator[Choice]:
    """Ways to write a population, the most promising first."""
    drives, dynamics = draft.drives[name], draft.dynamics[name]
    allowed = draft.numbers.exponents(drives)
    full = strength(drives, dynamics.groups)
    on_grid = grid_steps(drives, dynamics.groups)
    units = [on_grid] if on_grid is not None else [full / WEIGHT_MAX, least_rounding(drives, full)]
    for unit in units:  # volts per integer of weight
        fit = np.log2(ceiling * unit / 2**SHIFT)
        safe = int(np.clip(np.floor(fit.min() + 1e-9), allowed[0], allowed[-1]))
        for exponent in (one for one in (safe, safe - 1, safe + 1, safe + 2) if one in allowed):
            scale = np.minimum(2.0 ** (SHIFT + exponent) / unit, ceiling)
            # Negative exponents round sums down: only where everything else would overflow.
            exponents = _exponents(drives, scale, range(min(exponent, max(allowed[0], 0)), exponent + 1))
            for decay, threshold in ROUNDINGS if exponent == safe else ROUNDINGS[:1]:
                yield Choice(scale, exponents, decay, threshold)


def _exponents(drives: tuple[Operator, ...], scale: Floats, allowed: range) -> tuple[int, ...]:
    """For each connection the smallest exponent that still lets its largest weight fit 8 bits."""
    found = []
    for operator in drives:
        peak = (strongest(operator, len(scale)) * scale).max() / 2**SHIFT / (WEIGHT_MAX + 0.49)
        needed = int(np.ceil(np.log2(peak))) if peak > 0 else allowed[-1]
        found.append(int(np.clip(needed, allowed[0], allowed[-1])))
    return tuple(found)


def _ceiling(draft: Draft, program: LoihiProgram, name: str, clip: NDArray[np.float32]) -> Floats:
    """Integers per volt, for each group, at which the largest state seen still fits with some margin."""
    dynamics, drives = draft.dynamics[name], draft.drives[name]
    fires = np.isfinite(dynamics.threshold)
    threshold = np.where(fires, np.abs(dynamics.threshold), 0)
    highest = np.where(fires, (NEVER - 1) * 2.0**SHIFT / np.maximum(threshold, 1e-30), np.inf)
    unit = strength(drives, dynamics.groups) / WEIGHT_MAX
    scale = np.minimum(2.0**SHIFT / unit, highest / 16)
    for _ in range(6):
        choice = Choice(scale, _exponents(drives, scale, draft.numbers.exponents(drives)))
        peak, overflowed = _peaks(draft.added(program, name, choice), name, clip)
        if not overflowed:
            break
        scale = scale / 16
    volts = np.maximum(peak / scale, np.maximum(threshold, 1e-30))
    return np.minimum(highest, (LIMIT - 1) / (MARGIN * volts))


def _peaks(program: LoihiProgram, name: str, clip: NDArray[np.float32]) -> tuple[Floats, bool]:
    """Largest |u| and |v| of each group of a population, and whether any of them overflowed."""
    state, overflowed = initial_state(program), False
    groups = len(program.neurons[name].dv)
    peak = np.zeros(groups)
    for start in range(0, len(clip), 50):
        trace, state = simulate(program, clip[start : start + 50], state=state, record=(name,))
        for values in (trace.u[name], trace.v[name]):
            peak = np.maximum(peak, np.abs(values).reshape(len(values), groups, -1).max(axis=(0, 2)))
        overflowed |= bool(trace.wrapped[name] or trace.saturated[name])
    return peak, overflowed


def _error(draft: Draft, name: str, choice: Choice, measured: Calibration) -> float:
    """1 - F1 of the spikes of one population fed with the reference's, or the RMS error of its membrane."""
    program = draft.added(draft.program(""), name, choice)
    spiking = bool(np.isfinite(draft.dynamics[name].threshold).any())
    hits = ours = theirs = 0
    squares = 0.0
    overflows = 0
    late = draft.late[name]
    for clip, wanted in zip(measured.clips, measured.recordings, strict=True):
        teacher = on_chip_clock(wanted, draft.late)
        trace, _ = simulate(program, clip, teacher=teacher, only=(name,), record=() if spiking else (name,))
        overflows += trace.wrapped[name] + trace.saturated[name]
        if spiking:
            r, c = aligned(wanted.spikes[name], trace.spikes[name], len(clip), late)
            hits, theirs, ours = hits + matched(r, c), theirs + count(r), ours + count(c)
        else:
            volts = program.neurons[name].volts(trace.v[name])[late:]
            squares += float(np.square(volts - wanted.membranes[name][: len(volts)]).mean()) / len(
                measured.clips
            )
    error = 1 - f1(hits, theirs, ours) if spiking else float(np.sqrt(squares))
    return error + overflows  # an overflow is worse than any rounding


def on_chip_clock(recording: Recording, late: dict[str, int]) -> dict[str, Spikes]:
    """The reference's spikes at the steps at which the chip should fire them."""
    return {
        name: replace(spikes, t=spikes.t + late[name])
        for name, spikes in recording.spikes.items()
        if name in late
    }
