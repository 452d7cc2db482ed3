"""`nrf doctor`: what is here, what is missing, and what would fix it."""

import typer


def register(app: typer.Typer) -> None:
    """Attach the command."""
    app.command("doctor")(doctor)


def doctor() -> None:
    """Show what is here, what is missing, and what would fix it."""
    from nrf.backends.vendors import VENDORS, missing

    for vendor in VENDORS:
        print(f"{vendor}: {missing(vendor) or 'ready'}")
