"""Train a network, then look at what it learned and at what it sees.

python examples/train_and_look.py [PRESET] [FOLDER]      tiny: seconds; demo: minutes

Writes, beside the checkpoints:
    kernels.png       first layer, one row per polarity: before training, then after
    predictions.png   held-out clips: ten steps of events, true places as crosses, predictions as squares
    maps.png          the last maps of the same clips, one per shape
"""

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw

from nrf.events.preview import picture, sheet
from nrf.model.network import Network, build
from nrf.training import checkpoint
from nrf.training.batches import load_clips, split, stack
from nrf.training.log import progress
from nrf.training.loop import train
from nrf.training.presets import load_preset

ORANGE = (240, 130, 0)


def shade(values: np.ndarray, zoom: int) -> Image.Image:
    """Positive red, negative blue, zero white; the largest magnitude is full colour."""
    strength = values / (np.abs(values).max() or 1.0)
    red, blue = np.clip(strength, 0, 1)[..., None], np.clip(-strength, 0, 1)[..., None]
    pixels = 255 - red * np.array([45, 205, 215]) - blue * np.array([215, 165, 55])
    return Image.fromarray(pixels.astype(np.uint8)).resize(
        (zoom * values.shape[1], zoom * values.shape[0]), 0
    )


def kernels(network: Network) -> list[Image.Image]:
    """The first layer's kernels, all features of one polarity after those of the other."""
    conv = network.body.get_submodule(next(name for name in network.body.paths[0] if name.startswith("conv")))
    weights = conv.weight.detach().numpy()
    return [
        shade(weights[f, polarity], 4) for polarity in range(weights.shape[1]) for f in range(len(weights))
    ]


def main(preset: str, folder: Path) -> None:
    """Train and write the pictures."""
    config = load_preset(preset)
    with progress(config.training.all_steps, sys.stderr) as report:
        summary = train(config, folder, report=report)
    error, centre = summary["error"], summary["centre_error"]
    print(f"held-out error {error:.2f} px; guessing the centre gives {centre:.2f} px")
    network = checkpoint.read(folder).network()
    sheet(
        folder / "kernels.png",
        kernels(build(config.network, config.seed)) + kernels(network),
        config.network.blocks[0].features,
    )

    clips = load_clips(config)
    batch = stack(clips, split(len(clips), config.data.validation)[1][:4])
    with torch.no_grad():
        maps = network(batch.frames).membrane
        predicted = network.coordinates(maps)[0].numpy()
    predictions, answers, zoom = [], [], 4
    for clip in range(batch.frames.shape[1]):
        frames = batch.frames[-10:, clip].numpy()
        image = picture(frames, batch.coordinates[-1, clip].numpy(), zoom)
        draw = ImageDraw.Draw(image)
        for x, y in (predicted[-1, clip] + 0.5) * zoom:
            draw.rectangle([x - 4, y - 4, x + 4, y + 4], outline=ORANGE, width=2)
        predictions.append(image)
        answers += [shade(shape.numpy(), 8) for shape in maps[-1, clip]]
    sheet(folder / "predictions.png", predictions, columns=len(predictions))
    sheet(folder / "maps.png", answers, columns=config.network.shapes)


if __name__ == "__main__":
    preset, folder, *_ = [*sys.argv[1:], *("tiny", "pictures/training")[len(sys.argv) - 1 :]]
    main(preset, Path(folder))
