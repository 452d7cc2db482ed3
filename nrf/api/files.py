"""What a file holds: a graph, a program or a recording."""

from pathlib import Path
from typing import Any

import nir

from nrf.api.calls import PathLike, as_chip, keywords_checked
from nrf.backends.border import Chip, Program, Recording, backend_of, chip_names
from nrf.backends.border.program import target_of
from nrf.containers import parse_json, read_arrays
from nrf.errors import InputError
from nrf.export import Graph, read_graph
from nrf.files import input_file

HDF5 = b"\x89HDF\r\n\x1a\n"


@keywords_checked
def read(source: PathLike | nir.NIRGraph, *, dialect: str | None = None, **contract: Any) -> Graph:
    """A NIR file, or what an exporter gave, as a graph. What it leaves open is said by the dialect of the
    framework that wrote it (`nrf.export.dialects`) and by fields of `nrf.export.Contract`, which replace what
    file and dialect say.

    >>> read("model.nir", rest="zero")
    Traceback (most recent call last):
    nrf.errors.InputError: unknown option 'rest'; did you mean 'reset'? known are dt, ...
    """
    return read_graph(source, dialect, **contract)


@keywords_checked
def load(path: PathLike, chip: str | None = None) -> Graph | Program | Recording:
    """What a file holds. `chip` is the TOML file of a program's chip, if that is not installed."""
    if is_graph(path):
        return read(path)
    what = "graph, program or recording of nrf"
    try:
        header = parse_json(read_arrays(path, what)["header"].tobytes())
        recorded = "provenance" in header
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a {what} ({error})") from error
    return Recording.load(path) if recorded else load_program(path, chip)[1]


def is_graph(path: PathLike) -> bool:
    """Whether a file is a NIR graph (HDF5), or else a program or a recording."""
    try:
        with input_file(path).open("rb") as file:
            return Path(path).suffix == ".nir" or file.read(len(HDF5)) == HDF5
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def load_program(program: Program | PathLike, chip: str | Chip | None = None) -> tuple[Chip, Program]:
    """A program, read if it is a path, and its chip; `chip` is one that is not installed."""
    if isinstance(program, str | Path):
        name, where = target_of(program), f"{program}:"
    else:
        name, where = program.target, "the program"
    if chip is None and name not in chip_names():
        raise InputError(f"{where} is for '{name}', which is not installed; give its TOML file")
    chip = as_chip(chip or name)
    if chip.name != name:
        raise InputError(f"{where} is for '{name}', not for '{chip.name}'")
    return chip, backend_of(chip).load(program) if isinstance(program, str | Path) else program


def as_graph(graph: Graph | PathLike) -> Graph:
    """A graph, read if it is a path."""
    return graph if isinstance(graph, Graph) else read(graph)
