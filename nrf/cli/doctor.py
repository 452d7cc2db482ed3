"""`nrf doctor`: what is here, what is missing, and what would fix it."""

from typing import Annotated

import typer

from nrf.cli.common import print_json


def register(app: typer.Typer) -> None:
    """Attach the command."""
    app.command("doctor")(doctor)


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Show what is here, what is missing, and what would fix it."""
    from rich.console import Console
    from rich.table import Table

    from nrf.cli.examine import examine

    items = examine()
    if as_json:
        print_json([item.to_json() for item in items])
    else:
        table = Table(box=None, pad_edge=False)
        for title in ("", "", "what is there", "what would fix it"):
            table.add_column(title, overflow="fold")
        marks = {"good": "[green]good[/]", "absent": "[yellow]absent[/]", "broken": "[red]broken[/]"}
        for item in items:
            table.add_row(item.name, marks[item.state], item.found, item.remedy)
        Console().print(table)
    if any(item.state == "broken" for item in items):
        raise typer.Exit(1)
