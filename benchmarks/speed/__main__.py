"""How fast everything is, side by side with others: `make bench`.

    python -m benchmarks.speed [--only NAME] [--short] [--repeats 5] [--trained demo] [--write]

Ratios of CPU times on one thread. Both sides are warmed up, checked to give the same spikes, and take turns;
a figure is the median of the runs, with the lowest and highest ratio of neighbours. What misses its goal
stays in the table, and the command exits with 1. --short runs every line once at a small size, without goals.
--write puts the table into docs/speed.md and the figures into docs/speed.json; with --only, those lines.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import nrf
from benchmarks.speed import programs
from benchmarks.speed.peers import CLoop, Sinabs, lava_seconds
from nrf.api import load_program
from nrf.backends.border import Program, backend_of
from nrf.backends.conformance.clips import made_clips
from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.loihi.simulate import Simulator as LoihiSimulator
from nrf.backends.speck.program import SpeckProgram
from nrf.backends.speck.run import input_spikes
from nrf.backends.speck.simulate import Simulator as SpeckSimulator
from nrf.errors import InputError

Frames = NDArray[np.int64]
DOCS = Path(__file__).parents[2] / "docs"


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    work: str
    figure: float
    unit: str
    goal: float | None  # at least; at most where the unit is a time
    lowest: float
    highest: float
    note: str = ""

    @property
    def missed(self) -> bool:
        """Whether the goal is."""
        if self.goal is None:
            return False
        return self.figure > self.goal if self.unit in ("us", "s", "GB") else self.figure < self.goal


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    short: bool
    repeats: int
    trained: Path

    @property
    def steps(self) -> int:
        """Of a clip."""
        return 4 if self.short else 50

    def side(self, pixels: int) -> int:
        """Of the sensor."""
        return 32 if self.short else pixels


Timed = Callable[[], tuple[list[int], float]]


def compared(work: str, ours: Timed, theirs: Timed, goal: float | None, size: Size, unit: str = "x") -> Row:
    """How many times faster we are, or our share of their speed, after a check that results are equal."""
    (mine, _), (other, _) = ours(), theirs()
    if mine != other:
        sys.exit(f"error: {work}: spikes {mine} and {other} differ, no times")
    pairs = [(ours()[1], theirs()[1]) for _ in range(size.repeats)]
    ratios = [b / a for a, b in pairs]
    first, second = (statistics.median(side) for side in zip(*pairs, strict=True))
    scale = 100 if unit == "%" else 1
    note = f"{1e3 * first / size.steps:.3g} against {1e3 * second / size.steps:.3g} ms per step"
    return Row(work, scale * second / first, unit, goal, scale * min(ratios), scale * max(ratios), note)


def builtin(program: LoihiProgram | SpeckProgram, frames: Frames) -> Timed:
    """Our own simulators."""

    def run() -> tuple[list[int], float]:
        start = time.process_time()
        if isinstance(program, LoihiProgram):
            spikes = LoihiSimulator(program).run(frames).spikes
        else:
            spikes = SpeckSimulator(program).advance(input_spikes(program, frames), len(frames)).spikes
        return [one.count for one in spikes.values()], time.process_time() - start

    return run


def loihi_against_lava(size: Size) -> Iterator[Row]:
    """Per step, unmodified Lava on its own Python."""
    program = programs.loihi(size.side(64))
    for density, goal in ((0.003, 250.0), (0.01, 150.0), (0.1, 40.0)):
        frames = programs.clip(program.input_shape, size.steps, density)

        def lava(frames: Frames = frames) -> tuple[list[int], float]:
            recording, seconds = lava_seconds(program, frames)
            return [one.count for one in recording.spikes.values()], seconds

        few = Size(size.short, min(size.repeats, 3), size.trained)  # each costs Lava a start
        yield compared(
            f"Loihi built-in against Lava, {density:.1%}", builtin(program, frames), lava, goal, few
        )


def speck_against_sinabs(size: Size) -> Iterator[Row]:
    """Step by step."""
    for pixels in (64,) if size.short else (64, 128):
        program = programs.speck(size.side(pixels))
        for density, goal in ((0.003, 40.0), (0.01, 15.0), (0.1, 1.5)):
            frames = programs.clip(program.input_shape, size.steps, density)
            sinabs = Sinabs(program, frames)
            work = f"Speck synchronous against Sinabs, {pixels}x{pixels}, {density:.1%}"
            yield compared(work, builtin(program, frames), sinabs.seconds, goal, size)
            sinabs.close()


def share_of_c(size: Size) -> Iterator[Row]:
    """Of what a plain loop of the same additions and neuron updates reaches."""
    for name, program in (("Loihi", programs.loihi(size.side(64))), ("Speck", programs.speck(size.side(64)))):
        for density in (0.003, 0.01, 0.1):
            frames = programs.clip(program.input_shape, size.steps, density)
            loop = CLoop(program, frames)
            work = f"{name} built-in, share of a C loop's speed, {density:.1%}"
            yield compared(work, builtin(program, frames), loop.seconds, 40.0, size, "%")


def fewer_events(size: Size) -> Iterator[Row]:
    """A tenth of the events, and the floor of an idle network."""
    for name, program in (("Loihi", programs.loihi(size.side(64))), ("Speck", programs.speck(size.side(64)))):
        many, few, none = (
            builtin(program, programs.clip(program.input_shape, size.steps, density))
            for density in (0.1, 0.01, 0.0)
        )
        idle = statistics.median(none()[1] for _ in range(size.repeats + 1)) / size.steps
        pairs = [(few()[1], many()[1]) for _ in range(size.repeats)]
        ratios = [b / a for a, b in pairs]
        note = f"1 % against 10 % of the pixels; idle {1e6 * idle:.0f} us per step"
        work = f"{name} built-in, a tenth of the events"
        yield Row(work, statistics.median(ratios), "x", 5.0, min(ratios), max(ratios), note)


def trained(size: Size, preset: str, target: str) -> Program | None:
    """A program of `make demo`, lowered again if it is of an earlier format."""
    folder = size.trained / preset / target
    if not (folder / "model.nir").is_file():
        print(f"(no {folder}: `make demo` first)", file=sys.stderr)
        return None
    try:
        return load_program(folder / "program")[1]
    except InputError:
        return nrf.lower(nrf.read(folder / "model.nir"), target)


def streaming(size: Size) -> Iterator[Row]:
    """One step at a time, trained programs of `make demo`, on a clip like those they were trained on."""
    for preset, target, goal in (("demo", "loihi2", 2.0), ("speck2f", "speck2f", 4.0)):
        if (program := trained(size, preset, target)) is None:
            continue
        advance = backend_of(nrf.load_chip(target)).session(program)
        graph = nrf.read(size.trained / preset / target / "model.nir")
        frames = made_clips(graph, 1)[0].frames[: 20 if size.short else 400]
        advance(frames[:1])
        factors = []
        for _ in range(size.repeats):
            start = time.process_time()
            for step in range(len(frames)):
                advance(frames[step : step + 1])
            factors.append(len(frames) * (program.contract.dt or 1e-3) / (time.process_time() - start))
        work, middle = (
            f"{target}, one step at a time, trained {preset}, of real time",
            statistics.median(factors),
        )
        length = 1e3 * (program.contract.dt or 1e-3)
        density = np.count_nonzero(frames) / frames.size
        note = f"{length / middle:.3g} ms per step of {length:g} ms, events at {density:.2%} of the pixels"
        yield Row(work, middle, "x", goal, min(factors), max(factors), note)


def recurrent(size: Size) -> Iterator[Row]:
    """1000 neurons, a tenth of all connections."""
    program = programs.recurrent(100 if size.short else 1000)
    frames = programs.clip(program.input_shape, 20 if size.short else 1000, 0.1)
    run = builtin(program, frames)
    spikes, _ = run()
    times = [1e6 * run()[1] / len(frames) for _ in range(size.repeats)]
    note = f"{spikes[0] / len(frames):.0f} spikes per step"
    yield Row(
        "1000 recurrent neurons, per step", statistics.median(times), "us", 30.0, min(times), max(times), note
    )


def command(size: Size) -> Iterator[Row]:
    """`nrf run` of a clip of 50 steps, from the shell, compiled before."""
    program = programs.loihi(size.side(64))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program.save(folder / "program.loihi2")
        np.savez(folder / "clip.npz", frames=programs.clip(program.input_shape, size.steps, 0.01))
        files = [str(folder / part) for part in ("program.loihi2", "clip.npz", "out.npz")]
        nrf = str(Path(sys.executable).with_name("nrf"))
        with_byte_code = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # as an installed package has
        times = []
        for _ in range(1 + (1 if size.short else size.repeats)):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            call = [nrf, "run", files[0], "-i", files[1], "-o", files[2]]
            subprocess.run(call, check=True, capture_output=True, env=with_byte_code)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        yield Row(
            "`nrf run`, 50 steps, warm, CPU",
            statistics.median(times[1:]),
            "s",
            1.0,
            min(times[1:]),
            max(times[1:]),
        )


def training(size: Size) -> Iterator[Row]:
    """A training step, forward and backward, against a loop over time around all layers of Norse."""
    import torch

    from benchmarks.training import WANTED, compare, kept_bytes, paper_small
    from nrf.cli.memory import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()  # as `nrf train` does
    for neuron, goal in WANTED.items():
        config = paper_small(neuron, 32 if size.short else 96, 4 if size.short else 16)
        ours, theirs, ratios, different = compare(config, min(size.repeats, 3))
        if different > 1e-3:
            sys.exit(f"error: training with {neuron}: gradients differ by {different:.1e}, no times")
        note = f"{1e3 * ours:.3g} against {1e3 * theirs:.3g} ms; gradients equal to {different:.0e}"
        work = f"training step against the paper's structure, {neuron.upper()}"
        yield Row(work, statistics.median(ratios), "x", goal, min(ratios), max(ratios), note)
    whole, segments = (part / 1e9 for part in kept_bytes())
    note = f"{whole:.0f} GB without; batch 8, windows of 40 steps"
    yield Row("`paper`, activations in segments of 5 steps", segments, "GB", 40.0, segments, segments, note)


def float_reference(size: Size) -> Iterator[Row]:
    """The trained demo in float, against Norse's cells in a loop over time."""
    import torch

    from benchmarks.training import Original
    from nrf.backends import reference
    from nrf.export import from_checkpoint
    from nrf.model.network import normalised
    from nrf.training import checkpoint

    path = size.trained / "demo" / "training" / "best.safetensors"
    if not path.is_file():
        print(f"(no {path}: `make demo` first)", file=sys.stderr)
        return
    torch.set_num_threads(1)
    graph = from_checkpoint(path)
    frames = made_clips(graph, 1)[0].frames[: size.steps]
    network = normalised(checkpoint.read(path).network()).to(memory_format=torch.contiguous_format)
    looped = Original(network)

    def ours() -> tuple[list[int], float]:
        start = time.process_time()
        recording = reference.run(graph, frames, membranes=False)
        return [one.count for one in recording.spikes.values()], time.process_time() - start

    def norse() -> tuple[list[int], float]:
        start = time.process_time()
        with torch.inference_mode():
            output = looped(torch.as_tensor(frames)[:, None])
        return [int(z.sum()) for z in output.spikes.values()], time.process_time() - start

    yield compared("float reference against Norse, trained demo", ours, norse, 4.0, size)


def lowering(size: Size) -> Iterator[Row]:
    """Choosing all numbers of the trained demo anew, its clips included."""
    path = size.trained / "demo" / "loihi2" / "model.nir"
    if size.short or not path.is_file():
        return
    graph = nrf.read(path)
    start = time.process_time()
    nrf.lower(graph, "loihi2")
    seconds = time.process_time() - start
    yield Row("lowering the trained demo to loihi2, CPU", seconds, "s", 2.0, seconds, seconds, "once, cold")


ALL = (
    loihi_against_lava, speck_against_sinabs, share_of_c, fewer_events, streaming, recurrent, command,
    training, float_reference, lowering,
)  # fmt: skip


def table(rows: list[Row], goals: bool) -> str:
    """As Markdown."""
    lines = ["| work | figure | lowest to highest | goal | |", "|---|--:|--:|--:|---|"]
    for row in rows:
        spread = f"{row.lowest:.3g} to {row.highest:.3g}"
        goal = f"{row.goal:g} {row.unit}{' **missed**' if row.missed else ''}" if goals and row.goal else ""
        lines.append(f"| {row.work} | {row.figure:.3g} {row.unit} | {spread} | {goal} | {row.note} |")
    return "\n".join(lines)


def main() -> int:
    """Measure, print, and say whether goals are met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=[function.__name__ for function in ALL], action="append")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--trained", type=Path, default=Path("demo"))
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    size = Size(asked.short, 1 if asked.short else asked.repeats, asked.trained)
    rows: list[Row] = []
    for function in ALL:
        if not asked.only or function.__name__ in asked.only:
            for row in function(size):
                rows.append(row)
                print(table([row], not asked.short).splitlines()[-1], flush=True)
    if asked.write:
        head = (DOCS / "speed.md").read_text().partition("\n| work |")[0]
        if asked.only:  # the others stay as they were
            new = {row.work: row for row in rows}
            old = [Row(**row) for row in json.loads((DOCS / "speed.json").read_text())]
            rows = [new.pop(row.work, row) for row in old] + list(new.values())
        (DOCS / "speed.md").write_text(f"{head}\n{table(rows, True)}\n")
        (DOCS / "speed.json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0 if asked.short or not any(row.missed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
