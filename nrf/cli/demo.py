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
    quick: Annotated[
        bool, typer.Option("--quick", help="A tiny model that learns little: see the stages in seconds.")
    ] = False,
    minutes: Annotated[float, typer.Option(help="The longest that all training may take.")] = 4,
) -> None:
    """Train a model, take it to every chip on the built-in simulators, and compare. Takes minutes."""
    from rich.console import Console
    from rich.table import Table

    from nrf.backends.border.chip import target_names
    from nrf.cli.demo_run import demo as run
    from nrf.cli.demo_run import rows
    from nrf.cli.memory import keep_freed_memory
    from nrf.training.log import progress

    keep_freed_memory()
    start = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - start:4.0f} s  {line}", flush=True)

    preset = "tiny" if quick else "demo"
    show = lambda steps: progress(steps, sys.stderr)  # noqa: E731
    found = rows(run(out, preset, target_names(), say, show, own=not quick, minutes=minutes))
    table = Table()
    for title in found[0]:
        table.add_column(title, overflow="fold")
    for row in found:
        table.add_row(*row.values())
    console = Console()
    (console if console.is_terminal else Console(width=140)).print(table)
    print(out / "report.html")
