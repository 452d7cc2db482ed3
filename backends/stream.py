"""A live source: coordinates while events come in, on the built-in simulator of a chip.

Only one piece of the recording is binned at a time, however long it is; the simulator keeps its state between
the pieces, and the host's integrator too.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.events import Events, frame_index
from nrf.model.readout import Readout, integrated, positions


@dataclass(frozen=True)
class Reading:
    """Where the shapes are."""

    t: float  # seconds since the start of the recording
    coordinates: NDArray[np.float64]  # (shapes, 2) as (x, y) in pixels


def stream(
    advance: Callable[[NDArray[Any]], NDArray[Any]],
    events: Events,
    dt: float,
    readout: Readout,
    *,
    every: float = 0.02,
    realtime: bool = False,
) -> Iterator[Reading]:
    """One reading per `every` seconds of the recording; `realtime` waits until that time has really passed.

    `advance` takes the frames of the next few steps and gives the output maps (steps, shapes, rows, columns);
    `nrf.stream` makes it from a program.
    """
    integrator: NDArray[np.float64] | float = 0.0
    begun = time.monotonic()
    for end, frames in pieces(events, dt, max(1, round(every / dt))):
        maps = integrated(advance(frames), readout, integrator)
        integrator = maps[-1]
        if realtime:
            time.sleep(max(0.0, begun + end * dt - time.monotonic()))
        yield Reading(end * dt, positions(maps[-1:], readout)[0])


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
