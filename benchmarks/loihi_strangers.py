"""How close Loihi 2's integers come to strangers' networks, off the chip's grid: F1 of spikes, free-running.

    python benchmarks/loihi_strangers.py [cnn_sinabs.nir]

Five recurrent CubaLIF networks of 45 neurons with biases and random weights (test_wide.py of the tests), and
five trained ones (trained_recurrent.py): the worst population of each, on several clips. As a control
the float64 reference with nothing but its decays rounded to 12 bits, and with weights off by 1e-5 and 1e-4:
what such a network makes of so small a difference. With the NIR paper's CNN, its five layers on six held-out
clips, and the same control.
"""

import copy
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from trained_recurrent import CLASSES, trained

sys.path.insert(0, str(Path(__file__).parents[1]))
from nrf.backends import reference
from nrf.backends.border import Clips
from nrf.backends.lowering.calibration import generated_clips
from nrf.export import Graph, read_graph
from tests.backends.loihi.chip import LOIHI, lower, run
from tests.backends.loihi.test_wide import DT, recurrent, scores, trains

Rows = NDArray[np.float64]
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


def perturbed(graph: Graph, error: float) -> Graph:
    """The graph with all weights off by some relative error."""
    rng, nodes = np.random.default_rng(0), dict(graph.nodes)
    for name, old in graph.nodes.items():
        if hasattr(old, "weight"):
            nodes[name] = copy.copy(old)
            nodes[name].weight = old.weight * (1 + error * rng.standard_normal(old.weight.shape))
    return replace(graph, nodes=nodes)


def compared(graph: Graph, calibration: Clips, clips: Clips) -> dict[str, Rows]:
    """F1 of every population on every clip: of the chip against the reference, and of the controls."""
    program = lower(graph, LOIHI, calibration)
    rows = {"chip": np.array([scores(reference.run(graph, clip), run(program, clip)) for clip in clips])}
    exact = [reference.run(graph, clip, dtype=torch.float64) for clip in clips]
    controls = {f"weights off by {error:g}": perturbed(graph, error) for error in (1e-5, 1e-4)}
    if any(hasattr(graph.nodes[name], "tau_syn") for name in graph.neurons):
        controls["decays alone"] = decays_rounded(graph)
    for title, control in controls.items():
        runs = [reference.run(control, clip, dtype=torch.float64) for clip in clips]
        rows[title] = np.array([scores(*pair) for pair in zip(exact, runs, strict=True)])
    return rows


def recurrent_networks(title: str, networks: Iterable[tuple[Graph, Clips, Clips]]) -> None:
    """Print the worst population of each network and clip."""
    worst: dict[str, list[Rows]] = {}
    for number, network in enumerate(networks):
        for kind, rows in compared(*network).items():
            worst.setdefault(kind, []).append(rows.min(axis=1))
        chip = worst["chip"][-1]
        print(f"{title} {number}: mean {chip.mean():.4f}, {np.round(chip, 3)}", flush=True)
    for kind, values in worst.items():
        whole = np.concatenate(values)
        share = f"{np.sum(whole >= 0.99)} of {len(whole)} at .99 or more"
        print(f"  {kind}: mean {whole.mean():.4f}, {share}", flush=True)


def trained_networks() -> Iterator[tuple[Graph, Clips, Clips]]:
    """Seeds 0 to 4; scales are chosen on one clip of each class, and others are asked."""
    labels = np.arange(CLASSES)
    for seed in range(5):
        graph, task, right = trained(seed)
        print(f"trained {seed}: {right:.2f} of its last batch right", flush=True)
        yield graph, list(task.clips(labels, 1)), list(task.clips(labels, 2))


def main() -> None:
    """Print all tables."""
    calibration = [trains(1000 + clip) for clip in range(4)]  # of the same kind, as a user would give
    seeds = range(5)
    recurrent_networks(
        "random", ((recurrent(seed), calibration, [trains(clip + seed) for clip in CLIPS]) for seed in seeds)
    )
    recurrent_networks("trained", trained_networks())
    for path in sys.argv[1:]:
        graph = read_graph(path, fire="ge", reset="zero")
        shape = graph.shapes[graph.input]
        clips = generated_clips(shape, 60, range(5, 11))
        for kind, rows in compared(graph, generated_clips(shape, 60, range(11, 15)), clips).items():
            figures = f"first clip {np.round(rows[0], 4)}, mean {np.round(rows.mean(0), 4)}"
            print(f"{Path(path).name}, {kind}: {figures}", flush=True)


if __name__ == "__main__":
    main()
