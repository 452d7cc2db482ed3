"""Datasets on disk: many clips, made in parallel, each in a file of its own.

    DIR/dataset.json          what it is: name, seed, configuration, measured densities
    DIR/clips/000000.npz      events t, x, y, p, sensor, start, stop (an event file like any other),
                              coordinates (T, shapes, 2), scale, velocity, signal

Clip i depends on the seed, i and the configuration alone. A clip is written atomically, so a run that was
interrupted goes on where it stopped. No more clips are in memory than there are workers.

The paper's datasets are 300x300 pixels; at another resolution they show the same scene on another
sensor: sizes and velocities shrink with it. What the paper leaves open is set here: the velocity of the
`spatial` set is 0.64 px per step and the scale of the `temporal` set 40 px.

The authors' published generator does not do what their text says: it adds velocities on a grid that is 8
times finer, so that shapes move at an eighth of the speed, fills them, turns them by at most 10 degrees,
and adds 1 per mille of noise per shape. generator = "code" makes such clips.
"""

import json
from collections.abc import Iterator
from itertools import product
from math import sqrt
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta
from msgspec.structs import replace
from numpy.typing import NDArray

from nrf.config import Section, differences, from_table, to_table
from nrf.containers import parse_json, read_arrays
from nrf.errors import InputError, did_you_mean
from nrf.events.files import from_columns, to_arrays
from nrf.events.synthetic import SyntheticClip, SyntheticConfig, clip
from nrf.files import atomic_write, make_folder, read_text

PAPER_RESOLUTION = 300  # pixels
PAPER = {
    "spatial": SyntheticConfig(scales=(10.0, 20.0, 40.0, 80.0), velocities=(0.64,)),
    "temporal": SyntheticConfig(scales=(40.0,), velocities=(0.16, 0.32, 0.64, 1.28)),
}
GENERATORS: dict[str, dict[str, SyntheticConfig]] = {
    "text": PAPER,
    "code": {
        name: replace(config, velocities=velocities, noise=0.003, line=0.0, angle=10.0, steps=128)
        for (name, config), velocities in zip(
            PAPER.items(), [(0.2 / 8 * sqrt(2),), (0.02, 0.04, 0.08, 0.16)], strict=True
        )
    },
}
AGAIN = "run the same `nrf data` again"


class DatasetConfig(Section, frozen=True):
    """Which clips a dataset holds. The scales and velocities take turns, so every part is balanced."""

    name: str
    clips: Annotated[int, Meta(ge=1)]
    seed: Annotated[int, Meta(ge=0)] = 0
    shapes: SyntheticConfig = SyntheticConfig()

    def clip(self, index: int) -> SyntheticClip:
        """Clip number `index`, made anew."""
        conditions = list(product(self.shapes.scales, self.shapes.velocities))
        scale, velocity = conditions[index % len(conditions)]
        return clip((self.seed, index), replace(self.shapes, scales=(scale,), velocities=(velocity,)))


class Density(Section, frozen=True):
    """Share of pixels that are active in a step, per mille, over the clips of one scale and velocity."""

    scale: float  # pixels
    velocity: float  # pixels per step
    clips: int
    signal: float  # events of the shapes alone
    with_noise: float  # every pixel and step with an event


class Description(DatasetConfig, frozen=True, kw_only=True):
    """The content of dataset.json: the configuration, and how far the dataset is made."""

    format: Literal[1] = 1
    complete: bool
    densities_per_mille: tuple[Density, ...] | None


def paper_config(
    name: str, clips: int, resolution: int = PAPER_RESOLUTION, seed: int = 0, generator: str = "text"
) -> DatasetConfig:
    """The paper's dataset `spatial` or `temporal`, at any resolution, as its text or its code has it.

    >>> paper_config("temporal", clips=4, resolution=150).shapes.velocities
    (0.08, 0.16, 0.32, 0.64)
    """
    if name not in PAPER:
        raise InputError(f"dataset '{name}' is not known; {did_you_mean(name, PAPER)}")
    if generator not in GENERATORS:
        raise InputError(f"generator '{generator}' is not known; {did_you_mean(generator, GENERATORS)}")
    ratio, original = resolution / PAPER_RESOLUTION, GENERATORS[generator][name]
    synthetic = replace(
        original,
        resolution=resolution,
        scales=tuple(scale * ratio for scale in original.scales),
        velocities=tuple(velocity * ratio for velocity in original.velocities),
    )
    return DatasetConfig(name, clips, seed, synthetic)


def make_dataset(folder: str | Path, config: DatasetConfig, workers: int = 1) -> Iterator[int]:
    """Make the clips that are not there yet, then measure. Yields the number of each clip as it is done.

    A folder with the same dataset, complete or not, is finished or grown to `config.clips`; clips that cannot
    be read are made anew. What is wrong with the call is said at once, before the first clip is asked for.

    >>> for number in make_dataset("shapes", paper_config("spatial", clips=8)): ...  # doctest: +SKIP
    """
    if workers == 0:
        raise InputError("dataset: 0 workers make no clips; give at least 1, or -1 for all cores")
    folder = Path(folder)
    path = folder / "dataset.json"
    if path.exists():
        present = read_description(folder)
        if other := differences(replace(_describe(present), clips=config.clips), _describe(config)):
            words = [f"{key} {here}, not {wanted}" for key, (here, wanted) in other.items()]
            raise InputError(
                f"{path}: another dataset is here, with {'; '.join(words)}; choose another folder"
            )
        if present.clips > config.clips:
            raise InputError(
                f"{path}: {present.clips} clips are here, more than {config.clips}; "
                f"ask for at least {present.clips}, or choose another folder"
            )
    elif folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder}: holds something else already; choose another folder")
    make_folder(folder / "clips")
    _write_description(folder, _describe(config))
    return _make_clips(folder, config, workers)


def _make_clips(folder: Path, config: DatasetConfig, workers: int) -> Iterator[int]:
    from joblib import delayed

    from nrf.parallel import parallel

    missing = []
    for index in range(config.clips):
        try:
            read_clip(folder, config, index)
        except InputError:
            missing.append(index)
        else:
            yield index
    jobs = parallel(workers, return_as="generator_unordered", pre_dispatch="2*n_jobs")
    yield from jobs(delayed(_make_clip)(folder, config, index) for index in missing)
    _write_description(folder, _describe(config, densities(folder, config)))


def clip_path(folder: Path, index: int) -> Path:
    """Where clip `index` of a dataset is."""
    return folder / "clips" / f"{index:06d}.npz"


def _make_clip(folder: Path, config: DatasetConfig, index: int) -> int:
    made = config.clip(index)
    figures = {name: np.asarray(getattr(made, name)) for name in ("scale", "velocity", "signal")}
    arrays = to_arrays(made.events) | figures | {"coordinates": made.coordinates}
    with atomic_write(clip_path(folder, index)) as part, part.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    return index


def read_clip(folder: Path, config: DatasetConfig, index: int) -> SyntheticClip:
    """Clip `index` of a dataset, or an error that names its file."""
    path, synthetic = clip_path(folder, index), config.shapes
    try:
        content = read_arrays(path)
        events = from_columns(path, content, content)
        coordinates = content["coordinates"].astype(np.float32)
        scale, velocity, signal = (content[name].item() for name in ("scale", "velocity", "signal"))
        if coordinates.shape != (synthetic.steps, len(synthetic.shapes), 2):
            raise InputError(f"{path}: coordinates have shape {coordinates.shape}")
        if events.sensor != (synthetic.resolution, synthetic.resolution):
            raise InputError(f"{path}: recorded with {events.sensor} rows and columns")
        return SyntheticClip(events, coordinates, float(scale), float(velocity), synthetic, int(signal))
    except KeyError as error:
        raise InputError(f"{path}: no array {error}; {AGAIN}") from error
    except InputError as error:
        raise InputError(f"{error}; {AGAIN}") from error
    except (ValueError, TypeError) as error:
        raise InputError(f"{path}: not a clip ({error}); {AGAIN}") from error


def densities(folder: Path, config: DatasetConfig) -> tuple[Density, ...]:
    """How busy the clips are, for every scale and velocity."""
    pixels = config.shapes.steps * config.shapes.resolution**2
    counts: dict[tuple[float, float], list[tuple[int, int]]] = {}
    for index in range(config.clips):
        stored = read_clip(folder, config, index)
        counts.setdefault((stored.scale, stored.velocity), []).append((stored.signal, stored.active))
    rows = []
    for (scale, velocity), pairs in sorted(counts.items()):
        signal, with_noise = (np.mean(pairs, axis=0) / pixels * 1000).round(4).tolist()
        rows.append(Density(scale, velocity, len(pairs), signal, with_noise))
    return tuple(rows)


def _describe(config: DatasetConfig, measured: tuple[Density, ...] | None = None) -> Description:
    fields = {name: getattr(config, name) for name in DatasetConfig.__struct_fields__}
    return Description(**fields, complete=measured is not None, densities_per_mille=measured)


def _write_description(folder: Path, description: Description) -> None:
    with atomic_write(folder / "dataset.json") as part:
        part.write_text(json.dumps(to_table(description), indent=2) + "\n")


def read_description(folder: str | Path) -> Description:
    """What the dataset.json of a folder says."""
    path = Path(folder) / "dataset.json"
    if not path.is_file():
        raise InputError(f"{path}: no such file; make a dataset with `nrf data -o {folder}`")
    try:
        table = parse_json(read_text(path))
    except ValueError as error:
        raise InputError(f"{path}: not the description of a dataset ({error})") from error
    return from_table(Description, table, str(path))


class Dataset:
    """The clips of a folder by number: frames (T, 2, H, W) of 0 and 1 and coordinates (T, shapes, 2).

    Reads a clip when it is asked for and keeps none, so any number of processes can share a folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.config = read_description(folder)
        if not self.config.complete:
            raise InputError(f"{folder}: the dataset is not complete; {AGAIN}")

    def __len__(self) -> int:
        return self.config.clips

    def __getitem__(self, index: int, /) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        if not 0 <= index < len(self):
            raise IndexError(f"clip {index} of {len(self)}")
        stored = read_clip(self.folder, self.config, index)
        return stored.frames(np.uint8), stored.coordinates
