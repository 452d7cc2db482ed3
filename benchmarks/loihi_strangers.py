"""How close Loihi 2's integers come to networks off the chip's grid: F1 of spikes, free-running.

    python benchmarks/loihi_strangers.py [cnn_sinabs.nir] [runs/demo]

Five recurrent CubaLIF networks of 45 neurons with biases and random weights (test_wide.py of the tests), and
five trained ones (trained_recurrent.py): the worst population of each, on several clips. With the NIR paper's
CNN its five layers, on drifting blobs and on saccades over digits (tune_cases.py), of which it was trained on
the recorded ones. With the folder of a trained model its layers on six clips, calibrated on clips of the same
kind and by `nrf lower` alone, and how far its coordinates move. All clips are held out.

Beside every figure stand controls: the float64 reference with one thing a little off. Decays in whole 4096ths
are what the chip has; weights and thresholds off by 1e-5 and 1e-4 show what a network makes of so little.
"""

import copy
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from loihi_accuracy import SEED, WARM_UP
from nir import NIRNode
from numpy.typing import NDArray
from trained_recurrent import CLASSES, trained
from tune_cases import digit_clips

sys.path.insert(0, str(Path(__file__).parents[1]))
from nrf.backends import reference
from nrf.backends.border import Clips
from nrf.backends.loihi import BACKEND
from nrf.backends.lowering.calibration import generated_clips, lower_options
from nrf.events.dataset import DatasetConfig
from nrf.export import Graph, from_checkpoint, read_graph
from nrf.training import checkpoint
from tests.backends.loihi.chip import LOIHI, lower, run
from tests.backends.loihi.test_wide import recurrent, scores, trains

Rows = NDArray[np.float64]
CLIPS = range(9000, 9036)
SACCADE = 50  # steps of 2 ms


def changed(graph: Graph, change: Callable[[NIRNode], dict[str, Any]]) -> Graph:
    """The graph with some parameters of its nodes changed."""
    nodes = {name: copy.copy(node) for name, node in graph.nodes.items()}
    for node in nodes.values():
        vars(node).update(change(node))
    return replace(graph, nodes=nodes)


def decays_rounded(graph: Graph) -> Graph:
    """dt / tau in whole 4096ths, and the same gains."""
    dt = graph.contract.dt or 1.0

    def change(node: NIRNode) -> dict[str, Any]:
        new = {}
        for key, gain in (("tau", "r"), ("tau_mem", "r"), ("tau_syn", "w_in")):
            if hasattr(node, key):
                new[key] = dt * 4096 / np.round(4096 * dt / getattr(node, key))
                new |= (
                    {gain: getattr(node, gain) * new[key] / getattr(node, key)} if hasattr(node, gain) else {}
                )
        return new

    return changed(graph, change)


def perturbed(graph: Graph, key: str, error: float) -> Graph:
    """All weights, or thresholds, off by some relative error."""
    rng = np.random.default_rng(0)

    def change(node: NIRNode) -> dict[str, Any]:
        value = getattr(node, key, None)
        return {} if value is None else {key: value * (1 + error * rng.standard_normal(np.shape(value)))}

    return changed(graph, change)


def compared(graph: Graph, calibration: Clips, clips: Clips) -> dict[str, Rows]:
    """F1 of every population on every clip: of the chip against the reference, and of the controls."""
    program = lower(graph, LOIHI, calibration)
    rows = {"chip": np.array([scores(reference.run(graph, clip), run(program, clip)) for clip in clips])}
    exact = [reference.run(graph, clip, dtype=torch.float64, membranes=False) for clip in clips]
    controls = {"decays alone": decays_rounded(graph)}
    for key, title in (("weight", "weights"), ("v_threshold", "thresholds")):
        controls |= {f"{title} off by {error:g}": perturbed(graph, key, error) for error in (1e-5, 1e-4)}
    for title, control in controls.items():
        runs = [reference.run(control, clip, dtype=torch.float64, membranes=False) for clip in clips]
        rows[title] = np.array([scores(*pair) for pair in zip(exact, runs, strict=True)])
    return rows


def recurrent_networks(title: str, networks: Iterable[tuple[Graph, Clips, Clips]]) -> None:
    """Print the worst population of each network and clip."""
    worst: dict[str, list[Rows]] = {}
    for number, network in enumerate(networks):
        for kind, rows in compared(*network).items():
            worst.setdefault(kind, []).append(rows.min(axis=1))
        chip = worst["chip"][-1]
        share = f"{np.sum(chip >= 0.99)} of {len(chip)} at .99 or more"
        print(f"{title} {number}: mean {chip.mean():.4f}, {share}, lowest {chip.min():.3f}", flush=True)
    for kind, values in worst.items():
        whole = np.concatenate(values)
        share = f"{np.sum(whole >= 0.99)} of {len(whole)} at .99 or more"
        print(f"  {kind}: mean {whole.mean():.4f}, {share}", flush=True)


def trained_networks() -> Iterator[tuple[Graph, Clips, Clips]]:
    """Seeds 0 to 4; scales are chosen on five clips of each class, and twelve others are asked."""
    labels = np.arange(CLASSES)
    for seed in range(5):
        graph, task, right = trained(seed)
        print(f"trained {seed}: {right:.2f} of its last batch right", flush=True)
        calibration, clips = (
            [clip for draw in draws for clip in task.clips(labels, draw)]
            for draws in (range(20, 25), range(200, 212))
        )
        yield graph, calibration, clips


def main() -> None:
    """Print all tables."""
    calibration = [trains(1000 + clip) for clip in range(20)]  # of the same kind, as a user would give
    seeds = range(5)
    recurrent_networks(
        "random",
        ((recurrent(seed), calibration, [trains(clip + 100 * seed) for clip in CLIPS]) for seed in seeds),
    )
    recurrent_networks("trained", trained_networks())
    for path in map(Path, sys.argv[1:]):
        if path.is_dir():
            trained_model(path)
            continue
        graph = read_graph(path, fire="ge", reset="zero")
        blobs = (
            generated_clips(graph.shapes[graph.input], 60, seeds) for seeds in (range(11, 15), range(5, 11))
        )
        show(f"{path.name}, blobs", compared(graph, *blobs))
        for saccades in (1, 3):
            digits = (digit_clips(10, seed, saccades * SACCADE)[0] for seed in (7, 8))
            show(f"{path.name}, digits in {saccades} saccades", compared(graph, *digits))


def show(name: str, results: dict[str, Rows]) -> None:
    """F1 of every population, on the first clip and on average."""
    for kind, rows in results.items():
        print(
            f"{name}, {kind}: mean {np.round(rows.mean(0), 5)}, first clip {np.round(rows[0], 5)}", flush=True
        )


def trained_model(folder: Path) -> None:
    """A preset trained by `nrf train`, off the grid."""
    config, graph = checkpoint.read(folder).config, from_checkpoint(folder)
    seeds = {"calibration": (31, 4), "held out": (SEED, 6)}
    calibration, clips = (
        [
            DatasetConfig(config.name, count, seed, config.data.shapes).clip(k).frames(np.float32)
            for k in range(count)
        ]
        for seed, count in seeds.values()
    )
    show(folder.name, compared(graph, calibration, clips))
    alone = BACKEND.lower(graph, LOIHI, lower_options(graph))  # as `nrf lower` does without --calibrate
    for title, program in (("--calibrate", lower(graph, LOIHI, calibration)), ("no clips given", alone)):
        apart, rows = [], []
        for clip in clips:
            wanted, found = reference.run(graph, clip), run(program, clip)
            late = program.latencies[program.outputs[0]]
            rows.append(scores(wanted, found))
            ours, theirs = found.coordinates[late + WARM_UP :], wanted.coordinates[WARM_UP : len(clip) - late]
            apart.append(np.linalg.norm(ours - theirs, axis=-1).ravel())
        moved = np.concatenate(apart)
        median, most = np.median(moved), np.percentile(moved, 95)
        print(
            f"{folder.name}, {title}: F1 {np.round(np.mean(rows, 0), 5)}, px {median:.4f} / {most:.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
