"""`nrf setup`: build the environment of a vendor's simulator, or of training frameworks."""

from typing import Annotated

from typer import Argument

from nrf.cli.common import progress_lines
from nrf.errors import INDENT, InputError


def setup(vendor: Annotated[str, Argument(help="lava, lava-dl, sinabs, frameworks, spyx, or all.")]) -> None:
    """Build the environment of a vendor, once, in the user's cache folder (or NRF_CACHE)."""
    from nrf.backends.vendors.environment import VENDORS, build

    if vendor != "all" and vendor not in VENDORS:
        raise InputError(f"no vendor '{vendor}'; there are {', '.join(VENDORS)}, all")
    failed = []
    for name in VENDORS if vendor == "all" else [vendor]:
        try:
            with progress_lines() as say:
                python = build(name, say)
            print(f"{name}: {python}")
        except InputError as error:  # the next one may still succeed
            failed.append(str(error))
    if failed:
        raise InputError(INDENT.join(failed))
