"""Writes docs/classifiers.md: a classifier from every framework, on both chips.

    python -m tests.frameworks.write_classifiers [--pages FOLDER]

Every framework trains a small network in its own environment, exports it by its own exporter and records its
own spikes on 100 clips that it was not trained on; then `nrf conform --golden` compares chip, reference and
framework.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import nrf
from nrf.backends.conformance import Report
from nrf.backends.conformance.report import digits
from tests.frameworks.cases import FRAMEWORKS, Framework
from tests.frameworks.witnesses import run_script

PAGE = Path(__file__).parents[2] / "docs" / "classifiers.md"
INTRODUCTION = Path(__file__).parent / "classifiers.md"
CHIPS = ("loihi2", "speck2f")
TITLES = [
    "framework", "its own accuracy", "chip", "verdict", "agrees with the reference", "with the framework",
    "accuracy", "top-2 margin", "what fails",
]  # fmt: skip


def bars(count: int, seed: int, steps: int = 24, side: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Events of a bar that moves in one of five directions, over noise, (clips, T, 2, y, x); and which."""
    rng, labels = np.random.default_rng(seed), np.arange(count) % 5
    rows, columns = np.mgrid[:side, :side]
    clips = np.zeros((count, steps, 2, side, side), np.uint8)
    for n, label in enumerate(labels):
        x, y = rng.uniform(side * 0.35, side * 0.65, 2)
        angle = np.pi * label / 5 + rng.normal(0, 0.12)
        for t in range(steps):
            far = (columns - x) * np.sin(angle) - (rows - y) * np.cos(angle) - (t / steps - 0.5) * side * 0.6
            rate = 0.4 * np.exp(-(far**2)) + 0.015
            clips[n, t, 0] = rng.random(rate.shape) < rate
            clips[n, t, 1] = rng.random(rate.shape) < np.roll(rate, 1, 1) * 0.7
    return clips, labels


def train(framework: Framework, data: Path, folder: Path) -> float:
    """Have a framework make its classifier; its own accuracy."""
    script = "classifier_spyx.py" if framework.name == "spyx" else "train_classifier.py"
    return float(run_script(script, framework.vendor, framework.name, data, folder))


def conformed(framework: Framework, folder: Path, chip: str, page: Path | None) -> Report:
    """Chip, reference and framework on the clips that the framework recorded; scales from training clips."""
    graph = nrf.read(folder / "network.nir", dialect=framework.name, classes=0)
    shape = graph.shapes[graph.input]
    some = [clip.reshape(len(clip), *shape) for clip in np.load(folder.parent / "data.npz")["train"][:16]]
    golden = folder / "golden.npz"
    return nrf.conform(graph, chip, golden=golden, calibrate=some, runtimes=["builtin"], out=page)


def cells(report: Report) -> list[str]:
    """Verdict, agreement with the reference and with the framework, accuracy and margin; or why not."""
    if report.refusal:
        return ["does not fit", "", "", "", "", report.refusal.partition("; ")[0]]
    entries = {e.rung: e.figures for e in report.measured if e.runtime == "builtin" and e.node == "classes"}
    task, golden = entries["L3"], entries["golden"]
    agree = [f"{each['clips_agree']:.0f} of {each['clips_decided']:.0f}" for each in (task, golden)]
    failed = "; ".join(f"{c.rung} {c.node} {c.figure} {c.shown}" for c in report.failures)
    return [report.verdict, *agree, digits(task["accuracy"]), f"{task['margin']:g} spikes", failed]


def rows(folder: Path, pages: Path | None) -> Iterator[list[str]]:
    """One line per framework and chip."""
    data = folder / "data.npz"
    (train_clips, train_labels), (test, labels) = bars(300, 0), bars(100, 1)
    np.savez(data, train=train_clips, train_labels=train_labels, test=test, test_labels=labels)
    for framework in FRAMEWORKS.values():
        made = folder / framework.name
        made.mkdir()
        own = train(framework, data, made)
        for chip in CHIPS:
            page = None if pages is None else pages / f"{framework.name}-{chip}"
            yield [framework.title, digits(own), chip, *cells(conformed(framework, made, chip, page))]


def main() -> None:
    """Train, compare and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pages", type=Path, help="keep the reports here")
    pages = parser.parse_args().pages
    with tempfile.TemporaryDirectory() as folder:
        lines = [TITLES, ["---"] * len(TITLES), *rows(Path(folder), pages)]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    PAGE.write_text(INTRODUCTION.read_text() + table + "\n")


if __name__ == "__main__":
    main()
