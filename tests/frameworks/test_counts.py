"""Our counts of synaptic operations are those of Sinabs and NeuroBench, to the last one, on the same run."""

import json
from math import prod
from pathlib import Path

import pytest

from nrf.backends import reference
from nrf.backends.border import CoreUse, Placement
from nrf.backends.conformance.golden import compare, read_golden
from nrf.backends.conformance.work import added, loads, neurobench
from nrf.backends.lowering.fan_out import placed_fan_out
from nrf.backends.lowering.layers import layers_of
from nrf.export import Graph, read_graph
from tests.frameworks.witnesses import run_script


def played(graph: Graph, path: Path):
    """The work of the reference on a clip on which its spikes are the framework's own."""
    golden = read_golden(path, graph)
    assert compare(graph, golden).differ == 0
    sizes = {name: prod(graph.shapes[name]) for name in graph.neurons}
    cores = (CoreUse(n, name, 0, size - 1, ()) for n, (name, size) in enumerate(sizes.items()))
    placement = Placement(tuple(cores), len(sizes))  # as if every population were a core of its own
    connections = layers_of(graph).connections
    ways = [placed_fan_out(each.source, each.target, each.operator, placement) for each in connections]
    return loads(reference.run(graph, golden.frames), golden.frames, ways, placement)


@pytest.mark.needs_vendor("sinabs")
def test_synaptic_operations_are_those_that_sinabs_counts(tmp_path: Path) -> None:
    counts = json.loads(run_script("count_sinabs.py", "sinabs", tmp_path))
    graph = read_graph(tmp_path / "network.nir", "sinabs")
    ours = [load.synaptic_operations for load in played(graph, tmp_path / "network.npz") if load.core is None]
    assert ours == list(counts.values()) and min(ours) > 100


@pytest.mark.needs_vendor("frameworks")
def test_all_counts_are_those_of_neurobench(tmp_path: Path) -> None:
    counts = json.loads(run_script("count_neurobench.py", "frameworks", tmp_path))
    graph = read_graph(tmp_path / "network.nir", "snntorch")
    clips = sorted(tmp_path.glob("clip*.npz"))
    work = []
    for path in clips:
        work = added(work, played(graph, path))
    ours = neurobench(work, len(clips))
    assert ours["SynapticOperations"] == counts["SynapticOperations"]
    assert ours["MembraneUpdates"] == counts["MembraneUpdates"]
    assert ours["ActivationSparsity"] == pytest.approx(counts["ActivationSparsity"], abs=1e-12)
    assert counts["SynapticOperations"]["Effective_ACs"] > 100
