"""`nrf check`: what is in a graph, and whether a chip can take it."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nrf.cli.common import Json, print_json, print_table, say
from nrf.cli.contract import Bin, read, with_contract
from nrf.cli.work import print_work
from nrf.errors import InputError

if TYPE_CHECKING:
    from nrf.export import Graph
    from nrf.export.describe import NodeRow


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
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Write the repaired graph with its contract (.nir), or draw it (.svg)."
        ),
    ] = None,
    golden: Annotated[
        Path | None,
        typer.Option(help="Spikes of your own framework (.npz or NIR data): which dialect gives them too?"),
    ] = None,
    bin: Bin = None,
    json: Json = False,
) -> None:
    """Print a graph as a table; with a target, every reason why the chip would not take it (exit code 1)."""
    import nrf
    from nrf.api.calls import refuse_unused
    from nrf.backends.conformance.work import busy
    from nrf.export import write_graph
    from nrf.export.describe import describe
    from nrf.export.draw import draw
    from nrf.export.validate import dt_is_known
    from nrf.findings import errors

    if golden:
        refuse_unused("--golden, which tries every dialect", target=target, input=input, out=out, **contract)
        _recognise(model, golden, json)
        return
    chip = nrf.load_chip(target) if target else None
    try:
        graph = read(model, contract)
    except InputError as error:
        if chip or out or json or error.rules != (dt_is_known.__name__,):
            raise
        say(f"note: {error}", sys.stderr)
        say(
            "note: dt would add how a step looks: what is kept of a membrane, delays in steps, what a chip "
            "would do; nothing can run without it",
            sys.stderr,
        )
        _print_nodes(describe(nrf.read(model, **contract, dt=1.0)))
        return
    findings = nrf.check(graph, chip, bin=bin)
    loads = []
    if input and chip and not errors(findings):
        loads = nrf.work(graph, chip, input, bin=bin)
        findings += busy(chip, loads, bin or graph.contract.dt)
    elif input and not chip:
        raise InputError("an input tells how much work it makes on a chip; give --target as well")
    rows = describe(graph)
    if out:
        write_graph(out, graph) if out.suffix == ".nir" else draw(graph, out)
    if json:
        print_json(
            {
                "contract": asdict(graph.contract),
                "origins": graph.origins,
                "repairs": graph.repairs,
                "nodes": [asdict(row) for row in rows],
                "findings": [asdict(finding) for finding in findings],
                "fits": not errors(findings) if chip else None,
                "work": [asdict(load) for load in loads],
            }
        )
    else:
        if not chip:
            _print_nodes(rows)
            _print_contract(graph)
        if findings:
            titles = ("", "where", "rule", "what", "what to do")
            print_table(titles, [(f.severity, f.node, f.rule, f.message, f.remedy) for f in findings])
        if out:
            print(out)
        if chip and loads:
            print_work(loads, chip)
        if chip:
            say(f"{model}: {'does not fit' if errors(findings) else 'fits'} {chip.title}")
    if errors(findings):
        raise typer.Exit(1)


def _print_contract(graph: "Graph") -> None:
    """Where each field of the contract comes from: the file, a flag, the dialect, or nobody."""
    for origin in ("file", "flag", "dialect", "assumed"):
        fields = [key for key, whose in graph.origins.items() if whose == origin]
        if fields:
            say(f"{origin}: " + ", ".join(f"{key} {getattr(graph.contract, key)}" for key in fields))
    for name, contract in graph.node_contracts.items():
        say(f"node '{name}' differs: reset {contract.reset} at {contract.reset_at}")


def _recognise(model: Path, golden: Path, json: bool) -> None:
    """Which dialect gives the golden spikes; exit code 1 if none does."""
    from nrf.backends.conformance.golden import recognise

    matches = recognise(model, golden)
    exact = [match for match in matches if not match.refused and not match.differ]
    if json:
        print_json({"exact": [match.flags for match in exact], "tried": [asdict(match) for match in matches]})
    else:
        rows = [
            (match.flags or "the file's own contract", match.differ, match.departs)
            for match in matches
            if not match.refused
        ]
        print_table(("contract", "counts that differ", "first departs at"), rows)
        for match in exact:
            say(f"{golden}: all {match.spikes} spikes, with {match.flags or 'the contract of the file'}")
        if not exact:
            say(f"{golden}: no dialect reproduces all spikes; the exporter may have lost a setting")
    raise typer.Exit(not exact)


def _print_nodes(rows: "list[NodeRow]") -> None:
    """One line per node, and one for all."""
    titles = ("node", "type", "shape", "from", "parameters", "neurons", "synapses", "seconds", "volts")
    counts = [(row.parameters, row.neurons, row.synapses) for row in rows]
    lines = []
    for row, numbers in zip(rows, counts, strict=True):
        node = (row.name, row.kind, "x".join(map(str, row.shape)), ", ".join(row.inputs))
        lines.append((*node, *(n or None for n in numbers), _span(row.seconds), _span(row.threshold)))
    print_table(titles, [*lines, ("all", "", "", "", *map(sum, zip(*counts, strict=True)), "", "")])


def _span(span: tuple[float, float] | None) -> str:
    if span is None:
        return ""
    low, high = span
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
