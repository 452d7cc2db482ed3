"""Look at the priors and at the data: the 144 spatial kernels, the temporal kernels, clips of both sets.

python examples/receptive_fields.py [FOLDER]        writes four PNG pictures and a GIF
"""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from nrf.events.dataset import paper_config
from nrf.events.preview import animate, picture, sheet
from nrf.fields.space import Field, fields, kernel
from nrf.fields.spacetime import velocity_adapted
from nrf.fields.time import density, limit_constants, time_constants


def shade(values: np.ndarray, zoom: int) -> Image.Image:
    """Positive red, negative blue, zero white; the largest magnitude is full colour."""
    strength = values / np.abs(values).max()
    red, blue = np.clip(strength, 0, 1)[..., None], np.clip(-strength, 0, 1)[..., None]
    pixels = 255 - red * np.array([45, 205, 215]) - blue * np.array([215, 165, 55])
    return Image.fromarray(pixels.astype(np.uint8)).resize(
        (values.shape[1] * zoom, values.shape[0] * zoom), 0
    )


def curves(functions: dict[str, np.ndarray], width: int = 640, height: int = 320) -> Image.Image:
    """Functions of time on one page, each named where it is largest."""
    page = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(page)
    top = max(values.max() for values in functions.values()) * 1.1
    for number, (name, values) in enumerate(functions.items()):
        colour = f"hsl({number * 360 // len(functions)}, 70%, 40%)"
        x = np.linspace(0, width - 1, len(values))
        y = height - 10 - values / top * (height - 20)
        for start, end in pairwise(zip(x, y, strict=True)):
            draw.line([start, end], colour, 2)
        peak = int(values.argmax())
        draw.text((x[peak] + 8, y[peak] - 4), name, colour)
    return page


def main(folder: Path) -> None:
    """Write the pictures."""
    folder.mkdir(parents=True, exist_ok=True)

    # One row of 12 per scale and skew group; drawn large, and as the 9x9 kernels that networks start from.
    fine = [shade(kernel(Field(f.scale * 5, f.orientation, f.skew, f.order), 45), 1) for f in fields()]
    coarse = [shade(kernel(f), 5) for f in fields()]
    sheet(folder / "spatial_kernels.png", fine + coarse, columns=36)

    # Parallel leaky integrators, and the limit kernel of the same variance that a cascade approaches.
    t = np.linspace(0, 24, 400)
    single = {f"exp mu={mu:.3g}": density(t, mu) for mu in time_constants(8.0)}
    limit = {f"limit tau={mu**2:.3g}": density(t, limit_constants(mu**2)) for mu in time_constants(8.0)}
    sheet(folder / "temporal_kernels.png", [curves(single), curves(limit)], columns=1)

    # A field at rest and one that follows a motion to the right: rows are time, columns are x.
    space_time = [
        velocity_adapted(Field(2.0, order=(1, 0)), 4.0, (velocity, 0.0), 41, 24).sum(axis=1)
        for velocity in (0.0, 0.5, 1.0)
    ]
    sheet(folder / "space_time_kernels.png", [shade(values, 6) for values in space_time], columns=3)

    # The paper's two sets, ten steps of each size and each velocity, on half its sensor.
    pictures = []
    for name in ("spatial", "temporal"):
        config = paper_config(name, clips=4, resolution=150)
        for index in range(4):
            clip = config.clip(index)
            pictures.append(picture(clip.frames()[-10:], clip.coordinates[-1], zoom=2))
    sheet(folder / "data.png", pictures, columns=4)
    clip = paper_config("temporal", clips=4, resolution=150).clip(3)
    animate(folder / "data.gif", clip.frames(), clip.coordinates, zoom=2)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "pictures"))
