"""Cases as data: small graphs with inputs. Any backend, also a new one, runs through all of them by name."""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import nir
import numpy as np

from nrf.backends.border import Tolerances
from nrf.backends.border.chip import check_tolerances
from nrf.backends.conformance import node_cases, trap_cases
from nrf.backends.conformance.clips import Clip
from nrf.backends.conformance.recipes import Recipe
from nrf.errors import InputError
from nrf.export import Graph, canonical, read_graph, write_graph
from nrf.files import atomic_write, make_folder

RECIPES = {
    recipe.name: recipe
    for module in (node_cases, trap_cases)
    for recipe in vars(module).values()
    if isinstance(recipe, Recipe)
}


@dataclass(frozen=True)
class Case:
    """A graph, one input, and tolerances that replace the target's rung by rung."""

    name: str
    about: str  # what it would catch
    graph: Graph
    clip: Clip
    tolerances: Tolerances = field(default_factory=dict)


def make_case(name: str) -> Case:
    """One case by name, the same in every process.

    >>> make_case("conv2d").graph.neurons
    ['neurons']
    """
    recipe = RECIPES[name]
    draft = recipe.make(np.random.default_rng(zlib.crc32(name.encode())))
    frames = draft.frames.astype(np.float32)
    nodes = {
        "input": nir.Input({"input": np.array(frames.shape[1:])}),
        **draft.nodes,
        "output": nir.Output(None),
    }
    edges = list(draft.edges or pairwise(nodes))
    graph = canonical(nir.NIRGraph(nodes, edges, type_check=False), draft.contract, name)
    return Case(name, recipe.about, graph, Clip(name, frames), recipe.tolerances)


def all_cases(names: Sequence[str] | None = None) -> list[Case]:
    """All cases, or those named."""
    return [make_case(name) for name in (names or RECIPES)]


def write_cases(folder: str | Path) -> int:
    """Write every case as a folder of its own, for other tools: model.nir, input.npz, case.json."""
    cases = all_cases()
    for case in cases:
        path = make_folder(Path(folder) / case.name)
        write_graph(path / "model.nir", case.graph)
        with atomic_write(path / "input.npz") as part, part.open("wb") as file:
            np.savez_compressed(file, frames=case.clip.frames)
        with atomic_write(path / "case.json") as part:
            part.write_text(json.dumps({"about": case.about, "tolerances": case.tolerances}, indent=1))
    return len(cases)


def read_case(folder: str | Path) -> Case:
    """Read what `write_cases` wrote, or a case that somebody added in the same form."""
    path = Path(folder)
    try:
        about = json.loads((path / "case.json").read_text())
        check_tolerances(about["tolerances"], f"{path / 'case.json'}: tolerances")
        with np.load(path / "input.npz", allow_pickle=False) as content:
            clip = Clip(path.name, content["frames"])
        return Case(path.name, about["about"], read_graph(path / "model.nir"), clip, about["tolerances"])
    except (OSError, KeyError, ValueError) as error:
        raise InputError(
            f"{path}: not a case, it needs model.nir, input.npz and case.json ({error})"
        ) from error
