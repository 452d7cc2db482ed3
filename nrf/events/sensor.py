"""The stage between a camera and a network: polarities merged, a part cut out, mirrored. Speck has one.

    128x128,merge,crop=32:96:32:96,flip=x     rows x columns of the camera; top:bottom:left:right; x, y or xy

The order is that of the list, as in Sinabs' DVSLayer; sum pooling is left to the graph.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.errors import InputError

GRAMMAR = "expected ROWSxCOLUMNS[,merge][,crop=TOP:BOTTOM:LEFT:RIGHT][,flip=x|y|xy]"


@dataclass(frozen=True)
class Sensor:
    """A camera, and what happens to its events before they reach the network."""

    size: tuple[int, int]  # rows, columns of the camera
    merge: bool  # one channel for both polarities
    crop: tuple[int, int, int, int]  # top, bottom, left, right in pixels; bottom and right exclusive
    flip: str  # "", "x" (left and right), "y" or "xy", after the crop

    @classmethod
    def parse(cls, text: str) -> "Sensor":
        """From its text.

        >>> Sensor.parse("128x128,merge,crop=0:64:32:96").shape
        (1, 64, 64)
        """
        size, *rest = text.split(",")
        given = {key: value for key, _, value in (part.partition("=") for part in rest)}
        try:
            rows, columns = map(int, size.split("x"))
            crop = given.pop("crop", f"0:{rows}:0:{columns}")
            top, bottom, left, right = map(int, crop.split(":"))
            merge, flip = given.pop("merge", None), given.pop("flip", "")
        except ValueError as error:
            raise InputError(f"sensor is '{text}', {GRAMMAR}") from error
        if given or merge not in (None, "") or flip not in ("", "x", "y", "xy"):
            raise InputError(f"sensor is '{text}', {GRAMMAR}")
        if not (0 <= top < bottom <= rows and 0 <= left < right <= columns):
            raise InputError(
                f"sensor is '{text}': crop {crop} does not lie within {rows} rows x {columns} columns"
            )
        return cls((rows, columns), merge is not None, (top, bottom, left, right), flip)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, rows, columns) of what the network gets."""
        top, bottom, left, right = self.crop
        return 1 if self.merge else 2, bottom - top, right - left

    def applied(self, frames: NDArray[Any]) -> NDArray[Any]:
        """Frames (T, 2, rows, columns) of the camera as the network gets them, (T, *shape)."""
        top, bottom, left, right = self.crop
        if self.merge:
            frames = frames.sum(axis=1, keepdims=True)
        frames = frames[:, :, top:bottom, left:right]
        axes = tuple(axis for axis, name in ((2, "y"), (3, "x")) if name in self.flip)
        return np.ascontiguousarray(np.flip(frames, axes))
