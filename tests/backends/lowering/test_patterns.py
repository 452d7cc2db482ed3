"""Sums of patterns of channels are the convolution, whatever fires, however often, and after any pooling."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nrf.backends.lowering.operators import Conv
from nrf.backends.lowering.pattern_kernels import LINE, VECTOR, scatter, scatter_list
from nrf.backends.lowering.patterns import Map, patterns
from nrf.lanes import LANES


@settings(max_examples=80, deadline=None)
@given(st.data())
@pytest.mark.parametrize("width", [np.int16, np.int32])
def test_masks_and_lists_give_the_correlation(width: type[np.signedinteger], data: st.DataObject) -> None:
    draw = data.draw
    kernel, stride, padding = (
        (draw(st.integers(low, high)), draw(st.integers(low, high))) for low, high in ((1, 5), (1, 3), (0, 3))
    )
    pool, features, inputs = (draw(st.sampled_from(each)) for each in ((1, 2), (3, 8, 19), (2, 7, 16, 20)))
    columns = draw(st.sampled_from([5, 70]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    conv = Conv(rng.integers(-128, 128, (features, inputs, *kernel)), (inputs, 6, columns), stride, padding)
    rows_left_over, columns_left_over = (draw(st.integers(0, pool - 1)) for _ in range(2))  # are dropped
    source = Map(inputs, 6 * pool + rows_left_over, columns * pool + columns_left_over)
    target = Map(*conv.output_shape)
    fires = rng.random((inputs, source.height, source.width)) < draw(st.sampled_from([0.02, 0.4, 1.0]))

    found = patterns(conv, source, target, pool)
    way, weights, reaches = found.way[0], found.weights, found.reaches
    before = rng.integers(-9, 10, target.size + LANES).astype(width)
    cells = [before.copy(), before.copy()]
    reached = [np.array([target.height, 0]) for _ in range(2)]

    spread = np.zeros((source.height, source.width, source.channels), np.bool_)
    spread[..., :inputs] = fires.transpose(1, 2, 0)
    lanes = spread.reshape(source.height, source.width * source.parts, source.lanes)
    bits = lanes @ (1 << np.arange(source.lanes, dtype=np.uint64))
    line, vector = (each.astype(np.uint64) for each in np.nonzero(bits))
    fired = line << LINE | vector << VECTOR | bits[bits != 0]
    scatter(cells[0], reached[0], fired, way, weights, reaches)
    neurons = np.flatnonzero(fires).astype(np.int32)
    for count in (2, -1, 1, -1):  # once
        counts, room = np.full(len(neurons), count, np.int32), np.empty(7, np.uint64)
        scatter_list(cells[1], reached[1], (neurons, counts), room, way, weights, reaches)

    cut = fires[:, : 6 * pool, : columns * pool].reshape(inputs, 6, pool, columns, pool).sum((2, 4))
    wanted = conv.matrix() @ cut.ravel()
    for own, (first, last) in zip(cells, reached, strict=True):
        added = (own - before)[: target.size].reshape(target.height, -1)
        assert np.array_equal(target.outside(added[None])[0], wanted.astype(width))
        assert np.array_equal(own[target.size :], before[target.size :])
        assert not added[:first].any() and not added[last:].any()
