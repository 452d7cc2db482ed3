"""Clips on which the numbers of a chip are chosen: the user's own, the training data's, or generated ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import nir
import numpy as np
from numpy.typing import NDArray

from nrf.backends import reference
from nrf.backends.border import Clips, LowerOptions, Recording, WeightBits
from nrf.config import from_table
from nrf.errors import InputError
from nrf.events import ClipSource, Samples
from nrf.events.dataset import DatasetConfig
from nrf.export.canonical import canonical
from nrf.export.graph import NEURONS, Graph
from nrf.export.shape_inference import PARAMETERS
from nrf.training.config import Config

MOST_CLIPS = 32  # of the user's own that numbers are chosen on; of more, every n-th
TRAINING_CLIPS = 4  # of a model's own training data


@dataclass(frozen=True)
class Calibration:
    """Clips with the reference's recordings of them."""

    graph: Graph  # the graph itself, or a patch of it
    clips: tuple[NDArray[np.float32], ...]
    recordings: tuple[Recording, ...]

    @classmethod
    def of(cls, graph: Graph, clips: Clips) -> "Calibration":
        """Run the reference on every clip."""
        if not all(map(len, clips)):
            raise InputError(f"{graph.name}: a calibration clip has no steps; leave it out")
        return cls(graph, tuple(clips), tuple(reference.run(graph, clip) for clip in clips))


def lower_options(
    graph: Graph,
    clips: Sequence[ClipSource] = (),
    *,
    width: float | None = None,
    approximate: bool = False,
    format: str = "program",
    weights: WeightBits = "auto",
) -> LowerOptions:
    """The options that every command lowers with, so that all of them make the same program of a graph.

    Scales are chosen on the user's clips, else on clips of the data that the model was trained on (if it says
    so), else on generated ones.
    """
    dataset = training_data(graph)
    if clips:
        shape = graph.shapes[graph.input]
        contract = graph.contract
        samples = Samples(clips, width or contract.dt, shape, sensor=contract.sensor)
        every = -(-(samples.count or 1) // MOST_CLIPS)
        given = [sample.frames for n, sample in enumerate(samples) if n % every == 0]
        return LowerOptions(given, "given", approximate, format, weights)
    if dataset is not None:
        ours = [dataset.clip(number).frames() for number in range(TRAINING_CLIPS)]
        return LowerOptions(ours, "training data", approximate, format, weights)
    return LowerOptions(None, "generated", approximate, format, weights)


def training_config(graph: Graph) -> Config | None:
    """How our exporter says that the graph was trained, or None for a stranger's graph."""
    if "config" not in graph.metadata:
        return None
    return from_table(Config, graph.stated("config"), f"{graph.name}: metadata 'config'")


def training_data(graph: Graph) -> DatasetConfig | None:
    """The dataset that our exporter names in the metadata, or None for a stranger's graph."""
    config = training_config(graph)
    if config is None or tuple(config.network.input) != graph.shapes[graph.input]:
        return None
    return DatasetConfig(config.name, config.data.clips, config.seed, config.data.shapes)


def generated_clips(shape: tuple[int, ...], steps: int, seeds: Sequence[int]) -> list[NDArray[np.float32]]:
    """Clips (steps, *shape) of 0 and 1, the same for the same seeds.

    Maps (channels, rows, columns) see blobs that drift over noise, as an event camera would; anything else
    sees independent trains whose rates differ from line to line and change in bursts.
    """
    make = _drifting if len(shape) == 3 and min(shape[1:]) >= 8 else _bursting
    return [make(shape, steps, np.random.default_rng(seed)) for seed in seeds]


def _bursting(shape: tuple[int, ...], steps: int, rng: np.random.Generator) -> NDArray[np.float32]:
    rates = rng.uniform(0.02, 0.3, size=shape) * rng.uniform(
        0, 2, size=(steps // 20 + 1, *(1 for _ in shape))
    )
    return (rng.random((steps, *shape)) < np.repeat(rates, 20, axis=0)[:steps]).astype(np.float32)


def _drifting(shape: tuple[int, ...], steps: int, rng: np.random.Generator) -> NDArray[np.float32]:
    channels, height, width = shape
    rows, columns = np.mgrid[:height, :width]
    frames = np.zeros((steps, *shape), np.float32)
    count = 3
    place = rng.uniform(0, (height, width), size=(count, 2))
    speed = rng.normal(0, 0.01 * height, size=(count, 2))
    radius = rng.uniform(0.06, 0.16, size=count) * height
    for t in range(steps):
        rate = np.full((channels, height, width), 0.003)
        for k in range(count):
            dy, dx = rows - place[k, 0], columns - place[k, 1]
            rim = np.exp(-((np.hypot(dy, dx) - radius[k]) ** 2) / 2)  # contrast edges make events
            front = dy * speed[k, 0] + dx * speed[k, 1] > 0
            for channel in range(channels):
                rate[channel] += 0.35 * rim * (front == (channel % 2 == 0))
        frames[t] = rng.random(shape) < rate
        place += speed
        speed = np.where((place < 0) | (place > (height, width)), -speed, speed)
    return frames


def cropped(graph: Graph, side: int) -> Graph | None:
    """The same graph for a patch of the input, or None where it is not the same everywhere.

    Convolutions and pooling do at every place what they do at one, so scales found on a patch hold for the
    whole map, at a fraction of the cost. Needs neurons and delays that differ by channel at most.
    """
    shape = graph.shapes[graph.input]
    if len(shape) != 3 or min(shape[1:]) <= side:
        return None
    nodes: dict[str, nir.NIRNode] = {}
    for name, node in graph.nodes.items():
        if isinstance(node, nir.Input):
            node = nir.Input(np.array([shape[0], side, side]))
        elif isinstance(node, nir.Output):
            node = nir.Output(None)
        elif isinstance(node, nir.Conv2d):
            parts = (node.weight, node.stride, node.padding, node.dilation, node.groups, node.bias)
            node = nir.Conv2d(None, *parts)
        elif isinstance(node, (*NEURONS, nir.Delay)):
            values = {key: np.asarray(getattr(node, key)) for key in PARAMETERS[type(node)]}
            if any(
                np.ptp(value, axis=(1, 2)).any() if value.ndim == 3 else True for value in values.values()
            ):
                return None
            node = type(node)(**{key: value[:, :1, :1] for key, value in values.items()})
        elif not isinstance(node, nir.SumPool2d | nir.AvgPool2d):
            return None
        nodes[name] = node
    return canonical(nir.NIRGraph(nodes, list(graph.edges), type_check=False), graph.contract, graph.name)


def work_per_step(graph: Graph) -> float:
    """Multiplications that one step of a graph takes in the float reference."""
    weighted = {name: node for name, node in graph.nodes.items() if hasattr(node, "weight")}
    sizes = (np.size(node.weight) * np.prod(graph.shapes[name][1:]) for name, node in weighted.items())
    return 1 + float(sum(sizes))
