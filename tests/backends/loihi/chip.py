"""The chip and the calls that most tests of Loihi 2 make."""

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border import LowerOptions, Recording, RunOptions, WeightBits, load_chip
from nrf.backends.loihi import BACKEND
from nrf.backends.loihi import lower as lowering
from nrf.backends.loihi.chip import Loihi
from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.loihi.run import recorded, run_lava
from nrf.backends.loihi.simulate import Simulator
from nrf.export import Graph

LOIHI = cast(Loihi, load_chip("loihi2"))


def lower(
    graph: Graph,
    chip: Loihi = LOIHI,
    clips: Sequence[NDArray[np.float32]] | None = None,
    format: str = "program",
    weights: WeightBits = "auto",
) -> LoihiProgram:
    """Lower for the chip, on the clips given or on generated ones."""
    options = LowerOptions(clips, "given" if clips else "generated", format=format, weights=weights)
    return lowering.lower(graph, chip, options)


def run(
    program: LoihiProgram,
    frames: NDArray[np.generic],
    runtime: str = "builtin",
    *,
    teacher: Recording | None = None,
) -> Recording:
    """Run on the built-in simulator or on Lava."""
    return BACKEND.run(program, frames, runtime, RunOptions(teacher=teacher, membranes=True))


def integers(program: LoihiProgram, frames: NDArray[np.generic], runtime: str = "builtin") -> Recording:
    """The same without the way to volts; currents are `<node>/u`."""
    if runtime == "lava":
        return run_lava(program, frames)
    return recorded(program, Simulator(program).run(frames, record=program.neurons))
