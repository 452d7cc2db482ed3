"""A population written in integers and fed with the reference's spikes: so that only its own error shows."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from nrf.arrays import Floats
from nrf.backends.border import Frames, Recording, Spikes
from nrf.backends.loihi.draft import Draft
from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.loihi.quantise import Choice
from nrf.backends.loihi.simulate import Simulator, Trace
from nrf.backends.lowering.calibration import Calibration
from nrf.backends.lowering.feedback import inverse_factor
from nrf.backends.lowering.metrics import f1, matched
from nrf.backends.lowering.timing import on_chip_clock

ENOUGH = 300  # spikes on the calibration clips from which F1 decides
PIECE = 1 << 15  # neurons times steps that are compared at once


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

    def error(self, name: str, choice: Choice, enough: float = np.inf) -> float:
        """1 - F1 of the spikes of a population, or the RMS error of its membrane; above 1 if it overflowed.

        What saturates above its threshold fires and is 0, and what saturation below costs shows in spikes.
        Where the error turns out to be no less than `enough`, it need not be the whole of it.
        """
        program = self.draft.added(self.draft.program(), name, choice)
        if self.go_by_spikes(name):
            return self._lost_spikes(name, program, enough)
        late, overflows = self.draft.latencies[name], 0
        squares: list[float] = []
        for wanted, trace in self._traces(program, (name,)):
            overflows += self._overflows(name, trace)
            volts = program.neurons[name].volts(trace.membranes[name])[late:]
            if len(volts):  # a clip may be shorter than the latency
                squares.append(float(np.square(volts - wanted.membranes[name][: len(volts)]).mean()))
        return float(np.sqrt(np.mean(squares or [0.0]))) + overflows

    def _lost_spikes(self, name: str, program: LoihiProgram, enough: float) -> float:
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
                least = 1 - f1(hits + left, theirs, ours + left) + overflows
                if least >= enough:
                    return least
        return least

    def _overflows(self, name: str, trace: Trace) -> int:
        """States that overflowed and should not have."""
        layer = self.draft.layers[name]
        return trace.wrapped[name] + trace.saturated[name] * (layer.subtracts or not layer.fires)

    def near_threshold(self, name: str, choice: Choice) -> tuple[Floats, Floats]:
        """Mean square error of each group's membrane where it may fire, and the gain that makes it least.

        May fire: above half the threshold, in the reference. What lies below, perhaps saturated, moves none.
        """
        layer, late = self.draft.layers[name], self.draft.latencies[name]
        program = self.draft.added(self.draft.program(), name, choice)
        neurons, groups = program.neurons[name], layer.dynamics.groups
        offset, threshold = (neurons.each(x) for x in (layer.dynamics.offset, layer.dynamics.threshold))
        stretch = 1.0 if choice.stretch is None else neurons.each(choice.stretch)
        limit = np.where(np.isfinite(threshold), threshold / 2, np.inf)
        lowest = np.where(np.isfinite(threshold), limit, -np.inf)
        sums = np.zeros((4, groups))
        for wanted, trace in self._traces(program, (name,)):
            ours = (neurons.volts(trace.membranes[name])[late:] - offset) / stretch
            theirs = wanted.membranes[name][: len(ours)] - offset
            near, wrong = theirs > lowest, np.clip(ours - theirs, -limit, limit)
            close = near & (np.abs(wrong) < limit / 2)
            for row, values in enumerate((near, near * wrong**2, close * ours * theirs, close * ours**2)):
                sums[row] += values.reshape(-1, groups, neurons.size // groups).sum(axis=(0, 2))
        gain = np.where(sums[3] > 0, sums[2] / np.where(sums[3] > 0, sums[3], 1), 1)
        return sums[1] / np.maximum(sums[0], 1), gain

    def deepest(self, name: str) -> tuple[Floats, Floats]:
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

    def _traces(self, program: LoihiProgram, record: tuple[str, ...]) -> Iterator[tuple[Recording, Trace]]:
        """The reference on every clip, and what the program makes of it."""
        simulator = self._simulator(program)
        for clip, wanted, teacher in self._clips:
            simulator.restart()
            yield wanted, simulator.run(clip, teacher=teacher, record=record)

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
