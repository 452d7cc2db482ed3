"""Simulators of the vendors: each in an environment and a process of its own, behind one small protocol.

    absent("lava")                       why it cannot run here, or None
    run_worker("lava", worker, program, frames, timeout=60, options={})   -> Recording

`worker` is a file with one function `run(program, arrays, frames, options)`; see `worker_main.py`, which runs
it in the vendor's environment. `environment.build` makes the environments (`nrf setup NAME`).
"""

from nrf.backends.vendors.environment import VENDORS, absent
from nrf.backends.vendors.process import run_worker

__all__ = ["VENDORS", "absent", "run_worker"]
