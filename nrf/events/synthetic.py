"""Synthetic clips: contours of a triangle, a square and a circle that drift over the sensor.

    I[t](y, x)  intensity: the contours at 8 times the resolution, downsampled bilinearly
    v[t] = v[t-1] + I[t] - I[t-1]                      v[0] uniform in (-threshold, threshold)
    an event of polarity sign(v) where |v| > threshold, then v <- v - sign(v) threshold

At most one event per pixel and step, as an event camera's pixel that is read once per step.
Background noise: each pixel and step has one more event, of either polarity, with probability `noise`.

A shape keeps its orientation and only moves, so it is drawn once, 8 times larger and already filtered
with the tent of the bilinear downsampling; each step then reads that picture at the sub-pixel position.
Coordinates are (x, y) in pixels, and whole numbers are pixel centres.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, cos, pi, tau
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from nrf.arrays import Float32s, Floats
from nrf.config import ConfigError, Section
from nrf.events.types import MAX_SIDE, Events, make

FlatEvents = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]  # step, flat pixel, polarity
Scale = Annotated[float, Meta(gt=0, le=MAX_SIDE)]  # pixels: diameter of the circle, side of the others
Velocity = Annotated[float, Meta(ge=0, le=1e6)]  # pixels per step
Shape = Literal["triangle", "square", "circle"]
CORNERS: dict[Shape, int] = {"triangle": 3, "square": 4, "circle": 0}
MAX_CLIP_BYTES = 4 * 2**30  # while a clip is made; beyond this, a size is surely not what was meant


class SyntheticConfig(Section, frozen=True):
    """What a clip shows. Each clip draws one of the scales and one of the velocities.

    >>> clip(seed=1, config=SyntheticConfig(resolution=64, scales=(16.0,))).frames().shape
    (50, 2, 64, 64)
    """

    resolution: Annotated[int, Meta(ge=1, le=MAX_SIDE)] = 300  # pixels, rows and columns
    shapes: Annotated[tuple[Shape, ...], Meta(min_length=1)] = ("triangle", "square", "circle")
    scales: Annotated[tuple[Scale, ...], Meta(min_length=1)] = (10.0, 20.0, 40.0, 80.0)
    velocities: Annotated[tuple[Velocity, ...], Meta(min_length=1)] = (0.64,)  # in a random direction
    steps: Annotated[int, Meta(ge=1, le=10**9)] = 50
    dt: Annotated[float, Meta(ge=1e-6, le=3600)] = 1e-3  # seconds per step
    noise: Annotated[float, Meta(ge=0, le=1)] = 0.005  # probability of an event per pixel and step
    threshold: Annotated[float, Meta(gt=0, le=1e6)] = 0.5  # change per event; contours are 1, the rest 0
    line: Annotated[float, Meta(ge=0, le=1e6)] = 1.0  # pixels, width of the contour; 0 draws filled shapes
    supersampling: Annotated[int, Meta(ge=1, le=10**6)] = 8
    rotate: bool = True  # draw a fixed random orientation, else all shapes are upright
    angle: Annotated[float, Meta(ge=0, le=360)] = 360.0  # degrees that it is drawn from

    def __post_init__(self) -> None:
        super().__post_init__()
        if abs(self.dt * 1e6 - round(self.dt * 1e6)) > 1e-6:
            raise ConfigError(f"dt is {self.dt} s, expected a whole number of microseconds")
        largest = 2 * max(circumradius(shape, max(self.scales)) for shape in self.shapes)
        if largest >= self.resolution - 1:
            raise ConfigError(
                f"scales reach {max(self.scales)}: the shape is {largest:.0f} px across and does not fit "
                f"{self.resolution}x{self.resolution} px; use smaller scales or a larger resolution"
            )
        if (needed := self._bytes(largest)) > MAX_CLIP_BYTES:
            raise ConfigError(
                f"steps is {self.steps}: a clip of {self.steps} steps on {self.resolution}x{self.resolution} "
                f"px, drawn {self.supersampling} times larger, takes about {needed / 2**30:.3g} GiB to make, "
                f"the limit is {MAX_CLIP_BYTES / 2**30:.0f}; lower resolution, steps, line or supersampling"
            )

    def _bytes(self, largest: float) -> float:
        """Roughly what making a clip takes: the scene twice and where it changes, noise, enlarged shapes."""
        scene = (self.steps + 1) * (self.resolution + 2 * self.line + 12) ** 2  # pixels
        sprite = ((largest + 2 * self.line + 8) * self.supersampling) ** 2  # fine pixels
        return scene * (10 + 64 * self.noise) + sprite * 4 * (2 * len(self.shapes) + 5)


@dataclass(frozen=True)
class SyntheticClip:
    """A clip and its labels."""

    events: Events
    coordinates: Float32s  # (steps, shapes, 2), centre of each shape as (x, y) in pixels
    scale: float  # pixels
    velocity: float  # pixels per step
    config: SyntheticConfig
    signal: int  # number of events that the shapes made; the others are noise

    def frames(self, dtype: Any = np.float32) -> NDArray[Any]:
        """Frames (steps, 2, resolution, resolution) of 0 and 1."""
        return self.events.frames(self.config.dt, steps=self.config.steps, binary=True, dtype=dtype)

    @property
    def active(self) -> int:
        """Number of pixels and steps with an event."""
        return len(np.unique(self.events.data[["t", "x", "y"]]))


def clip(seed: int | Sequence[int], config: SyntheticConfig) -> SyntheticClip:
    """The clip that belongs to `seed`: the same in every process and whatever was drawn before it."""
    rng = np.random.default_rng(seed)
    scale = float(rng.choice(config.scales))
    velocity = float(rng.choice(config.velocities))
    tracks, orientations = motion(rng, config, scale, velocity)
    scene = intensity(config, scale, tracks, orientations)
    drawn = emit(rng, scene, config.threshold)
    step, pixel, polarity = add_noise(rng, config, drawn) if config.noise else drawn
    row, column = np.divmod(pixel, config.resolution)
    unit = round(config.dt * 1e6)  # microseconds
    size = (config.resolution, config.resolution)
    events = make(step * unit, column, row, polarity, size, start=0, stop=config.steps * unit)
    return SyntheticClip(events, tracks[1:].astype(np.float32), scale, velocity, config, len(drawn[0]))


def motion(
    rng: np.random.Generator, config: SyntheticConfig, scale: float, velocity: float
) -> tuple[Floats, Floats]:
    """Centres (steps + 1, shapes, 2) in pixels and orientations in radians.

    Uniform start, uniform direction, constant speed; the shape is reflected where it touches the border.
    """
    count = len(config.shapes)
    start = rng.random((count, 2))
    direction = rng.random(count) * tau
    orientation = rng.random(count) * tau * config.rotate * config.angle / 360
    margin = np.array([circumradius(shape, scale) for shape in config.shapes])[:, None]
    room = config.resolution - 1 - 2 * margin
    speed = velocity * np.stack([np.cos(direction), np.sin(direction)], axis=-1)
    path = start * room + speed * np.arange(config.steps + 1)[:, None, None]
    reflected = room - np.abs(path % (2 * room) - room)
    return margin + reflected, orientation


def circumradius(shape: Shape, scale: float) -> float:
    """Radius in pixels of the circle around a shape of this scale."""
    corners = CORNERS[shape]
    return scale / 2 if corners == 0 else scale / 2 / float(np.sin(pi / corners))


def sprite(config: SyntheticConfig, shape: Shape, scale: float, orientation: float) -> tuple[Float32s, int]:
    """The shape at `supersampling` times the resolution, filtered for bilinear downsampling.

    Returns the picture and its half width in pixels; its centre is the centre of the shape.
    """
    from scipy.ndimage import uniform_filter1d  # slow to load, and who only reads clips does not need it

    fine = config.supersampling
    radius = circumradius(shape, scale)
    corners = CORNERS[shape]
    half = ceil(radius + config.line + 4)  # the tent reaches 1 pixel; the rest is for interpolation
    axis = ((np.arange(2 * half * fine) + 0.5) / fine - half).astype(np.float32)
    y, x = axis[:, None], axis[None, :]
    if corners == 0:
        distance = np.sqrt(x**2 + y**2) - np.float32(radius)
    else:
        normals = orientation + tau * np.arange(corners) / corners
        sides = [x * np.float32(np.cos(a)) + y * np.float32(np.sin(a)) for a in normals]
        distance = np.maximum.reduce(sides) - np.float32(radius * cos(pi / corners))
    inside = config.line / 2 - np.abs(distance) if config.line else -distance
    picture = np.clip(inside * fine + 0.5, 0, 1).astype(np.float32)
    # Two boxes of one pixel make the tent. An even box has no middle: one leans left, the other right.
    for direction, origin in product((0, 1), (0, 0 if fine % 2 else -1)):
        picture = uniform_filter1d(picture, fine, axis=direction, mode="constant", origin=origin)
    return picture, half


def intensity(config: SyntheticConfig, scale: float, tracks: Floats, orientations: Floats) -> Float32s:
    """Intensity (steps + 1, resolution, resolution) of all shapes; where they cross, the brighter wins."""
    fine = config.supersampling
    sprites = [sprite(config, s, scale, a) for s, a in zip(config.shapes, orientations, strict=True)]
    border = ceil(config.line) + 6  # shapes stay inside the sensor, but what is read around them may not
    side = config.resolution + 2 * border
    scene = np.zeros((len(tracks), side, side), np.float32)
    for index, (picture, half) in enumerate(sprites):
        # comb[i, j] is the picture as a sensor sees it whose pixels lie at fine pixel (i, j) modulo `fine`
        comb = picture.reshape(2 * half, fine, 2 * half, fine).transpose(1, 3, 0, 2).copy()
        width = 2 * half - 2  # pixels that are read; the picture goes on so that one can interpolate
        corner = np.floor(tracks[:, index]).astype(int) - half + 2  # (x, y) of the first pixel read
        position = (corner - tracks[:, index] + half) * fine - 0.5  # in the picture, fine pixels
        whole = np.floor(position).astype(int)
        fraction = (position - whole).astype(np.float32)
        for frame, ((left, top), (x, y), (right, down)) in enumerate(
            zip((corner + border).tolist(), whole.tolist(), fraction, strict=True)
        ):
            corners = product(((y, 1 - down), (y + 1, down)), ((x, 1 - right), (x + 1, right)))
            window = sum(_read(comb, i, j, width) * (near_y * near_x) for (i, near_y), (j, near_x) in corners)
            target = scene[frame, top : top + width, left : left + width]
            np.maximum(target, window, out=target)
    return scene[:, border : border + config.resolution, border : border + config.resolution]


def _read(comb: Float32s, y: int, x: int, width: int) -> Float32s:
    """Every `fine`-th pixel of the picture from fine pixel (y, x) on, `width` in each direction."""
    (row, i), (column, j) = divmod(y, len(comb)), divmod(x, len(comb))
    return comb[i, j, row : row + width, column : column + width]


def emit(rng: np.random.Generator, scene: Float32s, threshold: float) -> FlatEvents:
    """Integrate the differences of consecutive frames: the events of a scene."""
    steps = len(scene) - 1
    flat = scene.reshape(steps + 1, -1)
    touched = np.flatnonzero((flat != flat[0]).any(axis=0))
    difference = np.diff(flat[:, touched], axis=0)
    # How far a pixel is from its next event is not known: any distance is as likely.
    state = (rng.random(scene[0].size, np.float32)[touched] * 2 - 1) * np.float32(threshold)
    emitted = np.zeros(difference.shape, np.int8)
    for step in range(steps):
        state += difference[step]
        sign = (state > threshold).astype(np.int8) - (state < -threshold)
        state -= np.float32(threshold) * sign
        emitted[step] = sign
    step_index, pixel = np.nonzero(emitted)
    return step_index, touched[pixel], (emitted[step_index, pixel] > 0).astype(np.int64)


def add_noise(rng: np.random.Generator, config: SyntheticConfig, events: FlatEvents) -> FlatEvents:
    """Merge Bernoulli noise into the events, sorted by step; an event that is there already stays one."""
    pixels = config.resolution**2
    step, pixel, polarity = events
    count = rng.binomial(config.steps * pixels, config.noise)
    noisy = rng.choice(config.steps * pixels, count, replace=False, shuffle=False)
    own = (step * pixels + pixel) * 2 + polarity
    both = np.unique(np.concatenate([own, noisy * 2 + rng.integers(0, 2, count)]))
    step_pixel, polarity = np.divmod(both, 2)
    return *np.divmod(step_pixel, pixels), polarity
