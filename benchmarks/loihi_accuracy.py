"""How close Loihi 2's integers come to a trained model, off the chip's grid and on it.

    python benchmarks/loihi_accuracy.py runs/demo [--clips 50]

On held-out clips: spike F1 of every layer against the float reference of the same file, coordinates in pixels
against that reference and against the truth, and overflows on a clip of 1,000 steps. On the grid, also how
many spikes and membranes differ from a reference that truncates as the chip does: exits with 1 if any does.
"""

import argparse
import sys

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray
from truncating import truncating

from nrf.backends import reference
from nrf.backends.border import Recording, RunOptions, load_chip
from nrf.backends.loihi import BACKEND
from nrf.backends.loihi.chip import Loihi
from nrf.backends.loihi.grid import to_grid
from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.lowering.calibration import lower_options
from nrf.backends.lowering.metrics import aligned, f1, matched
from nrf.events.dataset import DatasetConfig
from nrf.export import Graph, from_checkpoint
from nrf.training import checkpoint

SEED = 123456  # far from the seeds of training and validation
WARM_UP = 10  # steps before coordinates count


def run(program: LoihiProgram, frames: NDArray[np.float32]) -> Recording:
    """On the built-in simulator."""
    return BACKEND.run(program, frames, "builtin", RunOptions())


def measure(graph: Graph, program: LoihiProgram, clips: DatasetConfig) -> None:
    """Print the figures of one graph."""
    spikes: dict[str, NDArray[np.int64]] = {}
    apart, error, late = [], [], program.latencies[program.outputs[0]]
    for number in range(clips.clips):
        clip = clips.clip(number)
        frames = clip.frames(np.float32)
        wanted, found = reference.run(graph, frames), run(program, frames)
        for name in wanted.spikes:
            r, c = aligned(wanted.spikes[name], found.spikes[name], len(frames), found.latency(name))
            spikes[name] = spikes.get(name, 0) + np.array([matched(r, c), r.count, c.count])
        assert wanted.coordinates is not None and found.coordinates is not None
        ours, theirs = found.coordinates[late + WARM_UP :], wanted.coordinates[WARM_UP : len(frames) - late]
        apart.append(np.linalg.norm(ours - theirs, axis=-1).ravel())
        truth = clip.coordinates[WARM_UP : len(frames) - late]
        error.append([np.linalg.norm(x - truth, axis=-1).ravel() for x in (theirs, ours)])
    px = np.concatenate(apart)
    for name, sums in spikes.items():
        print(f"  F1 {name:8} {f1(*sums):.5f}   ({sums[1]} spikes)")
    print(f"  px apart    median {np.median(px):.4f}, 95th percentile {np.percentile(px, 95):.4f}")
    before, after = (np.concatenate([pair[k] for pair in error]) for k in (0, 1))
    print(f"  px to truth median {np.median(before):.3f} in float, {np.median(after):.3f} on the chip")


def truncated(graph: Graph, program: LoihiProgram, clips: DatasetConfig) -> int:
    """How many spikes and membranes, of all populations and steps, differ from the truncating reference."""
    spikes_differ = states_differ = compared = 0
    for number in range(clips.clips):
        frames = clips.clip(number).frames(np.float32)
        found = run(program, frames)
        for name, (spikes, states) in truncating(graph, program, frames).items():
            late = found.latency(name)
            kept = len(frames) - late
            if name in found.spikes:
                spikes_differ += int(np.sum(found.dense(name)[late:] != spikes[:kept]))
            volts = program.neurons[name].volts(states[:kept])
            states_differ += int(np.sum(found.membranes[name][late:] != volts))
            compared += volts.size
    print(f"  truncating reference: {spikes_differ} spikes, {states_differ} of {compared} membranes differ")
    return spikes_differ + states_differ


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint")
    parser.add_argument("--clips", type=int, default=50)
    options = parser.parse_args()
    target = load_chip("loihi2")
    assert isinstance(target, Loihi)
    config = checkpoint.read(options.checkpoint).config
    clips = DatasetConfig(config.name, options.clips, SEED, config.data.shapes)
    long = DatasetConfig(config.name, 1, SEED, replace(config.data.shapes, steps=1000)).clip(0)
    off_grid = from_checkpoint(options.checkpoint)
    for title, graph in (("off the grid", off_grid), ("on the grid", to_grid(off_grid, target))):
        print(f"{title}, {options.clips} clips")
        program = BACKEND.lower(graph, target, lower_options(graph))  # as `nrf lower` does
        measure(graph, program, clips)
        print(f"  1,000 steps: {run(program, long.frames(np.float32)).provenance.counters}")
    return 1 if truncated(graph, program, clips) else 0


if __name__ == "__main__":
    sys.exit(main())
