"""The whole way on embedded defaults: events, training, graph, both chips, proof.

Every stage is the function that its `nrf` command calls; the files stay in the folder to play with.

    FOLDER/training/          checkpoints and log
    FOLDER/<chip>/model.nir   the graph, rounded to the chip's numbers where the chip has its neurons
    FOLDER/<chip>/program     what the chip would get
    FOLDER/<chip>/report.*    how far the chip's integers do what the graph says
    FOLDER/report.html        all of it on one page
"""

import html
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from nrf.errors import InputError
from nrf.files import whole_file
from nrf.findings import errors

if TYPE_CHECKING:
    from nrf.backends.conformance.report import Report
    from nrf.config import Config
    from nrf.log import Row

Say = Callable[[str], None]
Progress = Callable[[int], AbstractContextManager[Callable[["Row"], None]]]


@dataclass(frozen=True)
class Outcome:
    """What became of the model on one chip."""

    target: str
    lowered: str  # how: on the grid | approximately
    report: "Report"


def demo(
    folder: Path, config: "Config", targets: Sequence[str], say: Say, progress: Progress
) -> list[Outcome]:
    """Train a model and take it to every chip; `progress(steps)` gives a context that shows the training."""
    from nrf.training import train

    if folder.exists() and not (folder / "training").is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder}: holds something that is not a demo; choose another folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    training, shapes = config.training, config.data.shapes
    say(
        f"train '{config.name}' from scratch on {config.data.clips} clips of {shapes.steps} steps, "
        f"{shapes.resolution}x{shapes.resolution} pixels"
    )
    with progress(training.pretrain.steps + training.steps) as report:
        summary = train(config, folder / "training", report=report)
    say(f"held-out error {summary['error']:.2f} px (guessing the centre: {summary['centre_error']:.2f} px)")
    outcomes = [to_chip(folder / "training", target, folder / target, say) for target in targets]
    write_page(folder / "report.html", outcomes)
    return outcomes


def to_chip(checkpoint: Path, name: str, folder: Path, say: Say) -> Outcome:
    """Export, check, lower, run on the built-in simulators, and compare with the reference."""
    from nrf.backends import backend_of
    from nrf.backends.conformance import conform
    from nrf.backends.conformance.clips import calibration_clips, made_clips
    from nrf.backends.conformance.html import write_page
    from nrf.backends.target import load_target
    from nrf.backends.vendors import VENDORS
    from nrf.export import from_checkpoint, read_graph, write_graph

    target = load_target(name)
    backend = backend_of(target)
    folder.mkdir()
    graph = from_checkpoint(checkpoint)
    exact = not errors(backend.check(graph, target))
    write_graph(folder / "model.nir", from_checkpoint(checkpoint, grid=name) if exact else graph)
    graph = read_graph(folder / "model.nir")
    for finding in backend.check(graph, target):
        say(f"{name}: {finding.severity}: {finding}")
    options = {} if exact else {"approximate": True}
    program = backend.lower(graph, target, calibration_clips(graph), **options)
    program.save(folder / "program")
    lowered = "on the grid" if exact else "approximately"
    say(f"{name}: lowered {lowered}, checksum {program.checksum}; comparing with the reference")
    builtin = [key for key, one in backend.RUNTIMES.items() if one.device != "chip" and key not in VENDORS]
    report = conform(graph, target, made_clips(graph, 4), runtimes=builtin, program=program)
    report.save(folder / "report.json")
    write_page(folder / "report.html", report)
    return Outcome(name, lowered, report)


def rows(outcomes: Sequence[Outcome]) -> list[dict[str, str]]:
    """One row per chip and runtime: agreement of spikes and coordinates, and the verdict."""
    return [
        _row(outcome, run.runtime) for outcome in outcomes for run in outcome.report.runs if run.provenance
    ]


def _row(outcome: Outcome, runtime: str) -> dict[str, str]:
    from nrf.backends import backend_of
    from nrf.backends.conformance.report import worst

    exact = backend_of(outcome.report.target).RUNTIMES[runtime].exact
    mine = [entry for entry in outcome.report.measured if entry.runtime == runtime]
    spikes = [entry.figures["f1"] for entry in mine if entry.rung == "L2" and "f1" in entry.figures]
    pixels = next((entry.figures for entry in mine if entry.rung == "L3"), {})
    return {
        "chip": outcome.target,
        "runtime": runtime,
        "lowered": outcome.lowered,
        "spikes, worst F1": f"{min(spikes):.4f}" if spikes and exact else "order is free",
        "px from reference": _pixels(pixels, "px"),
        "px from truth": _pixels(pixels, "truth"),
        "verdict": worst(check.verdict for check in outcome.report.checks if check.runtime == runtime),
    }


def _pixels(figures: dict[str, float], what: str) -> str:
    """Median and 95th percentile."""
    return (
        f"{figures[f'{what}_median']:.2f}, {figures[f'{what}_p95']:.2f}"
        if f"{what}_median" in figures
        else ""
    )


def write_page(path: Path, outcomes: Sequence[Outcome]) -> None:
    """One page that needs nothing else: the table, and inside it the full report of every chip."""
    found = rows(outcomes)
    head = "".join(f"<th>{html.escape(title)}</th>" for title in found[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(value)}</td>" for value in row.values()) + "</tr>"
        for row in found
    )
    reports = "".join(_section(outcome.report.target.title, outcome.report) for outcome in outcomes)
    template = Template((resources.files("nrf") / "demo.html").read_text())
    with whole_file(path) as part:
        part.write_text(template.substitute(head=head, body=body, reports=reports), encoding="utf-8")


def _section(title: str, report: "Report") -> str:
    from nrf.backends.conformance.html import render

    page = html.escape(render(report))
    heading = html.escape(f"{title}: {report.verdict}")
    return f'<details open><summary>{heading}</summary><iframe srcdoc="{page}"></iframe></details>'
