"""How far a trained graph is from the truth, before and after its numbers were rounded to a chip's."""

import json

import numpy as np

from nrf.backends import reference
from nrf.backends.conformance.clips import made_clips
from nrf.errors import InputError
from nrf.export.graph import Graph


def truth_error(graph: Graph, count: int = 8) -> float:
    """Mean distance in pixels between the float reference's coordinates and the true ones.

    On clips that training never saw, after the warm-up steps of training. Only our own exporter's graphs say
    what they were trained on.

    >>> graph = from_checkpoint("runs/demo")  # doctest: +SKIP
    >>> truth_error(graph), truth_error(nrf.on_grid(graph, "loihi2"))  # doctest: +SKIP
    (1.89, 1.89)
    """
    if "config" not in graph.metadata:
        raise InputError(f"{graph.name}: does not say what it was trained on; export it from a checkpoint")
    first = int(json.loads(graph.metadata["config"])["training"]["warm_up"])
    distances = []
    for clip in made_clips(graph, count):
        read = reference.run(graph, clip.frames, membranes=False).coordinates
        assert read is not None and clip.truth is not None
        distances.append(np.linalg.norm(read[first:] - clip.truth[first:], axis=-1))
    return float(np.mean(distances))
