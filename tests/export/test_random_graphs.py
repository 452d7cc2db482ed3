"""Random graphs survive writing, reading, canonical form and running, spike for spike."""

import tempfile
from dataclasses import asdict
from pathlib import Path

import nir
import numpy as np
import torch
from hypothesis import HealthCheck, given, settings

from nrf.backends.reference import run
from nrf.export import canonical, read_graph, write_graph
from nrf.export.graph import SPIKING, Graph
from nrf.export.nir_files import to_nir
from tests.export.graphs import Case, cases
from tests.export.naive import naive

RANDOM = settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@RANDOM
@given(case=cases())
def test_reference_on_the_canonical_form_matches_a_naive_run_of_the_raw_graph(case: Case) -> None:
    signals, membranes = naive(case.graph, case.frames, case.contract, case.feedback, case.shapes)
    graph = canonical(case.graph, case.contract)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.nir"
        nir.write(path, case.graph, compression=None)  # a stranger's file: contract by keywords
        assert same(read_graph(path, **asdict(case.contract)), graph)
        write_graph(path, graph)  # ours
        read = read_graph(path)
    assert same(read, graph)
    assert same(canonical(to_nir(graph), graph.contract), graph)
    recording = run(read, case.frames, dtype=torch.float64)
    assert sorted(recording.nodes) == sorted(signals)
    for name in recording.nodes:
        if isinstance(read.nodes[name], SPIKING):
            np.testing.assert_array_equal(recording.dense(name), signals[name], err_msg=name)
        np.testing.assert_allclose(recording.membrane(name), membranes[name], atol=1e-9, err_msg=name)


def same(a: Graph, b: Graph) -> bool:
    """Equal down to every parameter, order included."""
    return (
        list(a.nodes) == list(b.nodes)
        and a.edges == b.edges
        and a.shapes == b.shapes
        and a.recurrent == b.recurrent
        and a.checksum == b.checksum
    )
