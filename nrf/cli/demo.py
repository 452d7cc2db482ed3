"""`nrf demo`: the whole way on embedded defaults."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Attach the command."""
    app.command("demo")(demo)


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for everything; replaced.")] = Path("demo"),
    preset: Annotated[str, typer.Option(help="Which configuration to train.")] = "demo",
) -> None:
    """Train a model, take it to every chip on the built-in simulators, and compare. Takes minutes."""
    from rich.console import Console
    from rich.table import Table

    from nrf.backends.target import target_names
    from nrf.demo import demo as run
    from nrf.demo import rows
    from nrf.log import progress
    from nrf.presets import load_preset

    start = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - start:5.0f} s] {line}", flush=True)

    outcomes = run(out, load_preset(preset), target_names(), say, lambda steps: progress(steps, sys.stderr))
    table = Table()
    found = rows(outcomes)
    for title in found[0]:
        table.add_column(title, overflow="fold")
    for row in found:
        table.add_row(*row.values())
    Console().print(table)
    print(out / "report.html")
