"""Make the conformance cases that ship with the package, from the recipes in `benchmarks/cases/`:

    python -m benchmarks.make_cases

One zip file, a folder per case: model.nir, input.npz, case.json (what it would catch, tolerances). A case is
the same whoever makes it: its random numbers are drawn from a seed made of its name.
"""

import json
import sys
import tempfile
import zipfile
import zlib
from itertools import pairwise
from pathlib import Path

import nir
import numpy as np

from benchmarks.cases import nodes, traps
from benchmarks.cases.recipes import Recipe
from nrf.backends.conformance.cases import Case
from nrf.backends.conformance.clips import Clip
from nrf.export import canonical, write_graph
from nrf.files import atomic_write

CASES = Path(__file__).parents[1] / "backends" / "conformance" / "cases.zip"
RECIPES = {
    recipe.name: recipe
    for module in (nodes, traps)
    for recipe in vars(module).values()
    if isinstance(recipe, Recipe)
}


def make_case(name: str) -> Case:
    """One case by name."""
    recipe = RECIPES[name]
    draft = recipe.make(np.random.default_rng(zlib.crc32(name.encode())))
    frames = draft.frames.astype(np.float32)
    parts = {
        "input": nir.Input({"input": np.array(frames.shape[1:])}),
        **draft.nodes,
        "output": nir.Output(None),
    }
    edges = list(draft.edges or pairwise(parts))
    graph = canonical(nir.NIRGraph(parts, edges, type_check=False), draft.contract, name)
    return Case(name, recipe.about, graph, Clip(name, frames), recipe.tolerances)


def write_case(folder: Path, case: Case) -> None:
    """The three files of a case."""
    write_graph(folder / "model.nir", case.graph)
    np.savez_compressed(folder / "input.npz", frames=case.clip.frames)
    about = {"about": case.about, "tolerances": case.tolerances}
    (folder / "case.json").write_text(json.dumps(about, indent=1))


def main(path: Path = CASES) -> None:
    """Write all cases, in the order of the recipes."""
    with (
        atomic_write(path) as part,
        zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
        tempfile.TemporaryDirectory() as folder,
    ):
        for name in RECIPES:
            write_case(Path(folder), make_case(name))
            for file in ("case.json", "input.npz", "model.nir"):
                entry = zipfile.ZipInfo(f"{name}/{file}")  # of the year 1980: the same bytes every time
                archive.writestr(entry, (Path(folder) / file).read_bytes(), zipfile.ZIP_DEFLATED, 9)
    print(f"{path}: {len(RECIPES)} cases, {path.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
