"""How close tuning brings a chip to the float reference: agreement of decisions, output counts, output error.

    python benchmarks/tune.py                    all cases, three seeds each (many minutes)
    python benchmarks/tune.py --only lif --seeds 1
    python benchmarks/tune.py --results lines.jsonl

Per case: a network (trained here on synthetic clips, except for the NIR paper's), `nrf tune` on clips without
labels, and a table of clips that nothing was chosen on. Prints Markdown, a line per seed. With --results
every finished seed is kept in a file; the same command goes on from there while the recipe is the same.
"""

import argparse
import ast
import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nrf.backends.border import load_chip
from nrf.backends.lowering.calibration import generated_clips
from nrf.backends.tuning import Options, Tuned, tune
from nrf.events import Sample
from nrf.export.graph import Graph

from tune_cases import (  # isort: skip
    Frames, digit_clips, if_classifier, late_classifier, lif_classifier, moving_clips, paper_cnn, trains,
)  # fmt: skip

CLIPS = 960  # 480 to train on, 128 held back, 352 to test
FEWER = 720  # 360, 128, 232
FRESH = 2027  # seed of these clips


@dataclass(frozen=True)
class Case:
    """A network for a chip, and clips."""

    title: str
    target: str
    network: Callable[[int], Graph]
    clips: Callable[[], list[Frames]]
    iterations: int = 400


CASES = {
    "lif": Case("LIF conv classifier", "speck2f", lif_classifier, lambda: moving_clips(CLIPS, FRESH)[0]),
    "if": Case(
        "IF conv net, several spikes", "loihi2", if_classifier, lambda: moving_clips(CLIPS, FRESH, most=4)[0]
    ),
    "cnn": Case(
        "paper's CNN, digits", "speck2f", lambda seed: paper_cnn(), lambda: digit_clips(CLIPS, FRESH)[0], 200
    ),
    "blobs": Case(
        "paper's CNN, blobs",
        "speck2f",
        lambda seed: paper_cnn(),
        lambda: generated_clips((2, 34, 34), 60, range(FRESH, FRESH + FEWER)),
        100,
    ),
    "late": Case("fully connected, late reset", "loihi2", late_classifier, lambda: trains(FEWER, FRESH)),
}
TITLES = ("case", "seed", "runtime", "before", "untrained", "tuned", "kept", "close calls", "CPU s")


def line(case: Case, seed: int, runtime: str, tuned: Tuned) -> str:
    """Agreement; ratio; error of every stage."""
    cells = {
        row.stage: f"{row.figures.agreement:.3f}; {row.figures.ratio:.2f}; {row.figures.error:.3f}"
        for row in tuned.rows
        if row.runtime == runtime
    }
    last = cells.get("tuned") or f"({cells['not kept']})"
    facts = (tuned.kept, f"{tuned.did['teacher_close']:.0%}", f"{tuned.seconds:.0f}")
    name = f"{case.title} -> {case.target}"
    whole = (name, str(seed), runtime, cells.get("before", ""), cells["untrained"], last, *facts)
    return "| " + " | ".join(whole) + " |"


def say(line: str) -> None:
    """How far it is, apart from the table."""
    print(line, file=sys.stderr, flush=True)


def recipe() -> str:
    """Of the code that the lines depend on, comments apart."""
    here = Path(__file__).parent
    files = (*sorted((here.parent / "backends" / "tuning").glob("*.py")), here / "tune_cases.py")
    trees = (ast.dump(ast.parse(path.read_text())) for path in files)
    return hashlib.sha256("".join(trees).encode()).hexdigest()[:12]


def lines(name: str, seed: int, results: Path | None) -> list[str]:
    """Of one case and seed, one per runtime; those in the file of results, if they are there."""
    case = CASES[name]
    key = [name, seed, case.iterations, recipe()]
    if results is not None and results.exists():
        for found in map(json.loads, results.read_text().splitlines()):
            if found["key"] == key:
                return list(found["lines"])
    clips = [Sample(f"clip {n}", frames) for n, frames in enumerate(case.clips())]
    options = Options(iterations=case.iterations, seed=seed)
    tuned = tune(case.network(seed), load_chip(case.target), clips, options, progress=say)
    made = [line(case, seed, runtime, tuned) for runtime in dict.fromkeys(row.runtime for row in tuned.rows)]
    if results is not None:
        with results.open("a") as file:
            file.write(json.dumps({"key": key, "lines": made}) + "\n")
    return made


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--results", type=Path, help="keep finished lines here, and go on from them")
    arguments = parser.parse_args()
    print("| " + " | ".join(TITLES) + " |")
    print("|---" * len(TITLES) + "|")
    for name in arguments.only:
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            print(*lines(name, seed, arguments.results), sep="\n", flush=True)


if __name__ == "__main__":
    main()
