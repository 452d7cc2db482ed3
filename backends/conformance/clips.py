"""The clips of a comparison: the user's files, or clips that the model has never seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.backends.lowering.calibration import generated_clips, training_data
from nrf.errors import InputError
from nrf.events import load_frames
from nrf.export.graph import Graph

STEPS = 60  # of a clip for a graph that we know nothing about


@dataclass(frozen=True, eq=False)
class Clip:
    """Input frames (T, *input shape), and the true coordinates (T, shapes, 2) in pixels where known."""

    name: str
    frames: NDArray[Any]
    truth: NDArray[Any] | None = None


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
    dataset = training_data(graph)
    if dataset is None:
        clips = generated_clips(graph.shapes[graph.input], STEPS, range(count))
        return [Clip(f"generated {n}", frames) for n, frames in enumerate(clips)]
    held_out = ((n, dataset.clip(dataset.clips + n)) for n in range(count))
    return [Clip(f"held out {n}", clip.frames(), clip.coordinates) for n, clip in held_out]


def _truth(path: Path) -> NDArray[Any] | None:
    if path.suffix.lower() != ".npz":
        return None
    with np.load(path, allow_pickle=False) as content:
        return np.asarray(content["coordinates"]) if "coordinates" in content else None
