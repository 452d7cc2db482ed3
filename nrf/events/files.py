"""Event files: one reader and one writer per format.

    .npz          arrays t, x, y, p; optional sensor (rows, columns), start, stop
    .csv          a header line with t, x, y, p in any order; before it, optional lines "# key value ..."
    .h5 .hdf5     datasets t, x, y, p at the root or in a group `events`, or one compound dataset
                  `events` or `CD/events`; sensor, start, stop as attributes of that group
    .raw .dat     Prophesee, see `nrf.events.cameras`
    .aedat4       iniVation, see `nrf.events.cameras`

The first three count time from 0 unless they carry `start`; the cameras' formats from the first event.
"""

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.errors import InputError
from nrf.events.cameras import Sensor, agree, read_aedat4, read_dat, read_raw, write_aedat4, write_prophesee
from nrf.events.types import Events, make
from nrf.files import atomic_write

Named = Mapping[str, Any]
COLUMNS = ("t", "x", "y", "p")


@dataclass(frozen=True)
class Format:
    """How a kind of file is read, given the sensor if the caller knows it, and written."""

    read: Callable[[Path, Sensor], Events]
    write: Callable[[Path, Events], None]


def read(path: str | Path, sensor: Sensor = None) -> Events:
    """Read an event file; the ending chooses the format.

    `sensor` (rows, columns) is for files that do not state it; one that states another is refused.
    """
    path = Path(path)
    _must_be_file(path)
    try:
        return _format(path).read(path, sensor)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def _must_be_file(path: Path) -> None:
    if path.is_dir():
        raise InputError(f"{path}: is a folder, expected a file")
    if not path.exists():
        raise InputError(f"{path}: no such file")


def write(path: str | Path, events: Events) -> None:
    """Write an event file; the ending chooses the format."""
    form = _format(Path(path))
    with atomic_write(path) as part:
        try:
            form.write(part, events)
        except InputError as error:
            raise InputError(str(error).replace(str(part), str(path))) from error


def _format(path: Path) -> "Format":
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: unknown ending '{path.suffix}'; known are {' '.join(FORMATS)}")
    return FORMATS[path.suffix.lower()]


def load_npz(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of a .npz file, or a clear error."""
    _must_be_file(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # a broken archive raises anything from zlib.error to KeyError
        raise InputError(f"{path}: not a readable .npz file ({error})") from error


def from_columns(
    path: Path, columns: Named, extra: Named, sensor: Sensor = None, *, empty: bool = False
) -> Events:
    """Events from named columns and what the file says about sensor, start and stop."""
    missing = [name for name in COLUMNS if name not in columns]
    if missing:
        raise InputError(f"{path}: no {', '.join(missing)}; expected t, x, y, p, found {list(columns)}")
    if "sensor" in extra:
        rows, width = _whole(path, "sensor", extra["sensor"], 2)
        if min(rows, width) < 1:
            raise InputError(f"{path}: sensor is {rows} rows x {width} columns, expected at least 1 x 1")
        sensor = agree(path, (rows, width), sensor)
    start, stop = (
        _whole(path, name, extra[name])[0] if name in extra else None for name in ("start", "stop")
    )
    t, x, y, p = (columns[name] for name in COLUMNS)
    return make(t, x, y, p, sensor, start=start, stop=stop, where=str(path), empty=empty)


def _whole(path: Path, name: str, value: Any, count: int = 1) -> list[int]:
    """So many whole numbers from what a file says, or a clear error."""
    numbers = np.ravel(np.asarray(value)).tolist()
    if len(numbers) != count or not all(isinstance(n, int | float) and n == n // 1 for n in numbers):
        wanted = (
            "two whole numbers, rows and columns" if name == "sensor" else "a whole number of microseconds"
        )
        raise InputError(f"{path}: {name} is {reprlib.repr(numbers)}, expected {wanted}")
    return [int(number) for number in numbers]


def _read_npz(path: Path, sensor: Sensor) -> Events:
    content = load_npz(path)
    return from_columns(path, content, content, sensor)


def to_arrays(events: Events) -> dict[str, NDArray[Any]]:
    """What a .npz file of events holds."""
    extra = {"sensor": events.sensor, "start": events.start, "stop": events.stop}
    columns = {name: events.data[name] for name in COLUMNS}
    return columns | {name: np.asarray(value) for name, value in extra.items()}


def _write_npz(path: Path, events: Events) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **to_arrays(events))


def _read_csv(path: Path, sensor: Sensor) -> Events:
    extra: dict[str, Any] = {}
    try:
        with path.open(encoding="utf-8-sig") as file:  # spreadsheets put a byte order mark first
            line = file.readline()
            while line.startswith("#"):
                name, *values = line[1:].split() or [""]
                if name in ("sensor", "start", "stop"):  # anything else is a remark
                    extra[name] = [_number(value) for value in values]
                line = file.readline()
            header = [name.strip() for name in line.split(",")]
            lines = [line for line in file.read().splitlines() if line.strip()]
        table = np.loadtxt(lines, delimiter=",", ndmin=2) if lines else np.empty((0, len(header)))
    except ValueError as error:  # of which not being UTF-8 is one
        raise InputError(f"{path}: not a readable .csv file ({error})") from error
    if table.shape[1] != len(header):
        raise InputError(f"{path}: the header names {len(header)} columns, the lines have {table.shape[1]}")
    return from_columns(path, dict(zip(header, table.T, strict=True)), extra, sensor)


def _number(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text


def _write_csv(path: Path, events: Events) -> None:
    rows, columns = events.sensor
    about = f"# sensor {rows} {columns}\n# start {events.start}\n# stop {events.stop}\n"
    table = np.stack([events.data[name].astype(np.int64) for name in COLUMNS], axis=1)
    with path.open("w") as file:
        np.savetxt(file, table, "%d", ",", header=about + ",".join(COLUMNS), comments="")


def _read_hdf5(path: Path, sensor: Sensor) -> Events:
    import h5py

    try:
        with h5py.File(path, "r") as file:
            node = next((file[name] for name in ("events", "CD/events") if name in file), file)
            names = node.dtype.names if isinstance(node, h5py.Dataset) else tuple(node)
            columns = {name: node[name] for name in COLUMNS if name in (names or ())}
            for name, column in columns.items():
                if isinstance(column, h5py.Group):
                    raise InputError(f"{path}: {column.name} is a group, expected a dataset")
                columns[name] = column[()]
            extra = dict(node.attrs)
    except (OSError, KeyError, RuntimeError) as error:  # the last two from links that lead nowhere
        raise InputError(f"{path}: not a readable HDF5 file ({error})") from error
    return from_columns(path, columns, extra, sensor)


def _write_hdf5(path: Path, events: Events) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        group = file.create_group("events")
        for name, value in to_arrays(events).items():
            if name in COLUMNS:
                group.create_dataset(name, data=value, compression="gzip", shuffle=True)
            else:
                group.attrs[name] = value


FORMATS = {
    ".npz": Format(_read_npz, _write_npz),
    ".csv": Format(_read_csv, _write_csv),
    ".h5": Format(_read_hdf5, _write_hdf5),
    ".hdf5": Format(_read_hdf5, _write_hdf5),
    ".raw": Format(read_raw, partial(write_prophesee, encoding="evt2")),
    ".dat": Format(read_dat, partial(write_prophesee, encoding="dat")),
    ".aedat4": Format(read_aedat4, write_aedat4),
}
