"""Loihi 2: check, lower, and run, on the built-in simulator, on Lava's, or on the chip."""

from importlib import resources

from nrf.backends.border import Backend, Runtime
from nrf.backends.loihi.check import check
from nrf.backends.loihi.chip import Loihi
from nrf.backends.loihi.grid import to_grid
from nrf.backends.loihi.lower import lower
from nrf.backends.loihi.net_file import write_net
from nrf.backends.loihi.program import LoihiProgram, load
from nrf.backends.loihi.run import chip_absent, run, session
from nrf.backends.vendors import absent

BACKEND = Backend[Loihi, LoihiProgram](
    chip=Loihi,
    config=resources.files("nrf.hw_configs") / "loihi2.toml",
    check=check,
    lower=lower,
    load=load,
    run=run,
    session=session,
    runtimes={
        "builtin": Runtime("builtin"),
        "lava": Runtime("lava", vendor="lava", absent=lambda: absent("lava")),
        "loihi2": Runtime("loihi2", device="chip", vendor="lava", absent=chip_absent),
    },
    to_grid=to_grid,
    formats={"net": write_net},
)
