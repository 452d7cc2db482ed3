"""One event-driven convolution: what a matrix gives, in every layout; spikes in order without sorting."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nrf.backends.border import Spikes
from nrf.backends.lowering.operators import Conv
from nrf.backends.lowering.scatter import Layout, by_step, wire
from nrf.backends.lowering.scatter_kernels import scatter
from nrf.vectors import BLOCK, in_order


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
    layouts = Layout(size, 6), Layout(size)
    table, *arrays = wire([(conv, layout) for layout in layouts])
    room = np.empty(weight[0].size * 6, np.int32)
    neurons, counts, begins = by_step(Spikes.from_dense(frames), 5)
    for layout, wiring in zip(layouts, table, strict=True):
        for step, (begin, end) in enumerate(pairwise(begins)):
            drive, touched = np.zeros(size, np.int32), np.zeros(-(-size // BLOCK), np.bool_)
            scatter(drive, touched, neurons[begin:end], counts[begin:end], wiring, *arrays, room)
            assert np.array_equal(layout.outside(drive), wanted[step])
            assert set(np.flatnonzero(drive) // BLOCK) <= set(np.flatnonzero(touched))


@given(st.integers(1, 5), st.integers(1, 7), st.integers(0, 2**32 - 1))
def test_spikes_come_in_the_order_of_neurons_with_their_counts(channels: int, places: int, seed: int) -> None:
    layout = Layout(channels * places, channels)
    dense = np.random.default_rng(seed).integers(0, 4, layout.size)
    inside = np.flatnonzero(layout.inside(dense)).astype(np.int32)
    counts = layout.inside(dense)[inside].astype(np.int32)
    order, ordered = np.empty_like(inside), np.empty_like(inside)
    numbers = inside.copy()
    in_order(numbers, counts, channels, places, order, ordered, np.empty(channels + 1, np.int64))
    assert np.array_equal(numbers, layout.inside(np.arange(layout.size))[inside])
    assert np.array_equal(order, np.flatnonzero(dense))
    assert np.array_equal(ordered, dense[order])


def test_no_steps_have_a_layout_too() -> None:
    layout = Layout(12, 3)
    assert layout.inside(np.zeros((0, 12))).shape == layout.outside(np.zeros((0, 12))).shape == (0, 12)
