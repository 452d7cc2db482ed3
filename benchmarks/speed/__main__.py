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
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks.speed import programs
from benchmarks.speed.lowering import lowering
from benchmarks.speed.rows import Row, Size, compared
from benchmarks.speed.simulators import (
    asynchronous_against_before,
    fewer_events,
    loihi_against_lava,
    recurrent,
    share_of_c,
    speck_against_sinabs,
    streaming,
)
from benchmarks.speed.snntorch_peer import SnnTorch
from nrf.backends.conformance.clips import made_clips
from nrf.backends.vendors.environment import absent

DOCS = Path(__file__).parents[2] / "docs"


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
    keep_freed_memory()  # as `nrf` does
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
    """The trained demo in float32, against cells of Norse and of snnTorch in a loop over time."""
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
        seconds = time.process_time() - start
        return [each.count for each in recording.spikes.values()], seconds

    def norse() -> tuple[list[int], float]:
        start = time.process_time()
        with torch.inference_mode():
            _, spikes = looped.run(torch.as_tensor(frames)[:, None])
        seconds = time.process_time() - start
        return [int(z.sum()) for z in spikes.values()], seconds

    yield compared("float reference against Norse, trained demo", ours, norse, 4.0, size.repeats, len(frames))
    if reason := absent("frameworks"):
        print(f"({reason})", file=sys.stderr)
        return
    snntorch = SnnTorch(graph, frames)
    yield compared(
        "float reference against snnTorch, trained demo",
        ours,
        snntorch.seconds,
        4.0,
        size.repeats,
        len(frames),
    )
    snntorch.close()


ALL = (
    loihi_against_lava,
    speck_against_sinabs,
    asynchronous_against_before,
    share_of_c,
    fewer_events,
    streaming,
    recurrent,
    command,
    training,
    float_reference,
    lowering,
)


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
