"""A stranger's model: a NIR file as snnTorch's exporter writes it, and the spikes of its framework."""

from pathlib import Path

import nir
import numpy as np

STEPS, INPUTS, NEURONS = 60, 6, 8


def write_model(path: Path) -> None:
    """Leaky neurons with decays from .6 to .95, gains of 1, no contract."""
    rng = np.random.default_rng(3)
    tau = 1e-4 / (1 - np.linspace(0.6, 0.95, NEURONS))
    zero, one = np.zeros(NEURONS), np.ones(NEURONS)
    nodes = {
        "input": nir.Input(np.array([INPUTS])),
        "fc": nir.Affine(rng.normal(0.4, 0.5, (NEURONS, INPUTS)), zero),
        "lif": nir.LIF(tau, tau / 1e-4, zero, one, zero),
        "output": nir.Output(np.array([NEURONS])),
    }
    nir.write(path, nir.NIRGraph(nodes, [("input", "fc"), ("fc", "lif"), ("lif", "output")]))


def random_frames(seed: int = 4) -> np.ndarray:
    """Input of 0 and 1 (steps, inputs)."""
    return (np.random.default_rng(seed).random((STEPS, INPUTS)) < 0.4).astype(np.uint8)


def leaky(model: Path, frames: np.ndarray, reset: str = "subtract") -> np.ndarray:
    """snnTorch's Leaky, once more: v = beta v + x - thr z[t-1], or beta (1 - z[t-1]) v + x; z = v > thr."""
    graph = nir.read(model)
    beta, weight = 1 - 1e-4 / graph.nodes["lif"].tau, graph.nodes["fc"].weight
    v = z = np.zeros(NEURONS)
    spikes = []
    for frame in frames:
        v = beta * v + weight @ frame - z if reset == "subtract" else beta * (1 - z) * v + weight @ frame
        z = (v > 1).astype(float)
        spikes.append(z)
    return np.array(spikes, int)
