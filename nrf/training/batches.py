"""Batches of labelled clips for training: where they come from, how they are split, turned and stacked."""

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

Labelled = tuple[NDArray[np.uint8], NDArray[np.float32]]  # frames (T, 2, H, W), coordinates (T, shapes, 2)


class Clips(Protocol):
    """Anything that hands out labelled clips by number; lists and datasets on disk do."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Labelled: ...


@dataclass(frozen=True)
class Batch:
    """Clips side by side: frames (T, B, 2, H, W) and coordinates (T, B, shapes, 2) in pixels."""

    frames: Tensor
    coordinates: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The same on a device."""
        return Batch(self.frames.to(device), self.coordinates.to(device))


def clips_of(config: Config, folder: str | Path | None = None) -> Clips:
    """The clips of a dataset on disk, or those of the configuration, made now and kept in memory."""
    if folder is None:
        source = DatasetConfig(config.name, config.data.clips, config.seed, config.data.shapes)
        made = (source.clip(index) for index in range(source.clips))
        return [(clip.frames(np.uint8), clip.coordinates) for clip in made]
    dataset = Dataset(folder)
    shapes = dataset.config.shapes
    wanted, found = config.network.input[1:], (shapes.resolution, shapes.resolution)
    if wanted != found or config.network.shapes != len(shapes.shapes) or config.network.dt != shapes.dt:
        raise InputError(
            f"{folder}: {len(shapes.shapes)} shapes on {found} px at {shapes.dt} s per step; "
            f"the network expects {config.network.shapes} on {wanted} px at {config.network.dt} s"
        )
    return dataset


def split(count: int, validation: float) -> tuple[range, range]:
    """Numbers of the clips to train on, and of those held out (the last ones)."""
    held_out = max(1, round(count * validation))
    if held_out >= count:
        raise InputError(f"data: {count} clips leave none to train on; make more, or hold out fewer")
    return range(count - held_out), range(count - held_out, count)


def chosen(numbers: range, batch: int, step: int, seed: int) -> list[int]:
    """The clips of a step: every clip once before one comes again. Depends on seed and step alone."""
    places = np.arange(step * batch, (step + 1) * batch)
    epochs = places // len(numbers)
    orders = {e: np.random.default_rng((seed, e)).permutation(len(numbers)) for e in np.unique(epochs)}
    return [numbers[int(orders[e][p % len(numbers)])] for e, p in zip(epochs, places, strict=True)]


def stack(clips: Clips, numbers: Sequence[int], turns: Sequence[int] | None = None) -> Batch:
    """Put clips side by side, each turned by one of the 8 symmetries of the square."""
    frames, coordinates = [], []
    for number, turn in zip(numbers, turns or [0] * len(numbers), strict=True):
        picture, place = turned(*clips[number], turn)
        frames.append(torch.from_numpy(np.ascontiguousarray(picture)))
        coordinates.append(torch.from_numpy(np.ascontiguousarray(place)))
    return Batch(torch.stack(frames, 1).float(), torch.stack(coordinates, 1))


def turned(frames: NDArray[np.uint8], coordinates: NDArray[np.float32], turn: int) -> Labelled:
    """Mirror x (bit 0), mirror y (bit 1), swap the axes (bit 2)."""
    rows, columns = frames.shape[-2:]
    place = coordinates.copy()
    if turn & 1:
        frames, place[..., 0] = frames[..., ::-1], columns - 1 - place[..., 0]
    if turn & 2:
        frames, place[..., 1] = frames[..., ::-1, :], rows - 1 - place[..., 1]
    if turn & 4:
        frames, place = frames.swapaxes(-1, -2), place[..., ::-1]
    return frames, place


def centre_error(clips: Clips, numbers: Sequence[int], config: Config) -> float:
    """Mean distance in pixels of the shapes from the centre of the sensor: what blind guessing gets."""
    centre = (np.array(config.network.input[:0:-1]) - 1) / 2
    first = config.training.warm_up
    return float(np.mean([np.linalg.norm(clips[i][1][first:] - centre, axis=-1).mean() for i in numbers]))
