"""A program that runs on and on: state stays between calls."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.backends.speck import simulate as synchronous
from nrf.backends.speck.program import SpeckProgram
from nrf.backends.speck.tables import counts_of, events_of
from nrf.backends.stream import Session


def session(program: SpeckProgram) -> Session:
    """A function from the next frames to the output's spike counts (or volts); see `nrf.backends.stream`."""
    state = synchronous.new_state(program)
    output = next(core for core in program.cores if core.node == program.output)
    volts = program.contract.output == "membrane"

    def advance(frames: NDArray[Any]) -> NDArray[Any]:
        events = events_of(counts_of(program, frames))
        result = synchronous.simulate(program, events, len(frames), state, membranes=volts)
        if volts:
            return result.membranes[output.node] * output.volts[:, None, None]
        maps = np.zeros((len(frames), *output.shape), np.int64)
        spikes = result.spikes[output.node]
        np.add.at(maps, (spikes.t, spikes.c, spikes.y, spikes.x), spikes.n)
        return maps

    return advance
