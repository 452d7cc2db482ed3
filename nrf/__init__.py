"""nrf: spiking vision models from training to neuromorphic chip, and proof that they agree there.

The stages, in the order in which data flows: events -> model (`nrf`), graph (`nrf.export`),
program -> recording -> report (`nrf.backends`). What a notebook needs is here, each in one call:

    graph = nrf.read("model.nir", dt=1e-3)              a NIR file, validated, with its contract
    nrf.check(graph, "loihi2")                          what the chip's rules say about it
    program = nrf.lower(graph, "loihi2")                integers, placed
    nrf.run(program, "clip.npz", runtime="lava")        a recording; of a graph: the float reference
    nrf.conform(graph, "loihi2", 4)                     a report: does the chip do what the graph does?
    nrf.tune(graph, "speck2f", "clips")                 the graph, trained to do the same on the chip
    nrf.load("recording.npz")                           what was saved: a recording, a program or a graph
    nrf.stream("model.loihi2", "events.raw")            coordinates while events come in

Where a chip is asked for, its name, the path of its TOML file or what `load_chip` gave will do; where frames,
an array (T, *input shape), events or the path of a file. `bin` is how many seconds of a recording make one
frame; a step of the graph (dt) unless given. A wrong keyword is refused with the one that was probably meant.

Nothing heavy is imported until one of these is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nrf.api.files import load, read
    from nrf.api.judging import conform, diff
    from nrf.api.lowering import check, lower, on_grid, work
    from nrf.api.running import record, run, run_many, stream
    from nrf.api.tuning import tune
    from nrf.backends.border import load_chip

__version__ = "0.1.0"
__all__ = [
    "check", "conform", "diff", "load", "load_chip", "lower",
    "on_grid", "read", "record", "run", "run_many", "stream", "tune", "work",
]  # fmt: skip
_MODULES = {
    "nrf.api.files": ("load", "read"),
    "nrf.api.judging": ("conform", "diff"),
    "nrf.api.lowering": ("check", "lower", "on_grid", "work"),
    "nrf.api.running": ("record", "run", "run_many", "stream"),
    "nrf.api.tuning": ("tune",),
    "nrf.backends.border": ("load_chip",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'nrf' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
