"""Composed operators give what torch gives node by node."""

from itertools import pairwise

import nir
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nrf.backends.lowering.layers import layers_of
from nrf.backends.lowering.operators import Conv
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


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_conv_then_pool_is_one_operator_that_gives_what_torch_gives(data: st.DataObject) -> None:
    draw = data.draw
    size, groups, dilation = draw(st.integers(6, 9)), draw(st.sampled_from([1, 2])), draw(st.integers(1, 2))
    kernel, padding, stride = draw(st.integers(1, 3)), draw(st.integers(0, 2)), draw(st.integers(1, 2))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    weight = rng.normal(size=(4, 2 // groups, kernel, kernel))
    x = torch.tensor(rng.normal(size=(2, size, size)))
    mid = torch.nn.functional.conv2d(x, torch.tensor(weight), None, stride, padding, dilation, groups)
    if mid.shape[-1] < 2:
        return
    y = torch.nn.functional.avg_pool2d(mid, 2)
    shapes = {"in": tuple(x.shape), "conv": tuple(mid.shape)}
    shapes |= dict.fromkeys(("p", "if", "out"), tuple(y.shape))
    two = np.array([2, 2])
    nodes = {
        "in": nir.Input(np.array(x.shape)),
        "conv": nir.Conv2d((size, size), weight, stride, padding, dilation, groups, np.zeros(4)),
        "p": nir.AvgPool2d(two, two, np.array([0, 0])),
        "if": nir.IF(np.ones(y.shape), np.ones(y.shape), np.zeros(y.shape)),
        "out": nir.Output(np.array(y.shape)),
    }
    (connection,) = layers_of(chain(nodes, shapes)).into("if")
    assert isinstance(connection.operator, Conv)
    result = (connection.operator.matrix() @ x.numpy().ravel()).reshape(y.shape)
    assert np.allclose(result, y.numpy())


def diamonds(count: int) -> Graph:
    """A chain in which the signal parts into two affine maps and meets again, over and over."""
    rng = np.random.default_rng(count)
    nodes: dict[str, nir.NIRNode] = {"in": nir.Input(np.array([3]))}
    edges: list[tuple[str, str]] = []
    for k in range(count):
        before = f"m{k - 1}" if k else "in"
        for name in (f"a{k}", f"b{k}", f"m{k}"):
            nodes[name] = nir.Affine(rng.normal(0, 0.4, (3, 3)), rng.normal(0, 0.1, 3))
        edges += [(before, f"a{k}"), (before, f"b{k}"), (f"a{k}", f"m{k}"), (f"b{k}", f"m{k}")]
    nodes |= {"if": nir.IF(np.ones(3), np.ones(3), np.zeros(3)), "out": nir.Output(np.array([3]))}
    edges += [(f"m{count - 1}", "if"), ("if", "out")]
    shapes = dict.fromkeys(nodes, (3,))
    return Graph("test", nodes, tuple(edges), shapes, frozenset(), Contract(dt=1.0))


@pytest.mark.parametrize("count", [1, 2, 40])
def test_branches_that_part_and_meet_are_added_where_they_meet(count: int) -> None:
    graph = diamonds(count)  # 2^40 paths could not be walked one by one
    weight, bias = np.eye(3), np.zeros(3)
    for k in range(count):
        a, b, m = (graph.nodes[f"{name}{k}"] for name in "abm")
        weight = m.weight @ (a.weight + b.weight) @ weight
        bias = m.weight @ ((a.weight + b.weight) @ bias + a.bias + b.bias) + m.bias
    layers = layers_of(graph)
    (connection,) = layers.into("if")
    assert np.allclose(connection.operator.matrix().toarray(), weight)
    assert np.allclose(layers.populations["if"].bias, bias)
    assert sorted(connection.path) == sorted(f"{name}{k}" for name in "abm" for k in range(count))
