"""`nrf export`: a trained network becomes a NIR graph."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from nrf.cli.common import Json, print_json, say


def export(
    checkpoint: Annotated[Path, Argument(help="A checkpoint, or a training folder (its best one).")],
    out: Annotated[Path, Option("--out", "-o", help="The NIR file to write.")],
    grid: Annotated[str | None, Option(help="Round to the numbers of loihi2, speck2f or a .toml.")] = None,
    json: Json = False,
) -> None:
    """Write a trained network as NIR, with everything that decides its spikes stated."""
    from nrf import on_grid
    from nrf.backends.conformance.clips import truth_error
    from nrf.export import from_checkpoint, write_graph
    from nrf.export.describe import describe

    graph = trained = from_checkpoint(checkpoint)
    if grid:
        graph = on_grid(trained, grid)
    write_graph(out, graph)
    rows = describe(graph)
    errors = [truth_error(model) for model in (trained, graph)] if grid else []
    if json:
        nodes = [asdict(row) for row in rows]
        contract = asdict(graph.contract)
        answer = {"graph": out, "checksum": graph.checksum, "contract": contract, "nodes": nodes}
        print_json(answer | dict(zip(("px_before_rounding", "px_after_rounding"), errors, strict=False)))
        return
    neurons = sum(row.neurons for row in rows)
    say(f"{out}: {len(rows)} nodes, {neurons} neurons, checksum {graph.checksum}")
    if errors:
        before, after = errors
        say(f"error against the truth: {before:.3f} px as trained, {after:.3f} px rounded to {grid}")
