"""Frames for a graph or a program from the user's files."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nrf.errors import InputError
from nrf.event_files import load_npz
from nrf.events import load_frames


def read_frames(
    path: str | Path, dt: float | None, shape: tuple[int, ...], width: float | None = None
) -> NDArray[np.float32]:
    """Frames (T, *shape) from a `.npz` file with an array `frames`, or from events.

    Events are binned at `dt`, the contract's step in seconds. Where the contract has none (neurons that only
    integrate count in steps), `width` says how many seconds a frame takes.
    """
    path = Path(path)
    ready = load_npz(path).get("frames") if path.suffix.lower() == ".npz" else None
    if ready is not None and ready.ndim > 1 and _significant(ready.shape[1:]) == _significant(shape):
        return load_frames(path, 1.0, ready.shape[1:]).reshape(len(ready), *shape)
    if width is not None and dt is not None:
        raise InputError(f"{path}: a step takes {dt:g} s, and so does a frame; leave out --bin")
    if ready is None and width is None and dt is None:
        raise InputError(f"{path}: these are events, and no dt is known to bin them by; give --bin SECONDS")
    if width is not None and not 0 < width < np.inf:
        raise InputError(f"--bin is {width}, expected seconds above 0")
    return load_frames(path, width or dt or 1.0, shape)


def _significant(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without its ones: chips write (4,) as (4, 1, 1)."""
    return tuple(size for size in shape if size != 1)
