"""Planted faults: each must be reported as a failure at the right node, on every target.

Two ways to plant one. In the program: the graph is changed before lowering and the ladder compares with the
original; with every node fed the reference's spikes (L1) only the broken one may fail. In a runtime: the
changed program stands in for a vendor's simulation that must be bit-exact (L0); the first node that differs
is the one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import nir
import numpy as np
import pytest
from msgspec import structs

from benchmarks.cases import recipes
from nrf.backends.border import Chip, LowerOptions, RunOptions, Runtime, backend_of, chip_names, load_chip
from nrf.backends.conformance import Clip, conform
from nrf.backends.loihi.program import LoihiProgram
from nrf.export import Contract, Graph, canonical
from nrf.findings import errors

DT = recipes.DT


def network(leaky: bool) -> Graph:
    """Two convolutions with biases on a map that is not square; LIF neurons, or IF with a linear leak.

    All numbers lie on the chips' grids, so that nothing but a fault makes a difference.
    """
    rng = np.random.default_rng(3)

    def conv(outputs: int, inputs: int) -> nir.Conv2d:
        node = recipes.conv(rng.integers(-20, 40, (outputs, inputs, 3, 3)) / 64)
        node.bias = rng.choice([-3, -2, 2, 3], outputs) / 64
        return node

    def neurons(*shape: int) -> nir.NIRNode:
        return (
            recipes.lif(*shape, decay=1 / 8, threshold=0.25) if leaky else recipes.if_(*shape, threshold=1.0)
        )

    nodes = {
        "input": nir.Input({"input": np.array([2, 7, 9])}),
        "conv1": conv(4, 2), "first": neurons(4, 7, 9),
        "conv2": conv(3, 4), "second": neurons(3, 7, 9),
        "output": nir.Output(None),
    }  # fmt: skip
    graph = nir.NIRGraph(nodes, list(pairwise(nodes)), type_check=False)
    return canonical(graph, Contract(dt=DT), "faults")


def suited(target: Chip) -> Graph:
    """The network with the neurons that the chip has."""
    graph = network(leaky=True)
    if errors(backend_of(target).check(graph, target)):
        graph = network(leaky=False)
    return replace(graph, metadata={"grid": target.name})  # its numbers are the chip's: see network


def changed(graph: Graph, name: str, **fields: Any) -> Graph:
    """The graph with some fields of one node replaced."""
    return replace(graph, nodes={**graph.nodes, name: replace(graph.nodes[name], **fields)})


def one_weight_flipped(graph: Graph, target: Chip) -> Graph:
    weight = graph.nodes["conv2"].weight.copy()
    place = np.unravel_index(np.argmax(np.abs(weight)), weight.shape)
    weight[place] = -weight[place]
    return changed(graph, "conv2", weight=weight)


def decay_off_by_one(graph: Graph, target: Chip) -> Graph:
    node = graph.nodes["second"]
    if isinstance(node, nir.LIF):  # decays have 12 bits
        return changed(graph, "second", tau=DT / (DT / node.tau + 1 / 4096))
    return changed(graph, "conv2", bias=graph.nodes["conv2"].bias - np.array([1, 0, 0]) / 64)


def swapped_axis(graph: Graph, target: Chip) -> Graph:
    return changed(graph, "conv2", weight=graph.nodes["conv2"].weight.swapaxes(2, 3).copy())


def dropped_bias(graph: Graph, target: Chip) -> Graph:
    return changed(graph, "conv1", bias=np.zeros(4))


def wrong_reset(graph: Graph, target: Chip) -> Graph:
    other = replace(graph, contract=graph.contract.with_(reset="subtract"))
    if not errors(backend_of(target).check(other, target)):
        return other  # of both populations: a chip resets all its neurons in one way
    node = graph.nodes["second"]
    return changed(graph, "second", v_reset=np.full_like(node.v_threshold, -1 / 16))


def channels_exchanged(graph: Graph, target: Chip) -> Graph:
    return changed(graph, "conv1", weight=graph.nodes["conv1"].weight[[1, 0, 2, 3]])


@dataclass(frozen=True)
class Fault:
    """A change of the graph, or of the input's timing, and the node where it must show first."""

    node: str
    plant: Callable[[Graph, Chip], Graph] = lambda graph, target: graph
    delay: int = 0


FAULTS = {
    "one weight flipped": Fault("second", one_weight_flipped),
    "decay off by one": Fault("second", decay_off_by_one),
    "swapped axis": Fault("second", swapped_axis),
    "one-step delay": Fault("first", delay=1),
    "dropped bias": Fault("first", dropped_bias),
    "wrong reset": Fault("second", wrong_reset),
    "two channels exchanged": Fault("first", channels_exchanged),
}


@pytest.fixture(params=chip_names())
def target(request: pytest.FixtureRequest) -> Chip:
    return load_chip(request.param)


def clip() -> Clip:
    return Clip("noise", (np.random.default_rng(4).random((50, 2, 7, 9)) < 0.08).astype(np.float32))


def with_fault(chip: Chip, register: Any, program: Any, delay: int, name: str) -> Chip:
    """The same chip, where runtime `name` runs `program` on late input, whatever program it is given."""
    real = backend_of(chip)

    def run(given: Any, frames: Any, runtime: str, options: RunOptions) -> Any:
        if runtime != name:
            return real.run(given, frames, "builtin", options)
        late = np.concatenate([np.zeros_like(frames[:delay]), frames[: len(frames) - delay]])
        return real.run(program, late, "builtin", options)

    runtimes = {key: Runtime(key) for key in ("builtin", name)}
    register("broken", replace(real, run=run, runtimes=runtimes))
    return structs.replace(chip, backend="broken")


def failing(report: Any, rung: str) -> list[str]:
    return list(dict.fromkeys(check.node for check in report.failures if check.rung == rung))


def test_without_a_fault_the_same_network_passes(target):
    report = conform(suited(target), target, [clip()], runtimes=["builtin"])
    assert report.verdict == "pass", report.failures
    assert all(entry.figures["f1"] == 1.0 for entry in report.measured if entry.rung != "L3")


def planted(fault: Fault, graph: Graph, target: Chip) -> Any:
    """The program with the fault in it, everything else as in the good one."""
    backend, options = backend_of(target), LowerOptions([clip().frames], "given")
    broken = fault.plant(graph, target)
    program = backend.lower(broken, target, options)
    if broken.contract == graph.contract:
        return program
    good = backend.lower(graph, target, options)
    # A contract speaks of all neurons: break those of one population only.
    if isinstance(good, LoihiProgram):
        synapses = [one for one in good.synapses if one.target != fault.node]
        synapses += [one for one in program.synapses if one.target == fault.node]
        neurons = good.neurons | {fault.node: program.neurons[fault.node]}
        return replace(good, neurons=neurons, synapses=tuple(synapses))
    populations = [
        bad if bad.node == fault.node else fine
        for fine, bad in zip(good.populations, program.populations, strict=True)
    ]
    return replace(good, populations=tuple(populations))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_the_program_is_located_by_teacher_forcing(name, target, register):
    fault, graph = FAULTS[name], suited(target)
    program = planted(fault, graph, target)
    chip = with_fault(target, register, program, fault.delay, "builtin")
    report = conform(graph, chip, [clip()], program=program, runtimes=["builtin"])
    assert failing(report, "L1") == [fault.node]
    assert report.failures[0].node == fault.node and f"first at node '{fault.node}'" in report.summary


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_a_runtime_is_located_by_bit_exactness(name, target, register):
    fault, graph = FAULTS[name], suited(target)
    program = planted(fault, graph, target)
    chip = with_fault(target, register, program, fault.delay, "vendor")
    options = LowerOptions([clip().frames], "given")
    report = conform(graph, chip, [clip()], runtimes=["vendor"], options=options)
    assert failing(report, "L0")[0] == fault.node
    assert report.failures[0].node == fault.node and report.first_divergence.node == fault.node
