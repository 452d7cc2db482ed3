"""Loihi 2: check, lower, and run, on the built-in simulator, on Lava's, or on the chip."""

from importlib import resources

from nrf.backends.border import Backend, Runtime
from nrf.backends.loihi import check, grid, lower, net_file, program, run, student
from nrf.backends.loihi.chip import Loihi
from nrf.backends.vendors import absent

BACKEND = Backend[Loihi, program.LoihiProgram](
    chip=Loihi,
    config=resources.files("nrf.hw_configs") / "loihi2.toml",
    check=check.check,
    lower=lower.lower,
    load=program.load,
    run=run.run,
    session=run.session,
    runtimes={
        "builtin": Runtime("builtin", options=("teacher",)),
        "lava": Runtime("lava", vendor="lava", options=("timeout",), absent=lambda: absent("lava")),
        "loihi2": Runtime(
            "loihi2", device="chip", vendor="lava", options=("timeout",), absent=run.chip_absent
        ),
    },
    to_grid=grid.to_grid,
    fan_out=program.fan_outs,
    floors=program.floors,
    formats={"net": net_file.write_net},
    weights=("auto", "8", "16"),
    student=student.student,
)
