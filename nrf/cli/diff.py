"""`nrf diff`: what changed between two graphs, two programs or two recordings."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit

from nrf.cli.common import Json, print_json, print_table, say


def diff(
    a: Annotated[Path, Argument(help="A NIR graph, a program or a recording.")],
    b: Annotated[Path, Argument(help="Another one of the same kind.")],
    json: Json = False,
) -> None:
    """Show what changed: graph, contract, weights, spikes, task. Exit code 1 if anything did."""
    import nrf

    found = nrf.diff(a, b)
    if json:
        print_json([asdict(each) for each in found])
    elif found:
        print_table(
            ("where", "what", a.name, b.name, "how much"), [tuple(asdict(each).values()) for each in found]
        )
        print(f"{len(found)} differences")
    else:
        say(f"{a} and {b}: no difference")
    raise Exit(bool(found))
