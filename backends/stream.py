"""A live source: coordinates while events come in, on the built-in simulator of a chip.

Only one piece of the recording is binned at a time, however long it is; the simulator keeps its state between
the pieces, and the host's integrator too.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.events import Events
from nrf.model.readout import Readout, integrated, positions


@dataclass(frozen=True)
class Reading:
    """Where the shapes are."""

    t: float  # seconds since the start of the recording
    coordinates: NDArray[np.float64]  # (shapes, 2) as (x, y) in pixels


def stream(
    advance: Callable[[NDArray[Any]], Sequence[NDArray[Any]]],
    events: Events,
    dt: float,
    readout: Readout,
    *,
    every: float = 0.02,
    realtime: bool = False,
) -> Iterator[Reading]:
    """One reading per `every` seconds of the recording; `realtime` waits until that time has really passed.

    `advance` takes the frames of the next few steps and gives the maps (steps, shapes, rows, columns) of each
    output; `nrf.stream` makes it from a program. The shapes of all outputs follow each other.
    """
    state: list[Any] = []  # of every output's integrator
    begun = time.monotonic()
    end = 0
    for frames in events.pieces(dt, max(1, round(every / dt))):
        end += len(frames)
        given = advance(frames)
        before = state or [0.0] * len(given)
        state = [integrated(maps, readout, v)[-1] for maps, v in zip(given, before, strict=True)]
        if realtime:
            time.sleep(max(0.0, begun + end * dt - time.monotonic()))
        yield Reading(end * dt, np.concatenate([positions(each[None], readout)[0] for each in state]))
