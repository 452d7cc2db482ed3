"""Synthetic clips: contours of a triangle, a square and a circle that drift over the sensor.

    I[t](y, x)  intensity: the contours at 8 times the resolution, downsampled bilinearly
    v[t] = v[t-1] + I[t] - I[t-1]                      v[0] uniform in (-threshold, threshold)
    an event of polarity sign(v) where |v| > threshold, then v <- v - sign(v) threshold

At most one event per pixel and step, as an event camera's pixel that is read once per step.
Background noise: each pixel and step has one more event, of either polarity, with probability `noise`.

A shape keeps its orientation and only moves, so it is drawn once, 8 times larger and already filtered
with the tent of the bilinear downsampling; each step then reads that picture at the sub-pixel place.
Coordinates are (x, y) in pixels, and whole numbers are pixel centres.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, cos, pi, tau
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter1d

from nrf.errors import InputError
from nrf.events.types import MAX_SIDE, Events, make
from nrf.training.ranges import Range, check

Floats = NDArray[np.float32]
CORNERS = {"triangle": 3, "square": 4, "circle": 0}
MAX_CLIP_BYTES = 4 * 2**30  # while a clip is made; beyond this, a size is surely not what was meant
RANGES = {
    "resolution": Range(1, MAX_SIDE),
    "scales": Range(0, MAX_SIDE, above=True),
    "velocities": Range(0, 1e6),
    "steps": Range(1, 10**9),
    "dt": Range(1e-6, 3600),
    "noise": Range(0, 1),
    "threshold": Range(0, 1e6, above=True),
    "line": Range(0, 1e6),
    "supersampling": Range(1, 10**6),
}


@dataclass(frozen=True)
class ShapesConfig:
    """What a clip shows. Each clip draws one of the scales and one of the velocities.

    >>> clip(seed=1, config=ShapesConfig(resolution=64, scales=(16.0,))).frames().shape
    (50, 2, 64, 64)
    """

    resolution: int = 300  # pixels, rows and columns
    shapes: tuple[str, ...] = ("triangle", "square", "circle")
    scales: tuple[float, ...] = (10.0, 20.0, 40.0, 80.0)  # pixels: diameter of the circle, side of the others
    velocities: tuple[float, ...] = (0.64,)  # pixels per step, in a random direction
    steps: int = 50
    dt: float = 1e-3  # seconds per step
    noise: float = 0.005  # probability of a background event per pixel and step
    threshold: float = 0.5  # change of intensity per event; contours are 1, the background 0
    line: float = 1.0  # pixels, width of the contour; 0 draws filled shapes, whose edges make the events
    supersampling: int = 8
    rotate: bool = True  # draw a fixed random orientation, else all shapes are upright

    def __post_init__(self) -> None:
        for shape in self.shapes:
            if shape not in CORNERS:
                raise InputError(f"shapes: '{shape}' is not known; choose from {', '.join(CORNERS)}")
        for name in ("shapes", "scales", "velocities"):
            if not getattr(self, name):
                raise InputError(f"shapes: {name} is empty, expected at least one")
        check(self, RANGES, "shapes: ")
        if abs(self.dt * 1e6 - round(self.dt * 1e6)) > 1e-6:
            raise InputError(f"shapes: dt is {self.dt} s, expected a whole number of microseconds")
        largest = 2 * max(circumradius(shape, max(self.scales)) for shape in self.shapes)
        if largest >= self.resolution - 1:
            raise InputError(
                f"shapes: a shape of scale {max(self.scales)} is {largest:.0f} px across and does not fit "
                f"{self.resolution}x{self.resolution} px; use smaller scales or a larger resolution"
            )
        if (needed := self._bytes(largest)) > MAX_CLIP_BYTES:
            raise InputError(
                f"shapes: a clip of {self.steps} steps on {self.resolution}x{self.resolution} px, drawn "
                f"{self.supersampling} times larger, takes about {needed / 2**30:.3g} GiB to make, "
                f"the limit is {MAX_CLIP_BYTES / 2**30:.0f}; lower resolution, steps, line or supersampling"
            )

    def _bytes(self, largest: float) -> float:
        """Roughly what making a clip takes: the scene twice and where it changes, noise, enlarged shapes."""
        scene = (self.steps + 1) * (self.resolution + 2 * self.line + 12) ** 2  # pixels
        stamp = ((largest + 2 * self.line + 8) * self.supersampling) ** 2  # fine pixels
        return scene * (10 + 64 * self.noise) + stamp * 4 * (2 * len(self.shapes) + 5)


@dataclass(frozen=True)
class Clip:
    """A clip and its labels."""

    events: Events
    coordinates: Floats  # (steps, shapes, 2), centre of each shape as (x, y) in pixels
    scale: float  # pixels
    velocity: float  # pixels per step
    config: ShapesConfig
    signal: int  # number of events that the shapes made; the others are noise

    def frames(self, dtype: Any = np.float32) -> NDArray[Any]:
        """Frames (steps, 2, resolution, resolution) of 0 and 1."""
        return self.events.frames(self.config.dt, steps=self.config.steps, binary=True, dtype=dtype)


def clip(seed: int | Sequence[int], config: ShapesConfig) -> Clip:
    """The clip that belongs to `seed`: the same in every process and whatever was drawn before it."""
    rng = np.random.default_rng(seed)
    scale = float(rng.choice(config.scales))
    velocity = float(rng.choice(config.velocities))
    tracks, orientations = motion(rng, config, scale, velocity)
    scene = intensity(config, scale, tracks, orientations)
    step, place, polarity = changes(rng, scene, config.threshold)
    signal = len(step)
    if config.noise:
        step, place, polarity = add_noise(rng, config, step, place, polarity)
    row, column = np.divmod(place, config.resolution)
    unit = round(config.dt * 1e6)  # microseconds
    size = (config.resolution, config.resolution)
    events = make(step * unit, column, row, polarity, size, start=0, stop=config.steps * unit, empty=True)
    return Clip(events, tracks[1:].astype(np.float32), scale, velocity, config, signal)


def motion(
    rng: np.random.Generator, config: ShapesConfig, scale: float, velocity: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Centres (steps + 1, shapes, 2) in pixels and orientations in radians.

    Uniform start, uniform direction, constant speed; the shape turns back where it touches the border.
    """
    shapes = len(config.shapes)
    start = rng.random((shapes, 2))
    direction = rng.random(shapes) * tau
    orientation = rng.random(shapes) * tau * config.rotate
    margin = np.array([circumradius(shape, scale) for shape in config.shapes])[:, None]
    room = config.resolution - 1 - 2 * margin
    speed = velocity * np.stack([np.cos(direction), np.sin(direction)], axis=-1)
    path = start * room + speed * np.arange(config.steps + 1)[:, None, None]
    folded = room - np.abs(path % (2 * room) - room)
    return margin + folded, orientation


def circumradius(shape: str, scale: float) -> float:
    """Radius in pixels of the circle around a shape of this scale."""
    corners = CORNERS[shape]
    return scale / 2 if corners == 0 else scale / 2 / float(np.sin(pi / corners))


def stamp(config: ShapesConfig, shape: str, scale: float, orientation: float) -> tuple[Floats, int]:
    """The shape at `supersampling` times the resolution, filtered for bilinear downsampling.

    Returns the picture and its half width in pixels; its centre is the centre of the shape.
    """
    fine = config.supersampling
    radius = circumradius(shape, scale)
    corners = CORNERS[shape]
    half = ceil(
        radius + config.line + 4
    )  # the tent reaches one pixel; the rest is for reading between pixels
    axis = ((np.arange(2 * half * fine) + 0.5) / fine - half).astype(np.float32)
    y, x = axis[:, None], axis[None, :]
    if corners == 0:
        distance = np.sqrt(x**2 + y**2) - np.float32(radius)
    else:
        normals = orientation + tau * np.arange(corners) / corners
        sides = [x * np.float32(np.cos(a)) + y * np.float32(np.sin(a)) for a in normals]
        distance = sides[0]
        for side in sides[1:]:
            distance = np.maximum(distance, side)
        distance = distance - np.float32(radius * cos(pi / corners))
    inside = config.line / 2 - np.abs(distance) if config.line else -distance
    picture = np.clip(inside * fine + 0.5, 0, 1).astype(np.float32)
    # Two boxes of one pixel make the tent. An even box has no middle: one leans left, the other right.
    for direction, origin in product((0, 1), (0, 0 if fine % 2 else -1)):
        picture = uniform_filter1d(picture, fine, axis=direction, mode="constant", origin=origin)
    return picture, half


def intensity(
    config: ShapesConfig, scale: float, tracks: NDArray[np.float64], orientations: NDArray[np.float64]
) -> Floats:
    """Intensity (steps + 1, resolution, resolution) of all shapes; where they cross, the brighter wins."""
    fine = config.supersampling
    stamps = [stamp(config, s, scale, a) for s, a in zip(config.shapes, orientations, strict=True)]
    border = ceil(config.line) + 6  # shapes stay inside the sensor, but what is read around them may not
    side = config.resolution + 2 * border
    scene = np.zeros((len(tracks), side, side), np.float32)
    for index, (picture, half) in enumerate(stamps):
        # comb[i, j] is the picture as a sensor sees it whose pixels lie at fine place (i, j) modulo `fine`
        comb = picture.reshape(2 * half, fine, 2 * half, fine).transpose(1, 3, 0, 2).copy()
        width = 2 * half - 2  # pixels that are read; the picture goes on so that one can interpolate
        corner = np.floor(tracks[:, index]).astype(int) - half + 2  # (x, y) of the first pixel read
        place = (corner - tracks[:, index] + half) * fine - 0.5  # where it lies in the picture, fine pixels
        whole = np.floor(place).astype(int)
        part = (place - whole).astype(np.float32)
        for frame, ((left, top), (x, y), (right, down)) in enumerate(
            zip((corner + border).tolist(), whole.tolist(), part, strict=True)
        ):
            window = _read(comb, y, x, width) * ((1 - down) * (1 - right))
            window += _read(comb, y, x + 1, width) * ((1 - down) * right)
            window += _read(comb, y + 1, x, width) * (down * (1 - right))
            window += _read(comb, y + 1, x + 1, width) * (down * right)
            target = scene[frame, top : top + width, left : left + width]
            np.maximum(target, window, out=target)
    return scene[:, border : border + config.resolution, border : border + config.resolution]


def _read(comb: Floats, y: int, x: int, width: int) -> Floats:
    """Every `fine`-th pixel of the picture from fine place (y, x) on, `width` in each direction."""
    (row, i), (column, j) = divmod(y, len(comb)), divmod(x, len(comb))
    return comb[i, j, row : row + width, column : column + width]


def changes(
    rng: np.random.Generator, scene: Floats, threshold: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Integrate the differences of consecutive frames: step, flat pixel and polarity of every event."""
    steps = len(scene) - 1
    flat = scene.reshape(steps + 1, -1)
    touched = np.flatnonzero((flat != flat[0]).any(axis=0))
    difference = np.diff(flat[:, touched], axis=0)
    # Where the pixel stands between two events is not known: any place is as likely.
    state = (rng.random(scene[0].size, np.float32)[touched] * 2 - 1) * np.float32(threshold)
    emitted = np.zeros(difference.shape, np.int8)
    for step in range(steps):
        state += difference[step]
        sign = (state > threshold).astype(np.int8) - (state < -threshold)
        state -= np.float32(threshold) * sign
        emitted[step] = sign
    step_index, pixel = np.nonzero(emitted)
    return step_index, touched[pixel], (emitted[step_index, pixel] > 0).astype(np.int64)


def add_noise(
    rng: np.random.Generator,
    config: ShapesConfig,
    step: NDArray[np.int64],
    place: NDArray[np.int64],
    polarity: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Merge Bernoulli noise into the events, sorted by step; an event that is there already stays one."""
    pixels = config.resolution**2
    count = rng.binomial(config.steps * pixels, config.noise)
    noisy = rng.choice(config.steps * pixels, count, replace=False, shuffle=False)
    own = (step * pixels + place) * 2 + polarity
    both = np.unique(np.concatenate([own, noisy * 2 + rng.integers(0, 2, count)]))
    step_place, polarity = np.divmod(both, 2)
    return *np.divmod(step_place, pixels), polarity
