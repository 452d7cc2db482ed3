"""`nrf run`: events through a graph or a program."""

from json import dumps
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nrf.cli.common import Json, print_json, print_table
from nrf.cli.contract import Bin, read, with_contract

if TYPE_CHECKING:
    from nrf.backends.border import Recording


@with_contract
def run(
    model: Annotated[Path, typer.Argument(help="A NIR graph, or a program from `nrf lower`.")],
    input: Annotated[Path, typer.Option("--input", "-i", help=".npz with frames, or an event file.")],
    contract: dict[str, Any],
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
    bin: Bin = None,
    realtime: Annotated[bool, typer.Option("--realtime", help="No faster than the recording.")] = False,
    json: Json = False,
) -> None:
    """Run events through a graph (in float, the reference) or a program (in a chip's integers)."""
    from nrf import api

    of_graphs: dict[str, Any] = {"device": device, "precision": precision, "membranes": membranes}
    if out is None:
        api.refuse_unused("a live run", **contract, **of_graphs, runtime=runtime, bin=bin)
        for reading in api.stream(model, input, chip=target, realtime=realtime):
            pixels = reading.coordinates.tolist()
            line = f"{reading.t:9.3f} s  " + "  ".join(f"({x:6.2f}, {y:6.2f})" for x, y in pixels)
            print(dumps({"t": reading.t, "coordinates": pixels}) if json else line, flush=True)
        return
    api.refuse_unused("a run that is written to a file", realtime=realtime or None)
    graph = read(model, contract) if api.is_graph(model) else None
    if graph is None:
        api.refuse_unused("a program", **contract)
    else:
        api.refuse_unused("a graph", target=target)
    recording = api.run(graph or model, input, runtime=runtime, chip=target, bin=bin, **of_graphs)
    recording.save(out)
    if json:
        print_json(_summary(recording) | {"recording": out})
    else:
        _print(_summary(recording), recording)
        print(out)


def _summary(recording: "Recording") -> dict[str, Any]:
    """What a person wants to know first: spikes per node, what ran, where the shapes are at the end."""
    nodes: dict[str, Any] = {}
    for name, shape in recording.shapes.items():
        spikes = recording.spikes.get(name)
        count = None if spikes is None else spikes.count
        nodes[name] = {
            "shape": list(shape),
            "spikes": count,
            "rate": None if count is None else count / max(recording.steps * prod(shape), 1),
            "latency": recording.latency(name),
        }
    pixels = recording.coordinates
    return {
        "steps": recording.steps,
        "nodes": nodes,
        "coordinates": None if pixels is None or not recording.steps else pixels[-1].tolist(),  # last step
        "provenance": recording.provenance.__dict__,
    }


def _print(summary: dict[str, Any], recording: "Recording") -> None:
    titles = ("node", "shape", "spikes", "per neuron and step", "latency, steps")
    nodes = summary["nodes"].items()
    rows = [(name, "x".join(map(str, row.pop("shape"))), *row.values()) for name, row in nodes]
    print_table(titles, rows)
    origin = recording.provenance
    print(f"{recording.steps} steps on {origin.target or 'float'} {origin.runtime} ({origin.device})")
    for key, count in origin.counters.items():
        print(f"{key}: {count}")
    if summary["coordinates"]:
        pixels = ", ".join(f"({x:.2f}, {y:.2f})" for x, y in summary["coordinates"])
        print(f"coordinates at the last step, pixels: {pixels}")
