"""`nrf check`: what is in a graph, and whether a chip can take it."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from nrf.cli.common import print_json, wide_console
from nrf.cli.contract import Bin, read, with_contract

if TYPE_CHECKING:
    from nrf.export.describe import Row
    from nrf.findings import Finding


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
    json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
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
        _print(rows if not chip else [], findings)
        if out:
            print(out)
        if chip:
            print(f"{model}: {'does not fit' if errors(findings) else 'fits'} {chip.title}")
    if errors(findings):
        raise typer.Exit(1)


def _print(rows: "list[Row]", findings: "list[Finding]") -> None:
    console = wide_console(160)
    if rows:
        titles = ("node", "type", "shape", "from", "parameters", "neurons", "synapses", "seconds", "volts")
        table = Table(*titles)
        for row in rows:
            counts = (str(n) if n else "" for n in (row.parameters, row.neurons, row.synapses))
            spans = ("" if span is None else _span(*span) for span in (row.seconds, row.threshold))
            shape = "x".join(map(str, row.shape))
            table.add_row(escape(row.name), row.kind, shape, escape(", ".join(row.inputs)), *counts, *spans)
        totals = (sum(row.parameters for row in rows), sum(row.neurons for row in rows))
        table.add_section()
        table.add_row("all", "", "", "", *map(str, totals), str(sum(row.synapses for row in rows)), "", "")
        console.print(table)
    if findings:
        table = Table("", "where", "rule", "what", "what to do")
        for finding in findings:
            table.add_row(
                *map(escape, (finding.severity, finding.node, finding.rule)),
                escape(finding.message),
                escape(finding.remedy),
            )
        console.print(table)


def _span(low: float, high: float) -> str:
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
