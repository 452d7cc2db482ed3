"""How close Loihi 2's integers come to strangers' networks, off the chip's grid: F1 of spikes, free-running.

    python benchmarks/loihi_strangers.py [cnn_sinabs.nir]

Five recurrent CubaLIF networks of 45 neurons with biases (tests/backends/loihi/test_wide.py), the worst
population of each on six clips: as lowered, and in float64 with nothing but the decays rounded to 12 bits,
which shows how much of the loss is theirs. With the NIR paper's CNN, its five layers on six held-out clips.
"""

import copy
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from nrf.backends import reference
from nrf.backends.lowering.calibration import generated_clips
from nrf.export import Graph, read_graph
from tests.backends.loihi.chip import LOIHI, lower, run
from tests.backends.loihi.test_wide import DT, recurrent, scores, trains

CLIPS = (100, 200, 300, 400, 500, 600)


def decays_rounded(graph: Graph) -> Graph:
    """The graph with dt / tau in whole 4096ths, and the same gains."""
    nodes = dict(graph.nodes)
    for name in graph.neurons:
        old, node = nodes[name], copy.copy(nodes[name])
        for key, gain in (("tau_mem", "r"), ("tau_syn", "w_in")):
            tau = DT * 4096 / np.round(4096 * DT / getattr(old, key))
            setattr(node, gain, getattr(old, gain) * tau / getattr(old, key))
            setattr(node, key, tau)
        nodes[name] = node
    return replace(graph, nodes=nodes)


def main() -> None:
    """Print both tables."""
    chip, limit = [], []
    for seed in range(5):
        graph = recurrent(seed)
        calibration = [trains(1000 + clip) for clip in range(4)]  # of the same kind, as a user would give
        program, rounded = lower(graph, LOIHI, calibration), decays_rounded(graph)
        clips = [trains(clip + seed) for clip in CLIPS]
        chip.append([min(scores(reference.run(graph, clip), run(program, clip))) for clip in clips])
        exact = [reference.run(graph, clip, dtype=torch.float64) for clip in clips]
        float64 = [reference.run(rounded, clip, dtype=torch.float64) for clip in clips]
        limit.append([min(scores(*pair)) for pair in zip(exact, float64, strict=True)])
        print(f"recurrent {seed}: {np.round(chip[-1], 3)}, decays alone {np.round(limit[-1], 3)}")
    for title, rows in (("chip", chip), ("decays alone", limit)):
        print(
            f"{title}: mean {np.mean(rows):.4f}, {np.mean(np.array(rows) >= 0.99):.2f} of all at .99 or more"
        )
    for path in sys.argv[1:]:
        graph = read_graph(path, fire="ge", reset="zero")
        shape = graph.shapes[graph.input]
        program = lower(graph, LOIHI, generated_clips(shape, 60, range(11, 15)))
        clips = generated_clips(shape, 60, range(5, 11))
        rows = [scores(reference.run(graph, clip), run(program, clip)) for clip in clips]
        print(
            f"{Path(path).name}: first clip {np.round(rows[0], 4)}, mean {np.round(np.mean(rows, axis=0), 4)}"
        )


if __name__ == "__main__":
    main()
