"""The clips of a comparison: the user's files, or clips that the model has never seen."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from nrf.backends import reference
from nrf.backends.border import Recording
from nrf.backends.lowering.calibration import generated_clips, training_config, training_data
from nrf.errors import InputError
from nrf.events import Sample
from nrf.export.graph import Graph

STEPS = 60  # of a clip for a graph that we know nothing about


@dataclass(frozen=True, eq=False)
class Clip(Sample):
    """Input frames, and the true coordinates or the label where known."""

    made_up: bool = False  # by us, for a graph whose data we do not know
    held_out: bool = False  # of the training data that the graph names
    golden: Recording | None = None  # what somebody else's software gave for these frames


def read_clips(samples: Iterable[Sample]) -> Iterator[Clip]:
    """Clips from all kinds of sources, see `nrf.events.Samples`."""
    for sample in samples:
        yield sample if isinstance(sample, Clip) else Clip(**vars(sample))


def made_clips(graph: Graph, count: int) -> list[Clip]:
    """Clips for a graph: from the data that it was trained on but held out, else generated events."""
    dataset = training_data(graph)
    if dataset is None:
        clips = generated_clips(graph.shapes[graph.input], STEPS, range(count))
        return [Clip(f"generated {n}", frames, made_up=True) for n, frames in enumerate(clips)]
    held_out = ((n, dataset.clip(dataset.clips + n)) for n in range(count))
    return [Clip(f"held out {n}", clip.frames(), clip.coordinates, held_out=True) for n, clip in held_out]


def truth_error(graph: Graph, count: int = 8) -> float:
    """Mean distance in pixels between the float reference's coordinates and the true ones.

    On clips that training never saw, after the warm-up steps of training. Only our own exporter's graphs say
    what they were trained on.

    >>> graph = from_checkpoint("runs/demo")  # doctest: +SKIP
    >>> truth_error(graph), truth_error(nrf.on_grid(graph, "loihi2"))  # doctest: +SKIP
    (1.89, 1.89)
    """
    config = training_config(graph)
    if config is None:
        raise InputError(f"{graph.name}: does not say what it was trained on; export it from a checkpoint")
    first = config.training.warm_up
    errors = []
    for clip in made_clips(graph, count):
        read = reference.run(graph, clip.frames, membranes=False).coordinates
        assert read is not None and clip.truth is not None
        errors.append(np.linalg.norm(read[first:] - clip.truth[first:], axis=-1))
    return float(np.mean(errors))
