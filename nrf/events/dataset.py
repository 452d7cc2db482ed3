"""Datasets on disk: many clips, made in parallel, each in a file of its own.

    DIR/dataset.json          what it is: name, seed, configuration, measured densities
    DIR/clips/000000.npz      events t, x, y, p, sensor, start, stop (an event file like any other),
                              coordinates (T, shapes, 2), scale, velocity, signal

Clip i depends on the seed, i and the configuration alone. A clip is written whole or not at all, so a run
that was interrupted goes on where it stopped. No more clips are in memory than there are workers.

The paper's datasets are 300x300 pixels; at another resolution they show the same scene on another
sensor: sizes and velocities shrink with it. What the paper leaves open is set here: the velocity of the
`spatial` set is 0.64 px per step and the scale of the `temporal` set 40 px.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.errors import InputError
from nrf.events.files import from_columns, load_npz, to_arrays
from nrf.events.synthetic import Clip, ShapesConfig, clip
from nrf.events.types import Events
from nrf.files import atomic_write
from nrf.training.config import parse

FIGURES = ("scale", "velocity", "signal", "active")  # of a clip, one number each
PAPER_RESOLUTION = 300  # pixels
PAPER = {
    "spatial": ShapesConfig(scales=(10.0, 20.0, 40.0, 80.0), velocities=(0.64,)),
    "temporal": ShapesConfig(scales=(40.0,), velocities=(0.16, 0.32, 0.64, 1.28)),
}


@dataclass(frozen=True)
class DatasetConfig:
    """Which clips a dataset holds. The scales and velocities take turns, so every part is balanced."""

    name: str
    clips: int
    seed: int = 0
    shapes: ShapesConfig = field(default_factory=ShapesConfig)

    def __post_init__(self) -> None:
        if self.clips < 1 or self.seed < 0:
            raise InputError(f"dataset: {self.clips} clips and seed {self.seed}, expected at least 1 and 0")

    def clip(self, index: int) -> Clip:
        """Clip number `index`, made anew."""
        conditions = list(product(self.shapes.scales, self.shapes.velocities))
        scale, velocity = conditions[index % len(conditions)]
        return clip((self.seed, index), replace(self.shapes, scales=(scale,), velocities=(velocity,)))


def paper_config(name: str, clips: int, resolution: int = PAPER_RESOLUTION, seed: int = 0) -> DatasetConfig:
    """The paper's dataset `spatial` or `temporal`, at any resolution.

    >>> paper_config("temporal", clips=4, resolution=150).shapes.velocities
    (0.08, 0.16, 0.32, 0.64)
    """
    if name not in PAPER:
        raise InputError(f"dataset '{name}' is not known; choose from {', '.join(PAPER)}")
    whole = PAPER[name]
    ratio = resolution / PAPER_RESOLUTION
    shapes = replace(
        whole,
        resolution=resolution,
        scales=tuple(scale * ratio for scale in whole.scales),
        velocities=tuple(velocity * ratio for velocity in whole.velocities),
    )
    return DatasetConfig(name, clips, seed, shapes)


def make_dataset(folder: str | Path, config: DatasetConfig, workers: int = 1) -> Iterator[int]:
    """Make the clips that are not there yet, then measure. Yields the number of each clip as it is done.

    A folder with the same dataset, complete or not, is finished or grown to `config.clips`; clips that cannot
    be read are made anew. What is wrong with the call is said at once, before the first clip is asked for.

    >>> for number in make_dataset("shapes", paper_config("spatial", clips=8), workers=2): ...
    """
    if workers == 0:
        raise InputError("dataset: 0 workers make no clips; give at least 1, or -1 for all cores")
    folder = Path(folder)
    about = folder / "dataset.json"
    if about.exists():
        present = load_about(folder)[0]
        there, wanted = _flat(present), _flat(config)
        other = [
            f"{name} {there[name]}, not {wanted[name]}" for name in wanted if there[name] != wanted[name]
        ]
        if other:
            raise InputError(
                f"{about}: another dataset is here, with {'; '.join(other)}; choose another folder"
            )
        if present.clips > config.clips:
            raise InputError(
                f"{about}: {present.clips} clips are here, more than {config.clips}; "
                f"ask for at least {present.clips}, or choose another folder"
            )
    elif folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder}: holds something else already; choose another folder")
    try:
        (folder / "clips").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be a folder for clips: {error.strerror}") from error
    _write_about(folder, config, densities=None)
    return _make_clips(folder, config, workers)


def _make_clips(folder: Path, config: DatasetConfig, workers: int) -> Iterator[int]:
    from joblib import Parallel, delayed

    missing = []
    for index in range(config.clips):
        if _is_whole(folder, config, index):
            yield index
        else:
            missing.append(index)
    jobs = Parallel(n_jobs=workers, return_as="generator_unordered", pre_dispatch="2*n_jobs")
    yield from jobs(delayed(_make_clip)(folder, config, index) for index in missing)
    _write_about(folder, config, densities(folder, config))


def _flat(config: DatasetConfig) -> dict[str, Any]:
    """What makes the clips what they are; their number does not."""
    return {"name": config.name, "seed": config.seed} | asdict(config.shapes)


def clip_path(folder: Path, index: int) -> Path:
    """Where clip `index` of a dataset is."""
    return folder / "clips" / f"{index:06d}.npz"


def _make_clip(folder: Path, config: DatasetConfig, index: int) -> int:
    made = config.clip(index)
    active = len(np.unique(made.events.data[["t", "x", "y"]]))
    with atomic_write(clip_path(folder, index)) as part, part.open("wb") as file:
        np.savez_compressed(
            file,
            allow_pickle=False,
            coordinates=made.coordinates,
            scale=np.asarray(made.scale),
            velocity=np.asarray(made.velocity),
            signal=np.asarray(made.signal),
            active=np.asarray(active),
            **to_arrays(made.events),
        )
    return index


@dataclass(frozen=True)
class _Stored:
    """A clip as its file has it."""

    events: Events
    coordinates: NDArray[np.float32]
    scale: float
    velocity: float
    signal: int
    active: int  # pixels and steps with an event


def _read_clip(folder: Path, config: DatasetConfig, index: int) -> _Stored:
    """Clip `index`, or an error that names its file."""
    path, shapes = clip_path(folder, index), config.shapes
    try:
        content = load_npz(path)
        events = from_columns(path, content, content, empty=True)
        coordinates = content["coordinates"]
        scale, velocity, signal, active = (content[name].item() for name in FIGURES)
        if coordinates.shape != (shapes.steps, len(shapes.shapes), 2):
            raise InputError(f"{path}: coordinates have shape {coordinates.shape}")
        if events.sensor != (shapes.resolution, shapes.resolution):
            raise InputError(f"{path}: recorded with {events.sensor} rows and columns")
        return _Stored(
            events, coordinates.astype(np.float32), float(scale), float(velocity), int(signal), int(active)
        )
    except KeyError as error:
        raise InputError(f"{path}: no array {error}; run the same `nrf data` again") from error
    except (InputError, ValueError, TypeError) as error:
        text = str(error) if isinstance(error, InputError) else f"{path}: not a clip ({error})"
        raise InputError(f"{text}; run the same `nrf data` again") from error


def _is_whole(folder: Path, config: DatasetConfig, index: int) -> bool:
    """Whether clip `index` is there and can be read."""
    try:
        _read_clip(folder, config, index)
    except InputError:
        return False
    return True


def densities(folder: Path, config: DatasetConfig) -> list[dict[str, float]]:
    """Share of pixels that are active in a step, per mille, for every scale and velocity.

    `signal` counts the shapes' events alone, `with_noise` every pixel and step with an event.
    """
    places = config.shapes.steps * config.shapes.resolution**2
    counts: dict[tuple[float, float], list[tuple[int, int]]] = {}
    for index in range(config.clips):
        one = _read_clip(folder, config, index)
        counts.setdefault((one.scale, one.velocity), []).append((one.signal, one.active))
    rows = []
    for (scale, velocity), pairs in sorted(counts.items()):
        signal, active = np.mean(pairs, axis=0) / places * 1000
        row = {"scale": scale, "velocity": velocity, "clips": len(pairs)}
        rows.append(row | {"signal": round(float(signal), 4), "with_noise": round(float(active), 4)})
    return rows


def _write_about(folder: Path, config: DatasetConfig, densities: list[dict[str, float]] | None) -> None:
    content = {"format": 1, **asdict(config), "complete": densities is not None}
    content["densities_per_mille"] = densities
    with atomic_write(folder / "dataset.json") as part:
        part.write_text(json.dumps(content, indent=2) + "\n")


def load_about(folder: str | Path) -> tuple[DatasetConfig, dict[str, Any]]:
    """The configuration of a dataset, and everything else that its dataset.json says."""
    path = Path(folder) / "dataset.json"
    if not path.is_file():
        raise InputError(f"{path}: no such file; make a dataset with `nrf data -o {folder}`")
    try:
        content = json.loads(path.read_text())
        if not isinstance(content["complete"], bool):
            raise TypeError("complete is neither true nor false")
        table = {key: content[key] for key in ("name", "clips", "seed", "shapes")}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not the description of a dataset ({error!r})") from error
    config = parse(DatasetConfig, table, str(path))
    return config, content


class Dataset:
    """The clips of a folder by number: frames (T, 2, H, W) of 0 and 1 and coordinates (T, shapes, 2).

    Reads a clip when it is asked for and keeps none, so any number of processes can share a folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.config, about = load_about(folder)
        if not about["complete"]:
            raise InputError(f"{folder}: the dataset is not complete; run the same `nrf data` again")

    def __len__(self) -> int:
        return self.config.clips

    def __getitem__(self, index: int, /) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        if not 0 <= index < len(self):
            raise IndexError(f"clip {index} of {len(self)}")
        stored, shapes = _read_clip(self.folder, self.config, index), self.config.shapes
        frames = stored.events.frames(shapes.dt, steps=shapes.steps, binary=True, dtype=np.uint8)
        return frames, stored.coordinates
