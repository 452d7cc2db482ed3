"""Batches of labelled clips for training: where they come from, how they are split, augmented and stacked."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nrf.errors import InputError
from nrf.events.dataset import Dataset, DatasetConfig
from nrf.training.config import Config

LabelledClip = tuple[NDArray[np.uint8], NDArray[np.float32]]  # frames (T, 2, H, W), centres (T, shapes, 2)


class LabelledClips(Protocol):
    """Anything that hands out labelled clips by number; lists and datasets on disk do."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> LabelledClip: ...


@dataclass(frozen=True)
class Batch:
    """Clips side by side: frames (T, B, 2, H, W) and coordinates (T, B, shapes, 2) in pixels."""

    frames: Tensor
    coordinates: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The same on a device."""
        return Batch(self.frames.to(device), self.coordinates.to(device))


def load_clips(config: Config, folder: str | Path | None = None) -> LabelledClips:
    """The clips of a dataset on disk, or those of the configuration, made now and kept in memory."""
    if folder is None:
        count = config.data.clips + config.data.test
        source = DatasetConfig(config.name, count, config.seed, config.data.shapes)
        made = (source.clip(index) for index in range(source.clips))
        return [(clip.frames(np.uint8), clip.coordinates) for clip in made]
    dataset = Dataset(folder)
    network, synthetic = config.network, dataset.config.shapes
    expected = (network.shapes, network.input[1:], network.dt)
    present = (len(synthetic.shapes), (synthetic.resolution, synthetic.resolution), synthetic.dt)
    if present != expected:
        words = "{} shapes on {} px at {} s per step"
        raise InputError(f"{folder}: {words.format(*present)}; the network expects {words.format(*expected)}")
    return dataset


def split(count: int, validation: float) -> tuple[range, range]:
    """Numbers of the clips to train on, and of those held out (the last ones)."""
    held_out = max(1, round(count * validation))
    if held_out >= count:
        raise InputError(f"data: {count} clips leave none to train on; make more, or hold out fewer")
    return range(count - held_out), range(count - held_out, count)


def batch_numbers(numbers: range, batch: int, step: int, seed: int) -> list[int]:
    """The clips of a step: every clip once per epoch, shuffled. Depends on seed and step alone."""
    positions = np.arange(step * batch, (step + 1) * batch)
    epochs = positions // len(numbers)
    orders = {e: np.random.default_rng((seed, e)).permutation(len(numbers)) for e in np.unique(epochs)}
    return [numbers[int(orders[e][p % len(numbers)])] for e, p in zip(epochs, positions, strict=True)]


def stack(clips: LabelledClips, numbers: Sequence[int], symmetries: Sequence[int] | None = None) -> Batch:
    """Put clips side by side, each under one of the 8 symmetries of the square."""
    pairs = [
        flip_and_transpose(*clips[number], symmetry)
        for number, symmetry in zip(numbers, symmetries or [0] * len(numbers), strict=True)
    ]
    frames, coordinates = (torch.from_numpy(np.stack(part, axis=1)) for part in zip(*pairs, strict=True))
    return Batch(frames.float(), coordinates)


def flip_and_transpose(
    frames: NDArray[np.uint8], coordinates: NDArray[np.float32], symmetry: int
) -> LabelledClip:
    """Flip x (bit 0), flip y (bit 1), transpose (bit 2)."""
    rows, columns = frames.shape[-2:]
    coordinates = coordinates.copy()
    if symmetry & 1:
        frames, coordinates[..., 0] = frames[..., ::-1], columns - 1 - coordinates[..., 0]
    if symmetry & 2:
        frames, coordinates[..., 1] = frames[..., ::-1, :], rows - 1 - coordinates[..., 1]
    if symmetry & 4:
        frames, coordinates = frames.swapaxes(-1, -2), coordinates[..., ::-1]
    return frames, coordinates


def centre_error(clips: LabelledClips, numbers: Sequence[int], config: Config) -> float:
    """Mean distance in pixels of the shapes from the centre of the sensor: what blind guessing gets."""
    centre = (np.array(config.network.input[:0:-1]) - 1) / 2
    first = config.training.warm_up
    return float(np.mean([np.linalg.norm(clips[i][1][first:] - centre, axis=-1).mean() for i in numbers]))
