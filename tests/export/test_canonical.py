"""Canonical form: names, folding, padding, recurrence."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import nir
import numpy as np
import pytest

from nrf.errors import InputError
from nrf.export import Contract, Graph, canonical, repair, validate
from nrf.export.nir_files import read_graph, to_nir, write_graph

STEP = Contract(dt=1e-3)


def lif(size: tuple[int, ...] | int = 3) -> nir.LIF:
    return nir.LIF(*(np.full(size, v) for v in (1e-2, 1.0, 0.0, 0.5)))


def graph_of(
    nodes: dict[str, nir.NIRNode], edges: list[tuple[str, str]] | None = None, shape: Any = (3,)
) -> Graph:
    """Named nodes, in a chain if no edges are given, with input and output around them."""
    names = ["input", *nodes, "output"]
    every = {"input": nir.Input(np.array(shape)), **nodes, "output": nir.Output(None)}
    raw = nir.NIRGraph(every, edges or list(pairwise(names)), type_check=False)
    graph = canonical(raw, STEP)
    again = canonical(to_nir(graph), STEP)
    assert (again.checksum, again.recurrent, again.edges) == (graph.checksum, graph.recurrent, graph.edges)
    return graph


def test_sub_graphs_are_flattened_with_stable_names() -> None:
    inner = nir.NIRGraph(
        {"in": nir.Input(np.array([3])), "w": nir.Linear(np.eye(3)), "n": lif(), "out": nir.Output(None)},
        [("in", "w"), ("w", "n"), ("n", "out")],
        type_check=False,
    )
    outer = nir.NIRGraph(
        {"in": nir.Input(np.array([3])), "block": inner, "out": nir.Output(None)},
        [("in", "block"), ("block", "out")],
        type_check=False,
    )
    graph = graph_of({"first": outer, "second": inner})
    assert graph.neurons == ["first.block.n", "second.n"]
    assert ("first.block.n", "second.w") in graph.edges


def block(*ports: str) -> nir.NIRGraph:
    """A sub-graph with a neuron and these input nodes."""
    nodes = {name: nir.Input(np.array([3])) for name in ports} | {"n": lif(), "out": nir.Output(None)}
    return nir.NIRGraph(nodes, [*((name, "n") for name in ports), ("n", "out")], type_check=False)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ({"a": block("x", "y")}, "sub-graph 'a' has 2 Input and 1 Output nodes, expected one of each"),
        ({"a": block("x"), "a.n": lif()}, "node 'a.n' is there twice once sub-graphs are dissolved"),
    ],
)
def test_sub_graphs_that_cannot_be_dissolved(nodes: dict[str, nir.NIRNode], message: str) -> None:
    with pytest.raises(InputError, match=f"graph: {message}"):
        graph_of(nodes)
    names = ["input", *nodes, "output"]
    every = {"input": nir.Input(np.array([3])), **nodes, "output": nir.Output(None)}
    (finding,) = validate(nir.NIRGraph(every, list(pairwise(names)), type_check=False))
    assert finding.rule == "sub_graphs" and message in finding.message


def test_parameters_become_full_arrays_and_linear_becomes_affine() -> None:
    per_channel = nir.LIF(*(np.full((2, 1, 1), v) for v in (1e-2, 1.0, 0.0, 0.5)))
    conv = nir.Conv2d(None, np.ones((2, 1, 3, 3)), 1, "same", 1, 1, np.zeros(2))
    flat = nir.Flatten({"input": None}, 0, -1)
    graph = graph_of(
        {"c": conv, "n": per_channel, "f": flat, "w": nir.Linear(np.ones((4, 32), np.float32))},
        shape=(1, 4, 4),
    )
    assert graph.nodes["n"].tau.shape == (2, 4, 4)
    assert graph.nodes["c"].padding == (1, 1)
    assert isinstance(graph.nodes["w"], nir.Affine) and graph.nodes["w"].bias.shape == (4,)
    assert graph.nodes["w"].weight.dtype == np.float32
    assert graph.shapes == {
        "input": (1, 4, 4),
        "c": (2, 4, 4),
        "n": (2, 4, 4),
        "f": (32,),
        "w": (4,),
        "output": (4,),
    }


def test_scale_and_average_fold_into_what_follows_or_precedes() -> None:
    pool = nir.AvgPool2d(*np.array([[2, 2], [2, 2], [0, 0]]))
    graph = graph_of(
        {
            "n": lif((2, 4, 4)),
            "pool": pool,
            "gain": nir.Scale(np.array([2.0, 3.0]).reshape(2, 1, 1)),
            "conv": nir.Conv2d(None, np.ones((1, 2, 1, 1)), 1, 0, 1, 1, np.zeros(1)),
            "last": nir.Scale(np.array([10.0])),
            "n2": lif((1, 2, 2)),
        },
        shape=(2, 4, 4),
    )
    assert list(graph.nodes) == ["input", "n", "pool", "conv", "n2", "output"]
    assert isinstance(graph.nodes["pool"], nir.SumPool2d)
    np.testing.assert_array_equal(graph.nodes["conv"].weight.flatten(), [10 * 2 / 4, 10 * 3 / 4])


def test_nothing_folds_where_it_would_not_be_exact() -> None:
    uneven = np.linspace(1, 2, 16).reshape(1, 4, 4)
    graph = graph_of(
        {"s": nir.Scale(uneven), "c": nir.Conv2d(None, np.ones((1, 1, 3, 3)), 1, 1, 1, 1, np.zeros(1))},
        shape=(1, 4, 4),
    )
    assert isinstance(graph.nodes["s"], nir.Scale)
    nodes = {"s": nir.Scale(np.full(3, 2.0)), "w": nir.Linear(np.eye(3)), "n": lif()}
    edges = [("input", "s"), ("s", "w"), ("s", "n"), ("w", "n"), ("n", "output")]
    assert "s" in graph_of(nodes, edges).nodes  # 'n' cannot take the factor


def test_even_kernels_keep_same_padding_by_a_tap_of_zero() -> None:
    conv = nir.Conv1d(None, np.array([[[1.0, 2.0]]]), 1, "same", 3, 1, np.zeros(1))
    node = graph_of({"c": conv}, shape=(1, 9)).nodes["c"]
    assert (node.padding, node.dilation) == (2, 1)
    np.testing.assert_array_equal(node.weight[0, 0], [0, 1, 0, 0, 2])  # torch pads 1 before and 2 behind


CYCLES = {
    "itself": ([("a", "a")], {("a", "a")}),
    "through a matrix": ([("a", "m"), ("m", "a")], {("a", "m")}),
    "matrix shared with a forward path": ([("a", "m"), ("m", "a"), ("m", "b")], {("m", "a")}),
    "from the second to the first": ([("b", "m"), ("m", "a")], {("b", "m")}),
    "both see both": ([("a", "m"), ("b", "m"), ("m", "a"), ("m", "b")], {("m", "a"), ("m", "b")}),
    "through a delay": ([("b", "d"), ("d", "a")], {("b", "d")}),
}


@pytest.mark.parametrize("kind", CYCLES)
def test_recurrent_edges(kind: str) -> None:
    extra, expected = CYCLES[kind]
    nodes = {"a": lif(), "b": lif(), "m": nir.Linear(np.eye(3)), "d": nir.Delay(np.full(3, 2e-3))}
    ends = [("input", "a"), ("a", "b"), ("b", "output")]
    used = {name for edge in [*ends, *extra] for name in edge}
    graph = graph_of({name: node for name, node in nodes.items() if name in used}, [*ends, *extra])
    assert graph.recurrent == expected


def test_a_feed_forward_edge_behind_a_cycle_is_not_recurrent() -> None:
    nodes = {"near": lif(), "w": nir.Linear(np.eye(3)), "v": nir.Linear(np.eye(3)), "loop": lif()}
    edges = [("input", "near"), ("input", "w"), ("w", "v"), ("v", "loop"), ("loop", "loop"), ("loop", "near")]
    graph = graph_of(nodes, [*edges, ("near", "output")])
    assert graph.recurrent == {("loop", "loop")}
    assert list(graph.nodes).index("loop") < list(graph.nodes).index("near")


def affine() -> nir.Affine:
    return nir.Affine(0.5 * np.eye(3), np.zeros(3))


def test_fifty_affine_nodes_in_diamonds_have_2_to_the_25_paths_and_no_work_for_each() -> None:
    layers = [["input"], *([f"left{k}", f"right{k}"] for k in range(25)), ["n"], ["output"]]
    nodes = {name: affine() for pair in layers[1:-2] for name in pair} | {"n": lif()}
    edges = [(a, b) for before, after in pairwise(layers) for a in before for b in after]
    assert len(graph_of(nodes, edges).edges) == len(edges)


def test_sub_graphs_that_hold_nothing_are_dissolved_without_following_every_path() -> None:
    nothing = nir.NIRGraph(
        {"in": nir.Input(np.array([3])), "out": nir.Output(None)}, [("in", "out")], type_check=False
    )
    layers = [["input"], *([f"left{k}", f"right{k}"] for k in range(25)), ["n"], ["output"]]
    nodes = {name: nothing for pair in layers[1:-2] for name in pair} | {"n": lif()}
    edges = [(a, b) for before, after in pairwise(layers) for a in before for b in after]
    with pytest.raises(InputError, match="edge input -> n: the edge is there more than once"):
        graph_of(nodes, edges)


@pytest.mark.parametrize("kind", ["neurons", "factors", "flat", "loops"])
def test_a_chain_of_2000_nodes_is_brought_into_canonical_form(kind: str) -> None:
    make = {
        "neurons": lambda k: lif() if k % 2 else affine(),
        "factors": lambda k: affine() if k == 1999 else nir.Scale(np.ones(3)),  # which fold one by one
        "flat": lambda k: nir.Scale(np.ones(3)) if k == 0 else nir.Flatten({"input": None}, 0, 0),
        "loops": lambda k: lif() if k % 2 else affine(),
    }[kind]
    nodes = {f"{k:04}": make(k) for k in range(2000)}
    edges = list(pairwise(["input", *nodes, "output"]))
    if kind == "loops":  # each neuron feeds itself
        edges += [(name, name) for name, node in nodes.items() if isinstance(node, nir.LIF)]
    graph = graph_of(nodes, edges)
    assert len(graph.nodes) == (3 if kind == "factors" else 2002)
    assert list(graph.nodes)[1:-1] == [name for name in nodes if name in graph.nodes]
    assert [graph.inputs_of(b)[0] for a, b in pairwise(graph.nodes)] == list(graph.nodes)[:-1]
    assert len(graph.recurrent) == (1000 if kind == "loops" else 0)


def test_padding_that_needs_more_memory_than_is_taken_is_refused_by_name() -> None:
    one = np.ones((1, 1, 1), np.float32)
    padding, side = (10**5, 10**5), 8 + 2 * 10**5 - 2
    nodes = {
        "input": nir.Input(np.array([2, 8, 8])),
        "conv": nir.Conv2d(
            (8, 8), np.ones((1, 2, 3, 3), np.float32), 1, padding, 1, 1, np.zeros(1, np.float32)
        ),
        "lif": nir.LIF(one, one, one, one),
        "output": nir.Output(np.array([1, side, side])),
    }
    edges = [("input", "conv"), ("conv", "lif"), ("lif", "output")]
    graph = nir.NIRGraph(nodes, edges, type_check=False)
    with pytest.raises(InputError, match=r"node 'conv' of shape \(1, 200006, 200006\): .* use less padding"):
        canonical(graph, Contract(dt=1e-3), "model.nir")


def test_a_batch_axis_is_dropped_behind_a_scalar_scale_as_well() -> None:
    nodes = {
        "input": nir.Input(np.array([1, 3])), "scale": nir.Scale(np.array(0.5)), "w": nir.Linear(np.eye(3)),
        "n": lif(), "output": nir.Output(None),
    }  # fmt: skip
    edges = list(pairwise(nodes))
    notes = repair.apply(repair.FORM, nodes, edges, 1e-3)
    assert "leading axes (1,)" in notes[0]
    graph = canonical(nir.NIRGraph(nodes, edges, type_check=False), STEP)
    assert graph.shapes[graph.input] == graph.shapes["n"] == (3,)


@pytest.mark.parametrize(
    ("stated", "last"), [((1, 2, 3, 4), -1), ((1, 2, 3, 4), 3), ((2, 3, 4), -1), (None, -1), (None, 3)]
)
def test_a_flatten_that_counts_a_batch_axis_joins_all_others(stated: Any, last: int) -> None:
    nodes = {
        "a": nir.Flatten({"input": None if stated is None else np.array(stated)}, 1, last),
        "w": nir.Linear(np.ones((5, 24))), "n": lif(5),
    }  # fmt: skip
    every = {"input": nir.Input(np.array([1, 2, 3, 4])), **nodes, "output": nir.Output(np.array([1, 5]))}
    notes = repair.apply(repair.FORM, every, edges := list(pairwise(every)), 1e-3)
    assert len(notes) == 3 and all("axes (1,)" in note or "counts a batch axis" in note for note in notes)
    graph = canonical(nir.NIRGraph(every, edges, type_check=False), STEP)
    assert graph.shapes["a"] == (24,) and graph.shapes["output"] == (5,)


@pytest.mark.parametrize("shape", [(1, 1, 2, 3), (1, 2, 3), (2, 3)])
def test_an_input_of_one_channel_keeps_it_before_a_flatten(shape: tuple[int, ...]) -> None:
    """As an MNIST classifier is written with torch's Flatten, with a batch axis in the file or without."""
    nodes = {
        "input": nir.Input(np.array(shape)), "a": nir.Flatten({"input": None}, 1, -1),
        "w": nir.Linear(np.ones((5, 6))), "n": lif(5), "output": nir.Output(None),
    }  # fmt: skip
    repair.apply(repair.FORM, nodes, edges := list(pairwise(nodes)), 1e-3)
    graph = canonical(nir.NIRGraph(nodes, edges, type_check=False), STEP)
    assert graph.shapes["input"] == shape[-3:] and graph.shapes["a"] == (6,)


def test_a_flatten_that_keeps_its_first_axis_rightly_is_left_alone() -> None:
    nodes = {
        "input": nir.Input(np.array([2, 3, 4])), "a": nir.Flatten({"input": None}, 1, -1),
        "w": nir.Affine(np.ones((2, 5, 12)), np.zeros((2, 5))), "n": lif((2, 5)), "output": nir.Output(None),
    }  # fmt: skip
    assert not repair.apply(repair.FORM, nodes, edges := list(pairwise(nodes)), 1e-3)
    assert canonical(nir.NIRGraph(nodes, edges, type_check=False), STEP).shapes["a"] == (2, 12)


def test_large_parameters_that_differ_by_channel_only_are_held_once(tmp_path: Path) -> None:
    shape, rng = (3, 160, 160), np.random.default_rng(1)
    tau = np.broadcast_to(rng.uniform(0.01, 0.1, (3, 1, 1)), shape).copy()
    threshold = rng.uniform(0.5, 1, shape)  # which differs by neuron
    nodes = {
        "input": nir.Input(np.array(shape)),
        "lif": nir.LIF(tau=tau, r=np.ones(shape), v_leak=np.zeros(shape), v_threshold=threshold),
        "output": nir.Output(np.array(shape)),
    }
    nir.write(tmp_path / "large.nir", nir.NIRGraph(nodes, [("input", "lif"), ("lif", "output")]))
    graph = read_graph(tmp_path / "large.nir", dt=1e-3)
    assert [getattr(graph.nodes["lif"], key).strides[1:] for key in ("tau", "r")] == [(0, 0), (0, 0)]
    for key in ("tau", "v_threshold"):
        np.testing.assert_array_equal(getattr(graph.nodes["lif"], key), getattr(nodes["lif"], key))
    write_graph(tmp_path / "again.nir", graph)
    assert read_graph(tmp_path / "again.nir").checksum == graph.checksum
