"""The built-in simulators against Lava, Sinabs, a loop in C, real time, and what they were before."""

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

import nrf
from benchmarks.speed import asynchronous_before, programs
from benchmarks.speed.peers import CLoop, Sinabs, lava_seconds
from benchmarks.speed.rows import Row, Size, Timed, compared, turn
from nrf.api.files import load_program
from nrf.backends.border import Program, Spikes, backend_of
from nrf.backends.conformance.clips import made_clips
from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.loihi.simulate import Simulator as LoihiSimulator
from nrf.backends.speck import asynchronous
from nrf.backends.speck.program import SpeckProgram
from nrf.backends.speck.run import input_spikes
from nrf.backends.speck.simulate import Simulator as SpeckSimulator
from nrf.cli.memory import keep_freed_memory
from nrf.errors import InputError

Frames = NDArray[np.float32]
CHIPS = (("Loihi", programs.loihi), ("Speck", programs.speck))
DENSITIES = (0.003, 0.01, 0.1)


def builtin(program: LoihiProgram | SpeckProgram, frames: Frames, places: bool = False) -> Timed:
    """Our own simulators, set up anew every time; counts of every layer, and with `places` their sums."""
    keep_freed_memory()

    def run() -> tuple[list[int], float]:
        start = time.process_time()
        if isinstance(program, LoihiProgram):
            spikes = LoihiSimulator(program).run(frames).spikes
        else:
            spikes = SpeckSimulator(program).advance(input_spikes(program, frames), len(frames)).spikes
        seconds = time.process_time() - start
        return _digest(spikes.values(), places), seconds

    return run


def _digest(spikes: Iterable[Spikes], places: bool) -> list[int]:
    """Counts, and sums of (step + 1)(neuron + 1) over all spikes."""
    layers = list(spikes)
    sums = [int(((one.t + 1) * (one.i + 1) * one.n).sum()) for one in layers] if places else []
    return [one.count for one in layers] + sums


def loihi_against_lava(size: Size) -> Iterator[Row]:
    """Per step, unmodified Lava on its own Python."""
    program = programs.loihi(size.side(64))
    for density, goal in zip(DENSITIES, (250.0, 150.0, 40.0), strict=True):
        frames = programs.clip(program.input_shape, size.steps, density)

        def lava(frames: Frames = frames) -> tuple[list[int], float]:
            recording, seconds = lava_seconds(program, frames.astype(np.int64))
            return _digest(recording.spikes.values(), True), seconds

        work, few = f"Loihi built-in against Lava, {density:.1%}", min(size.repeats, 3)  # each starts Lava
        yield compared(work, builtin(program, frames, True), lava, goal, few, size.steps)


def speck_against_sinabs(size: Size) -> Iterator[Row]:
    """Step by step."""
    for pixels in (64,) if size.short else (64, 128):
        program = programs.speck(size.side(pixels))
        for density, goal in zip(DENSITIES, (40.0, 15.0, 1.5), strict=True):
            frames = programs.clip(program.input_shape, size.long, density)
            sinabs = Sinabs(program, frames)
            work = f"Speck synchronous against Sinabs, {pixels}x{pixels}, {density:.1%}"
            ours = builtin(program, frames, True)
            yield compared(work, ours, sinabs.seconds, goal, size.repeats, size.long)
            sinabs.close()


def share_of_c(size: Size) -> Iterator[Row]:
    """Of what a plain loop of the same additions and neuron updates reaches."""
    for name, make in CHIPS:
        program = make(size.side(64))
        for density in DENSITIES:
            frames = programs.clip(program.input_shape, size.long, density)
            work = f"{name} built-in, share of a C loop's speed, {density:.1%}"
            ours, loop = builtin(program, frames), CLoop(program, frames)
            yield compared(work, ours, loop.seconds, 40.0, size.repeats, size.long, "%")


def fewer_events(size: Size) -> Iterator[Row]:
    """A tenth of the events, and the floor of an idle network."""
    for name, make in CHIPS:
        program = make(size.side(64))
        clips = [programs.clip(program.input_shape, size.long, density) for density in (0.1, 0.01, 0.0)]
        many, few, none = (builtin(program, clip) for clip in clips)
        idle = turn(none) / size.long
        pairs = [(turn(few), turn(many)) for _ in range(size.repeats)]
        ratios = [b / a for a, b in pairs]
        note = f"1 % against 10 % of the pixels; idle {1e6 * idle:.0f} us per step"
        work = f"{name} built-in, a tenth of the events"
        yield Row(work, statistics.median(ratios), "x", 5.0, min(ratios), max(ratios), note)


def asynchronous_against_before(size: Size) -> Iterator[Row]:
    """Event by event, against the simulator before its rewrite."""
    program = programs.speck(size.side(64))
    runs = [("0.3%", 2.0, program, programs.clip(program.input_shape, size.long, 0.003))]
    if isinstance(preset := trained(size, "speck2f", "speck2f"), SpeckProgram):
        runs.append(("trained speck2f", 4.0, preset, _made(size, "speck2f", "speck2f")))
    for name, goal, speck, frames in runs:
        spikes, steps = input_spikes(speck, frames), len(frames)
        work = f"Speck asynchronous against before its rewrite, {name}"
        sides = (
            _by_events(simulate, speck, spikes, steps) for simulate in (_now, asynchronous_before.simulate)
        )
        yield compared(work, *sides, goal, size.repeats, steps)


EventByEvent = Callable[[SpeckProgram, Spikes, int, np.random.Generator], dict[str, Spikes]]


def _by_events(simulate: EventByEvent, program: SpeckProgram, spikes: Spikes, steps: int) -> Timed:
    def run() -> tuple[list[int], float]:
        start = time.process_time()
        found = simulate(program, spikes, steps, np.random.default_rng(0))
        seconds = time.process_time() - start
        return _digest(found.values(), True), seconds

    return run


def _now(program: SpeckProgram, spikes: Spikes, steps: int, rng: np.random.Generator) -> dict[str, Spikes]:
    return asynchronous.simulate(program, spikes, steps, rng, asynchronous.new_state(program)).spikes


def trained(size: Size, preset: str, target: str) -> Program | None:
    """A program of `nrf demo`, lowered again if it is of an earlier format."""
    folder = size.trained / preset / target
    if not (folder / "model.nir").is_file():
        print(f"(no {folder}: `make demo` first)", file=sys.stderr)
        return None
    try:
        return load_program(folder / "program")[1]
    except InputError:
        return nrf.lower(nrf.read(folder / "model.nir"), target)


def _made(size: Size, preset: str, target: str) -> Frames:
    """A clip like those that a preset was trained on."""
    graph = nrf.read(size.trained / preset / target / "model.nir")
    return np.asarray(made_clips(graph, 1)[0].frames[: 20 if size.short else 400], np.float32)


def streaming(size: Size) -> Iterator[Row]:
    """One step at a time, trained programs of `nrf demo`."""
    for preset, target, goal in (("demo", "loihi2", 2.0), ("speck2f", "speck2f", 4.0)):
        if (program := trained(size, preset, target)) is None:
            continue
        advance, frames = backend_of(nrf.load_chip(target)).session(program), _made(size, preset, target)
        advance(frames[:1])
        length, times = program.contract.dt or 1e-3, []
        for _ in range(size.repeats):
            start = time.process_time()
            for step in range(len(frames)):
                advance(frames[step : step + 1])
            times.append((time.process_time() - start) / len(frames))
        factors, density = [length / each for each in times], np.count_nonzero(frames) / frames.size
        work = f"{target}, one step at a time, trained {preset}, of real time"
        note = (
            f"{1e3 * statistics.median(times):.3g} ms per step of {1e3 * length:g} ms, "
            f"events at {density:.2%} of the pixels"
        )
        yield Row(work, statistics.median(factors), "x", goal, min(factors), max(factors), note)


def recurrent(size: Size) -> Iterator[Row]:
    """1000 neurons, a tenth of all connections."""
    program = programs.recurrent(100 if size.short else 1000)
    frames = programs.clip(program.input_shape, 20 if size.short else 1000, 0.1)
    run = builtin(program, frames)
    spikes, _ = run()
    times = [1e6 * run()[1] / len(frames) for _ in range(size.repeats)]
    work, note = "1000 recurrent neurons, per step", f"{spikes[0] / len(frames):.0f} spikes per step"
    yield Row(work, statistics.median(times), "us", 30.0, min(times), max(times), note)
