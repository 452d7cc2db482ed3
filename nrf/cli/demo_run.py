"""The whole way on embedded defaults: events, training, graph, every chip, proof.

Every stage is the function that its `nrf` command calls; the files stay in the folder to play with.

    FOLDER/<model>/training/        checkpoints and log
    FOLDER/<model>/<chip>/model.nir the graph, rounded to the chip's numbers where the chip has its neurons
    FOLDER/<model>/<chip>/program   what the chip would get
    FOLDER/<model>/<chip>/report.*  how far the chip's integers do what the graph says
    FOLDER/report.html              all of it on one page

One model goes to every chip. A chip that lacks its neurons gets it approximately, if at all; then a model
with the chip's own neurons is trained as well, from the preset of the chip's name.
"""

import html
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from nrf.errors import InputError
from nrf.files import atomic_write, make_folder
from nrf.findings import errors

if TYPE_CHECKING:
    from nrf.backends.conformance.report import Report
    from nrf.training.config import Config
    from nrf.training.log import Row

CLIPS = 4  # to compare on
MARK = ".nrf-demo"  # a folder with this file is ours to replace
Say = Callable[[str], None]
Progress = Callable[[int], AbstractContextManager[Callable[["Row"], None]]]


@dataclass(frozen=True)
class Outcome:
    """What became of a model on a chip."""

    model: str
    target: str
    lowered: str  # on the grid | approximately | refused
    report: "Report"


def demo(
    folder: Path,
    preset: str,
    targets: Sequence[str],
    say: Say,
    progress: Progress,
    *,
    own: bool = True,
    minutes: float = 4,
) -> list[Outcome]:
    """Train a model and take it to every chip.

    `progress(steps)` gives a context that shows a training. With `own`, a chip that cannot take the model
    exactly gets one of its own. All training together takes `minutes` at most, the first half of that.
    """
    from nrf.training.presets import load_preset, preset_names

    if not minutes > 0:
        raise InputError(f"--minutes is {minutes:g}, expected more than 0")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; choose another folder")
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).is_file():
        raise InputError(f"{folder}: holds something that is not a demo; choose another folder")
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    (folder / MARK).touch()
    end = time.monotonic() + 60 * minutes
    checkpoint = _train(load_preset(preset), folder / preset, say, progress, minutes / 2)
    outcomes = []
    for target in targets:
        outcomes.append(to_chip(checkpoint, target, folder / preset / target, say))
        if own and outcomes[-1].lowered != "on the grid" and target in preset_names():
            left = max(0.5, (end - time.monotonic()) / 60)
            special = _train(load_preset(target), folder / target, say, progress, left)
            outcomes.append(to_chip(special, target, folder / target / target, say))
    write_page(folder / "report.html", outcomes)
    return outcomes


def _train(config: "Config", folder: Path, say: Say, progress: Progress, minutes: float) -> Path:
    from nrf.training.loop import Machine, train

    steps, shapes = config.training.pretrain.steps + config.training.steps, config.data.shapes
    size = (
        f"{config.data.clips} clips of {shapes.steps} steps, {shapes.resolution}x{shapes.resolution} pixels"
    )
    say(f"train '{config.name}' from scratch on {size}")
    with progress(steps) as report:
        summary = train(config, folder / "training", machine=Machine(minutes=minutes), report=report)
    say(f"held-out error {summary['error']:.2f} px (guessing the centre: {summary['centre_error']:.2f} px)")
    return folder / "training"


def to_chip(checkpoint: Path, name: str, folder: Path, say: Say) -> Outcome:
    """Export, check, lower, run on the built-in simulators, and compare with the reference."""
    from nrf.backends import backend_of, on_grid
    from nrf.backends.border.chip import load_target
    from nrf.backends.conformance import conform
    from nrf.backends.conformance.clips import calibration_clips, made_clips
    from nrf.backends.conformance.html import write_page
    from nrf.backends.vendors import VENDORS
    from nrf.export import from_checkpoint, read_graph, write_graph

    target = load_target(name)
    backend = backend_of(target)
    make_folder(folder)
    plain = from_checkpoint(checkpoint)
    exact = not errors(backend.check(plain, target))
    write_graph(folder / "model.nir", on_grid(plain, target) if exact else plain)
    graph = read_graph(folder / "model.nir")
    findings = backend.check(graph, target)
    for rule in dict.fromkeys(finding.rule for finding in findings):
        first, *others = (finding for finding in findings if finding.rule == rule)
        say(f"{name}: {first.severity}: {first}" + (f" (and {len(others)} more)" if others else ""))
    lowered, program = "on the grid" if exact else "approximately", None
    try:
        options = {} if exact else {"approximate": True}
        program = backend.lower(graph, target, calibration_clips(graph), **options)
        program.save(folder / "program")
    except InputError:  # the findings above say why, and so does the report
        lowered = "refused"
    say(f"{name}: lowered {lowered}" if program else f"{name}: refused")
    builtin = [key for key, one in backend.RUNTIMES.items() if one.device != "chip" and key not in VENDORS]
    report = conform(graph, target, made_clips(graph, CLIPS), runtimes=builtin, program=program)
    report.save(folder / "report.json")
    write_page(folder / "report.html", report)
    return Outcome(checkpoint.parent.name, name, lowered, report)


def rows(outcomes: Sequence[Outcome]) -> list[dict[str, str]]:
    """One row per model, chip and runtime: agreement of spikes and coordinates, and the verdict."""
    found = []
    for outcome in outcomes:
        ran = [run.runtime for run in outcome.report.runs if run.provenance]
        found += [_row(outcome, runtime) for runtime in ran or [""]]
    return found


def _row(outcome: Outcome, runtime: str) -> dict[str, str]:
    from nrf.backends import backend_of
    from nrf.backends.conformance.report import worst

    report = outcome.report
    exact = bool(runtime) and backend_of(report.target).RUNTIMES[runtime].exact
    mine = [entry for entry in report.measured if entry.runtime == runtime]
    spikes = [entry.figures["f1"] for entry in mine if entry.rung == "L2" and "f1" in entry.figures]
    pixels = next((entry.figures for entry in mine if entry.rung == "L3"), {})
    return {
        "model": outcome.model,
        "chip": outcome.target,
        "runtime": runtime,
        "lowered": outcome.lowered,
        "spikes, worst F1": f"{min(spikes):.4f}" if spikes and exact else "",
        "px from reference": _pixels(pixels, "px"),
        "px from truth": _pixels(pixels, "truth"),
        "verdict": worst(check.verdict for check in report.checks if check.runtime == runtime),
    }


def _pixels(figures: dict[str, float], what: str) -> str:
    """Median and 95th percentile."""
    if f"{what}_median" not in figures:
        return ""
    return f"{figures[f'{what}_median']:.2f}, {figures[f'{what}_p95']:.2f}"


def write_page(path: Path, outcomes: Sequence[Outcome]) -> None:
    """One page that needs nothing else: the table, and under it the full report of every chip."""
    found = rows(outcomes)
    head = "".join(f"<th>{html.escape(title)}</th>" for title in found[0])
    lines = ("".join(f"<td>{html.escape(value)}</td>" for value in row.values()) for row in found)
    template = Template((resources.files("nrf.cli") / "demo.html").read_text())
    page = template.substitute(
        head=head,
        body="".join(f"<tr>{line}</tr>" for line in lines),
        reports="".join(map(_section, outcomes)),
    )
    with atomic_write(path) as part:
        part.write_text(page, encoding="utf-8")


def _section(outcome: Outcome) -> str:
    from nrf.backends.conformance.html import render

    report = outcome.report
    heading = html.escape(f"Model '{outcome.model}' on {report.target.title}: {report.verdict}")
    page = html.escape(render(report))
    return f'<details open><summary>{heading}</summary><iframe srcdoc="{page}"></iframe></details>'
