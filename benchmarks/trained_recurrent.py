"""Recurrent CubaLIF networks, trained: six classes of spike patterns, 40 hidden neurons that feed each other.

    i[t] = alpha i[t-1] + W x[t] + b + V z[t-1] + c
    v[t] = beta v[t-1] + i[t]                         spike if v > 1, then v = 0

alpha and beta are one per neuron and trained too, as are both biases. A class is a set of rates that rise and
fall on twelve lines, each line in its own way; a clip is a Poisson draw of these with the lines' times
shifted a little. Backpropagation through time, fast sigmoid as the surrogate, cross-entropy of the counts and
a penalty on how far the mean activity is from a sparse one.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import nir
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from nrf.export import Graph
from tests.backends.loihi.graphs import joined

DT = 1e-4
LINES, HIDDEN, CLASSES, STEPS = 12, 40, 6, 100
RATE, SHIFT = 0.25, 4.0  # spikes per step at the peak of a line; steps, standard deviation
ITERATIONS, BATCH = 150, 32
ACTIVITY, WEIGHT = 0.15, 20.0  # spikes per step and hidden neuron that are aimed at, and how strongly


class Spike(torch.autograd.Function):
    """Heaviside forward, fast sigmoid backward."""

    @staticmethod
    def forward(ctx, v: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(v)
        return (v > 0).to(v.dtype)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        (v,) = ctx.saved_tensors
        return gradient / (1 + 5 * v.abs()) ** 2


class Population(nn.Module):
    """CubaLIF with a decay of its own for each neuron."""

    def __init__(self, inputs: int, size: int, recurrent: bool) -> None:
        super().__init__()
        self.into = nn.Linear(inputs, size)
        self.back = nn.Linear(size, size) if recurrent else None
        self.alpha = nn.Parameter(torch.empty(size).uniform_(0.0, 1.5))
        self.beta = nn.Parameter(torch.empty(size).uniform_(1.0, 2.5))

    def forward(self, x: Tensor) -> Tensor:
        """Spikes (steps, batch, neurons)."""
        alpha, beta = self.alpha.sigmoid(), self.beta.sigmoid()
        drive = self.into(x)
        i = v = z = torch.zeros_like(drive[0])
        fired = []
        for push in drive:
            i = alpha * i + push + (self.back(z) if self.back else 0)
            v = beta * v + i
            z = Spike.apply(v - 1)
            v = v * (1 - z)
            fired.append(z)
        return torch.stack(fired)

    def node(self) -> nir.CubaLIF:
        """The neurons as NIR has them: gains undo what dt / tau brings in."""
        alpha, beta = (p.detach().double().sigmoid().numpy() for p in (self.alpha, self.beta))
        one = np.ones(len(alpha))
        return nir.CubaLIF(
            DT / (1 - alpha), DT / (1 - beta), 1 / (1 - beta), 0 * one, one, 0 * one, 1 / (1 - alpha)
        )


@dataclass(frozen=True)
class Task:
    """Six classes, the same for the same seed."""

    seed: int

    def clips(self, labels: NDArray[np.int64], seed: int) -> NDArray[np.float32]:
        """One clip (steps, lines) of each label."""
        rng = np.random.default_rng(self.seed)
        centre = rng.uniform(0, STEPS, (CLASSES, LINES, 2))  # two bumps per line
        width = rng.uniform(4, 12, (CLASSES, LINES, 2))
        draw = np.random.default_rng((self.seed, seed))
        late = draw.normal(0, SHIFT, (len(labels), LINES, 1))
        away = np.arange(STEPS) - (centre[labels] + late)[..., None]
        rates = RATE * np.exp(-((away / width[labels][..., None]) ** 2) / 2).sum(axis=2) + 0.01
        return (draw.random(rates.shape) < rates).astype(np.float32).transpose(0, 2, 1)


def trained(seed: int) -> tuple[Graph, Task, float]:
    """A trained network, its task, and the share of new clips that it tells right."""
    torch.manual_seed(seed)
    task, rng = Task(seed), np.random.default_rng(seed)
    hidden, last = Population(LINES, HIDDEN, recurrent=True), Population(HIDDEN, CLASSES, recurrent=False)
    parameters = [*hidden.parameters(), *last.parameters()]
    with torch.no_grad():
        hidden.into.weight.abs_()
        last.into.weight.add_(0.05)
    optimiser = torch.optim.Adam(parameters, 5e-3)
    right = 0.0
    for step in range(ITERATIONS + 1):
        labels = rng.integers(0, CLASSES, BATCH)
        x = torch.as_tensor(task.clips(labels, 10_000 + step)).transpose(0, 1)
        inner = hidden(x)
        counts = last(inner).sum(dim=0)
        right = float((counts.argmax(dim=1).numpy() == labels).mean())
        loss = nn.functional.cross_entropy(counts, torch.as_tensor(labels))
        loss = loss + WEIGHT * (inner.mean() - ACTIVITY).square()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()

    def affine(layer: nn.Linear) -> nir.Affine:
        return nir.Affine(*(p.detach().double().numpy() for p in (layer.weight, layer.bias)))

    assert hidden.back is not None
    nodes = {
        "in": affine(hidden.into), "hidden": hidden.node(), "back": affine(hidden.back),
        "out": affine(last.into), "last": last.node(),
    }  # fmt: skip
    edges = [
        ("input", "in"), ("in", "hidden"), ("hidden", "back"), ("back", "hidden"), ("hidden", "out"),
        ("out", "last"), ("last", "output"),
    ]  # fmt: skip
    return joined(nodes, edges, (LINES,), dt=DT), task, right
