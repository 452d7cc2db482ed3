"""A program that runs on and on: state stays between calls."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.loihi.simulate import Engine, initial_state, simulate
from nrf.backends.stream import Session


def session(program: LoihiProgram) -> Session:
    """A function from the next frames to the output's volts (or spikes); see `nrf.backends.stream`."""
    state, engine = initial_state(program), Engine(program)
    output = program.neurons[program.output]
    volts = program.output_is_membrane
    record = [program.output] if volts else []

    def advance(frames: NDArray[Any]) -> NDArray[Any]:
        nonlocal state
        trace, state = simulate(program, frames, state=state, record=record, engine=engine)
        if volts:
            return output.volts(trace.v[program.output])
        maps = np.zeros((len(frames), int(np.prod(output.shape))))
        spikes = trace.spikes[program.output]
        np.add.at(maps, (spikes.t, spikes.i), spikes.n)
        return maps.reshape(len(frames), *output.shape)

    return advance
