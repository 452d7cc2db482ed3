"""Speck 2f: nine asynchronous convolution cores with integrate-and-fire neurons.

check(graph, target)      every limit of the chip as a named rule
lower(graph, target)      integers on cores
run(program, frames)      built-in simulators, Sinabs, or the chip
"""

from typing import Any

from nrf.backends import Runtime
from nrf.backends.speck.activity import activity
from nrf.backends.speck.check import check
from nrf.backends.speck.chip_config import write_chip_config
from nrf.backends.speck.grid import to_grid
from nrf.backends.speck.lower import lower
from nrf.backends.speck.program import SpeckProgram, load
from nrf.backends.speck.run import chip_missing, run
from nrf.backends.speck.session import session
from nrf.backends.vendors import missing

__all__ = [
    "FORMATS",
    "RUNTIMES",
    "SpeckProgram",
    "activity",
    "check",
    "load",
    "lower",
    "run",
    "session",
    "to_grid",
]

RUNTIMES = {
    runtime.name: runtime
    for runtime in (
        Runtime("builtin", "simulation", lambda: None),
        Runtime("asynchronous", "simulation", lambda: None, exact=False),
        Runtime("sinabs", "simulation", lambda: missing("sinabs")),
        Runtime("speck", "chip", chip_missing, exact=False),
    )
}


FORMATS: dict[str, Any] = {"json": (write_chip_config, {})}  # how to write it, and what to tell `lower`
