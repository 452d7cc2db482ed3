"""Frames for a network, a graph or a program from the user's files and arrays."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.containers import read_arrays
from nrf.errors import InputError
from nrf.events.files import read
from nrf.events.sensor import Sensor
from nrf.events.types import Events

Source = NDArray[Any] | Events | str | Path


def load_frames(
    source: Source, width: float | None, shape: tuple[int, ...], sensor: str | None = None
) -> NDArray[np.float32]:
    """Frames (T, *shape) of all steps; see `frame_pieces`."""
    return next(frame_pieces(source, width, shape, sensor))


def frame_pieces(
    source: Source,
    width: float | None,
    shape: tuple[int, ...],
    sensor: str | None = None,
    steps: int | None = None,
) -> Iterator[NDArray[np.float32]]:
    """Frames (T, *shape) from an array, a `.npz` file with an array `frames`, or events in bins of `width` s.

    `shape` is what the network expects; axes of 1 do not count, since chips write (4,) as (4, 1, 1). Events
    need (2, rows, columns), their sensor is then (rows, columns). Where `sensor` says what lies between
    camera and network (`nrf.events.sensor`), events pass it, and frames of the camera's own shape do. With
    `steps`, so many at a time: events of any length then need little memory.
    """
    stage = None if sensor is None else Sensor.parse(sensor)
    path = Path(source if isinstance(source, str | Path) else "input")
    ready = source if isinstance(source, np.ndarray) else None
    if path.suffix.lower() == ".npz":
        ready = read_arrays(path).get("frames")
    if stage is not None and stage.shape != tuple(shape):
        raise InputError(f"the sensor '{sensor}' gives {stage.shape}, the input takes {tuple(shape)}")
    if ready is not None:
        if stage is not None and ready.shape[1:] == (2, *stage.size) != tuple(shape):
            ready = stage.applied(ready)
        if ready.ndim < 2 or len(ready) == 0 or significant(ready.shape[1:]) != significant(shape):
            raise InputError(
                f"{path}: frames have shape {ready.shape}, expected (T, {', '.join(map(str, shape))})"
            )
        for start in range(0, len(ready), steps or len(ready)):
            piece = _real(ready[start : start + (steps or len(ready))], path)
            yield piece.reshape(len(piece), *shape)
        return
    if stage is None and (len(shape) != 3 or shape[0] != 2):
        raise InputError(
            f"{path}: events make frames (T, 2, rows, columns) but the input is {tuple(shape)}; "
            "give a .npz file with an array 'frames'"
        )
    if width is None:
        raise InputError(f"{path}: these are events, and no dt is known to bin them by; give --bin SECONDS")
    size = stage.size if stage else (shape[1], shape[2])
    events = source if isinstance(source, Events) else read(path, sensor=size)
    if events.sensor != size:
        raise InputError(f"{path}: events of a sensor {events.sensor}, the input takes {size}")
    try:
        for piece in events.pieces(width, steps) if steps else [events.frames(width)]:
            yield stage.applied(piece) if stage else piece
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def significant(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _real(frames: NDArray[Any], path: Path) -> NDArray[np.float32]:
    """Frames in single precision, or a clear error if they are not finite numbers."""
    if frames.dtype.kind not in "iubf":
        raise InputError(f"{path}: frames hold {frames.dtype}, expected numbers")
    with np.errstate(over="ignore"):
        single = frames.astype(np.float32)
    finite = np.isfinite(single)
    if not finite.all():
        raise InputError(f"{path}: frames hold {frames[~finite][0]}, expected finite 32-bit numbers")
    return single
