"""One layer at a time: fed with what the chip's own earlier layers fire, it learns the teacher's spikes.

    hidden layers   sum (f_c - f_t)^2 / sum f_t^2             f: counts filtered with lambda = .8
    output layer    the same with lambda = .9, + .1 sum (c - t)^2 / sum t^2 of clip counts
                    + KL of the softmax of clip counts, in units of the teacher's mean highest count

Weights are rounded to the chip's grid in every forward pass (straight-through). Adam at a share of the
weights' RMS, biases a tenth of that, cosine decay. The parameters that do best on held-back clips win, the
start included.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nrf.backends.border import Recording, Spikes
from nrf.backends.tuning.adjacency import SpikeList
from nrf.backends.tuning.layers import Grid, Layer, Parameters
from nrf.model.dynamics import Dynamics
from nrf.model.scan import scan

MEMORY = 400e6  # bytes that one forward and backward pass may take, about
AVERAGED = 0.1  # of all updates: the horizon of the moving average of the parameters
CHECKS, ASKED = 4, 64  # how often held-back clips are asked, and how many of them
HALVINGS = 9  # of an interval of gains from 1/8 to 8


@dataclass(frozen=True)
class Lesson:
    """What a layer hears in one clip, and what it should say."""

    heard: dict[str, Spikes]  # by source, from the chip
    target: Spikes
    steps: int

    def at_most_one(self) -> "Lesson":
        """The same where the layer should fire once per step at most."""
        return replace(self, target=replace(self.target, n=np.minimum(self.target.n, 1)))


@dataclass(frozen=True)
class Plan:
    """How long and how fast."""

    iterations: int = 120
    batch: int = 8
    rate: float = 0.03  # of the weights' RMS, per update
    is_output: bool = False
    micro: int = 1
    device: str = "cpu"
    seed: int = 0


def lessons(
    layer: Layer, runs: Sequence[Recording], teachers: Sequence[Recording], inputs: Sequence[Spikes]
) -> list[Lesson]:
    """Of the chip's recordings, the teacher's, and the input, clip by clip.

    What comes back by a loop is what the teacher fired (teacher forcing).
    """
    found = []
    for run, teacher, events in zip(runs, teachers, inputs, strict=True):
        heard = {}
        for name, (late, recurrent) in layer.ways.items():
            spikes = events if name == layer.graph.input else (teacher if recurrent else run).spikes[name]
            heard[name] = spikes.later(late).before(teacher.steps) if late else spikes
        found.append(Lesson(heard, teacher.spikes[layer.name], teacher.steps))
    return found


def micro_steps(layer: Layer, lessons: Sequence[Lesson]) -> int:
    """As many as events reach a neuron in a busy step, a power of two from 2 to 32."""
    busy = 0.0
    for name in layer.sources:
        events = [np.bincount(lesson.heard[name].t, lesson.heard[name].n) for lesson in lessons]
        mean = np.mean([counts[counts > 0].mean() if counts.any() else 0 for counts in events])
        weights = sum(np.size(layer.graph.nodes[node].weight[0]) for node in layer.synapses)
        busy += mean * min(1.0, weights / np.prod(layer.graph.shapes[name]))
    return int(2 ** np.clip(np.round(np.log2(max(busy, 1))), 1, 5))


def stacked(
    layer: Layer, some: Sequence[Lesson], plan: Plan, rng: np.random.Generator
) -> tuple[dict[str, Tensor | SpikeList], Tensor]:
    """Inputs, every event in a random micro-step of its own, and targets (steps, clips, neurons)."""
    steps, inputs = max(lesson.steps for lesson in some), dict[str, Tensor | SpikeList]()
    for name in layer.sources:
        events = _events([lesson.heard[name] for lesson in some], steps, plan.micro, rng)
        sparse = plan.device == "cpu" and layer.adjacencies is not None
        inputs[name] = events if sparse else events.dense(layer.graph.shapes[name], plan.device)
    target = _events([lesson.target for lesson in some], steps, 1, rng)
    return inputs, target.dense((int(np.prod(layer.shape)),), plan.device)


def batches(
    layer: Layer, some: Sequence[Lesson], plan: Plan, rng: np.random.Generator
) -> Iterator[tuple[int, dict[str, Tensor | SpikeList], Tensor]]:
    """As many clips at once as memory holds: how many, inputs and targets."""
    size = max(1, int(MEMORY / (4 * some[0].steps * layer.values(plan.micro))))
    for start in range(0, len(some), size):
        part = some[start : start + size]
        yield len(part), *stacked(layer, part, plan, rng)


def _events(clips: Sequence[Spikes], steps: int, micro: int, rng: np.random.Generator) -> SpikeList:
    rows, neurons = [], []
    for clip, spikes in enumerate(clips):
        t = np.repeat(spikes.t, spikes.n) * micro
        t += rng.integers(micro, size=len(t))
        rows.append(t * len(clips) + clip)
        neurons.append(np.repeat(spikes.i, spikes.n))
    return SpikeList(np.concatenate(rows), np.concatenate(neurons), steps * micro, len(clips))


def distance(found: Tensor, wanted: Tensor, is_output: bool) -> Tensor:
    """The loss of counts (steps, clips, neurons), as above."""
    keep = 0.9 if is_output else 0.8
    pair = [_filtered(counts, keep) for counts in (found, wanted)]
    loss = (pair[0] - pair[1]).square().sum() / pair[1].square().sum().clamp(min=1e-3)
    if is_output:
        ours, theirs = found.sum(0), wanted.sum(0)
        loss = loss + 0.1 * (ours - theirs).square().sum() / theirs.square().sum().clamp(min=1)
        scale = 5 / theirs.amax(1).mean().clamp(min=1)
        logs = [F.log_softmax(counts * scale, dim=1) for counts in (ours, theirs)]
        loss = loss + F.kl_div(logs[0], logs[1], log_target=True, reduction="batchmean")
    return loss


def _filtered(counts: Tensor, keep: float) -> Tensor:
    rate, none = torch.tensor(1 - keep, device=counts.device), torch.ones(())
    return scan(counts[..., None, None], None, rate, none, Dynamics(leaky=True, fires=False))[0]


def held_back(layer: Layer, parameters: Parameters, grid: Grid, some: Sequence[Lesson], plan: Plan) -> float:
    """The loss on clips that are not trained on, always in the same order of events."""
    rng, total = np.random.default_rng(plan.seed), 0.0
    with torch.no_grad():
        rounded = layer.rounded(parameters, grid)
        for count, inputs, target in batches(layer, some, plan, rng):
            found = layer.spikes(inputs, rounded, plan.micro)
            total += count * float(distance(found, target, plan.is_output))
    return total / len(some)


def matched_gain(layer: Layer, lessons: Sequence[Lesson], plan: Plan) -> Parameters:
    """Weights and biases times the gain at which the layer fires as often as the teacher's, by bisection.

    The drive is proportional to the gain and computed once; what rounding changes is left to training.
    """
    parameters, rng = layer.parameters(plan.device), np.random.default_rng(plan.seed)
    held = 4 * lessons[0].steps * plan.micro * int(np.prod(layer.shape))
    some = lessons[: max(1, int(MEMORY // held))]
    with torch.no_grad():
        parts = batches(layer, some, plan, rng)
        drives = [layer.drive(inputs, parameters, plan.micro) for _, inputs, _ in parts]
        wanted, low, high = sum(lesson.target.count for lesson in some), -3.0, 3.0
        for _ in range(HALVINGS if wanted else 0):
            middle = (low + high) / 2
            found = sum(float(layer.fire(drive * 2**middle).sum()) for drive in drives)
            low, high = (low, middle) if found > wanted else (middle, high)
    gain = 2 ** ((low + high) / 2)
    return {name: (weight * gain, bias * gain) for name, (weight, bias) in parameters.items()}


def trained(
    layer: Layer,
    lessons: Sequence[Lesson],
    held: Sequence[Lesson],
    plan: Plan,
    progress: Callable[[float], None] = lambda share: None,
) -> tuple[Parameters, Grid, tuple[float, float]]:
    """Parameters that do best on the held-back clips, their grid, and the loss there before and after."""
    rng = np.random.default_rng((plan.seed, len(lessons)))
    parameters = {
        name: (weight.clone().requires_grad_(), bias.clone().requires_grad_())
        for name, (weight, bias) in layer.parameters(plan.device).items()
    }
    grid = layer.grid(parameters)
    sizes = [float(weight.detach().square().mean().sqrt()) for weight, _ in parameters.values()]
    groups = [
        {"params": [parameter], "lr": plan.rate * size * share}
        for pair, size in zip(parameters.values(), sizes, strict=True)
        for parameter, share in zip(pair, (1.0, 0.1), strict=True)
    ]
    optimiser = torch.optim.Adam(groups)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, plan.iterations)

    held = held[:ASKED]
    average = {name: (w.detach().clone(), b.detach().clone()) for name, (w, b) in parameters.items()}
    best = start = held_back(layer, average, grid, held, plan)
    kept = average
    for iteration in range(plan.iterations):
        chosen = [lessons[n] for n in rng.permutation(len(lessons))[: plan.batch]]
        optimiser.zero_grad()
        for count, inputs, target in batches(layer, chosen, plan, rng):
            found = layer.spikes(inputs, layer.rounded(parameters, grid), plan.micro)
            loss = distance(found, target, plan.is_output) * count / len(chosen)
            loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
        share = 1 / min(iteration + 1, max(AVERAGED * plan.iterations, 1))
        average = {
            name: (w.lerp(parameters[name][0].detach(), share), b.lerp(parameters[name][1].detach(), share))
            for name, (w, b) in average.items()
        }
        progress((iteration + 1) / plan.iterations)
        if (iteration + 1) % max(1, plan.iterations // CHECKS) == 0:
            now = held_back(layer, average, grid, held, plan)
            if now < best:
                best, kept = now, average
    return kept, grid, (start, best)
