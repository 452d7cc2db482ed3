"""Networks and clips for `benchmarks/tune.py` and the tests: classifiers that train in seconds.

Clips are events of a shape that moves in one of eight directions over 16x16 pixels, or of digits in strokes
 that make three saccades over 34x34 pixels, as N-MNIST does.
"""

from itertools import pairwise
from math import cos, sin
from pathlib import Path

import nir
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from nrf.export import read_graph
from nrf.export.canonical import canonical
from nrf.export.contract import Contract
from nrf.export.graph import Graph
from nrf.model.dynamics import Dynamics
from nrf.model.scan import scan

Frames = NDArray[np.float32]
CLASSES, SIDE, STEPS = 8, 16, 40
SHAPES = (8, 8, 8), (12, 4, 4), (CLASSES,)
UPDATES = 1200  # of the LIF classifier: .99 of new clips right, .98 after a third of them
PAPER = Path(__file__).parents[2] / "shared" / "nir_paper" / "cnn_sinabs.nir"
DIGITS = {  # strokes through points (x, y) of a 4x6 box
    0: [[(1, 0), (3, 0), (4, 2), (4, 4), (3, 6), (1, 6), (0, 4), (0, 2), (1, 0)]],
    1: [[(1, 1), (2.3, 0), (2.3, 6)]],
    2: [[(0, 1), (1, 0), (3, 0), (4, 1), (4, 2), (0, 6), (4, 6)]],
    3: [[(0, 0), (4, 0), (2, 2.5), (4, 4), (3.5, 5.5), (2, 6), (0, 5.3)]],
    4: [[(3, 6), (3, 0), (0, 4), (4, 4)]],
    5: [[(4, 0), (0.5, 0), (0.3, 2.6), (3, 2.5), (4, 4), (3.3, 5.7), (0, 6)]],
    6: [[(3.5, 0), (1, 1.5), (0, 4), (1, 6), (3, 6), (4, 4.5), (3, 3), (1, 3.2), (0, 4)]],
    7: [[(0, 0), (4, 0), (1.5, 6)]],
    8: [[(2, 0), (3.7, 1), (3.5, 2.2), (0.3, 4), (0.3, 5.3), (2, 6), (3.7, 5.3), (3.7, 4), (0.5, 2),
         (0.4, 0.8), (2, 0)]],
    9: [[(4, 2), (3, 3.2), (1, 3.2), (0.2, 2), (1, 0.2), (3, 0), (4, 1), (4, 2), (3, 6)]],
}  # fmt: skip


def moving_clips(count: int, seed: int, most: int = 1) -> tuple[list[Frames], list[int]]:
    """Clips (steps, 2, side, side) of a disc, ring or square that crosses the sensor, and in which of eight
    directions; at most `most` events per pixel and step."""
    clips, labels = [], []
    rows, columns = np.mgrid[:SIDE, :SIDE].astype(np.float64)
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        label, shape, size = int(rng.integers(CLASSES)), rng.integers(3), rng.uniform(2, 3.5)
        angle = 2 * np.pi * (label + rng.uniform(-0.2, 0.2)) / CLASSES
        steps = rng.uniform(0.2, 0.28) * (np.arange(STEPS + 1) - STEPS / 2)
        middle = SIDE / 2 + rng.uniform(-1.5, 1.5, 2)
        y, x = (
            grid - (centre + steps * part)[:, None, None]
            for grid, centre, part in zip((rows, columns), middle, (sin(angle), cos(angle)), strict=True)
        )
        radius = np.hypot(x, y) if shape < 2 else np.maximum(np.abs(x), np.abs(y))
        distance = np.abs(radius - size) - 0.8 if shape == 1 else radius - size
        change = np.diff(np.clip(0.5 - distance, 0, 1), axis=0)
        means = np.stack([np.clip(change, 0, None), np.clip(-change, 0, None)], 1) * 2.0 * most + 0.004
        clips.append(np.minimum(rng.poisson(means), most).astype(np.float32))
        labels.append(label)
    return clips, labels


def lif_classifier(seed: int) -> Graph:
    """A LIF conv classifier, trained by backpropagation through time on moving shapes."""
    torch.manual_seed(seed)
    clips, labels = moving_clips(4000, 1000 + seed)
    x, wanted = torch.as_tensor(np.stack(clips, 1)), torch.as_tensor(labels)
    layers = [nn.Conv2d(2, 8, 5, 2, 2), nn.Conv2d(8, 12, 3, 2, 1), nn.Linear(12 * 16, CLASSES)]
    rates = (0.2, 0.15, 0.1)  # dt / tau
    for layer, gain in zip(layers, (8.0, 9.0, 12.0), strict=True):
        layer.weight.data *= gain
        nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    dynamics = Dynamics(leaky=True, fires=True, alpha=4.0)
    optimiser = torch.optim.Adam([p for layer in layers for p in layer.parameters()], 1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, UPDATES)
    for _ in range(UPDATES):
        chosen = torch.randint(len(clips), (24,))
        counts = _counts(layers, rates, x[:, chosen], dynamics)
        loss = F.cross_entropy(counts - counts.mean(1, keepdim=True), wanted[chosen])
        loss = loss + 0.02 * F.relu(8 - counts.amax(1)).square().mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
    nodes: dict[str, nir.NIRNode] = {"input": nir.Input(np.array([2, SIDE, SIDE]))}
    for number, (layer, rate) in enumerate(zip(layers, rates, strict=True), 1):
        nodes |= _synapse(layer, number)
        one = np.ones(SHAPES[number - 1], np.float32)
        nodes[f"lif{number}"] = nir.LIF(one * 1e-3 / rate, one, one * 0, one, one * 0)
    return _chained(nodes, Contract(dt=1e-3), f"LIF classifier {seed}")


def _counts(layers: list[nn.Module], rates: tuple[float, ...], x: Tensor, dynamics: Dynamics) -> Tensor:
    """Output spikes per clip (clips, classes) of frames (steps, clips, ...)."""
    for layer, rate in zip(layers, rates, strict=True):
        x = x.flatten(2) if isinstance(layer, nn.Linear) else x
        drive = layer(x.flatten(0, 1)).unflatten(0, x.shape[:2])
        drive = drive if drive.ndim == 5 else drive[..., None, None]
        x, _ = scan(drive, None, torch.tensor(rate), torch.tensor(1.0), dynamics)
    return x.sum(0).flatten(1)


def _synapse(layer: nn.Module, number: int) -> dict[str, nir.NIRNode]:
    assert isinstance(layer, nn.Conv2d | nn.Linear)
    weight = layer.weight.detach().numpy()
    bias = np.zeros(len(weight), np.float32) if layer.bias is None else layer.bias.detach().numpy()
    if isinstance(layer, nn.Conv2d):
        return {f"conv{number}": nir.Conv2d(None, weight, layer.stride, layer.padding, 1, 1, bias)}
    return {"flatten": nir.Flatten(None, 0, -1), f"linear{number}": nir.Affine(weight, bias)}


def _chained(nodes: dict[str, nir.NIRNode], contract: Contract, name: str) -> Graph:
    nodes["output"] = nir.Output(None)
    names = list(nodes)
    graph = nir.NIRGraph(nodes, list(pairwise(names)), type_check=False)
    return canonical(graph, contract, name)


def if_classifier(seed: int) -> Graph:
    """An IF conv net with several spikes per step and reset by subtraction: a ReLU network, trained on the
    sum of all frames, whose activities become spike counts."""
    torch.manual_seed(seed)
    clips, labels = moving_clips(1000, 2000 + seed, most=4)
    x, wanted = torch.as_tensor(np.stack(clips).sum(1)) / STEPS, torch.as_tensor(labels)
    layers = [
        nn.Conv2d(2, 8, 5, 2, 2, bias=False),
        nn.Conv2d(8, 12, 3, 2, 1, bias=False),
        nn.Linear(12 * 16, CLASSES, bias=False),
    ]
    net = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), nn.Flatten(), layers[2])
    optimiser = torch.optim.Adam(net.parameters(), 5e-3)
    for _ in range(600):
        chosen = torch.randint(len(clips), (64,))
        activity, truth = net(x[chosen]), F.one_hot(wanted[chosen], CLASSES)
        loss = F.cross_entropy(5 * activity, wanted[chosen])
        loss = loss + 5 * (activity - truth).clamp(min=-1).square().mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():  # the strongest percent of neurons fires this often per step
        for layer, rate in zip(layers, (1.2, 1.2, 0.6), strict=True):
            x = x.flatten(1) if isinstance(layer, nn.Linear) else x
            layer.weight *= rate / torch.quantile(F.relu(layer(x)).flatten()[::7], 0.99)
            x = F.relu(layer(x))
    nodes: dict[str, nir.NIRNode] = {"input": nir.Input(np.array([2, SIDE, SIDE]))}
    for number, (layer, shape) in enumerate(zip(layers, SHAPES, strict=True), 1):
        one = np.ones(shape, np.float32)
        nodes |= {**_synapse(layer, number), f"if{number}": nir.IF(one * 1e3, one, one * 0)}
    contract = Contract(dt=1e-3, reset="subtract", fire="ge", max_spikes=0)
    return _chained(nodes, contract, f"IF classifier {seed}")


def late_classifier(seed: int) -> Graph:
    """A fully connected LIF net whose reset is subtracted one step late, as snnTorch does by default; its
    weights are random, and half of its decisions hang on one spike."""
    rng = np.random.default_rng(seed)
    nodes: dict[str, nir.NIRNode] = {"input": nir.Input(np.array([64]))}
    sizes = (64, 48, 6)
    for number, (before, after) in enumerate(pairwise(sizes), 1):
        spread = rng.normal(0, 1 / np.sqrt(before), (after, before))
        weight = (spread + 1 / before).astype(np.float32) * (4 + 4 * number)
        one = np.ones(after, np.float32)
        nodes[f"linear{number}"] = nir.Affine(weight, 0 * one)
        nodes[f"lif{number}"] = nir.LIF(one * 1e-2, one, one * 0, one, one * 0)
    return _chained(nodes, Contract(dt=1e-3, reset="subtract", reset_at="next"), f"late reset {seed}")


def trains(count: int, seed: int) -> list[Frames]:
    """Independent spike trains (steps, 64), whose rates differ from clip to clip and from line to line."""
    clips = []
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        clips.append((rng.random((STEPS, 64)) < rng.uniform(0, 0.25, 64)).astype(np.float32))
    return clips


def digit_clips(count: int, seed: int, steps: int = 50) -> tuple[list[Frames], list[int]]:
    """Digits in strokes on 34x34 pixels, as events in steps of 2 ms: the first of N-MNIST's three saccades of
    100 ms, or more of them with more steps."""
    clips, labels = [], []
    rows, columns = np.mgrid[:34, :34].astype(np.float64)
    turns = np.array(
        [(-3.5, 3.5), (0, -3.5), (3.5, 3.5), (-3.5, 3.5)]
    )  # (x, y), from one saccade to the next
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        label = int(rng.integers(10))
        tilt, slant = rng.uniform(-0.15, 0.15, 2)
        size = rng.uniform(2.6, 3.2)
        matrix = size * np.array([[np.cos(tilt), slant - np.sin(tilt)], [np.sin(tilt), np.cos(tilt)]])
        strokes = [(np.array(s) - (2, 3)) * (rng.uniform(0.85, 1.1), 1) @ matrix.T for s in DIGITS[label]]
        phase = np.linspace(0, steps / 50, steps + 1)
        leg = np.minimum(phase.astype(int), 2)
        path = turns[leg] + (phase - leg)[:, None] * (turns[leg + 1] - turns[leg]) + (17, 17) - (-1.0, 1.5)
        width, image = rng.uniform(1.2, 1.7), np.zeros((steps + 1, 34, 34))
        for stroke in strokes:
            for (ax, ay), (bx, by) in pairwise(stroke):
                px, py = columns - path[:, 0, None, None] - ax, rows - path[:, 1, None, None] - ay
                dx, dy = bx - ax, by - ay
                along = np.clip((px * dx + py * dy) / (dx * dx + dy * dy), 0, 1)
                gap = np.hypot(px - along * dx, py - along * dy)
                image = np.maximum(image, np.clip(width + 0.5 - gap, 0, 1))
        change = np.diff(image, axis=0)
        means = np.stack([np.clip(change, 0, None), np.clip(-change, 0, None)], 1) * 2.5 + 0.0005
        clips.append(rng.poisson(means).astype(np.float32))
        labels.append(label)
    return clips, labels


def paper_cnn() -> Graph:
    """The NIR paper's CNN for N-MNIST, five layers of IF neurons: one spike per step, reset to zero."""
    return read_graph(PAPER, "sinabs", max_spikes=1, reset="zero")
