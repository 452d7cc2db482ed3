"""Cases as data: small graphs with inputs. Any backend, also a new one, runs through all of them by name.

`cases.zip` has a folder per case: model.nir, input.npz (frames), case.json (what it would catch, tolerances).
`benchmarks/make_cases.py` makes it.
"""

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path

from nrf.backends.border import Tolerances
from nrf.backends.border.chip import check_tolerances
from nrf.backends.conformance.clips import Clip
from nrf.containers import parse_json, read_arrays
from nrf.errors import InputError
from nrf.export import Graph, read_graph
from nrf.files import make_folder, read_text, scratch

CASES = resources.files(__package__) / "cases.zip"


@dataclass(frozen=True)
class Case:
    """A graph, one input, and tolerances that replace the target's rung by rung."""

    name: str
    about: str  # what it would catch
    graph: Graph
    clip: Clip
    tolerances: Tolerances = field(default_factory=dict)


def case_names() -> list[str]:
    """All cases that ship: first one per node type, then one per known trap."""
    with CASES.open("rb") as file, zipfile.ZipFile(file) as archive:
        return list(dict.fromkeys(path.partition("/")[0] for path in archive.namelist()))


def write_cases(folder: str | Path, names: Sequence[str] | None = None) -> int:
    """Write every case, or those named, as a folder of its own, for other tools; how many."""
    chosen = case_names() if names is None else names
    with CASES.open("rb") as file, zipfile.ZipFile(file) as archive:
        members = [path for path in archive.namelist() if path.partition("/")[0] in chosen]
        archive.extractall(make_folder(folder), members)
    return len(chosen)


def load_case(name: str) -> Case:
    """One of the cases that ship.

    >>> load_case("conv2d").graph.neurons
    ['neurons']
    """
    with scratch() as folder:
        write_cases(folder, [name])
        return read_case(Path(folder) / name)


def read_case(folder: str | Path) -> Case:
    """Read what `write_cases` wrote, or a case that somebody added in the same form."""
    path = Path(folder)
    try:
        about = parse_json(read_text(path / "case.json"))
        if not isinstance(about["about"], str) or not isinstance(about["tolerances"], dict):
            raise ValueError("case.json: 'about' is a text, 'tolerances' a table")
        check_tolerances(about["tolerances"], f"{path / 'case.json'}: tolerances")
        clip = Clip(path.name, read_arrays(path / "input.npz")["frames"])
        graph = replace(read_graph(path / "model.nir"), name=path.name)
        return Case(path.name, about["about"], graph, clip, about["tolerances"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: not a case, it needs model.nir, input.npz and case.json ({error})"
        ) from error
