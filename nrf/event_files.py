"""Event files: one reader, and where it makes sense one writer, per format.

    .npz          arrays t, x, y, p; optional sensor (rows, columns), start, stop
    .csv          header with t,x,y,p in any order; optional first line "# sensor=RxC start=S stop=S"
    .h5 .hdf5     datasets t, x, y, p at the root or in a group `events`; attributes as in .npz
    .raw .dat     Prophesee EVT2, EVT3 and DAT, through expelliarmus
    .aedat4       iniVation, through aedat (reading only)

The first three count time from 0 unless they say otherwise; the cameras' formats from the first event.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.errors import InputError
from nrf.events import Events, make
from nrf.files import whole_file

COLUMNS = ("t", "x", "y", "p")
Sensor = tuple[int, int] | None


def read(path: str | Path, sensor: Sensor = None) -> Events:
    """Read an event file; the ending chooses the format. `sensor` (rows, columns) overrides the file's."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: unknown ending '{path.suffix}'; known are {' '.join(READERS)}")
    return reader(path, sensor)


def write(path: str | Path, events: Events) -> None:
    """Write an event file; the ending chooses the format."""
    writer = WRITERS.get(Path(path).suffix.lower())
    if writer is None:
        raise InputError(f"{path}: cannot write '{Path(path).suffix}'; known are {' '.join(WRITERS)}")
    with whole_file(path) as part:
        writer(part, events)


def _from_mapping(path: Path, columns: Mapping[str, Any], extra: Mapping[str, Any], sensor: Sensor) -> Events:
    missing = [name for name in COLUMNS if name not in columns]
    if missing:
        raise InputError(
            f"{path}: no column {', '.join(missing)}; expected t, x, y, p, found {list(columns)}"
        )
    if sensor is None and "sensor" in extra:
        rows, width = np.asarray(extra["sensor"]).tolist()
        sensor = (int(rows), int(width))
    start, stop = (int(extra[name]) if name in extra else None for name in ("start", "stop"))
    t, x, y, p = (np.asarray(columns[name]) for name in COLUMNS)
    return make(t, x, y, p, sensor, start=start, stop=stop, where=str(path), empty=True)


def _read_npz(path: Path, sensor: Sensor) -> Events:
    try:
        with np.load(path, allow_pickle=False) as archive:
            content: dict[str, NDArray[Any]] = {name: archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError) as error:
        raise InputError(f"{path}: not a readable .npz file: {error}") from error
    return _from_mapping(path, content, content, sensor)


def _write_npz(path: Path, events: Events) -> None:
    columns = {name: events.data[name] for name in COLUMNS}
    with path.open("wb") as file:
        np.savez_compressed(
            file,
            allow_pickle=False,
            **columns,
            sensor=np.array(events.sensor),
            start=events.start,
            stop=events.stop,
        )


READERS: dict[str, Callable[[Path, Sensor], Events]] = {".npz": _read_npz}
WRITERS: dict[str, Callable[[Path, Events], None]] = {".npz": _write_npz}
