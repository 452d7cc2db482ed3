"""nrf: spiking vision models from training to neuromorphic chip, and proof that they agree there.

The stages, in the order in which data flows: events -> model (`nrf`), graph (`nrf.export`),
program -> recording -> report (`nrf.backends`). What a notebook needs is here, see `nrf.api`:

    report = nrf.conform(nrf.read("model.nir"), "loihi2")

Nothing heavy is imported until one of these is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nrf.api import (
        check,
        conform,
        diff,
        load,
        load_chip,
        lower,
        on_grid,
        read,
        record,
        run,
        run_many,
        stream,
        tune,
        work,
    )

__version__ = "0.1.0"
__all__ = [
    "check", "conform", "diff", "load", "load_chip", "lower",
    "on_grid", "read", "record", "run", "run_many", "stream", "tune", "work",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'nrf' has no attribute '{name}'")
    return getattr(import_module("nrf.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
