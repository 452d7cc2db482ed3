"""Flags that settle what a graph without a contract leaves open, and a word about what was assumed."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from nrf.export import Graph

Dt = Annotated[float | None, typer.Option("--dt", help="Seconds per step, for graphs without a contract.")]
Reset = Annotated[str | None, typer.Option("--reset", help="After a spike: zero or subtract.")]
Fire = Annotated[str | None, typer.Option("--fire", help="Spike if v is gt (>) or ge (>=) the threshold.")]
Delay = Annotated[int | None, typer.Option("--delay", help="Steps that each connection adds: 0 or 1.")]
VMin = Annotated[float | None, typer.Option("--v-min", help="Floor of the membrane, volts.")]

Bin = Annotated[
    float | None, typer.Option("--bin", help="Seconds of events per frame, for graphs that know no dt.")
]


def say_assumed(graph: "Graph") -> None:
    """Print, on standard error, what neither the file nor the flags said."""
    if graph.assumed:
        values = ", ".join(f"--{key} {getattr(graph.contract, key)}" for key in graph.assumed)
        print(f"note: {graph.name} has no contract; assumed {values}", file=sys.stderr)
