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
from nrf.backends.lowering.metrics import aligned, f1, matched
from nrf.backends.lowering.timing import on_chip_clock

ENOUGH = 300  # spikes on the calibration clips from which F1 decides


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

    def error(self, name: str, choice: Choice) -> float:
        """1 - F1 of the spikes of a population, or the RMS error of its membrane; above 1 if it overflowed.

        What saturates above its threshold fires and is 0, and what saturation below costs shows in spikes.
        """
        program = self.draft.added(self.draft.program(), name, choice)
        layer, late, by_spikes = self.draft.layers[name], self.draft.latencies[name], self.go_by_spikes(name)
        harms = layer.subtracts or not layer.fires
        hits = ours = theirs = overflows = 0
        squares: list[float] = []
        for clip, wanted, trace in self._traces(program, () if by_spikes else (name,)):
            overflows += trace.wrapped[name] + trace.saturated[name] * harms
            if by_spikes:
                r, c = aligned(wanted.spikes[name], trace.spikes[name], len(clip), late)
                hits, theirs, ours = hits + matched(r, c), theirs + r.count, ours + c.count
            else:
                volts = program.neurons[name].volts(trace.membranes[name])[late:]
                if len(volts):  # a clip may be shorter than the latency
                    squares.append(float(np.square(volts - wanted.membranes[name][: len(volts)]).mean()))
        error = 1 - f1(hits, theirs, ours) if by_spikes else float(np.sqrt(np.mean(squares or [0.0])))
        return error + overflows

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
        for _, wanted, trace in self._traces(program, (name,)):
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

    def _traces(
        self, program: LoihiProgram, record: tuple[str, ...]
    ) -> Iterator[tuple[Frames, Recording, Trace]]:
        """Every clip, the reference on it, and what the program makes of it."""
        self.simulator = simulator = Simulator(program, self.simulator)
        for clip, wanted, teacher in self._clips:
            simulator.restart()
            yield clip, wanted, simulator.run(clip, teacher=teacher, record=record)

    @cached_property
    def _clips(self) -> list[tuple[Frames, Recording, dict[str, Spikes]]]:
        """Every clip, the reference on it, and its spikes when the chip should fire them."""
        pairs = zip(self.calibration.clips, self.calibration.recordings, strict=True)
        return [(clip, wanted, on_chip_clock(wanted, self.draft.latencies)) for clip, wanted in pairs]
