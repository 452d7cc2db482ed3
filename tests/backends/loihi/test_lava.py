"""Built-in simulator and Lava's own fixed-point simulation, bit by bit."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nrf.backends.border import Recording
from nrf.backends.lowering.calibration import generated_clips
from tests.backends.loihi.chip import integers, lower, run
from tests.backends.loihi.graphs import convolutions
from tests.backends.loihi.programs import clips, programs, side_by_side

pytestmark = pytest.mark.needs_vendor("lava")

TOGETHER = 20  # programs in one run of Lava; benchmarks/lava_exact.py compares more


def assert_same(one: Recording, other: Recording) -> None:
    assert one.membranes.keys() == other.membranes.keys()
    for name, values in one.membranes.items():
        np.testing.assert_array_equal(values, other.membranes[name], err_msg=name)
    for name, spikes in one.spikes.items():
        np.testing.assert_array_equal(spikes.t, other.spikes[name].t, err_msg=name)
        np.testing.assert_array_equal(spikes.i, other.spikes[name].i, err_msg=name)


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_programs_give_the_same_bits_on_lava(data: st.DataObject) -> None:
    parts = [data.draw(programs(prefix=f"p{number}_")) for number in range(TOGETHER)]
    program, frames = side_by_side(parts), data.draw(clips(steps=10))
    assert_same(integers(program, frames), integers(program, frames, "lava"))


def test_a_lowered_model_gives_the_same_bits_on_lava() -> None:
    program = lower(convolutions())
    frames = generated_clips((2, 24, 24), 30, [1])[0]
    ours, theirs = run(program, frames), run(program, frames, "lava")
    assert min(len(spikes.t) for spikes in ours.spikes.values()) > 100
    assert_same(ours, theirs)
    assert theirs.latencies == ours.latencies
    assert theirs.provenance.device == "simulation" and theirs.provenance.runtime == "lava"
