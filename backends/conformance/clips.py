"""Where the clips of a comparison come from: the user's files, or clips that the model has never seen."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.backends.conformance.ladder import Clip
from nrf.backends.lowering.calibration import generated_clips
from nrf.errors import InputError
from nrf.events import load_frames
from nrf.export.graph import Graph

STEPS = 60  # of a clip for a graph that we know nothing about


def read_clips(paths: Sequence[Path], graph: Graph, width: float | None = None) -> list[Clip]:
    """Clips from files, or from all files of a folder; `coordinates` in a .npz file are the truth."""
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
        files += sorted(p for p in path.rglob("*.npz")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{paths[0]}: no .npz file inside")
    shape, dt = graph.shapes[graph.input], graph.contract.dt
    return [Clip(path.name, load_frames(path, width or dt, shape), _truth(path)) for path in files]


def made_clips(graph: Graph, count: int) -> list[Clip]:
    """Clips for a graph: from the data that it was trained on but held out, else generated events."""
    dataset = _dataset(graph)
    if dataset is None:
        shape = graph.shapes[graph.input]
        frames = generated_clips(shape, STEPS, range(count))
        return [Clip(f"generated {n}", one) for n, one in enumerate(frames)]
    made = ((n, dataset.clip(dataset.clips + n)) for n in range(count))
    return [Clip(f"held out {n}", clip.frames(), clip.coordinates) for n, clip in made]


def calibration_clips(graph: Graph, count: int = 4) -> list[NDArray[np.float32]] | None:
    """Clips to choose scales on, from the training data; None for a graph that does not say what it is."""
    dataset = _dataset(graph)
    return None if dataset is None else [dataset.clip(n).frames() for n in range(count)]


def _dataset(graph: Graph) -> Any:
    """The dataset in the metadata that our exporter writes, or None for a stranger's graph."""
    from nrf.config import from_table
    from nrf.events.dataset import DatasetConfig
    from nrf.training.config import Config

    if "config" not in graph.metadata:
        return None
    config = from_table(Config, json.loads(graph.metadata["config"]), "config")
    if tuple(config.network.input) != graph.shapes[graph.input]:
        return None
    return DatasetConfig(config.name, config.data.clips, config.seed, config.data.shapes)


def _truth(path: Path) -> NDArray[Any] | None:
    if path.suffix.lower() != ".npz":
        return None
    with np.load(path, allow_pickle=False) as content:
        return np.asarray(content["coordinates"]) if "coordinates" in content else None
