"""Proof that a model still does the same thing on a chip: metrics, ladder, cases, report.

conform(graph, target, clips)    the ladder, as a report
compare_files(model, target)     the same from files, and report.json and report.html written
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nrf.backends.border.chip import Target
from nrf.backends.conformance.ladder import Clip, conform
from nrf.backends.conformance.report import Check, Report

__all__ = ["Check", "Clip", "Report", "compare_files", "conform"]


def compare_files(
    model: Path,
    target: Target,
    *,
    inputs: Sequence[Path] = (),
    program: Path | None = None,
    calibrate: Sequence[Path] = (),
    clips: int = 4,
    runtimes: Sequence[str] | None = None,
    repeats: int = 3,
    jobs: int = 1,
    out: Path | None = None,
    width: float | None = None,
    **contract: Any,
) -> Report:
    """Read a graph, compare it on a chip with the reference, and write the report into the folder `out`.

    `width` is how many seconds of events make a frame, for a graph that knows no dt.

    >>> compare_files(Path("model.nir"), load_target("loihi2"), out=Path("report")).verdict
    'pass'
    """
    from nrf.backends import backend_of
    from nrf.backends.conformance.clips import calibration_clips, made_clips, read_clips
    from nrf.backends.conformance.html import write_page
    from nrf.backends.lowering import calibration
    from nrf.export import read_graph

    graph = read_graph(model, **contract)
    report = conform(
        graph,
        target,
        read_clips(inputs, graph, width) if inputs else made_clips(graph, clips),
        runtimes=runtimes,
        program=backend_of(target).load(program) if program else None,
        calibration=calibration.read_clips(calibrate, graph, width)
        if calibrate
        else calibration_clips(graph),
        repeats=repeats,
        jobs=jobs,
    )
    if out is not None:
        report.save(out / "report.json")
        write_page(out / "report.html", report)
    return report
