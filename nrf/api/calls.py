"""What every call shares: paths or what they hold, chips by name, and options that would be ignored."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from types import UnionType
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, Union, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border import Chip, load_chip
from nrf.errors import InputError, did_you_mean, printable
from nrf.events import ClipSource, Samples, Source, load_frames
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
    """Refuse what the function does not take: unknown keywords, with the nearest known, and wrong types."""
    signature = inspect.signature(function)
    known = list(signature.parameters)
    open_ended = any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        where = f"nrf.{function.__name__}"
        for word in kwargs:
            if word not in known and not open_ended:
                raise InputError(f"{where}: unknown option '{word}'; {did_you_mean(word, known)}")
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InputError(f"{where}: {error}") from error
        for name, kind in inspect.get_annotations(function, eval_str=True).items():
            if name in given and not (open_ended and name == known[-1]) and not _fits(given[name], kind):
                found = f"{type(given[name]).__name__} {printable(repr(given[name]), 60)}"
                raise InputError(f"{where}: {name} is the {found}, expected {_spelt(kind)}")
        return function(*args, **kwargs)

    return call


def _fits(value: object, kind: Any) -> bool:
    """Whether a value is of an annotated type, as far as can be told without using it up."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:
        return value in inner if isinstance(value, str) else False
    if kind in (int, float):
        numbers = (int, np.integer) if kind is int else (int, float, np.integer, np.floating)
        return isinstance(value, numbers) and not isinstance(value, bool)
    if origin in (Sequence, Iterable):
        return (
            isinstance(value, origin)
            and not isinstance(value, str | bytes | dict)
            and (not isinstance(value, list | tuple) or all(_fits(one, inner[0]) for one in value))
        )
    if getattr(kind, "_is_protocol", False):
        names = (*inspect.get_annotations(kind), *vars(kind))
        return all(hasattr(value, name) for name in names if not name.startswith("_"))
    if not isinstance(origin or kind, type):  # None, or what only type checkers know
        return kind is not None or value is None
    return isinstance(value, origin or kind)


def _spelt(kind: Any) -> str:
    """A type in a word or two."""
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(dict.fromkeys(_spelt(one) for one in get_args(kind)))
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    return str(getattr(get_origin(kind) or kind, "__name__", kind)).replace("NoneType", "None")


def refuse_unused(by: str, /, **options: object) -> None:
    """Refuse options that would be ignored: another thing would run than was asked for."""
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name} has no effect on {by}; leave it out")


def as_chip(chip: str | Chip) -> Chip:
    """A chip by its name, by the path of its TOML file, or as it is."""
    return chip if isinstance(chip, Chip) else load_chip(chip)


def frames_for(model: Model, source: Source, bin: float | None) -> NDArray[np.float32]:
    """One clip as frames of the model's input."""
    return load_frames(source, bin or model.contract.dt, model.input_shape, model.contract.sensor)


def samples_for(
    model: Model,
    clips: PathLike | Iterable[ClipSource],
    bin: float | None,
    labels: Sequence[Label] | PathLike | None = None,
) -> Samples:
    """Many clips as frames of the model's input, one after the other, with their true classes."""
    contract = model.contract
    clips = [clips] if isinstance(clips, str | Path) else clips
    return Samples(clips, bin or contract.dt, model.input_shape, labels, contract.sensor)
