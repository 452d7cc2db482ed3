"""One event-driven convolution: what a matrix gives, in every layout."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nrf.backends.border import Spikes
from nrf.backends.lowering.layers import Conv
from nrf.backends.lowering.scatter import Layout, scatter, wire


@settings(max_examples=80)
@given(st.data())
def test_scattering_events_is_correlation(data: st.DataObject) -> None:
    draw = data.draw
    groups = draw(st.sampled_from([1, 2]))
    kernel, stride, padding, dilation = (
        (draw(st.integers(low, high)), draw(st.integers(low, high)))
        for low, high in ((1, 4), (1, 3), (0, 3), (1, 2))
    )
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    weight = rng.integers(-9, 9, (6, 4 // groups, *kernel)).astype(np.int32)
    conv = Conv(weight, (4, 9, 8), stride, padding, dilation, groups)
    size = int(np.prod(conv.output_shape))
    frames = rng.integers(0, 3, (5, 4, 9, 8)) * (rng.random((5, 4, 9, 8)) < 0.2)
    wanted = frames.reshape(5, -1) @ conv.matrix().toarray().T
    for layout in (Layout(size, 6), Layout(size)):
        drive, _ = scatter(wire(conv, layout), Spikes.from_dense(frames), 5)
        assert np.array_equal(layout.outside(drive), wanted)


def test_no_steps_have_a_layout_too() -> None:
    layout = Layout(12, 3)
    assert layout.inside(np.zeros((0, 12))).shape == layout.outside(np.zeros((0, 12))).shape == (0, 12)
