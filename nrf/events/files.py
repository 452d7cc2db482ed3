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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.containers import read_arrays, read_hdf5
from nrf.errors import InputError
from nrf.events.cameras import read_aedat4, read_dat, read_raw, write_aedat4, write_dat, write_raw
from nrf.events.types import COLUMNS, Content, Events, Named, make
from nrf.files import atomic_write, input_file, require_memory

Format = tuple[Callable[[Path], Content], Callable[[Path, Events], None]]  # reader and writer


def read(path: str | Path, sensor: tuple[int, int] | None = None) -> Events:
    """Read an event file; the ending chooses the format.

    `sensor` (rows, columns) is for files that do not state it; one that states another is refused.
    """
    path = input_file(path)
    try:
        columns, about = _format(path)[0](path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    return from_columns(path, columns, about, sensor)


def write(path: str | Path, events: Events) -> None:
    """Write an event file; the ending chooses the format."""
    write_part = _format(Path(path))[1]
    with atomic_write(path) as part:
        try:
            write_part(part, events)
        except InputError as error:
            raise InputError(str(error).replace(str(part), str(path))) from error


def _format(path: Path) -> Format:
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: unknown ending '{path.suffix}'; known are {' '.join(FORMATS)}")
    return FORMATS[path.suffix.lower()]


def from_columns(path: Path, columns: Named, about: Named, sensor: tuple[int, int] | None = None) -> Events:
    """Events from named columns and what the file says about sensor, start and stop."""
    if missing := [name for name in COLUMNS if name not in columns]:
        raise InputError(f"{path}: no {', '.join(missing)}; expected t, x, y, p, found {list(columns)}")
    if "sensor" in about:
        rows, width = _whole(path, "sensor", about["sensor"], 2)
        if min(rows, width) < 1:
            raise InputError(f"{path}: sensor is {rows} rows x {width} columns, expected at least 1 x 1")
        if sensor not in (None, (rows, width)):
            raise InputError(
                f"{path}: recorded with {width} columns x {rows} rows, "
                f"expected {sensor[1]} columns x {sensor[0]} rows"
            )
        sensor = rows, width
    span = {name: _whole(path, name, about[name])[0] for name in ("start", "stop") if name in about}
    t, x, y, p = (columns[name] for name in COLUMNS)
    return make(t, x, y, p, sensor, start=span.get("start"), stop=span.get("stop"), where=str(path))


def _whole(path: Path, name: str, value: Any, count: int = 1) -> list[int]:
    """So many whole numbers from what a file says, or a clear error."""
    numbers = np.ravel(np.asarray(value)).tolist()
    if len(numbers) != count or not all(isinstance(n, int | float) and n == n // 1 for n in numbers):
        wanted = (
            "two whole numbers, rows and columns" if name == "sensor" else "a whole number of microseconds"
        )
        raise InputError(f"{path}: {name} is {reprlib.repr(numbers)}, expected {wanted}")
    return [int(number) for number in numbers]


def _read_npz(path: Path) -> Content:
    content = read_arrays(path)
    return content, content


def to_arrays(events: Events) -> dict[str, NDArray[Any]]:
    """What a .npz file of events holds."""
    extra = {"sensor": events.sensor, "start": events.start, "stop": events.stop}
    columns = {name: events.data[name] for name in COLUMNS}
    return columns | {name: np.asarray(value) for name, value in extra.items()}


def _write_npz(path: Path, events: Events) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **to_arrays(events))


def _read_csv(path: Path) -> Content:
    about: dict[str, Any] = {}
    try:
        with path.open(encoding="utf-8-sig") as file:  # spreadsheets put a byte order mark first
            line = file.readline()
            while line.startswith("#"):
                name, *values = line[1:].split() or [""]
                if name in ("sensor", "start", "stop"):  # anything else is a remark
                    about[name] = [int(v) if v.lstrip("-").isdecimal() else v for v in values]
                line = file.readline()
            header = [name.strip() for name in line.split(",")]
            require_memory(path, 12 * path.stat().st_size, "its lines")
            lines = [line for line in file.read().splitlines() if line.strip()]
        table = np.loadtxt(lines, delimiter=",", ndmin=2) if lines else np.empty((0, len(header)))
    except ValueError as error:  # of which not being UTF-8 is one
        raise InputError(f"{path}: not a readable .csv file ({error})") from error
    if table.shape[1] != len(header):
        raise InputError(f"{path}: the header names {len(header)} columns, the lines have {table.shape[1]}")
    return dict(zip(header, table.T, strict=True)), about


def _write_csv(path: Path, events: Events) -> None:
    rows, columns = events.sensor
    about = f"# sensor {rows} {columns}\n# start {events.start}\n# stop {events.stop}\n"
    table = np.stack([events.data[name].astype(np.int64) for name in COLUMNS], axis=1)
    with path.open("w") as file:
        np.savetxt(file, table, "%d", ",", header=about + ",".join(COLUMNS), comments="")


def _read_hdf5(path: Path) -> Content:
    tree, attributes = read_hdf5(path)
    inside = next((name for name in ("events", "CD/events", "") if _at(tree, name) is not None), "")
    columns = _at(tree, inside)
    names = columns if isinstance(columns, dict) else np.asarray(columns).dtype.names or ()
    found = {name: columns[name] for name in COLUMNS if name in names}
    for name, column in found.items():
        if isinstance(column, dict):
            raise InputError(f"{path}: /{inside}/{name} is a group, expected a dataset")
    return found, attributes[inside]


def _at(tree: Any, name: str) -> Any:
    """What a tree holds at a name such as "CD/events", or None."""
    for part in name.split("/") if name else ():
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


def _write_hdf5(path: Path, events: Events) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        group = file.create_group("events")
        for name, value in to_arrays(events).items():
            if name in COLUMNS:
                group.create_dataset(name, data=value, compression="gzip", shuffle=True)
            else:
                group.attrs[name] = value


FORMATS: dict[str, Format] = {
    ".npz": (_read_npz, _write_npz),
    ".csv": (_read_csv, _write_csv),
    ".h5": (_read_hdf5, _write_hdf5),
    ".hdf5": (_read_hdf5, _write_hdf5),
    ".raw": (read_raw, write_raw),
    ".dat": (read_dat, write_dat),
    ".aedat4": (read_aedat4, write_aedat4),
}
