"""Speck 2f: nine asynchronous convolution cores with integrate-and-fire neurons.

check      every limit of the chip as a named rule
lower      integers on cores
run        built-in simulators, Sinabs, or the chip
"""

from importlib.resources import files

from nrf.backends.border import Backend, Runtime
from nrf.backends.speck.asynchronous import CHOICES
from nrf.backends.speck.check import check
from nrf.backends.speck.chip import Speck
from nrf.backends.speck.chip_config import write_chip_config
from nrf.backends.speck.grid import to_grid
from nrf.backends.speck.lower import lower
from nrf.backends.speck.program import SpeckProgram, fan_outs, load
from nrf.backends.speck.run import chip_absent, run, session
from nrf.backends.speck.student import student
from nrf.backends.vendors import absent

BACKEND = Backend[Speck, SpeckProgram](
    chip=Speck,
    config=files("nrf.hw_configs") / "speck2f.toml",
    check=check,
    lower=lower,
    load=load,
    run=run,
    session=session,
    runtimes={
        "builtin": Runtime("builtin", options=("teacher",)),
        "asynchronous": Runtime("asynchronous", exact=False, options=("seed", "choices"), choices=CHOICES),
        "sinabs": Runtime(
            "sinabs", vendor="sinabs", options=("timeout", "device"), absent=lambda: absent("sinabs")
        ),
        "speck": Runtime(
            "speck",
            device="chip",
            vendor="sinabs",
            exact=False,
            options=("timeout", "repeats", "board", "slow_clock", "seed"),
            absent=chip_absent,
        ),
    },
    to_grid=to_grid,
    fan_out=fan_outs,
    formats={"json": write_chip_config},
    approximates=True,
    student=student,
)
