"""Simulators of the vendors: each in an environment and a process of its own, behind one small protocol.

    absent("lava")                      why it cannot run here, or None
    run_worker("lava", worker, program, frames, timeout=60, options={})   -> Recording

`worker` is a file with one function `run(header, arrays, frames, options)`; see `worker_main.py`, which runs
it in the vendor's environment. `environment.build` makes the environments (`nrf setup NAME`).
"""

from typing import TYPE_CHECKING, Any

from nrf.backends.vendors.environment import VENDORS, absent

if TYPE_CHECKING:
    from nrf.backends.vendors.process import run_worker

__all__ = ["VENDORS", "absent", "run_worker"]


def __getattr__(name: str) -> Any:
    if name == "run_worker":  # needs NumPy; the command line's help does not
        from nrf.backends.vendors.process import run_worker

        return run_worker
    raise AttributeError(name)
