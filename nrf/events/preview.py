"""Pictures of data: what a clip looks like to a person. Darker is blue, brighter is red."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from nrf.events.dataset import Dataset
from nrf.files import atomic_write

BLUE, RED, BACKGROUND, MARK = (40, 90, 200), (210, 50, 40), (255, 255, 255), (20, 140, 60)


def picture(frames: NDArray[Any], coordinates: NDArray[Any] | None = None, zoom: int = 1) -> Image.Image:
    """Events of one or several steps (T, 2, rows, columns) on one image, with crosses at (x, y)."""
    darker, brighter = (frames.any(axis=0)).repeat(zoom, axis=1).repeat(zoom, axis=2)
    pixels = np.full((*darker.shape, 3), BACKGROUND, np.uint8)
    pixels[darker] = BLUE
    pixels[brighter] = RED
    image = Image.fromarray(pixels)
    draw = ImageDraw.Draw(image)
    for x, y in (np.asarray(coordinates) + 0.5) * zoom if coordinates is not None else []:
        draw.line([(x - 4, y), (x + 4, y)], MARK)
        draw.line([(x, y - 4), (x, y + 4)], MARK)
    return image


def animate(path: Path, frames: NDArray[Any], coordinates: NDArray[Any], zoom: int = 1) -> None:
    """A GIF of one clip, each picture the events of the last three steps."""
    images = [
        picture(frames[max(0, step - 2) : step + 1], coordinates[step], zoom).quantize(8)
        for step in range(len(frames))
    ]
    with atomic_write(path) as part:
        images[0].save(part, "GIF", save_all=True, append_images=images[1:], duration=60, loop=0)


def sheet(path: Path, images: Sequence[Image.Image], columns: int, gap: int = 4) -> None:
    """A PNG of equally large images, row by row."""
    width, height = images[0].size
    rows = -(-len(images) // columns)
    page = Image.new("RGB", (columns * (width + gap) - gap, rows * (height + gap) - gap), (128, 128, 128))
    for number, image in enumerate(images):
        page.paste(image, (number % columns * (width + gap), number // columns * (height + gap)))
    with atomic_write(path) as part:
        page.save(part, "PNG")


def preview(folder: str | Path) -> list[Path]:
    """Write preview.png (one clip per scale and velocity: one step, then ten) and preview.gif (clip 0)."""
    data = Dataset(folder)
    synthetic = data.config.shapes
    conditions = min(len(synthetic.scales) * len(synthetic.velocities), len(data))
    zoom = max(1, 256 // synthetic.resolution)
    single, several = [], []
    for index in range(conditions):
        frames, coordinates = data[index]
        single.append(picture(frames[-1:], None, zoom))
        several.append(picture(frames[-10:], coordinates[-1], zoom))
    still, moving = data.folder / "preview.png", data.folder / "preview.gif"
    sheet(still, single + several, columns=conditions)
    animate(moving, *data[0], zoom=zoom)
    return [still, moving]
