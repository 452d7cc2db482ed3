"""Loihi 2: check, lower, and run, on the built-in simulator, on Lava's, or on the chip."""

from nrf.backends import Runtime
from nrf.backends.loihi.lower import lower
from nrf.backends.loihi.program import LoihiProgram, load
from nrf.backends.loihi.rules import check
from nrf.backends.loihi.run import run

__all__ = ["RUNTIMES", "LoihiProgram", "check", "load", "lower", "run"]

RUNTIMES = {
    "builtin": Runtime("builtin", "simulation", lambda: None),
}
