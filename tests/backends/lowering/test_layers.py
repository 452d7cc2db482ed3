"""Composed operators give what torch gives node by node."""

from itertools import pairwise

import nir
import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nrf.backends.lowering.layers import Conv, layers_of
from nrf.export.contract import Contract
from nrf.export.graph import Graph


def chain(nodes: dict[str, nir.NIRNode], shapes: dict[str, tuple[int, ...]]) -> Graph:
    names = list(nodes)
    return Graph("test", nodes, tuple(pairwise(names)), shapes, frozenset(), Contract(dt=1.0))


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_pool_then_conv_is_one_operator_that_gives_what_torch_gives(data: st.DataObject) -> None:
    draw = data.draw
    size, channels = draw(st.integers(6, 11)), 2
    pool, kernel = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    stride, padding = draw(st.integers(1, 2)), draw(st.integers(0, 2))
    dilation, groups = draw(st.integers(1, 2)), draw(st.sampled_from([1, 2]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    weight = rng.normal(size=(4, channels // groups, kernel, kernel))
    x = torch.tensor(rng.normal(size=(channels, size, size)))
    pooled = torch.nn.functional.avg_pool2d(x, pool) * (pool * pool)
    bias = rng.normal(size=4)
    try:
        y = torch.nn.functional.conv2d(
            pooled, torch.tensor(weight), torch.tensor(bias), stride, padding, dilation, groups
        )
    except RuntimeError:  # the kernel is larger than the map
        return
    shapes = {
        "in": tuple(x.shape),
        "pool": tuple(pooled.shape),
        "conv": tuple(y.shape),
        "if": tuple(y.shape),
        "out": tuple(y.shape),
    }
    two = np.array([pool, pool])
    nodes = {
        "in": nir.Input(np.array(x.shape)),
        "pool": nir.SumPool2d(two, two, np.array([0, 0])),
        "conv": nir.Conv2d(tuple(pooled.shape[1:]), weight, stride, padding, dilation, groups, bias),
        "if": nir.IF(np.ones(y.shape), np.ones(y.shape), np.zeros(y.shape)),
        "out": nir.Output(np.array(y.shape)),
    }
    layers = layers_of(chain(nodes, shapes))
    (connection,) = layers.into("if")
    result = (connection.operator.matrix() @ x.numpy().ravel()).reshape(y.shape)
    assert np.allclose(result + layers.populations["if"].bias, y.numpy())
    if size % pool == 0:
        assert isinstance(connection.operator, Conv), "even pooling must stay a convolution"
