"""`nrf export`: a trained network becomes a NIR graph."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from nrf.cli.common import print_json


def register(app: typer.Typer) -> None:
    """Attach the command."""
    app.command()(export)


def export(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint, or a training folder (its best one).")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The NIR file to write.")],
    grid: Annotated[
        str | None,
        typer.Option(help="Round the parameters to a chip's numbers first: loihi2, speck2f, a .toml file."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write a trained network as NIR, with everything that decides its spikes stated."""
    from nrf.export import from_checkpoint, write_graph
    from nrf.export.describe import describe

    graph = from_checkpoint(checkpoint, grid)
    write_graph(out, graph)
    rows = describe(graph)
    if json:
        nodes = [asdict(row) for row in rows]
        contract = asdict(graph.contract)
        print_json({"graph": out, "checksum": graph.checksum, "contract": contract, "nodes": nodes})
        return
    neurons = sum(row.neurons for row in rows)
    print(f"{out}: {len(rows)} nodes, {neurons} neurons, checksum {graph.checksum}")
