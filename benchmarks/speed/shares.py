"""Where a step of the synchronous Speck simulator spends its time.

    python -m benchmarks.speed.shares

Microseconds per step of clips of 200 steps, the quickest of some runs: set-up, frames to spikes, the compiled
loop, and its log as a recording; and synaptic additions, of which the loop makes so many per nanosecond.
"""

import time
from math import prod
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.speed import programs
from benchmarks.speed.simulators import DENSITIES, Frames
from nrf.backends.speck import simulate
from nrf.backends.speck.program import SpeckProgram
from nrf.backends.speck.run import input_spikes
from nrf.cli.memory import keep_freed_memory

STEPS, RUNS = 200, 9
play = simulate.play


def once(program: SpeckProgram, frames: Frames) -> tuple[list[float], float]:
    """CPU seconds of the four parts, and synaptic additions (as if no kernel met a border)."""
    clock, inside = time.process_time, [0.0]

    def timed(*arguments: Any) -> Any:
        start = clock()
        done = play(*arguments)
        inside[0] += clock() - start
        return done

    start = clock()
    simulator = simulate.Simulator(program)
    ready = clock()
    spikes = input_spikes(program, frames)
    given = clock()
    with mock.patch.object(simulate, "play", timed):
        trace = simulator.advance(spikes, len(frames))
    rest = clock() - given - inside[0]
    additions = sum(
        sent.count * prod(each.weight.shape[2:]) / prod(each.stride) * each.shape[0]
        for sent, each in zip((spikes, *trace.spikes.values()), program.populations, strict=False)
    )
    return [ready - start, given - ready, inside[0], rest], additions


def main() -> None:
    """Print the table."""
    keep_freed_memory()
    print("| sensor | density | set-up | frames | loop | recording | additions | per ns |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for side in (64, 128):
        program = programs.speck(side)
        for density in (0.0, *DENSITIES):
            frames = programs.clip(program.input_shape, STEPS, density)
            times, additions = zip(*(once(program, frames) for _ in range(RUNS)), strict=True)
            parts = 1e6 * np.min(times, axis=0) / STEPS
            each, figures = additions[0] / STEPS, " | ".join(f"{part:.1f}" for part in parts)
            rate = each / 1e3 / parts[2]
            print(f"| {side}x{side} | {density:.1%} | {figures} | {each:.0f} | {rate:.1f} |", flush=True)


if __name__ == "__main__":
    main()
