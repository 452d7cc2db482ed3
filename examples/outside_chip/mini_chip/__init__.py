"""A made-up chip of integrate-and-fire neurons: what a package must offer so that `nrf` finds and uses it."""

from importlib import resources

from mini_chip import chip, lower, program, run
from nrf.backends.border import Absent, Backend, Runtime

BACKEND = Backend[chip.MiniChip, program.MiniProgram](
    chip=chip.MiniChip,
    config=resources.files(__package__) / "minichip.toml",
    runtimes={
        "builtin": Runtime("builtin", options=("teacher",)),
        "board": Runtime("board", "chip", vendor="nobody", absent=lambda: Absent("no board was ever made")),
    },
    check=chip.check,
    lower=lower.lower,
    load=program.load,
    run=run.run,
    session=run.session,
)
