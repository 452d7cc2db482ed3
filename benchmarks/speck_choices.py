"""How far answers of Speck depend on what SynSense does not document, as a table in docs/speck.md.

    python benchmarks/speck_choices.py ../shared/nir_paper/cnn_sinabs.nir

Three programs: the trained preset `speck2f` (tests/backends/speck/speck2f.nir), the NIR paper's CNN under the
dialect `sinabs`, and a network with biases and two branches, whose weights are random. Clips are held out: of
the preset's kind; and drifting blobs, for the CNN five frames summed into one. Every choice of the
asynchronous simulator is compared with its default, everything else being equal (`nrf conform` does the same
for any program). Placement leaves cores 0 and 1 free, so that their jitter is also measured with the first
two layers moved there.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import nir
import numpy as np

from nrf import api
from nrf.backends.border import LowerOptions, load_chip
from nrf.backends.conformance.choices import dependence
from nrf.backends.conformance.ladder import Clip, conform
from nrf.backends.lowering.calibration import generated_clips
from nrf.backends.speck.asynchronous import CHOICES
from nrf.backends.speck.chip import Speck
from nrf.backends.speck.lower import lower
from nrf.backends.speck.program import SpeckProgram
from nrf.events.synthetic import clip
from nrf.export import Contract, Graph, canonical, read_graph
from nrf.training.presets import load_preset

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "speck.md"
BEGIN, END = "<!-- written by benchmarks/speck_choices.py -->\n", "<!-- end -->\n"
CLIPS = 4
MOVED = "jitter=yes, layers 1 and 2 on cores 0 and 1"
CHIP = load_chip("speck2f")


def branched() -> Graph:
    """Four layers of IF neurons with random weights and biases of both signs; the first feeds two others."""
    rng, shape = np.random.default_rng(0), (8, 16, 16)
    nodes: dict[str, nir.NIRNode] = {"input": nir.Input(np.array([2, 16, 16]))}
    edges = []
    for number, sources in (1, ["input"]), (2, ["if1"]), (3, ["if1"]), (4, ["if2", "if3"]):
        weight = rng.integers(-20, 30, (8, 2 if number == 1 else 8, 3, 3)) / 128
        bias = rng.integers(-20, 20, 8) / 128
        nodes[f"conv{number}"] = nir.Conv2d((16, 16), weight, 1, 1, 1, 1, bias)
        nodes[f"if{number}"] = nir.IF(np.ones(shape), np.ones(shape), np.zeros(shape))
        edges += [*((source, f"conv{number}") for source in sources), (f"conv{number}", f"if{number}")]
    nodes["output"] = nir.Output(np.array(shape))
    graph = nir.NIRGraph(nodes, [*edges, ("if4", "output")], type_check=False)
    contract = Contract(dt=1e-3, membrane="unit", reset="subtract", fire="ge", v_min=-1.0)
    return canonical(graph, contract, "branched")


def summed(shape: tuple[int, ...], frames: int, first: int) -> list[np.ndarray]:  # type: ignore[type-arg]
    """Clips of drifting blobs, some frames in one."""
    parts = generated_clips(shape, 60 * frames, range(first, first + CLIPS))
    return [part.reshape(60, frames, *shape).sum(axis=1) for part in parts]


def rows(graph: Graph, program: SpeckProgram, clips: list[np.ndarray]) -> dict[str, str]:  # type: ignore[type-arg]
    """Of every choice: how far the output's counts differ, and how far coordinates move."""
    named = [Clip(f"{n}", frames) for n, frames in enumerate(clips)]
    report = conform(graph, CHIP, named, runtimes=["asynchronous"], program=program, repeats=2)
    table = dependence(report.measured, graph.read_populations)
    return {title: f"{share}{f', {px} px' if px else ''}" for title, _, _, _, share, px in table}


def column(graph: Graph, clips: list[np.ndarray], options: LowerOptions) -> dict[str, str]:  # type: ignore[type-arg]
    """All rows of one program, with the first two layers on cores 0 and 1 too."""
    assert isinstance(CHIP, Speck)
    program = lower(graph, CHIP, options)
    found = rows(graph, program, clips)
    others = [each for each in program.populations if each.core not in (0, 1)]
    moved = [replace(each, core=n) for n, each in enumerate(others[:2])] + others[2:]
    found[MOVED] = rows(graph, replace(program, populations=tuple(moved)), clips)["jitter=yes"]
    return found


def table(paper: str) -> str:
    """The page's table."""
    preset = read_graph(ROOT / "tests/backends/speck/speck2f.nir")
    cnn, random = api.read(paper, dialect="sinabs"), branched()
    shapes = load_preset("speck2f").data.shapes
    columns = [
        column(preset, [clip((99, index), shapes).frames() for index in range(CLIPS)], LowerOptions()),
        column(cnn, summed((2, 34, 34), 5, 50), LowerOptions(summed((2, 34, 34), 5, 0), "given")),
        column(random, summed((2, 16, 16), 1, 50), LowerOptions()),
    ]
    lines = ["| not documented | preset `speck2f` | `cnn_sinabs.nir` | biases and branches |"]
    lines.append("| --- | --- | --- | --- |")
    for title in columns[0]:
        key = title.partition("=")[0]
        default = f" (default {CHOICES[key][0]})" if key in CHOICES and title != MOVED else ""
        lines.append(f"| {title}{default} | " + " | ".join(each[title] for each in columns) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table and write it to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paper", help="cnn_sinabs.nir of the NIR paper")
    text = table(parser.parse_args().paper)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + text + END + rest.partition(END)[2])
    print(text)


if __name__ == "__main__":
    main()
