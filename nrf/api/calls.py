"""What every call shares: paths or what they hold, chips by name, and options that would be ignored."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border import Chip, load_chip
from nrf.errors import InputError, did_you_mean
from nrf.events import Given, Samples, Source, load_frames
from nrf.events.clips import Label
from nrf.export.contract import Contract

PathLike = str | Path
P = ParamSpec("P")
R = TypeVar("R")


class Model(Protocol):
    """A graph or a program: whatever frames can be played through."""

    @property
    def input_shape(self) -> tuple[int, ...]: ...
    @property
    def contract(self) -> Contract: ...


def keywords_checked(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse a keyword that the function does not take, and name the nearest one that it does."""
    known = list(inspect.signature(function).parameters)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for word in kwargs:
            if word not in known:
                hint = did_you_mean(word, known)
                raise InputError(f"nrf.{function.__name__}: unknown option '{word}'; {hint}")
        return function(*args, **kwargs)

    return call


def refuse_unused(model: str, **options: object) -> None:
    """Refuse options that would be ignored: another thing would run than was asked for."""
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name} has no effect on {model}; leave it out")


def as_chip(chip: str | Chip) -> Chip:
    """A chip by its name, by the path of its TOML file, or as it is."""
    return chip if isinstance(chip, Chip) else load_chip(chip)


def frames_for(model: Model, source: Source, bin: float | None) -> NDArray[np.float32]:
    """One clip as frames of the model's input."""
    return load_frames(source, bin or model.contract.dt, model.input_shape, model.contract.sensor)


def samples_for(
    model: Model, clips: Iterable[Given], bin: float | None, labels: Sequence[Label] | PathLike | None = None
) -> Samples:
    """Many clips as frames of the model's input, one after the other, with their true classes."""
    contract = model.contract
    return Samples(clips, bin or contract.dt, model.input_shape, labels, contract.sensor)
