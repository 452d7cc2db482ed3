"""Write docs/frameworks.md from real runs; `make frameworks` calls this. It needs all environments.

    python -m tests.frameworks.write_table [--goldens] [--count 100]

`--goldens` makes the committed recordings anew as well.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import nir
import numpy as np
import torch

from nrf.backends import reference
from nrf.backends.conformance.cases import Case, read_case, write_cases
from nrf.errors import InputError
from nrf.export import Graph, read_graph
from tests.frameworks.cases import FRAMEWORKS, Framework
from tests.frameworks.goldens import case_names, refresh
from tests.frameworks.witnesses import make_networks, pairs, run_script

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"
FIRST = 1000  # seeds of no golden

HEAD = """# Frameworks

A NIR file does not say how its framework steps. Under `--dialect NAME` the reference steps as that
framework does, and reads what its exporter meant. This page is written by `make frameworks` from real runs:
each framework makes random networks in its own environment (`nrf setup frameworks`, `nrf setup sinabs`,
`nrf setup spyx`), its own exporter writes them, and the framework itself says what they fire.

One page for each, from the model to the chip: [snnTorch](frameworks/snntorch.md),
[Sinabs](frameworks/sinabs.md), [Norse](frameworks/norse.md), [SpikingJelly](frameworks/spikingjelly.md),
[Rockpool](frameworks/rockpool.md), [Spyx](frameworks/spyx.md).
"""

EXPORTERS = """
## From the framework to here

Spikes are those of all layers; one differs if the count of a neuron in a step does, in float64. Every
network is read with the dialect; in the cases "with flags" the exporter dropped a setting, and the flags
that say it are given as well. Networks of cases whose setting no flag can say are counted apart. nir is
1.0.8, as `nir.read` has it by default.

"""

LOSSES = """
What the exporters do not write, and the flags that say it:

"""

IMPORTERS = """
## From here to the framework

The cases that every chip is tested with (`nrf conform --write-cases FOLDER`), read by the importers of the
frameworks, with the case's dt where there is such an argument. "same": the spikes that the file's contract
asks for. "dialect": other spikes, those of the framework's own dialect. A number: so many counts are
neither, of so many spikes, and nobody says so. "no": refused.

"""


@dataclass(frozen=True)
class Tally:
    """What came of the networks of one framework."""

    versions: dict[str, str]
    networks: int = 0
    spikes: int = 0
    differ: int = 0
    lost: int = 0  # networks whose exporter lost a setting
    lost_differ: int = 0
    refused: int = 0  # files that nir refuses


def tally(framework: Framework, folder: Path, count: int) -> Tally:
    """Make networks and compare all of them."""
    cases = len(case_names(framework))
    rounds = -(-count // (cases - len(framework.lost)))  # at least COUNT whose settings are not lost
    result = Tally(make_networks(framework, folder, FIRST, rounds * cases, timeout=1800))
    for pair in pairs(folder):
        match, refused = pair.match(framework), int(refuses(pair.model))
        if pair.case in framework.lost:
            result = replace(result, lost=result.lost + 1, lost_differ=result.lost_differ + match.differ)
        else:
            result = replace(
                result,
                networks=result.networks + 1,
                spikes=result.spikes + match.spikes,
                differ=result.differ + match.differ,
            )
        result = replace(result, refused=result.refused + refused)
    return result


def refuses(path: Path) -> bool:
    """Whether nir itself refuses a file."""
    try:
        nir.read(path)
    except Exception:  # of many kinds
        return True
    return False


def exporter_rows(tallies: dict[str, Tally]) -> Iterator[str]:
    """One row per framework."""
    yield "| framework | cases | networks | spikes | differ | networks with a lost setting | refused by nir |"
    yield "|---|---|---|---|---|---|---|"
    for name, result in tallies.items():
        framework = FRAMEWORKS[name]
        lost = f"{result.lost}, {result.lost_differ:,} differ" if result.lost else ""
        files = f"{result.refused} of {result.networks + result.lost}"
        refused = f"{files}: {framework.refused}" if result.refused else "none"
        title = f"{framework.title} {result.versions[name]}"
        cases = len(case_names(framework))
        flagged = len(framework.flags) + len(framework.told)
        figures = f"{cases}, {flagged} with flags | {result.networks} | {result.spikes:,} | {result.differ}"
        yield f"| {title} | {figures} | {lost} | {refused} |"


def importer_rows(folder: Path) -> Iterator[str]:
    """One row per case, one column per framework, and a sum."""
    cases = folder / "cases"
    write_cases(cases)
    for framework in FRAMEWORKS.values():
        run_script("importers.py", framework.vendor, framework.name, cases, folder / framework.name)
    yield f"| case | {' | '.join(framework.title for framework in FRAMEWORKS.values())} |"
    yield f"|---|{'---|' * len(FRAMEWORKS)}"
    cells: dict[str, list[str]] = {name: [] for name in FRAMEWORKS}
    for path in sorted(cases.iterdir()):
        case = read_case(path)
        plain = folder / f"{path.name}.nir"
        without_contract(path / "model.nir", plain)
        for name in FRAMEWORKS:
            cells[name].append(verdict(case, plain, name, folder / name / path.name))
        yield f"| {path.name} | {' | '.join(column[-1] for column in cells.values())} |"
    for word in ("same", "dialect", "no"):
        yield f"| **{word}** | {' | '.join(str(column.count(word)) for column in cells.values())} |"
    rest = (sum(cell not in ("same", "dialect", "no") for cell in column) for column in cells.values())
    yield f"| **neither** | {' | '.join(map(str, rest))} |"
    yield "\nWhy they refuse, most often:\n"
    for framework in FRAMEWORKS.values():
        reasons = Counter(path.read_text() for path in (folder / framework.name).glob("*.txt"))
        for reason, count in reasons.most_common(1):
            yield f"- {framework.title}, {count} cases: `{reason}`"


def without_contract(source: Path, target: Path) -> None:
    """A copy of a graph that says nothing about its steps, as a stranger would write it."""
    graph = nir.read(source, type_check=False)
    graph.metadata = {}
    nir.write(target, graph)


def verdict(case: Case, plain: Path, dialect: str, answer: Path) -> str:
    """What became of a case in a framework."""
    if not answer.with_suffix(".npy").exists():
        return "no"
    found = np.load(answer.with_suffix(".npy"))
    wanted = output_of(case.graph, case.clip.frames)
    if agree(found, wanted):
        return "same"
    for options in ({}, {"dt": case.graph.contract.dt}):
        try:
            spoken = read_graph(plain, dialect, **options)
        except InputError:
            continue
        if agree(found, output_of(spoken, case.clip.frames)):
            return "dialect"
    if found.shape != wanted.shape:
        return "other shape"
    if case.graph.contract.output == "membrane":
        return "other values"
    return f"{np.count_nonzero(found != wanted)} of {int(wanted.sum())}"


def output_of(graph: Graph, frames: np.ndarray) -> np.ndarray:
    """What the reference gives at the output: spike counts, or membranes where the last layer has none."""
    run = reference.run(graph, frames.astype(np.float64), dtype=torch.float64)
    return np.asarray(run.maps(graph.read_populations[0], graph.contract))


def agree(found: np.ndarray, wanted: np.ndarray) -> bool:
    """The same counts, or membranes that only rounding tells apart."""
    return found.shape == wanted.shape and np.allclose(found, wanted, rtol=1e-4, atol=1e-6)


def main() -> None:
    """Run everything, print and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--goldens", action="store_true", help="make the committed recordings anew as well")
    parser.add_argument("--count", type=int, default=100, help="networks per framework, at least")
    given = parser.parse_args()
    if given.goldens:
        refresh()
    tallies: dict[str, Tally] = {}
    with tempfile.TemporaryDirectory() as name:
        for framework in FRAMEWORKS.values():
            tallies[framework.name] = tally(framework, Path(name) / "networks" / framework.name, given.count)
            print(list(exporter_rows(tallies))[-1], flush=True)
        losses = [f"- {entry.title}: {entry.loses}." for entry in FRAMEWORKS.values()]
        lines = [EXPORTERS, *exporter_rows(tallies), LOSSES, *losses, IMPORTERS, *importer_rows(Path(name))]
    text = HEAD + "".join(line if line in (EXPORTERS, LOSSES, IMPORTERS) else f"{line}\n" for line in lines)
    PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
