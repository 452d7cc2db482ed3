"""What event-by-event operation costs: a trained graph step by step, and in several orders of events.

    nrf train --preset speck2f -o runs/speck2f
    nrf export runs/speck2f -o speck2f.nir --grid speck2f
    python benchmarks/speck_order.py speck2f.nir

Held-out clips of the preset's kind (other seeds than training has). Prints the mismatches between the float
reference and the synchronous simulator, and the coordinate error of both modes against the truth in pixels.
"""

import argparse
from dataclasses import dataclass

import numpy as np

from nrf.backends import reference
from nrf.backends.border import LowerOptions, RunOptions, backend_of, load_chip
from nrf.events.synthetic import clip
from nrf.export import read_graph
from nrf.training.presets import load_preset

WARM_UP = 60  # steps at the start of a clip that do not count, as in training


@dataclass(frozen=True)
class Result:
    """Over all clips."""

    mismatches: int  # spikes, reference against synchronous
    spikes: int
    saturated: int
    synchronous: float  # pixels, mean error
    asynchronous: float
    spread: float  # pixels, deviation over orders of the mean error over clips


def measure(path: str, clips: int = 50, orders: int = 10, ordered_clips: int = 50) -> Result:
    """Run a graph in all ways; `ordered_clips` is how many of the clips also run event by event."""
    graph, chip = read_graph(path), load_chip("speck2f")
    backend = backend_of(chip)
    program = backend.lower(graph, chip, LowerOptions())
    shapes = load_preset("speck2f").data.shapes
    mismatches = spikes = saturated = 0
    step_by_step, event_by_event = [], np.zeros((orders, ordered_clips))
    for index in range(clips):
        sample = clip((99, index), shapes)
        frames = sample.frames()

        def error(places: object, truth: np.ndarray = sample.coordinates) -> float:  # type: ignore[type-arg]
            return float(np.linalg.norm(np.asarray(places) - truth, axis=-1)[WARM_UP:].mean())

        wanted = reference.run(graph, frames)
        found = backend.run(program, frames, "builtin", RunOptions())
        for node in graph.neurons:
            mismatches += int((wanted.dense(node) != found.dense(node)).sum())
            spikes += int(wanted.events(node).n.sum())
        saturated += found.provenance.counters["saturated"]
        step_by_step.append(error(found.coordinates))
        for order in range(orders if index < ordered_clips else 0):
            shuffled = backend.run(program, frames, "asynchronous", RunOptions(seed=order))
            event_by_event[order, index] = error(shuffled.coordinates)
            saturated += shuffled.provenance.counters["saturated"]
    means = event_by_event.mean(axis=1)
    return Result(
        mismatches, spikes, saturated, float(np.mean(step_by_step)), float(means.mean()), float(means.std())
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graph")
    parser.add_argument("--clips", type=int, default=50)
    parser.add_argument("--orders", type=int, default=10)
    arguments = parser.parse_args()
    result = measure(arguments.graph, arguments.clips, arguments.orders, arguments.clips)
    print(f"clips {arguments.clips}, orders {arguments.orders}, spikes {result.spikes}")
    print(f"reference and synchronous: {result.mismatches} mismatches, {result.saturated} saturated")
    print(f"synchronous   {result.synchronous:6.2f} px")
    print(f"asynchronous  {result.asynchronous:6.2f} px, deviation over orders {result.spread:.3f} px")
    print(f"ratio         {result.asynchronous / result.synchronous:6.2f}")


if __name__ == "__main__":
    main()
