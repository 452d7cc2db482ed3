"""Loihi 2: check, lower, and run, on the built-in simulator, on Lava's, or on the chip."""

from nrf.backends import Runtime
from nrf.backends.loihi.check import check
from nrf.backends.loihi.grid import to_grid
from nrf.backends.loihi.lower import lower
from nrf.backends.loihi.net_file import write_net
from nrf.backends.loihi.program import LoihiProgram, load
from nrf.backends.loihi.quantise import NETX
from nrf.backends.loihi.run import chip_missing, run
from nrf.backends.loihi.session import session
from nrf.backends.vendors import missing

__all__ = ["FORMATS", "RUNTIMES", "LoihiProgram", "check", "load", "lower", "run", "session", "to_grid"]

RUNTIMES = {
    "builtin": Runtime("builtin", "simulation", lambda: None),
    "lava": Runtime("lava", "simulation", lambda: missing("lava")),
    "loihi2": Runtime("loihi2", "chip", chip_missing),
}
FORMATS = {"net": (write_net, {"numbers": NETX})}  # how to write it, and what to tell `lower`
