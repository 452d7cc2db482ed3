"""`nrf check`: what is in a graph, and whether a chip can take it."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nrf.cli.common import Json, print_json, print_table
from nrf.cli.contract import Bin, read, with_contract

if TYPE_CHECKING:
    from nrf.export.describe import Row


@with_contract
def check(
    model: Annotated[Path, typer.Argument(help="A NIR graph.")],
    contract: dict[str, Any],
    target: Annotated[
        str | None, typer.Option(help="Ask whether it fits: loihi2, speck2f, or a .toml file.")
    ] = None,
    input: Annotated[
        Path | None, typer.Option("--input", "-i", help="A clip: how busy would the chip be on it?")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Draw the graph to this .svg file.")] = None,
    bin: Bin = None,
    json: Json = False,
) -> None:
    """Print a graph as a table; with a target, every reason why the chip would not take it (exit code 1)."""
    from nrf import api
    from nrf.export.describe import describe
    from nrf.export.draw import draw
    from nrf.findings import errors

    chip = api.load_chip(target) if target else None
    graph = read(model, contract)
    findings = api.check(graph, chip, input, bin=bin)
    rows = describe(graph)
    if out:
        draw(graph, out)
    if json:
        print_json(
            {
                "contract": asdict(graph.contract),
                "nodes": [asdict(row) for row in rows],
                "findings": [finding.to_json() for finding in findings],
                "fits": not errors(findings) if chip else None,
            }
        )
    else:
        if not chip:
            _print_nodes(rows)
        if findings:
            titles = ("", "where", "rule", "what", "what to do")
            print_table(titles, [(f.severity, f.node, f.rule, f.message, f.remedy) for f in findings], 160)
        if out:
            print(out)
        if chip:
            print(f"{model}: {'does not fit' if errors(findings) else 'fits'} {chip.title}")
    if errors(findings):
        raise typer.Exit(1)


def _print_nodes(rows: "list[Row]") -> None:
    """One line per node, and one for all."""
    titles = ("node", "type", "shape", "from", "parameters", "neurons", "synapses", "seconds", "volts")
    counts = [(row.parameters, row.neurons, row.synapses) for row in rows]
    lines = []
    for row, numbers in zip(rows, counts, strict=True):
        node = (row.name, row.kind, "x".join(map(str, row.shape)), ", ".join(row.inputs))
        lines.append((*node, *(n or None for n in numbers), _span(row.seconds), _span(row.threshold)))
    print_table(titles, [*lines, ("all", "", "", "", *map(sum, zip(*counts, strict=True)), "", "")], 160)


def _span(span: tuple[float, float] | None) -> str:
    if span is None:
        return ""
    low, high = span
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
