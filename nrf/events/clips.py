"""Many clips, one after the other: files, folders, files of many clips, arrays, other people's datasets.

A `.npz` file holds one clip, events or `frames` (T, *shape), or many, `frames` (clips, T, *shape).
Beside them there may be `label` or `labels` (the true class of each) and `coordinates` (the true places).
"""

from collections.abc import Collection, Iterable, Iterator, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.containers import read_array, read_arrays, shape_in
from nrf.errors import InputError
from nrf.events.files import FORMATS
from nrf.events.frames import Source, load_frames, significant
from nrf.events.types import COLUMNS, Events, make
from nrf.files import LABELS, read_text

Label = int | tuple[int, ...]  # the true class, the same for all outputs of a network or one for each
Labelled = tuple[Events | NDArray[Any], Label]


@dataclass(frozen=True, eq=False)
class Sample:
    """Input frames (T, *input shape), and what is known to be true about them."""

    name: str
    frames: NDArray[Any]
    truth: NDArray[Any] | None = None  # coordinates (T, shapes, 2) in pixels
    label: Label | None = None


ClipSource = Source | Sample | Labelled


class Samples:
    """Clips of all kinds; each is read when its turn comes, so that memory does not grow with their number.

    `width` is how many seconds of events make a frame, `shape` that of the network's input. `labels`, one per
    clip in this order or a file that holds them, replace those of the clips' files. `sensor` is what lies
    between camera and network.

    >>> [clip.label for clip in Samples([np.zeros((5, 4))] * 2, None, (4,), [1, 0])]
    [1, 0]
    """

    def __init__(
        self,
        sources: Iterable[ClipSource],
        width: float | None,
        shape: tuple[int, ...],
        labels: Iterable[Label] | str | Path | None = None,
        sensor: str | None = None,
    ) -> None:
        if isinstance(sources, list | tuple):  # else a dataset, which nobody wants to have in memory
            sources = [file for source in sources for file in _files(source)]
        self.sources, self.width, self.shape, self.sensor = sources, width, shape, sensor
        labels = read_labels(Path(labels)) if isinstance(labels, str | Path) else labels
        self.labels = None if labels is None else list(labels)
        if self.labels is not None and self.count not in (None, len(self.labels)):
            raise InputError(
                f"{len(self.labels)} labels for {self.count} clips; give one per clip, in their order"
            )

    @property
    def count(self) -> int | None:
        """How many there are, without reading them; None where only the end will tell."""
        if isinstance(self.sources, list):
            return sum(_count(source, self.shape) for source in self.sources)
        return len(self.sources) if isinstance(self.sources, Sized) else None

    def __iter__(self) -> Iterator[Sample]:
        number = 0
        for source in self.sources:
            for sample in self._samples(source, number):
                if self.labels is not None and number >= len(self.labels):
                    raise InputError(
                        f"there are more clips than the {len(self.labels)} labels; give one per clip"
                    )
                yield sample if self.labels is None else replace(sample, label=self.labels[number])
                number += 1

    def _samples(self, source: ClipSource, number: int) -> Iterator[Sample]:
        if isinstance(source, Sample):
            yield source
        elif isinstance(source, str | Path):
            yield from self._of_file(Path(source))
        else:
            given, label = source if isinstance(source, tuple) else (source, None)
            yield Sample(f"clip {number}", self._framed(given), label=label)

    def _framed(self, source: Source) -> NDArray[np.float32]:
        return load_frames(source, self.width, self.shape, self.sensor)

    def _of_file(self, path: Path) -> Iterator[Sample]:
        content = read_arrays(path) if path.suffix.lower() == ".npz" else {}
        frames, truths, labels = (
            content.get("frames"),
            content.get("coordinates"),
            read_labels_of(content, path),
        )
        many = frames is not None and is_many(frames.shape, self.shape)
        clips: Collection[Source] = frames if frames is not None and many else [path]
        if truths is not None:
            truths = truths if many else truths[None]
            if truths.dtype.kind not in "iuf" or truths.ndim != 4 or truths.shape[3] != 2:
                wanted = f"numbers, {'(clips, T' if many else '(T'}, shapes, 2)"
                raise InputError(
                    f"{path}: coordinates are {truths.dtype} of {truths.shape}, expected {wanted}"
                )
        for kind, values in (("labels", labels), ("coordinates", truths)):
            if values is not None and len(values) != len(clips):
                raise InputError(f"{path}: {len(values)} {kind} for {len(clips)} clips")
        for n, clip in enumerate(clips):
            try:
                ready = self._framed(clip)
            except InputError as error:
                raise InputError(str(error).replace("input: ", f"{path}: clip {n}: ", 1)) from error
            name, truth = f"{path.name} {n}" if many else path.name, None if truths is None else truths[n]
            yield Sample(name, ready, truth, None if labels is None else labels[n])


def _files(source: ClipSource) -> Iterator[ClipSource]:
    """The files of a folder, in the order of their names; anything else as it is."""
    if not isinstance(source, str | Path):
        yield source
        return
    path = Path(source)
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if not path.is_dir():
        yield path
        return
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in FORMATS)
    if not files:
        raise InputError(f"{path}: no clip inside; known are {' '.join(FORMATS)}")
    yield from files


def _count(source: ClipSource, shape: tuple[int, ...]) -> int:
    """How many clips are in a source; of a `.npz` file only the header of `frames` is read."""
    if not isinstance(source, str | Path) or Path(source).suffix.lower() != ".npz":
        return 1
    frames = shape_in(source, "frames") or ()  # none: events, or no such file, as who reads it will say
    return frames[0] if is_many(frames, shape) else 1


def is_many(frames: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether frames of this shape are many clips, (clips, T, *shape), and not one, (T, *shape)."""
    wanted = significant(shape)
    return len(frames) > 2 and significant(frames[1:]) != wanted and significant(frames[2:]) == wanted


def label_for(label: Label | None, output: int) -> int | None:
    """The true class of one output of a network.

    >>> label_for(3, 1), label_for((3, 0), 1)
    (3, 0)
    """
    if not isinstance(label, tuple):
        return label
    if output >= len(label):
        raise InputError(f"a clip has labels for {len(label)} outputs, the model has more; give one for each")
    return label[output]


def read_labels_of(arrays: dict[str, NDArray[Any]], path: Path) -> list[Label] | None:
    """The classes that a file states, one per clip; with a second axis one for every output."""
    stated = arrays.get("labels", arrays.get("label"))
    if stated is None:
        return None
    values = np.atleast_1d(stated)
    if not values.size or values.dtype.kind not in "iu" or values.min() < 0 or values.ndim > 2:
        raise InputError(f"{path}: labels are {values.dtype}, expected whole numbers from 0, one per clip")
    if values.size > LABELS:
        raise InputError(f"{path}: {values.size:,} labels, expected at most {LABELS:,}, one per clip")
    rows = values.reshape(len(values), -1).tolist()
    return [row[0] if len(row) == 1 else tuple(row) for row in rows]


def read_labels(path: Path) -> list[Label]:
    """The classes of many clips: `labels` of a `.npz` file, or a text file with a line for each clip."""
    if path.suffix.lower() == ".npz":
        labels = read_labels_of(read_arrays(path), path)
        if labels is None:
            raise InputError(f"{path}: has no array 'labels'")
        return labels
    if path.suffix.lower() == ".npy":
        return read_labels_of({"labels": read_array(path)}, path) or []
    words = read_text(path).replace(",", " ").split()
    try:
        values = np.array(words, np.float64)
    except ValueError as error:
        raise InputError(f"{path}: not readable as labels, numbers one per line ({error})") from error
    if len(wrong := values[~((values == np.floor(values)) & (np.abs(values) < 2**53))]):
        raise InputError(f"{path}: holds {wrong[0]:g}, expected whole numbers")
    return read_labels_of({"labels": values.astype(np.int64)}, path) or []


class FromTonic:
    """Events, or frames that a transform made, and labels of a dataset, as they are asked for."""

    def __init__(self, dataset: Iterable[Any], sensor: tuple[int, int]) -> None:
        self.dataset, self.sensor = dataset, sensor

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Labelled]:
        for number, (events, label) in enumerate(self.dataset):
            names = np.asarray(events).dtype.names
            if names is None:  # frames already, by tonic.transforms.ToFrame for example
                yield np.asarray(events), int(label)
                continue
            if missing := [name for name in COLUMNS if name not in names]:
                raise InputError(
                    f"clip {number}: events have no {', '.join(missing)}, only {', '.join(names)}"
                )
            t, x, y, p = (events[name].astype(np.int64) for name in COLUMNS)
            yield make(t, x, y, p, self.sensor, where=f"clip {number}"), int(label)


def from_tonic(dataset: Iterable[Any], sensor: tuple[int, int] | None = None) -> FromTonic:
    """A Tonic dataset as clips for `nrf.conform`: structured arrays with t (us), x, y, p, and a label each.

    `sensor` is (rows, columns); Tonic states it as `sensor_size` (columns, rows, polarities).

    >>> nrf.conform(graph, "speck2f", from_tonic(tonic.datasets.NMNIST("data")))  # doctest: +SKIP
    """
    if sensor is None:
        size = getattr(dataset, "sensor_size", None)
        if size is None:
            raise InputError("the dataset has no sensor_size; give sensor=(rows, columns)")
        sensor = int(size[1]), int(size[0])
    return FromTonic(dataset, sensor)
