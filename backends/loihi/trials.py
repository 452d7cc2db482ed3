"""A population written in integers and fed with the reference's spikes: so that only its own error shows."""

from collections.abc import Iterator
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nrf.arrays import Floats
from nrf.backends.border import Frames, Recording, Spikes
from nrf.backends.loihi.draft import Draft
from nrf.backends.loihi.fit import Fit, Membranes, fitted, samples
from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.loihi.quantise import Choice
from nrf.backends.loihi.simulate import Simulator, Trace
from nrf.backends.lowering.calibration import Calibration
from nrf.backends.lowering.feedback import inverse_factor
from nrf.backends.lowering.metrics import f1, matched
from nrf.backends.lowering.timing import on_chip_clock

ENOUGH = 300  # spikes on the calibration clips from which F1 decides
SOME = 30  # membranes that may fire, from which others do not count
PIECE = 1 << 15  # neurons times steps that are compared at once


class Error(NamedTuple):
    """Of a way to write a population: one whose states overflow is worse than any whose do not."""

    overflows: float  # states that did and should not have
    lost: float  # 1 - F1 of its spikes, or volts: the RMS error of its membrane


WORST = Error(np.inf, np.inf)


class Trials:
    """The reference on calibration clips, and how far a way to write a population is from it."""

    def __init__(self, draft: Draft, calibration: Calibration) -> None:
        self.draft, self.calibration = draft, calibration
        self.simulator: Simulator | None = None  # the last

    def go_by_spikes(self, name: str) -> bool:
        """Whether there are spikes enough to go by; where there are hardly any, the membrane tells more."""
        layer = self.draft.layers[name]
        if not layer.fires or layer.grid_steps is not None:  # on the grid nothing is rounded
            return layer.fires
        return sum(recording.spikes[name].count for recording in self.calibration.recordings) >= ENOUGH

    def error(self, name: str, choice: Choice, enough: Error = WORST) -> Error:
        """How far the spikes of a population, or its membrane, are from the reference's.

        What saturates above its threshold fires and is 0, and what saturation below costs shows in spikes;
        where these are few, membranes count where they may fire (`_half`), unless they never come there.
        Where the error turns out to be no less than `enough`, it need not be the whole of it.
        """
        if self.go_by_spikes(name):
            return self._lost_spikes(name, self.draft.added(self.draft.program(), name, choice), enough)
        half, offset = self._half(name), self._each(name, self.draft.layers[name].dynamics.offset)
        membranes = (wanted.membranes[name] - offset for wanted in self.calibration.recordings)
        if sum(np.sum(volts > half) for volts in membranes) < SOME:
            half = np.full_like(half, -np.inf)
        square, samples, overflows = 0.0, 0, 0
        for _, trace, ours, theirs in self._beside(name, choice):
            counts = theirs > half
            square, samples = square + np.sum((ours - theirs)[counts] ** 2), samples + counts.sum()
            overflows += self._overflows(name, trace)
        return Error(overflows, float(np.sqrt(square / max(1, samples))))

    def _lost_spikes(self, name: str, program: LoihiProgram, enough: Error) -> Error:
        """1 - F1, and overflows; after each piece of a clip, what it is if all that is left matches.

        That only grows, so that most ways to write a population are known to be worse after a few steps.
        """
        late, simulator = self.draft.latencies[name], self._simulator(program)
        piece = max(1, PIECE // program.neurons[name].size)
        ends = [(wanted.spikes[name], -late, len(clip) - late) for clip, wanted, _ in self._clips]
        theirs = left = sum(spikes.between(*both).count for spikes, *both in ends)
        hits = ours = overflows = 0
        for clip, wanted, teacher in self._clips:
            simulator.restart()
            for start in range(0, len(clip), piece):
                stop = min(start + piece, len(clip))
                trace = simulator.run(clip[start:stop], teacher=_part(teacher, simulator, start, stop))
                r = wanted.spikes[name].between(start - late, stop - late)
                c = trace.spikes[name].where(trace.spikes[name].t + start - late < len(clip))
                hits, ours, left = hits + matched(r, c), ours + c.count, left - r.count
                overflows += self._overflows(name, trace)
                least = Error(overflows, 1 - f1(hits + left, theirs, ours + left))
                if least >= enough:
                    return least
        return least

    def _overflows(self, name: str, trace: Trace) -> int:
        """States that overflowed and should not have."""
        layer = self.draft.layers[name]
        return trace.wrapped[name] + trace.saturated[name] * (layer.subtracts or not layer.fires)

    def near_threshold(self, name: str, choice: Choice) -> Fit:
        """How far membranes are from the reference's where they may fire, and what would help (`fit.py`)."""
        layer, unity = self.draft.layers[name], self.draft.numbers.bits.unity
        dynamics, size = layer.dynamics, prod(layer.population.shape)
        du, dv, _ = layer.rounded(choice)
        keep_u, keep_v = (np.repeat(kept / unity, size // len(kept)) for kept in (unity - 1 - du, unity - dv))
        threshold = np.where(dynamics.threshold > 0, dynamics.threshold, np.inf)
        stretch = 1.0 if choice.stretch is None else choice.stretch
        chip, wanted_unit = (
            np.repeat(volts, size // len(volts)) for volts in (threshold * stretch, threshold)
        )
        clips = []
        for wanted, trace, ours, theirs in self._beside(name, choice):
            steps, first = len(ours), trace.steps - len(ours)
            u = trace.u[name][first:].reshape(steps, size) / self._each(name, choice.scale).ravel()
            fired = trace.spikes[name].dense(trace.steps, (size,))[first:] > 0
            wanted_fired = wanted.spikes[name].dense(wanted.steps, (size,))[:steps] > 0
            ours, theirs = ours.reshape(steps, size) / chip, theirs.reshape(steps, size) / wanted_unit
            both = Membranes(u / chip, ours, fired, theirs, wanted_fired)
            clips.append(samples(both, keep_u, keep_v, dynamics.groups, not layer.subtracts))
        return fitted(clips, dynamics.groups, layer.inexact, unity)

    def _half(self, name: str) -> Floats:
        """Volts above reset from which a membrane may fire soon: half its threshold; any where none does."""
        threshold = self.draft.layers[name].dynamics.threshold
        return self._each(name, np.where(np.isfinite(threshold), threshold / 2, -np.inf))

    def _each(self, name: str, values: Floats) -> Floats:
        """One value per neuron from one value per group."""
        shape = self.draft.layers[name].population.shape
        return np.repeat(values, prod(shape) // len(values)).reshape(shape)

    def _beside(
        self, name: str, choice: Choice
    ) -> Iterator[tuple[Recording, Trace, NDArray[np.floating], NDArray[np.number]]]:
        """The reference on every clip, what a choice makes of it, and the membranes of both, above reset.

        In steps in which both are there: a clip may be shorter than the latency. What the reference takes off
        a step late is taken off at the spike, as on the chip.
        """
        layer, late = self.draft.layers[name], self.draft.latencies[name]
        program = self.draft.added(self.draft.program(), name, choice)
        simulator, offset = self._simulator(program), self._each(name, layer.dynamics.offset)
        waits = layer.subtracts and self.draft.graph.contract_of(name).reset_at == "next"
        taken = self._each(name, layer.dynamics.taken * waits)
        for clip, wanted, teacher in self._clips:
            simulator.restart()
            trace = simulator.run(clip, teacher=teacher, record=(name,))
            ours = program.neurons[name].volts(trace.membranes[name])[late:] - offset
            theirs = wanted.membranes[name] - taken * wanted.dense(name) if waits else wanted.membranes[name]
            yield wanted, trace, ours, theirs[: len(ours)] - offset

    def deepest(self, name: str) -> tuple[Floats, Floats]:
        """How far below reset membranes were before they came near the threshold, and how often they did.

        In the reference, volts. Groups that hardly did are taken to be as deep as the deepest.
        """
        layer = self.draft.layers[name]
        shape, groups = layer.population.shape, layer.dynamics.groups
        depth, count, half = np.zeros(shape), np.zeros(shape), self._half(name)
        offset = self._each(name, layer.dynamics.offset)
        for wanted in self.calibration.recordings:
            lowest = np.zeros(shape)
            for volts, spikes in zip(wanted.membranes[name], wanted.dense(name), strict=True):
                lowest = np.minimum(lowest, volts - offset)
                near = (spikes > 0) | (volts - offset > half)
                depth = np.where(near, np.maximum(depth, -lowest), depth)
                lowest = np.where(spikes > 0, 0, lowest)
                count += near
        deepest, counts = depth.reshape(groups, -1).max(axis=1), count.reshape(groups, -1).sum(axis=1)
        return np.where(counts < SOME, deepest.max(), deepest), counts

    def feedback(self, name: str) -> tuple[Floats | None, ...]:
        """How errors of weights cancel on what connections hear in the reference (`lowering.feedback`)."""
        layer, factors = self.draft.layers[name], []
        for connection, drive in zip(layer.connections, layer.drives, strict=True):
            pairs = zip(self.calibration.clips, self.calibration.recordings, strict=True)
            heard = (
                clip if connection.external else wanted.dense(connection.source) for clip, wanted in pairs
            )
            factors.append(inverse_factor(drive, (counts.reshape(len(counts), -1) for counts in heard)))
        return tuple(factors)

    def _simulator(self, program: LoihiProgram) -> Simulator:
        """Of a program, with what it has in common with the last."""
        self.simulator = Simulator(program, self.simulator)
        return self.simulator

    @cached_property
    def _clips(self) -> list[tuple[Frames, Recording, dict[str, Spikes]]]:
        """Every clip, the reference on it, and its spikes when the chip should fire them."""
        pairs = zip(self.calibration.clips, self.calibration.recordings, strict=True)
        return [(clip, wanted, on_chip_clock(wanted, self.draft.latencies)) for clip, wanted in pairs]


def _part(teacher: dict[str, Spikes], simulator: Simulator, start: int, stop: int) -> dict[str, Spikes]:
    """What a simulator hears of a teacher in some steps."""
    return {name: teacher[name].between(start, stop) for name in simulator.names if name in teacher}
