"""Sums of patterns of channels are the convolution, whatever fires, however often, and after any pooling."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nrf.backends.lowering.operators import Conv
from nrf.backends.lowering.pattern_kernels import WAY, WORD, scatter_list, scatter_words
from nrf.backends.lowering.patterns import patterns
from nrf.backends.lowering.scatter import Layout
from nrf.backends.lowering.scatter_kernels import BLOCK


@settings(max_examples=80, deadline=None)
@given(st.data())
@pytest.mark.parametrize("width", [np.int16, np.int32])
def test_words_and_lists_give_the_correlation(width: type[np.signedinteger], data: st.DataObject) -> None:
    draw = data.draw
    kernel, stride, padding = (
        (draw(st.integers(low, high)), draw(st.integers(low, high))) for low, high in ((1, 5), (1, 3), (0, 3))
    )
    pool, features, inputs = draw(st.sampled_from([1, 2])), draw(st.sampled_from([3, 8, 19])), 2 * WORD
    channels = features + draw(st.sampled_from([0, -features % WORD]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    conv = Conv(rng.integers(-128, 128, (features, inputs, *kernel)), (inputs, 6, 5), stride, padding)
    _, height, columns = conv.output_shape
    source = 6 * pool + draw(st.integers(0, 1)), 5 * pool  # a line too many is dropped
    fires = rng.random((inputs, *source)) < draw(st.sampled_from([0.02, 0.4, 1.0]))

    found = patterns(conv, channels, source, pool)
    way = np.zeros(1, WAY)
    way[0] = (2, *source, pool**2, 0, found.step, found.line, found.pitch, 0, len(found.rows))
    reaches, rows = np.concatenate([found.rows, found.columns]), np.empty(2 + 4, np.int64)
    places = channels * height * columns
    drives = [np.zeros(places, width) for _ in range(2)]
    touched = [np.zeros(-(-places // BLOCK), np.bool_) for _ in range(2)]
    inside = Layout(fires.size, inputs).inside(fires.reshape(1, -1).astype(np.uint8))[0]
    masks = np.packbits(inside, bitorder="little")
    words = np.flatnonzero(masks).astype(np.int32)
    scatter_words(drives[0], touched[0], words, masks[words], way[0], found.weights, reaches, rows)
    neurons = np.flatnonzero(fires).astype(np.int32)
    for part in np.array_split(neurons, 2):  # one time each, and then again two times less one
        for count in (2, -1):
            counts = np.full(len(part), count, np.int32)
            scatter_list(drives[1], touched[1], part, counts, way[0], found.weights, reaches, rows)

    cut = fires[:, : 6 * pool].reshape(inputs, 6, pool, 5, pool).sum((2, 4))
    wanted = np.zeros((channels, height * columns), np.int64)
    wanted[:features] = (conv.matrix() @ cut.ravel()).reshape(features, -1)
    for drive, marks in zip(drives, touched, strict=True):
        sums = Layout(places, channels).outside(drive[None])[0]
        assert np.array_equal(sums, wanted.ravel().astype(width))
        assert set(np.flatnonzero(drive) // BLOCK) <= set(np.flatnonzero(marks))
