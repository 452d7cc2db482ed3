"""`nrf run`: events through a graph or a program."""

from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nrf.cli.common import print_json
from nrf.cli.contract import Bin, Delay, Dt, Fire, Reset, VMin, say_assumed
from nrf.errors import InputError


def register(app: typer.Typer) -> None:
    """Attach the command."""
    app.command()(run)


def run(
    model: Annotated[Path, typer.Argument(help="A NIR graph, or a program from `nrf lower`.")],
    input: Annotated[Path, typer.Option("--input", "-i", help=".npz with frames, or an event file.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The recording to write; without it, coordinates as events come in."
        ),
    ] = None,
    runtime: Annotated[
        str | None,
        typer.Option(help="What runs a program: builtin (unless said), lava, loihi2, sinabs, speck, ..."),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="A program's chip, if it is a .toml of your own.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Where a graph runs: cpu, cuda, cuda:1, ...")] = None,
    precision: Annotated[str | None, typer.Option(help="Of a graph's run: float32 or float64.")] = None,
    membranes: Annotated[
        bool | None, typer.Option(help="Whether to record every membrane of a graph's run.")
    ] = None,
    dt: Dt = None,
    reset: Reset = None,
    fire: Fire = None,
    delay: Delay = None,
    v_min: VMin = None,
    bin: Bin = None,
    realtime: Annotated[bool, typer.Option("--realtime", help="No faster than the recording.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Run events through a graph (in float, the reference) or a program (in a chip's integers)."""
    from nrf.backends.execute import is_graph, run_graph, run_program, summary
    from nrf.export import read_graph

    contract = {"dt": dt, "reset": reset, "fire": fire, "delay": delay, "v_min": v_min}
    of_graphs = contract | {"device": device, "precision": precision, "membranes": membranes}
    if out is None:
        _useless("a live run", of_graphs | {"runtime": runtime, "bin": bin})
        _live(model, input, target, realtime, json)
        return
    if is_graph(model):
        _useless("a graph", {"runtime": runtime, "target": target, "realtime": realtime or None})
        graph = read_graph(model, **contract)
        say_assumed(graph)
        keep = True if membranes is None else membranes
        recording = run_graph(graph, input, device or "cpu", precision or "float32", keep, bin)
    else:
        _useless("a program", of_graphs | {"realtime": realtime or None})
        recording = run_program(model, input, runtime or "builtin", target, bin)
    recording.save(out)
    answer = summary(recording)
    if json:
        print_json(answer | {"recording": out})
        return
    table = Table("node", "shape", "spikes", "per neuron and step", "latency, steps")
    for name, row in answer["nodes"].items():
        shape, latency = "x".join(map(str, row["shape"])), str(row["latency"])
        rate = "" if row["rate"] is None else f"{row['rate']:.4g}"
        table.add_row(escape(name), shape, str(row["spikes"] if rate else ""), rate, latency)
    Console().print(table)
    origin = recording.provenance
    print(f"{recording.steps} steps on {origin.target or 'float'} {origin.runtime} ({origin.device})")
    for key, count in origin.counters.items():
        print(f"{key}: {count}")
    if answer["coordinates"]:
        places = ", ".join(f"({x:.2f}, {y:.2f})" for x, y in answer["coordinates"])
        print(f"coordinates at the last step, pixels: {places}")
    print(out)


def _useless(what: str, options: dict[str, Any]) -> None:
    """Refuse options that would be ignored: another thing would run than was asked for."""
    for name, value in options.items():
        if value is not None:
            flag = name.replace("_", "-")
            raise InputError(f"--{flag} has no effect on {what}; leave it out (see nrf run --help)")


def _live(model: Path, input: Path, target: str | None, realtime: bool, json: bool) -> None:
    """Print where the shapes are, one line per reading; with --json one JSON object per line."""
    from nrf.backends.stream import readings

    for reading in readings(model, input, target=target, realtime=realtime):
        if json:
            print(dumps({"t": reading.t, "coordinates": reading.coordinates.tolist()}), flush=True)
        else:
            places = "  ".join(f"({x:6.2f}, {y:6.2f})" for x, y in reading.coordinates)
            print(f"{reading.t:9.3f} s  {places}", flush=True)
