"""Events of a camera: time, pixel, polarity; and how they become frames.

    frames[k, p, y, x] = number of events with  start + k dt <= t < start + (k + 1) dt

Time is in microseconds, as integers; x is the column, y the row, p is 0 (darker) or 1 (brighter).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nrf.arrays import Int64s
from nrf.errors import InputError
from nrf.files import require_memory

DTYPE = np.dtype([("t", "<i8"), ("x", "<u2"), ("y", "<u2"), ("p", "u1")])
COLUMNS = ("t", "x", "y", "p")
Named = Mapping[str, Any]
Content = tuple[Named, Named]  # of a file: its columns, and what it says of sensor, start and stop
MAX_TIME = 2**62  # microseconds; differences of two times then fit 64 bits
BYTES = 48  # of memory that reading takes per event
MAX_SIDE = 2**16  # rows or columns; both are 16-bit numbers


@dataclass(frozen=True, eq=False)
class Events:
    """A stream of events, sorted by time, inside its sensor and its span of time.

    >>> events = make(t=[0, 1500], x=[3, 4], y=[0, 0], p=[1, 0], sensor=(8, 8))
    >>> events.frames(dt=1e-3).shape
    (2, 2, 8, 8)
    """

    data: NDArray[Any]  # structured, DTYPE
    sensor: tuple[int, int]  # rows, columns
    start: int  # microseconds, where the first frame begins
    stop: int  # microseconds, end of the recording (exclusive)

    def __len__(self) -> int:
        return len(self.data)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Events):
            return NotImplemented
        spans = [(each.sensor, each.start, each.stop) for each in (self, other)]
        return spans[0] == spans[1] and np.array_equal(self.data, other.data)

    __hash__ = None  # type: ignore[assignment]

    def frames(
        self, dt: float, *, steps: int | None = None, binary: bool = False, dtype: Any = np.float32
    ) -> NDArray[Any]:
        """Bin to frames (T, 2, rows, columns) of `dt` seconds: event counts, or 0 and 1 if `binary`.

        `steps` fixes T: later events are left out, missing ones are empty frames.
        """
        index = frame_index(self.data["t"], self.start, dt)
        steps = self._frame_count(dt) if steps is None else steps
        rows, columns = self.sensor
        needed = steps * 2 * rows * columns * np.dtype(dtype).itemsize
        span = f"from {self.start} to {self.stop} us"
        frames_of = f"{steps} frames of 2x{rows}x{columns} {span} with dt = {dt} s"
        require_memory("events", needed, frames_of, "use a larger dt, fewer steps or a later start, or")
        return self._binned(index, 0, steps, binary, dtype)

    def pieces(self, dt: float, steps: int) -> Iterator[NDArray[np.float32]]:
        """The same frames, so many at a time."""
        index, total = frame_index(self.data["t"], self.start, dt), self._frame_count(dt)
        for first in range(0, total, steps):
            yield self._binned(index, first, min(steps, total - first))

    def _frame_count(self, dt: float) -> int:
        last = np.array([max(self.stop, self.start + 1) - 1])
        return int(frame_index(last, self.start, dt)[0]) + 1

    def _binned(
        self, index: Int64s, first: int, steps: int, binary: bool = False, dtype: Any = np.float32
    ) -> NDArray[Any]:
        """So many frames from `first` on; `index` is the frame of each event."""
        rows, columns = self.sensor
        frames = np.zeros((steps, 2, rows, columns), dtype)
        part = slice(*np.searchsorted(index, [first, first + steps]))
        data = self.data[part]
        flat = (((index[part] - first) * 2 + data["p"]) * rows + data["y"]) * columns + data["x"]
        if binary:
            frames.reshape(-1)[flat] = 1
        else:
            np.add.at(frames.reshape(-1), flat, 1)
        return frames


def make(
    t: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    p: ArrayLike,
    sensor: tuple[int, int] | None = None,
    *,
    start: int | None = None,
    stop: int | None = None,
    where: str = "events",
) -> Events:
    """Check columns and put them together. Without `sensor`, the smallest that holds all events.

    `start` is 0 unless given; `stop` is just after the last event. `where` names the source in errors.
    No events at all is an error unless `sensor` and `stop` are given.
    """
    given = zip(COLUMNS, (t, x, y, p), strict=True)
    columns = {name: _whole_numbers(column, name, where) for name, column in given}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) != 1:
        raise InputError(f"{where}: the columns have different lengths {lengths}")
    require_memory(where, BYTES * lengths["t"], f"its {lengths['t']:,} events")
    for name, value in (("start", start), ("stop", stop)):
        if value is not None and abs(value) > MAX_TIME:
            raise InputError(f"{where}: {name} is {value} us, expected at most 2^62")
    if lengths["t"] == 0:
        if sensor is not None and stop is not None:
            return Events(np.empty(0, DTYPE), sensor, start or 0, stop)
        raise InputError(f"{where}: holds no events")
    time = columns["t"]
    if len(backwards := np.flatnonzero(np.diff(time) < 0)):
        at = int(backwards[0]) + 1
        raise InputError(
            f"{where}: time goes back at event {at}, from {time[at - 1]} to {time[at]} us; sort by t first"
        )
    polarity = np.where(columns["p"] == -1, 0, columns["p"])
    if len(strange := polarity[(polarity != 0) & (polarity != 1)]):
        raise InputError(f"{where}: polarity {strange[0]}, expected 0 or 1")
    column, row = columns["x"], columns["y"]
    rows, width = (row.max() + 1, column.max() + 1) if sensor is None else sensor
    sensor = int(rows), int(width)
    if max(sensor) > MAX_SIDE:
        raise InputError(
            f"{where}: a sensor of {sensor[1]} columns x {sensor[0]} rows; at most {MAX_SIDE} of each fit"
        )
    outside = (row < 0) | (row >= sensor[0]) | (column < 0) | (column >= sensor[1])
    if outside.any():
        at = int(np.flatnonzero(outside)[0])
        raise InputError(
            f"{where}: event {at} is at x={column[at]}, y={row[at]}, outside the sensor of "
            f"{sensor[1]} columns x {sensor[0]} rows"
        )
    start = 0 if start is None else int(start)
    if time[0] < start:
        raise InputError(f"{where}: first event at {time[0]} us, before the start at {start} us")
    stop = int(time[-1]) + 1 if stop is None else int(stop)
    if time[-1] >= stop:
        raise InputError(f"{where}: last event at {time[-1]} us, not before the end at {stop} us")
    data = np.empty(len(time), DTYPE)
    data["t"], data["x"], data["y"], data["p"] = time, column, row, polarity
    return Events(data, sensor, start, stop)


def _whole_numbers(column: ArrayLike, name: str, where: str) -> Int64s:
    """A column as 64-bit integers, or a clear error."""
    try:
        values = np.asarray(column)
    except ValueError as error:
        raise InputError(f"{where}: column {name} is not a list of numbers ({error})") from error
    if values.ndim != 1:
        raise InputError(f"{where}: column {name} has shape {values.shape}, expected one dimension")
    if values.dtype.kind not in "iubf":
        raise InputError(f"{where}: column {name} holds {values.dtype}, expected whole numbers")
    if values.dtype.kind == "f" and not bool((values == np.rint(values)).all()):
        raise InputError(f"{where}: column {name} is not made of whole numbers")
    if len(values) and max(values.max().item(), -values.min().item()) > MAX_TIME:
        raise InputError(f"{where}: column {name} reaches {values.min()} to {values.max()}, beyond 2^62")
    return values.astype(np.int64)


def frame_index(t: NDArray[Any], start: int, dt: float) -> Int64s:
    """The frame that each time (microseconds) falls into; exact when dt is a whole number of them."""
    width = dt * 1e6
    if not 0 < width < math.inf:
        raise InputError(f"dt is {dt} s, expected more than 0")
    since = t.astype(np.int64) - start
    whole = round(width)
    if whole >= 1 and abs(width - whole) < 1e-6 * width:
        return since // whole
    index = np.floor(since / width)
    if len(index) and np.abs(index).max() > MAX_TIME:
        raise InputError(f"dt is {dt} s, too short to count the steps of {since.max()} us; use a larger dt")
    return index.astype(np.int64)
