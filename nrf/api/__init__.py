"""What a notebook needs, each in one call; `import nrf` offers all of it and loads it when it is first used.

    graph = nrf.read("model.nir", dt=1e-3)              a NIR file, validated, with its contract
    nrf.check(graph, "loihi2")                          what the chip's rules say about it
    program = nrf.lower(graph, "loihi2")                integers, placed
    nrf.run(program, "clip.npz", runtime="lava")        a recording; of a graph: the float reference
    nrf.conform(graph, "loihi2", 4)                     a report: does the chip do what the graph does?
    nrf.tune(graph, "speck2f", "clips")                 the graph, trained to do the same on the chip
    nrf.load("recording.npz")                           what was saved: a recording, a program or a graph
    nrf.stream("model.loihi2", "events.raw")            coordinates while events come in

Where a chip is asked for, its name, the path of its TOML file or what `load_chip` gave will do; where frames,
an array (T, *input shape) or the path of a file. `bin` is how many seconds of a recording make one frame; a
step of the graph (dt) unless given. A wrong keyword is refused with the one that was probably meant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nrf.api.calls import refuse_unused as refuse_unused
    from nrf.api.files import is_graph as is_graph
    from nrf.api.files import load as load
    from nrf.api.files import load_program as load_program
    from nrf.api.files import read as read
    from nrf.api.judging import conform as conform
    from nrf.api.judging import diff as diff
    from nrf.api.lowering import check as check
    from nrf.api.lowering import lower as lower
    from nrf.api.lowering import on_grid as on_grid
    from nrf.api.lowering import work as work
    from nrf.api.running import Ran as Ran
    from nrf.api.running import record as record
    from nrf.api.running import run as run
    from nrf.api.running import run_many as run_many
    from nrf.api.running import stream as stream
    from nrf.api.tuning import tune as tune
    from nrf.backends.border import load_chip as load_chip

PLACES = {
    "nrf.api.calls": ["refuse_unused"],
    "nrf.api.files": ["is_graph", "load", "load_program", "read"],
    "nrf.api.judging": ["conform", "diff"],
    "nrf.api.lowering": ["check", "lower", "on_grid", "work"],
    "nrf.api.running": ["Ran", "record", "run", "run_many", "stream"],
    "nrf.api.tuning": ["tune"],
    "nrf.backends.border": ["load_chip"],
}  # each is loaded when something in it is first used


def __getattr__(name: str) -> Any:
    for module, names in PLACES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'nrf.api' has no attribute '{name}'")
