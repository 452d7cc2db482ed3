"""`nrf demo`: the whole way on embedded defaults: events, training, graph, every chip, proof.

Every stage is the function that its `nrf` command calls; the files stay in the folder to play with.

    FOLDER/<model>/training/        checkpoints and log
    FOLDER/<model>/<chip>/model.nir the graph, rounded to the chip's numbers where the chip has its neurons
    FOLDER/<model>/<chip>/program   what the chip would get
    FOLDER/<model>/<chip>/report.*  how far the chip's integers do what the graph says
    FOLDER/report.html              all of it on one page

One model goes to every chip. A chip that lacks its neurons gets it approximately, if at all; then a model
with the chip's own neurons is trained as well, from the preset of the chip's name.
"""

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from nrf.cli.common import print_table
from nrf.cli.common import say as wrapped
from nrf.errors import InputError
from nrf.files import make_folder
from nrf.findings import errors

if TYPE_CHECKING:
    from nrf.backends.conformance.page import Overview
    from nrf.backends.conformance.report import Report
    from nrf.training.config import Config
    from nrf.training.loop import Machine

CLIPS = 4  # to compare on
MARK = ".nrf-demo"  # a folder with this file is ours to replace
Say = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What became of a model on a chip."""

    model: str
    target: str
    lowered: str  # on the grid | off the grid | approximately | refused
    report: "Report"


def demo(
    out: Annotated[Path, Option("--out", "-o", help="Folder for everything; replaced.")] = Path("demo"),
    quick: Annotated[bool, Option("--quick", help="A tiny model that learns little, in seconds.")] = False,
    minutes: Annotated[float, Option(help="The longest that all training may take.")] = 4,
) -> None:
    """Train a model, take it to every chip on the built-in simulators, and compare. Takes minutes."""
    from nrf.backends.border import chip_names

    start = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - start:4.0f} s  {line}", flush=True)

    preset = "tiny" if quick else "demo"
    rows = table_rows(run_demo(out, preset, chip_names(), say, own=not quick, minutes=minutes))
    titles = [title for title in rows[0] if title != "why"]
    print_table(titles, [[row[title] for title in titles] for row in rows])
    for model, chip, why in dict.fromkeys((row["model"], row["chip"], row["why"]) for row in rows):
        if why:
            wrapped(f"{model} on {chip}: {why}")
    print(out / "report.html")


def run_demo(
    folder: Path, preset: str, targets: Sequence[str], say: Say, *, own: bool = True, minutes: float = 4
) -> list[Outcome]:
    """Train a model and take it to every chip.

    With `own`, a chip that cannot take the model exactly gets one of its own. All training together takes
    `minutes` at most, the first half of that.
    """
    from nrf.backends.conformance.page import write_page
    from nrf.training.loop import Machine
    from nrf.training.presets import load_preset, preset_names

    first, end = Machine(minutes=minutes / 2), time.monotonic() + 60 * minutes
    make_folder(folder)
    if any(folder.iterdir()) and not (folder / MARK).is_file():
        raise InputError(f"{folder}: holds something that is not a demo; choose another folder")
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    (folder / MARK).touch()
    checkpoint = _train(load_preset(preset), folder / preset, say, first)
    outcomes = []
    for target in targets:
        outcomes.append(to_chip(checkpoint, target, folder / preset / target, say))
        if own and outcomes[-1].lowered != "on the grid" and target in preset_names():
            rest = Machine(minutes=max(0.5, (end - time.monotonic()) / 60))
            special = _train(load_preset(target), folder / target, say, rest)
            outcomes.append(to_chip(special, target, folder / target / target, say))
    write_page(folder / "report.html", *(o.report for o in outcomes), overview=overview(outcomes))
    return outcomes


def _train(config: "Config", folder: Path, say: Say, machine: "Machine") -> Path:
    from nrf.training.log import outcome, progress
    from nrf.training.loop import train

    shapes, clips = config.data.shapes, config.data.clips
    size = f"{shapes.steps} steps, {shapes.resolution}x{shapes.resolution} pixels"
    say(f"train '{config.name}' from scratch on {clips} clips of {size}")
    with progress(config.training.all_steps, sys.stderr) as report:
        summary = train(config, folder / "training", machine=machine, report=report)
    say(outcome(summary, config.training.all_steps))
    return folder / "training"


def to_chip(checkpoint: Path, name: str, folder: Path, say: Say) -> Outcome:
    """Export, check, lower, run on the built-in simulators, and compare with the reference."""
    import nrf
    from nrf.backends.border import backend_of
    from nrf.export import from_checkpoint, write_graph

    chip = nrf.load_chip(name)
    backend = backend_of(chip)
    make_folder(folder)
    graph = from_checkpoint(checkpoint)
    exact = not errors(backend.check(graph, chip))
    rounded = exact and backend.to_grid is not None
    write_graph(folder / "model.nir", nrf.on_grid(graph, chip) if rounded else graph)
    graph = nrf.read(folder / "model.nir")
    findings = backend.check(graph, chip)
    for rule in dict.fromkeys(finding.rule for finding in findings):
        first, *others = (finding for finding in findings if finding.rule == rule)
        say(f"{name}: {first.severity}: {first}" + (f" (and {len(others)} more)" if others else ""))
    program, lowered = None, "on the grid" if rounded else "off the grid" if exact else "approximately"
    try:
        approximate = backend.approximates and not exact
        program = nrf.lower(graph, chip, approximate=approximate, out=folder / "program")
    except InputError:  # the findings above say why, and so does the report
        lowered = "refused"
    say(f"{name}: lowered {lowered}" if program else f"{name}: refused")
    runtimes = backend.runtimes.values()
    builtin = [runtime.name for runtime in runtimes if runtime.device == "simulation" and not runtime.vendor]
    report = nrf.conform(graph, chip, CLIPS, runtimes=builtin, program=program, out=folder)
    return Outcome(checkpoint.parent.name, name, lowered, report)


def table_rows(outcomes: Sequence[Outcome]) -> list[dict[str, str]]:
    """One row per model, chip and runtime: agreement of spikes and coordinates, and the verdict."""
    rows = []
    for outcome in outcomes:
        ran = [run.runtime for run in outcome.report.runs if run.provenance]
        rows += [_row(outcome, runtime) for runtime in ran or [""]]
    return rows


def _row(outcome: Outcome, runtime: str) -> dict[str, str]:
    from nrf.backends.conformance.report import digits, worst

    report = outcome.report
    exact = any(run.exact for run in report.runs if run.runtime == runtime)
    mine = [entry for entry in report.measured if entry.runtime == runtime]
    spikes = [entry.figures["f1"] for entry in mine if entry.rung == "L2" and "f1" in entry.figures]
    pixels = next((entry.figures for entry in mine if entry.rung == "L3"), {})
    verdicts = [check.verdict for check in report.checks if check.runtime == runtime]
    return {
        "model": outcome.model,
        "chip": outcome.target,
        "runtime": runtime,
        "lowered": outcome.lowered,
        "spikes, worst F1": digits(min(spikes)) if spikes and exact else "",
        "px from reference": _pixels(pixels, "px"),
        "px from truth": _pixels(pixels, "truth"),
        "verdict": "does not fit" if report.refusal else worst(verdicts),
        "why": report.refusal or str(next(iter(errors(report.findings)), "")),  # of what is approximate
    }


def _pixels(figures: dict[str, float], prefix: str) -> str:
    """Median and 95th percentile."""
    if f"{prefix}_median" not in figures:
        return ""
    return f"{figures[f'{prefix}_median']:.2f}, {figures[f'{prefix}_p95']:.2f}"


def overview(outcomes: Sequence[Outcome]) -> "Overview":
    """The table on top of the page; the report of every model and chip is under it."""
    from nrf.backends.conformance.page import Overview

    rows = [(number, row) for number, outcome in enumerate(outcomes) for row in table_rows([outcome])]
    text = (
        "One model, trained from scratch, goes to every chip. A chip that lacks its neurons gets it "
        "approximately or not at all; then a model with the chip's own neurons is trained as well. Pixels "
        "are median and 95th percentile over held-out clips. All of this ran on built-in simulators. "
        "A row opens its report."
    )
    cells = [list(row.values()) for _, row in rows]
    return Overview("From training to chip", text, list(rows[0][1]), cells, [number for number, _ in rows])
