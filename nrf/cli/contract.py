"""Flags that say what a graph without a contract leaves open, the same for all commands that read one."""

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nrf.cli.common import say

if TYPE_CHECKING:
    from nrf.export import Graph


def _flag(kind: Any, help: str) -> Any:
    return Annotated[kind | None, typer.Option(help=help, rich_help_panel="Contract")]


FLAGS = {
    "dialect": _flag(str, "Framework of the graph: norse, snntorch, sinabs, spikingjelly, rockpool, spyx."),
    "dt": _flag(float, "Seconds per step, as the graph's constants mean it."),
    "reset": _flag(str, "After a spike: zero, subtract or none."),
    "reset_at": _flag(str, "When that takes effect: spike, next or held."),
    "fire": _flag(str, "Spike if v is gt (>) or ge (>=) the threshold."),
    "max_spikes": _flag(int, "Spikes per neuron and step; 0 for any number."),
    "v_min": _flag(float, "Floor of the membrane, volts."),
    "v_reset": _flag(float, "Reset voltage of all neurons, where the exporter lost it."),
    "integration": _flag(str, "euler or exponential."),
    "synapse": _flag(str, "How input enters the current: scaled, unit or decayed."),
    "membrane": _flag(str, "How input enters the membrane: scaled or unit."),
    "emit": _flag(str, "Spikes come now, or one step late."),
    "start": _flag(str, "Membranes start at: leak or reset."),
    "output": _flag(str, "What the output means: spikes or membrane."),
    "classes": _flag(int, "The output is a class: last steps that count, 1 the last alone, 0 all."),
    "sensor": _flag(str, "Camera and its stage: 128x128,merge,crop=TOP:BOTTOM:LEFT:RIGHT,flip=x."),
    "delay": _flag(int, "Steps that each connection adds: 0 or 1."),
}
Bin = Annotated[
    float | None, typer.Option("--bin", help="Seconds of recorded time per frame, whatever dt is; else dt.")
]


def with_contract(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags of a contract; it takes what was said as one dictionary, `contract`."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    flags = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in FLAGS.items()
    ]

    @wraps(command)
    def called(**given: Any) -> None:
        stated = {name: given.pop(name) for name in FLAGS}
        command(**given, contract={name: value for name, value in stated.items() if value is not None})

    kept = [parameter for parameter in own if parameter.name != "contract"]
    called.__signature__ = inspect.Signature([*kept, *flags])  # type: ignore[attr-defined]
    return called


def read(model: Any, contract: dict[str, Any]) -> "Graph":
    """The graph of a file; what was put right, and what nobody stated, is told on standard error."""
    import nrf
    from nrf.export.validate import TIMING

    graph = nrf.read(model, **contract)
    for sentence in graph.repairs:
        say(f"repaired: {sentence}", sys.stderr)
    if graph.assumed:
        values = ", ".join(f"--{key} {getattr(graph.contract, key)}" for key in graph.assumed)
        hint = "name the framework with --dialect, or find it with nrf check --golden"
        say(f"note: {graph.name} has no contract; assumed {values}; {hint}", sys.stderr)
    for finding in TIMING.findings(dict(graph.nodes), graph.contract):
        if finding.severity == "warning":
            say(f"warning: {finding}", sys.stderr)
    return graph
