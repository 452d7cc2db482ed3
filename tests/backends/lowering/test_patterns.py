"""Sums of patterns of channels are the convolution, whatever fires, however often, and after any pooling."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nrf.backends.lowering.operators import Conv
from nrf.backends.lowering.pattern_kernels import WAY, scatter_list, scatter_masks
from nrf.backends.lowering.patterns import Map, patterns
from nrf.vectors import BLOCK


@settings(max_examples=80, deadline=None)
@given(st.data())
@pytest.mark.parametrize("width", [np.int16, np.int32])
def test_masks_and_lists_give_the_correlation(width: type[np.signedinteger], data: st.DataObject) -> None:
    draw = data.draw
    kernel, stride, padding = (
        (draw(st.integers(low, high)), draw(st.integers(low, high))) for low, high in ((1, 5), (1, 3), (0, 3))
    )
    pool, features, inputs = (draw(st.sampled_from(each)) for each in ((1, 2), (3, 8, 19), (2, 7, 16, 20)))
    columns = draw(st.sampled_from([5, 300]))  # of so many, two blocks share a bit
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    conv = Conv(rng.integers(-128, 128, (features, inputs, *kernel)), (inputs, 6, columns), stride, padding)
    rows_left_over = draw(st.integers(0, 1))  # a line too many is dropped
    source, target = Map(inputs, 6 * pool + rows_left_over, columns * pool), Map(*conv.output_shape)
    fires = rng.random((inputs, source.height, source.width)) < draw(st.sampled_from([0.02, 0.4, 1.0]))

    found = patterns(conv, source, target, pool)
    way = np.zeros(1, WAY)
    vectors = source.lanes.bit_length() - 1, source.parts
    begins = 0, found.step, found.line, 0, len(found.rows)
    way[0] = (
        source.height * source.width, source.width, *vectors, pool**2, *begins, target.lanes, target.pitch
    )  # fmt: skip
    reaches = np.concatenate([found.rows, found.columns])
    cells = [np.zeros(target.size, width) for _ in range(2)]
    touched = [np.zeros(target.height, np.uint64) for _ in range(2)]

    inside = np.zeros((source.height, source.pitch), np.bool_)
    spread = inside[:, : source.width * source.channels].reshape(*fires.shape[1:], source.channels)
    spread[..., :inputs] = fires.transpose(1, 2, 0)
    inside[:, : source.width * source.channels] = spread.reshape(source.height, -1)
    masks = np.packbits(inside.reshape(source.height, -1, BLOCK), bitorder="little", axis=2).view(np.uint64)[
        ..., 0
    ]
    lines, blocks = (each.astype(np.int32) for each in np.nonzero(masks))
    scatter_masks(cells[0], touched[0], lines, blocks, masks[lines, blocks], way[0], found.weights, reaches)
    neurons = np.flatnonzero(fires).astype(np.int32)
    for count in (2, -1):  # two times less one
        counts = np.full(len(neurons), count, np.int32)
        scatter_list(cells[1], touched[1], neurons, counts, way[0], found.weights, reaches)

    cut = fires[:, : 6 * pool].reshape(inputs, 6, pool, columns, pool).sum((2, 4))
    wanted = conv.matrix() @ cut.ravel()
    for own, marks in zip(cells, touched, strict=True):
        assert np.array_equal(target.outside(own[None])[0], wanted.astype(width))
        line, cell = np.nonzero(own.reshape(target.height, -1))
        bits = cell // (BLOCK * target.span)
        assert np.all(marks[line] >> bits.astype(np.uint64) & np.uint64(1))
