"""`nrf lower`: a graph becomes the integers of a chip."""

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from nrf.cli.common import print_json
from nrf.cli.contract import Bin, Delay, Dt, Fire, Reset, VMin, say_assumed
from nrf.errors import InputError

if TYPE_CHECKING:
    from nrf.backends import Backend


def register(app: typer.Typer) -> None:
    """Attach the command."""
    app.command()(lower)


def lower(
    model: Annotated[Path, typer.Argument(help="A NIR graph.")],
    target: Annotated[str, typer.Option(help="loihi2, speck2f, or a path to a .toml file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The program file to write.")],
    calibrate: Annotated[
        list[Path] | None, typer.Option(help="Clips to choose scales on; may be given several times.")
    ] = None,
    approximate: Annotated[
        bool, typer.Option("--approximate", help="Also lower what the chip can only approximate.")
    ] = False,
    format: Annotated[str, typer.Option(help="program, or a vendor's own format such as net.")] = "program",
    dt: Dt = None,
    reset: Reset = None,
    fire: Fire = None,
    delay: Delay = None,
    v_min: VMin = None,
    bin: Bin = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Lower a graph to a chip's program; says what was lost, and where everything goes."""
    from nrf.backends import backend_of
    from nrf.backends.border.chip import load_target
    from nrf.backends.lowering.calibration import read_clips
    from nrf.export import read_graph

    chip = load_target(target)
    backend = backend_of(chip)
    save, options = _format(backend, format, target)
    if approximate:
        if "approximate" not in signature(backend.lower).parameters:
            raise InputError(f"{target} approximates nothing; leave out --approximate")
        options["approximate"] = True
    graph = read_graph(model, dt=dt, reset=reset, fire=fire, delay=delay, v_min=v_min)
    say_assumed(graph)
    clips = read_clips(calibrate or [], graph, bin)
    program = backend.lower(graph, chip, clips or None, **options)
    save(program, out)
    if json:
        print_json({"program": out, "target": chip.name, "checksum": program.checksum, **program.report})
        return
    _print(program.report)
    print(f"{out}: {chip.title}, checksum {program.checksum}")


def _format(backend: "Backend", name: str, target: str) -> tuple[Callable[[Any, Path], None], dict[str, Any]]:
    """How to write a program in a format, and the options that lowering needs for it."""
    formats = getattr(backend, "FORMATS", {})
    if name == "program":
        return lambda program, path: program.save(path), {}
    if name not in formats:
        raise InputError(f"{target} has no format '{name}'; there are {', '.join(['program', *formats])}")
    write, options = formats[name]
    return write, dict(options)


def _print(report: dict[str, Any]) -> None:
    """One line per population, then everything that is a single figure."""
    rows = report.get("populations", {})
    columns = list(dict.fromkeys(key for row in rows.values() for key in row))
    table = Table("population", *columns)
    for name, row in rows.items():
        table.add_row(name, *(_short(row.get(key, "")) for key in columns))
    Console().print(table)
    for key, value in report.get("placement", {}).items():
        if not isinstance(value, list | dict):
            print(f"{key.replace('_', ' ')}: {_short(value)}")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
