"""`nrf setup`: build the environment of a vendor's simulator."""

from typing import Annotated

import typer

from nrf.errors import InputError


def register(app: typer.Typer) -> None:
    """Attach the command."""
    app.command("setup")(setup)


def setup(
    vendor: Annotated[str, typer.Argument(help="lava, lava-dl, sinabs, or all.")],
) -> None:
    """Build the environment of a vendor, in the cache folder; does nothing if it is there."""
    from nrf.backends.vendors import VENDORS
    from nrf.backends.vendors.environment import build

    if vendor != "all" and vendor not in VENDORS:
        raise InputError(f"no vendor '{vendor}'; there are {', '.join(VENDORS)}, all")
    for name in VENDORS if vendor == "all" else [vendor]:
        print(f"{name}: {build(name, print)}")
