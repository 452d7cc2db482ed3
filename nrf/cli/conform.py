"""`nrf conform`: does the model still do the same thing on the chip?"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nrf.cli.common import print_json
from nrf.cli.contract import Bin, Delay, Dt, Fire, Reset, VMin, say_assumed
from nrf.errors import InputError
from nrf.files import make_folder

if TYPE_CHECKING:
    from nrf.backends.conformance.report import Report
    from nrf.backends.conformance.suite import Result

COLOURS = {"pass": "green", "fail": "red", "not applicable": "bright_black"}


def register(app: typer.Typer) -> None:
    """Attach the command."""
    app.command()(conform)


def conform(
    model: Annotated[Path | None, typer.Argument(help="A NIR graph; none with --cases.")] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="loihi2, speck2f, or a path to a .toml file.")
    ] = None,
    runtime: Annotated[list[str] | None, typer.Option(help="Only these; else all that are present.")] = None,
    input: Annotated[
        list[Path] | None,
        typer.Option("--input", "-i", help="Clips, or a folder of them; else held-out ones."),
    ] = None,
    clips: Annotated[int, typer.Option(min=1, help="How many clips to make where no --input is given.")] = 4,
    program: Annotated[
        Path | None, typer.Option(help="A program from `nrf lower`; else lowered here.")
    ] = None,
    calibrate: Annotated[list[Path] | None, typer.Option(help="Clips to choose scales on.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Runs on a runtime that is asynchronous.")] = 3,
    jobs: Annotated[int, typer.Option(help="Processes that share clips or cases; -1 for all cores.")] = 1,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for report.json, report.html.")] = Path(
        "conformance"
    ),
    cases: Annotated[
        bool, typer.Option("--cases", help="Run the built-in cases instead of a model.")
    ] = False,
    case: Annotated[list[str] | None, typer.Option(help="Only these cases.")] = None,
    scoreboard: Annotated[Path | None, typer.Option(help="With --cases: write the table here.")] = None,
    write_cases: Annotated[
        Path | None, typer.Option(help="Write the cases as graphs and inputs into this folder, and stop.")
    ] = None,
    dt: Dt = None,
    reset: Reset = None,
    fire: Fire = None,
    delay: Delay = None,
    v_min: VMin = None,
    bin: Bin = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Compare a model on a chip with the reference, node by node; exit code 1 if anything fails."""
    from nrf.backends.border.chip import load_target, target_names

    if write_cases:
        from nrf.backends.conformance import cases as all_of_them

        print(f"{write_cases}: {all_of_them.write_cases(write_cases)} cases")
        return
    if jobs == 0:
        raise InputError("--jobs is 0; give a number of processes, or -1 for all cores")
    if cases or case:
        if model or input or program or calibrate:
            raise InputError("--cases brings its own models and clips; leave out the others")
        from nrf.backends.conformance.suite import run_suite, write_scoreboard

        chips = [load_target(name) for name in target or target_names()]
        found = run_suite(chips, case, runtime, jobs)
        if scoreboard:
            write_scoreboard(scoreboard, found)
        print_json([result.to_json() for result in found]) if json else _print_results(found)
        raise typer.Exit(any(result.verdict == "fail" for result in found))

    if model is None or not target or len(target) != 1:
        raise InputError("conform takes one model and one --target, or --cases; see nrf conform --help")
    from nrf.backends.conformance import compare_files

    make_folder(out)
    overrides = {"dt": dt, "reset": reset, "fire": fire, "delay": delay, "v_min": v_min}
    report = compare_files(
        model,
        load_target(target[0]),
        inputs=input or [],
        program=program,
        calibrate=calibrate or [],
        clips=clips,
        runtimes=runtime,
        repeats=repeats,
        jobs=jobs,
        out=out,
        width=bin,
        **overrides,
    )
    say_assumed(report.graph)
    print_json(report.to_json()) if json else _print_report(report, out)
    raise typer.Exit(report.verdict == "fail")


def _console() -> Console:
    """Wide enough for whole words where nobody watches: in a pipe or a log."""
    return Console(width=None if sys.stdout.isatty() else 120)


def _print_report(report: "Report", out: Path) -> None:
    table = Table("node", "runtime", "rung", "figure", "value", "tolerance", "verdict", box=SIMPLE)
    reasons: dict[str, list[str]] = {}
    for check in report.checks:
        if check.reason:
            reasons.setdefault(check.reason, []).append(f"{check.node or check.runtime} {check.rung}")
        if check.value is not None or check.verdict == "fail":
            value = "" if check.value is None else f"{check.value:.4g}"
            verdict = f"[{COLOURS[check.verdict]}]{check.verdict}[/]"
            row = (escape(check.node or "all"), check.runtime, check.rung, check.figure, value)
            table.add_row(*row, check.tolerance, verdict)
    _console().print(table)
    for reason, places in reasons.items():
        verdict = "fail" if any(c.reason == reason for c in report.failures) else "not applicable"
        print(f"{verdict}: {', '.join(dict.fromkeys(places))}: {reason}")
    if first := report.first_divergence:
        print(f"first divergence, {first.runtime}: {first.divergence}")
    print(report.summary)
    print(out / "report.html")


def _print_results(found: "list[Result]") -> None:
    table = Table("case", "target", "runtime", "verdict", "why", box=SIMPLE)
    for result in found:
        verdict = f"[{COLOURS[result.verdict]}]{result.verdict}[/]"
        table.add_row(result.case, result.target, result.runtime, verdict, escape(result.reason))
    _console().print(table)
    counts = [sum(r.verdict == verdict for r in found) for verdict in ("pass", "fail", "not applicable")]
    print("{} passed, {} failed, {} not applicable".format(*counts))
