"""Chips by name: ours and those of packages that are installed beside us."""

from dataclasses import fields
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from nrf.backends.border.backend import Backend, Program, RunOptions, Runtime
from nrf.backends.border.chip import Chip, parse_chip
from nrf.config import parse_toml_of
from nrf.errors import InputError, did_you_mean
from nrf.files import read_text

GROUP = "nrf.chips"


@cache
def _entries() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name)}


def chip_names() -> list[str]:
    """Names of all chips that are installed."""
    return list(_entries())


@cache
def backend_named(name: str) -> Backend[Chip, Program]:
    """The backend of an entry point."""
    if name not in _entries():
        raise InputError(f"no backend '{name}'; {did_you_mean(name, chip_names())}")
    try:
        found = _entries()[name].load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"chip '{name}': its package cannot be loaded: {error}") from error
    if not isinstance(found, Backend):
        raise InputError(f"chip '{name}': {_entries()[name].value} is {type(found).__name__}, not a Backend")
    if "builtin" not in found.runtimes:
        raise InputError(f"chip '{name}': its package has no runtime 'builtin', which all others are held to")
    return cast(Backend[Chip, Program], found)  # a backend only ever gets chips and programs of its own


def backend_of(chip: Chip) -> Backend[Chip, Program]:
    """The backend that lowers for a chip.

    >>> backend_of(load_chip("loihi2")).runtimes["builtin"].device
    'simulation'
    """
    return backend_named(chip.backend)


def load_chip(name: str) -> Chip:
    """A chip by name, or from a path that ends in .toml.

    >>> load_chip("loihi2").title
    'Intel Loihi 2'
    """
    if not isinstance(name, str):
        raise InputError(f"chip is {name!r}, expected its name or the path of a .toml file")
    if not name.endswith(".toml"):
        if name not in chip_names():
            hint = did_you_mean(name, chip_names())
            raise InputError(f"unknown target '{name}'; {hint}; or give the path of a .toml file")
        backend = backend_named(name)
        return parse_chip(backend.config.read_text(encoding="utf-8"), backend.chip, f"{name}.toml")
    text = read_text(name)
    backend_name = parse_toml_of(text, name).get("backend")
    if not isinstance(backend_name, str):
        raise InputError(f"{name}: key 'backend' is missing; expected one of {', '.join(chip_names())}")
    try:
        kind = backend_named(backend_name).chip
    except InputError as error:
        raise InputError(f"{name}: key 'backend': {error}") from error
    return parse_chip(text, kind, name)


def runtime_of(
    backend: Backend[Chip, Program], chip: Chip, name: str, options: RunOptions | None = None
) -> Runtime:
    """A runtime by name; refuses one that the chip does not have, that cannot run here, or that ignores
    some of the options.
    """
    if name not in backend.runtimes:
        raise InputError(f"{chip.name}: unknown runtime '{name}'; {did_you_mean(name, backend.runtimes)}")
    if reason := backend.runtimes[name].absent():
        raise InputError(f"runtime '{name}' cannot run here: {reason}")
    runtime, plain = backend.runtimes[name], RunOptions()
    for option in fields(RunOptions):
        asked = options is not None and getattr(options, option.name) != getattr(plain, option.name)
        if asked and option.name not in ("membranes", *runtime.options):
            raise InputError(f"runtime '{name}' of {chip.name} does not use {option.name}; leave it out")
    return runtime
