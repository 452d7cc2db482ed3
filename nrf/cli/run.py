"""`nrf run`: events through a graph or a program."""

from json import dumps
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nrf.cli.common import print_json
from nrf.cli.contract import Delay, Dt, Fire, Reset, VMin, say_assumed


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
        str, typer.Option(help="What runs a program: builtin, lava, loihi2, sinabs, speck, ...")
    ] = "builtin",
    device: Annotated[str, typer.Option(help="Where a graph runs: cpu, cuda, cuda:1, ...")] = "cpu",
    precision: Annotated[str, typer.Option(help="Of a graph's run: float32 or float64.")] = "float32",
    membranes: Annotated[bool, typer.Option(help="Also record every membrane of a graph's run.")] = True,
    dt: Dt = None,
    reset: Reset = None,
    fire: Fire = None,
    delay: Delay = None,
    v_min: VMin = None,
    realtime: Annotated[bool, typer.Option("--realtime", help="No faster than the recording.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Run events through a graph (in float, the reference) or a program (in a chip's integers)."""
    from nrf.backends.execute import is_graph, run_graph, run_program, summary
    from nrf.export import read_graph

    if out is None:
        _live(model, input, realtime, json)
        return
    if is_graph(model):
        graph = read_graph(model, dt=dt, reset=reset, fire=fire, delay=delay, v_min=v_min)
        say_assumed(graph)
        recording = run_graph(graph, input, device, precision, membranes)
    else:
        recording = run_program(model, input, runtime)
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


def _live(model: Path, input: Path, realtime: bool, json: bool) -> None:
    """Print where the shapes are, one line per reading; with --json one JSON object per line."""
    from nrf.backends.stream import readings

    for reading in readings(model, input, realtime=realtime):
        if json:
            print(dumps({"t": reading.t, "coordinates": reading.coordinates.tolist()}), flush=True)
        else:
            places = "  ".join(f"({x:6.2f}, {y:6.2f})" for x, y in reading.coordinates)
            print(f"{reading.t:9.3f} s  {places}", flush=True)
