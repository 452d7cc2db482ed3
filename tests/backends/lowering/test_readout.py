"""What lies behind the last populations is computed by the host, and comes out as the reference's."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import nir
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import nrf
from nrf.backends import reference
from nrf.backends.border import Recording, chip_names
from nrf.backends.conformance.ladder import Clip, conform
from nrf.backends.lowering.readout import Host, HostReadout, divided
from nrf.errors import InputError
from nrf.export import Contract, Graph, canonical
from nrf.findings import errors
from nrf.model.readout import Readout

SIDE, STEPS = 4, 24
CHIP = {
    "speck2f": Contract(dt=1.0, reset="subtract", fire="ge"),
    "loihi2": Contract(dt=1.0, reset="zero", fire="ge"),
}


def spiking(*shape: int) -> nir.IF:
    return nir.IF(np.ones(shape), np.ones(shape), np.zeros(shape))


def integrator(rng: np.random.Generator, kind: str, *shape: int) -> nir.NIRNode:
    tau, r, leak = rng.uniform(1.5, 6, shape), rng.normal(1, 0.3, shape), rng.normal(0, 0.5, shape)
    if kind == "I":
        return nir.I(r)
    return nir.LI(tau, r, leak) if kind == "LI" else nir.CubaLI(tau * 0.7, tau, r, leak, np.full(shape, 1.2))


def frames(seed: int, shape: tuple[int, ...] = (2, SIDE, SIDE), steps: int = STEPS) -> Any:
    return (np.random.default_rng(seed).random((steps, *shape)) < 0.3).astype(np.float32)


KINDS = ("Scale", "Conv2d", "AvgPool2d", "Flatten", "Affine", "Delay", "I", "LI", "CubaLI")


def tail(rng: np.random.Generator, kinds: list[str], shape: tuple[int, ...]) -> list[nir.NIRNode]:
    """Nodes of these kinds one after the other, where their shapes allow it."""
    nodes: list[nir.NIRNode] = []
    for kind in kinds:
        size = int(np.prod(shape))
        if kind == "Scale":
            nodes.append(nir.Scale(rng.normal(1, 0.5, shape)))
        elif kind == "Conv2d" and len(shape) == 3:
            weight = rng.normal(0, 1, (3, shape[0], 3, 3))
            nodes.append(nir.Conv2d(shape[1:], weight, 1, 1, 1, 1, rng.normal(0, 0.2, 3)))
            shape = (3, *shape[1:])
        elif kind == "AvgPool2d" and len(shape) == 3 and shape[1] % 2 == 0:
            nodes.append(nir.AvgPool2d(np.array([2, 2]), np.array([2, 2]), np.array([0, 0])))
            shape = (shape[0], shape[1] // 2, shape[2] // 2)
        elif kind == "Flatten" and len(shape) == 3:
            nodes.append(nir.Flatten({"input": np.array(shape)}, 0, -1))
            shape = (size,)
        elif kind == "Affine" and len(shape) == 1:
            nodes.append(nir.Affine(rng.normal(0, 0.5, (5, size)), rng.normal(0, 0.2, 5)))
            shape = (5,)
        elif kind == "Delay":
            nodes.append(nir.Delay(rng.integers(0, 4, shape).astype(float)))
        elif kind in ("I", "LI", "CubaLI"):
            nodes.append(integrator(rng, kind, *shape))
    return nodes


def built(seed: int, kinds: list[str], skip: bool, contract: Contract) -> Graph:
    """input -> conv -> a -> conv -> b -> kinds -> output; with `skip` the host also reads the hidden `a`."""
    rng, shape = np.random.default_rng(seed), (2, SIDE, SIDE)

    def conv() -> nir.Conv2d:
        return nir.Conv2d(shape[1:], rng.integers(-8, 24, (2, 2, 3, 3)) / 32, 1, 1, 1, 1, np.zeros(2))

    nodes = {"input": nir.Input(np.array(shape)), "c1": conv(), "a": spiking(*shape), "c2": conv(),
             "b": spiking(*shape)}  # fmt: skip
    more = {f"t{k}": node for k, node in enumerate(tail(rng, kinds, shape))}
    edges = [*pairwise([*nodes, *more, "output"])]
    if skip:
        edges.append(("a", next(iter(more), "output")))
    whole = {**nodes, **more, "output": nir.Output(None)}
    return canonical(nir.NIRGraph(whole, edges, type_check=False), contract, "test")


@dataclass(frozen=True)
class Late:
    """A chip whose populations come late, or early, by some steps."""

    readout: HostReadout | None
    latencies: Mapping[str, int]
    input: str = "input"


def as_on_chip(wanted: Recording, latencies: Mapping[str, int]) -> Recording:
    moved = {name: spikes.later(latencies[name]) for name, spikes in wanted.spikes.items()}
    kept = {name: spikes.where((spikes.t >= 0) & (spikes.t < wanted.steps)) for name, spikes in moved.items()}
    shapes = {name: wanted.shapes[name] for name in kept}
    return replace(wanted, shapes=shapes, spikes=kept, membranes={}, latencies=dict(latencies))


@pytest.mark.parametrize("chip", chip_names())
def test_a_graph_on_the_grid_keeps_what_the_host_computes(chip: str) -> None:
    graph = built(3, ["AvgPool2d", "Flatten", "Affine"], True, CHIP[chip].with_(classes=0))
    rounded = nrf.on_grid(graph, chip)
    assert rounded.edges == graph.edges and rounded.shapes == graph.shapes
    assert np.array_equal(rounded.nodes["t2"].weight, graph.nodes["t2"].weight)
    wanted, found = reference.run(rounded, frames(3)), nrf.run(nrf.lower(rounded, chip), frames(3))
    assert np.abs(wanted.answers["output"]).max() > 1
    assert np.allclose(found.answers["output"], wanted.answers["output"], atol=1e-3)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    kinds=st.lists(st.sampled_from(KINDS), max_size=5),
    skip=st.booleans(),
    late=st.tuples(st.integers(-1, 3), st.integers(-1, 3)),
    delay=st.sampled_from([0, 1]),
    cut=st.integers(1, STEPS - 1),
)
def test_the_host_computes_what_the_reference_does(
    seed: int, kinds: list[str], skip: bool, late: tuple[int, int], delay: int, cut: int
) -> None:
    graph = built(seed, kinds, skip, CHIP["speck2f"].with_(delay=delay))
    parts = divided(graph)
    assert not errors([*parts.findings]) and parts.graph.neurons == ["a", "b"]
    clip = frames(seed)
    clip[: max(0, -min(late))] = 0  # what an early chip would have fired before it was switched on
    wanted = reference.run(graph, clip, dtype=torch.float64)
    (output,) = graph.read_populations
    if parts.readout is None:
        assert output == "b"
        return
    assert parts.readout.nodes[-1].name == output
    latencies = dict(zip("ab", late, strict=True))
    host, recording = Host(Late(parts.readout, latencies)), as_on_chip(wanted, latencies)
    pieces = []
    for start, stop in ((0, cut), (cut, STEPS)):
        some = {name: spikes.between(start, stop) for name, spikes in recording.spikes.items()}
        piece = replace(recording, steps=stop - start, spikes=some)
        pieces.append(host.read(piece, clip[start:stop]))
    for node in parts.readout.nodes:
        found = np.concatenate([piece.membranes[node.name] for piece in pieces])
        shift = pieces[0].latency(node.name)
        ours = slice(max(0, -shift), STEPS - max(0, shift))
        theirs = slice(max(0, shift), STEPS - max(0, -shift))
        volts = wanted.membranes[node.name]
        small = 1e-6 * (1 + np.abs(volts).max())
        assert np.allclose(found[theirs], volts[ours], rtol=0, atol=small), node.name


def test_a_graph_that_ends_in_a_population_is_left_alone() -> None:
    graph = built(0, [], False, CHIP["loihi2"])
    assert divided(graph).graph is graph and divided(graph).readout is None and not divided(graph).findings


def test_an_integrator_stays_on_a_chip_that_has_some() -> None:
    graph = built(0, ["LI", "Flatten", "Affine", "LI"], False, CHIP["loihi2"])
    parts = divided(graph, membranes=True)
    assert parts.readout is not None
    assert parts.graph.neurons == ["a", "b", "t0"] and parts.readout.sources == ("t0",)
    assert divided(graph).graph.neurons == ["a", "b"]


def test_what_the_host_cannot_do_is_refused_by_name() -> None:
    shape = (2, SIDE, SIDE)
    li = nir.LI(np.full(shape, 2.0), np.ones(shape), np.zeros(shape))
    ends = nir.Input(np.array(shape)), nir.Output(None)
    nodes = {"input": ends[0], "a": spiking(*shape), "li": li, "output": ends[1]}
    back = nir.NIRGraph(nodes, [*pairwise(nodes), ("li", "li")], type_check=False)
    (finding,) = divided(canonical(back, CHIP["speck2f"], "test")).findings
    assert finding.severity == "error" and "recurrent" in finding.message
    silent = nir.NIRGraph({k: v for k, v in nodes.items() if k != "a"}, [("input", "li"), ("li", "output")],
                          type_check=False)  # fmt: skip
    (finding,) = divided(canonical(silent, CHIP["speck2f"], "test")).findings
    assert finding.severity == "error" and "no population" in finding.message


def ending(chip: str) -> Graph:
    """IF -> Conv2d -> LI -> Scale -> Output, on the grid of both chips; the hidden layer is read as well."""
    contract = replace(CHIP[chip], readout=Readout(gain=2.0, leak=0.3))
    return built(3, ["Conv2d", "LI", "Scale"], True, contract)


@pytest.mark.parametrize("name", chip_names())
def test_every_chip_takes_what_its_host_can_read(name: str, tmp_path: Path) -> None:
    graph = ending(name)
    found = nrf.check(graph, name)
    assert not errors(found)
    (note,) = [finding for finding in found if finding.rule == "left_to_host"]
    assert note.severity == "note" and "by the host from " in note.message
    program = nrf.lower(graph, name, out=tmp_path / "program")
    assert note in program.lowered.rewrites
    loaded = nrf.load(tmp_path / "program")
    assert loaded == program
    clip = frames(9, steps=40)
    wanted, ours = reference.run(graph, clip), nrf.run(loaded, clip)  # type: ignore[arg-type]
    late = ours.latency("output")
    maps = ours.maps("output", graph.contract), wanted.maps("output", graph.contract)
    assert np.allclose(maps[0][late:], maps[1][: 40 - late], atol=2e-2)  # of 22 V; Loihi keeps the LI
    report = conform(graph, nrf.load_chip(name), [Clip("one", clip)], runtimes=["builtin"])
    assert report.verdict == "pass", report.failures
    assert any(entry.rung == "L3" for entry in report.measured)


def test_a_damaged_readout_is_refused(tmp_path: Path) -> None:
    program: Any = nrf.lower(ending("speck2f"), "speck2f")
    node = program.readout.nodes[-1]
    wire = replace(node.wires[0], source="nobody")
    for broken in (replace(node, wires=(wire,)), replace(node, shape=(7,)), replace(node, name="a")):
        nodes = (*program.readout.nodes[:-1], broken)
        replace(program, readout=HostReadout(nodes), outputs=(broken.name,)).save(tmp_path / "broken")
        with pytest.raises(InputError, match=r"of the host: .*lower again"):
            nrf.load(tmp_path / "broken")
