"""A live source: coordinates while events come in, on the built-in simulator of a chip.

A chip's package offers `session(program)`: a function that takes the frames of the next few steps, gives the
output maps (steps, shapes, rows, columns), and goes on where it ended. Only one piece of the recording is
binned at a time, however long it is.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.errors import InputError
from nrf.events import Events, frame_index
from nrf.model.readout import Readout, coordinates

Session = Callable[[NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True)
class Reading:
    """Where the shapes are."""

    t: float  # seconds since the start of the recording
    coordinates: NDArray[np.float64]  # (shapes, 2) as (x, y) in pixels


def stream(
    session: Session,
    events: Events,
    dt: float,
    readout: Readout,
    *,
    every: float = 0.02,
    realtime: bool = False,
) -> Iterator[Reading]:
    """One reading per `every` seconds of the recording; `realtime` waits until that time has really passed.

    >>> for reading in stream(session(program), read("events.raw"), 1e-3, program.contract.readout):
    ...     print(reading.t, reading.coordinates)
    """
    integrator = np.zeros(())
    begun = time.monotonic()
    for end, frames in pieces(events, dt, max(1, round(every / dt))):
        maps = session(frames).astype(np.float64)
        integrator = np.broadcast_to(integrator, maps.shape[1:])
        for step in maps:  # the host's leaky integrator, see nrf.model.readout
            integrator = integrator + readout.leak * (step - integrator)
        if realtime:
            time.sleep(max(0.0, begun + end * dt - time.monotonic()))
        yield Reading(end * dt, coordinates(integrator[None], replace(readout, leak=1.0))[0])


def pieces(events: Events, dt: float, steps: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The recording in frames (steps, 2, rows, columns) of counts, each after the step where it ends."""
    index = frame_index(events.data["t"], events.start, dt)
    total = int(frame_index(np.array([max(events.stop, events.start + 1) - 1]), events.start, dt)[0]) + 1
    for start in range(0, total, steps):
        stop = min(start + steps, total)
        first, last = np.searchsorted(index, [start, stop])
        data = events.data[first:last]
        frames = np.zeros((stop - start, 2, *events.sensor), np.int64)
        np.add.at(frames, (index[first:last] - start, data["p"], data["y"], data["x"]), 1)
        yield stop, frames


def readings(
    path: str | Path,
    source: str | Path,
    *,
    target: str | None = None,
    every: float = 0.02,
    realtime: bool = False,
) -> Iterator[Reading]:
    """The same from a program file and an event file.

    >>> next(readings("model.speck2f", "events.raw")).coordinates
    array([[31.2, 17.9], [12.0, 40.4], [50.3, 30.8]])
    """
    from nrf.backends import backend_of
    from nrf.backends.execute import is_graph, target_of
    from nrf.events import read

    if is_graph(path):
        raise InputError(f"{path}: a graph, not a program; lower it first, or give --out to run it in float")
    backend = backend_of(target_of(path, target))
    program = backend.load(path)
    readout, dt = program.contract.readout, program.contract.dt
    if readout is None or dt is None:
        raise InputError(
            f"{path}: its contract has no {'dt' if readout else 'readout'}, needed for coordinates"
        )
    _, rows, columns = program.input_shape
    events = read(source, sensor=(rows, columns))
    return stream(backend.session(program), events, dt, readout, every=every, realtime=realtime)
