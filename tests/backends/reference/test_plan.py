"""What is made once per graph is made anew when anything in the graph is another."""

import copy
from collections.abc import Callable
from dataclasses import replace

import nir
import numpy as np
import pytest

from nrf.backends.reference import plan, run
from nrf.export.graph import Graph
from tests.backends.loihi.graphs import chain


def network() -> tuple[Graph, np.ndarray]:
    """A small one with a clip."""
    rng, ones = np.random.default_rng(0), np.ones((3, 8, 8))
    conv = nir.Conv2d(None, rng.normal(0.2, 0.5, (3, 2, 3, 3)), 1, 1, 1, 1, np.full(3, 0.1))
    graph = chain(conv, nir.LIF(5e-3 * ones, ones, 0 * ones, 0.1 * ones, 0 * ones), shape=(2, 8, 8))
    return graph, (rng.random((30, 2, 8, 8)) < 0.2).astype(np.float32)


def changed(node: str, key: str, how: Callable[[np.ndarray], None]) -> Callable[[Graph], Graph]:
    """Change an array of a graph in place."""

    def change(graph: Graph) -> Graph:
        kind = next(name for name, each in graph.nodes.items() if type(each).__name__ == node)
        array = np.array(getattr(graph.nodes[kind], key))
        setattr(graph.nodes[kind], key, array)
        how(array)
        return graph

    return change


def negate(array: np.ndarray) -> None:
    """Only signs change."""
    array *= -1


def swap(array: np.ndarray) -> None:
    """The same numbers in another order."""
    array[:] = array[::-1].copy()


def nudge(array: np.ndarray) -> None:
    """One number of many."""
    array.flat[-1] *= 1.5


CHANGES = {
    "weights negated": changed("Conv2d", "weight", negate),
    "weights in another order": changed("Conv2d", "weight", swap),
    "one weight": changed("Conv2d", "weight", nudge),
    "bias": changed("Conv2d", "bias", negate),
    "one threshold": changed("LIF", "v_threshold", nudge),
    "one time constant": changed("LIF", "tau", nudge),
    "contract": lambda graph: graph.with_contract(reset="subtract"),
    "contract of a node": lambda graph: replace(
        graph, node_contracts={graph.neurons[0]: graph.contract.with_(reset="subtract")}
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_graph_runs_as_a_new_one_would(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, frames = network()
    before = run(graph, frames)
    graph = CHANGES[change](graph)
    after = run(graph, frames)
    monkeypatch.setattr(plan, "_last", [])
    fresh = run(copy.deepcopy(graph), frames)
    assert after == fresh
    assert (
        after.provenance.checksum == fresh.provenance.checksum == graph.checksum != before.provenance.checksum
    )


def test_an_equal_graph_is_not_prepared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, frames = network()
    before = run(graph, frames)
    monkeypatch.setattr(plan, "_plan", None)
    assert run(copy.deepcopy(graph), frames) == before
