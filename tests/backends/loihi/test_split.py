"""Splitting populations by value changes where spikes are filed, not which."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from numpy.typing import NDArray

from nrf.backends.border import Provenance, Recording
from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.loihi.simulate import Simulator
from nrf.backends.loihi.split import SHARED, merge, split
from tests.backends.loihi.programs import clips, programs


@settings(max_examples=100, deadline=None)
@given(programs(), clips(steps=8))
def test_split_programs_do_the_same(program: LoihiProgram, frames: NDArray[np.int64]) -> None:
    # Sums of parts are shifted and wrapped one by one, so small positive exponents, which do neither.
    mild = tuple(replace(one, exponent=max(0, one.exponent // 4)) for one in program.synapses)
    program = replace(program, synapses=mild)
    apart, parts = split(program)
    for one in apart.neurons.values():
        assert all(len(np.unique(getattr(one, key))) == 1 for key in SHARED)
    trace = Simulator(apart).run(frames, record=apart.neurons)
    states = trace.membranes | {f"{name}/u": values for name, values in trace.u.items()}
    states |= {f"{name}/r": values for name, values in trace.r.items()}
    shapes = {name: one.shape for name, one in apart.neurons.items()}
    recording = Recording(8, shapes, trace.spikes, Provenance("builtin", "simulation"), states)
    together = merge(recording, program, parts)
    whole = Simulator(program).run(frames, record=program.neurons)
    for name in program.neurons:
        np.testing.assert_array_equal(together.membranes[name], whole.membranes[name])
        np.testing.assert_array_equal(together.membranes[f"{name}/u"], whole.u[name])
        if name in whole.r:
            np.testing.assert_array_equal(together.membranes[f"{name}/r"], whole.r[name])
        np.testing.assert_array_equal(together.spikes[name].i, whole.spikes[name].i)
