"""Exact rewrites: what the chip does not have is written as what it has, and no spike changes."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import nir
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nrf.backends import reference
from nrf.backends.conformance.ladder import Clip, conform
from nrf.backends.lowering.operators import Conv
from nrf.backends.speck.check import check
from nrf.backends.speck.grid import to_grid
from nrf.backends.speck.program import Kernel
from nrf.backends.speck.rewrites import rewritten
from nrf.export import Contract, Graph
from nrf.findings import errors

from .graphs import CHIP, SPECK, chain, convolution, integrate_and_fire, lower, pool
from .programs import run

SIDE = 9


def events(seed: int, shape: tuple[int, ...], steps: int = 20) -> Any:
    """Counts of events per pixel, several in some."""
    rng = np.random.default_rng(seed)
    return (rng.integers(1, 4, (steps, *shape)) * (rng.random((steps, *shape)) < 0.15)).astype(np.float32)


def notes(graph: Graph) -> dict[str, str]:
    found = check(graph, SPECK)
    assert not errors(found)
    return {finding.rule: str(finding) for finding in found if finding.severity == "note"}


def demand_equal(graph: Graph, frames: Any, runtime: str = "builtin") -> None:
    """The program of a graph on the grid has the spikes of the float reference."""
    program = lower(graph)
    assert all(loss.rounding == "exact" for loss in program.lowered.losses)
    wanted, found = reference.run(graph, frames), run(program, frames, runtime)
    for node in graph.neurons:
        assert np.array_equal(wanted.dense(node), found.dense(node)), node
        assert np.allclose(wanted.membrane(node), found.membrane(node), atol=1e-5), node
    assert np.array_equal(wanted.maps(program.outputs[0], CHIP), found.maps(program.outputs[0], CHIP))


pairs = st.tuples(st.integers(1, 2), st.integers(1, 2))


@st.composite
def kernels(draw: st.DrawFn, lines: bool = False) -> Kernel:
    """Any convolution that a graph can hold: rectangular, dilated, grouped, strides and padding per axis.

    With `lines`, as long as the chip allows and a few pixels thick.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    groups = draw(st.sampled_from([1, 1, 2, 4]))
    long = st.tuples(st.integers(1, 4), st.integers(10, 16)).flatmap(st.permutations).map(tuple)
    short = st.tuples(st.integers(1, 4), st.integers(1, 4))
    side, dilation = draw(short if not lines else long), (1, 1) if lines else draw(pairs)
    weight = rng.integers(-9, 20, (4, 4 // groups, *side))
    reach = [gap * (size - 1) for gap, size in zip(dilation, side, strict=True)]
    padding = tuple(draw(st.integers(0, min(max(size // 2, 1), 7))) for size in reach)
    least = [max(1, span + 1 - 2 * pad) for span, pad in zip(reach, padding, strict=True)]
    size = tuple(draw(st.integers(low, max(low, SIDE))) for low in least)
    stride = draw(st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4])))
    conv = Conv(weight, (4, *size), stride, padding, dilation, groups)
    return Kernel(weight, (4, *size), stride, padding, dilation, groups, map=conv.output_shape[1:])


@settings(max_examples=200)
@given(kernel=st.booleans().flatmap(kernels))
def test_a_rewritten_kernel_is_the_same_operator(kernel: Kernel) -> None:
    after, listed = rewritten(kernel, "conv")
    assert (kernel.matrix() != after.matrix()).nnz == 0
    assert (after.dilation, after.groups) == ((1, 1), 1)
    assert after.weight.shape[2] == after.weight.shape[3]
    assert max(after.padding) <= max(7, *kernel.padding)
    assert bool(listed) == (after.weight.shape != kernel.weight.shape)


def layers(kernel: Kernel, contract: Contract = CHIP) -> Graph:
    """Such a convolution between two populations, the second one read flat."""
    height, width = kernel.input_shape[1:]
    after = kernel.output_shape
    geometry = kernel.stride, kernel.padding, kernel.dilation, kernel.groups
    nodes = {
        "input": nir.Input(np.array([2, height, width])),
        "conv1": convolution(np.arange(-12, 60).reshape(4, 2, 3, 3) / 128, (height, width), padding=1),
        "if1": integrate_and_fire((4, height, width)),
        "conv2": nir.Conv2d((height, width), kernel.weight / 64, *geometry, np.zeros(4)),
        "if2": integrate_and_fire(after),
        "flat": nir.Flatten({"input": np.array(after)}, 0, -1),
        "ones": nir.Scale(np.ones(int(np.prod(after)))),
        "output": nir.Output(np.array([int(np.prod(after))])),
    }
    return chain(nodes, contract)


@settings(max_examples=60, deadline=None)
@given(kernel=st.booleans().flatmap(kernels), seed=st.integers(0, 99), most=st.sampled_from([0, 1, 2]))
def test_rewritten_graphs_give_the_spikes_of_the_reference(kernel: Kernel, seed: int, most: int) -> None:
    graph = layers(kernel, CHIP.with_(max_spikes=most))
    assert "left_to_host" in notes(graph)
    demand_equal(graph, events(seed, graph.shapes["input"]))


@pytest.mark.needs_vendor("sinabs")
@pytest.mark.parametrize(
    ("most", "side", "geometry", "size", "after"),
    [
        (0, (2, 3), ((1, 2), (1, 2), (1, 2), 2), (9, 8), (10, 4)),
        (1, (1, 16), ((1, 1), (0, 7), (1, 1), 1), (9, 8), (9, 7)),
    ],
)
def test_sinabs_gives_the_spikes_of_rewritten_graphs(
    most: int, side: Any, geometry: Any, size: tuple[int, int], after: tuple[int, int]
) -> None:
    weight = np.random.default_rng(1).integers(-9, 20, (4, 4 // geometry[3], *side))
    graph = layers(Kernel(weight, (4, *size), *geometry, map=after), CHIP.with_(max_spikes=most))
    frames = events(3, graph.shapes["input"])
    assert (reference.run(graph, frames).dense("if1") > 1).any() == (most == 0)
    demand_equal(graph, frames, "sinabs")


def line(kernel: int) -> Graph:
    """Conv1d, and a linear layer on what it gives."""
    after = 12 - 2 * (kernel - 1)
    weight = np.random.default_rng(kernel).integers(-9, 20, (3, 2, kernel)) / 32
    linear = np.random.default_rng(9).integers(-9, 20, (5, 3 * after)) / 64
    nodes = {
        "input": nir.Input(np.array([2, 12])),
        "conv": nir.Conv1d(12, weight, 1, 0, 2, 1, np.zeros(3)),
        "if1": integrate_and_fire((3, after)),
        "flat": nir.Flatten({"input": np.array([3, after])}, 0, -1),
        "linear": nir.Affine(linear, np.zeros(5)),
        "if2": integrate_and_fire((5,)),
        "output": nir.Output(np.array([5])),
    }
    return chain(nodes)


@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
def test_one_dimension_is_a_map_of_one_row(kernel: int) -> None:
    graph = line(kernel)
    demand_equal(graph, events(kernel, (2, 12)))
    assert "kernel_made_square" in notes(graph)


def meeting(before: Any) -> Graph:
    """Two populations, flattened apart, that meet before one linear layer."""
    nodes: dict[str, nir.NIRNode] = {"input": nir.Input(np.array([2, 6, 6]))}
    edges = []
    for index, name in enumerate("ab"):
        weight = np.random.default_rng(index).integers(-9, 20, (2, 2, 1, 1)) / 32
        flat = nir.Flatten({"input": np.array([2, 3, 3])}, 0, -1)
        nodes |= {f"c{name}": convolution(weight, (6, 6)), name: integrate_and_fire((2, 6, 6))}
        nodes |= {f"p{name}": before, f"f{name}": flat}
        edges += [*pairwise(["input", f"c{name}", name, f"p{name}", f"f{name}", "linear"])]
    nodes |= {
        "linear": nir.Affine(np.random.default_rng(3).integers(-9, 20, (5, 18)) / 64, np.zeros(5)),
        "n": integrate_and_fire((5,)),
        "output": nir.Output(np.array([5])),
    }
    return chain(nodes, CHIP, [*edges, ("linear", "n"), ("n", "output")])


def test_flattened_maps_that_meet_before_one_linear_layer_are_added_first() -> None:
    graph = meeting(pool(2))
    assert "before fa, fb instead of after" in notes(graph)["flattened_after_meeting"]
    demand_equal(graph, events(0, (2, 6, 6)))


def test_maps_of_other_shapes_that_meet_flattened_are_refused() -> None:
    one = np.full((2, 2, 1, 1), 0.25)
    nodes = {
        "input": nir.Input(np.array([2, 4, 4])),
        "ca": convolution(one, (4, 4)),
        "a": integrate_and_fire((2, 4, 4)),
        "fa": nir.Flatten({"input": np.array([2, 4, 4])}, 0, -1),
        "cb": convolution(np.full((8, 2, 1, 1), 0.25), (4, 4), stride=2),
        "b": integrate_and_fire((8, 2, 2)),
        "fb": nir.Flatten({"input": np.array([8, 2, 2])}, 0, -1),
        "linear": nir.Affine(np.full((3, 32), 0.1), np.zeros(3)),
        "n": integrate_and_fire((3,)),
        "output": nir.Output(np.array([3])),
    }
    edges = [*pairwise(["input", "ca", "a", "fa", "linear"]), *pairwise(["input", "cb", "b", "fb", "linear"])]
    (finding,) = errors(check(chain(nodes, CHIP, [*edges, ("linear", "n"), ("n", "output")]), SPECK))
    assert finding.rule == "one_kernel_per_core"
    assert "a map of shape (2, 4, 4) and a map of shape (8, 2, 2)" in finding.message


def stranger() -> Graph:
    """Dilation 2, groups and 1x3 kernels, with the output flattened."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return rng.integers(-9, 20, shape) / 64

    nodes = {
        "input": nir.Input(np.array([2, 16, 16])),
        "dilated": convolution(weights(4, 2, 3, 3), (16, 16), padding=2, dilation=2),
        "if1": integrate_and_fire((4, 16, 16)),
        "grouped": convolution(weights(4, 2, 3, 3), (16, 16), padding=1, groups=2),
        "if2": integrate_and_fire((4, 16, 16)),
        "wide": convolution(weights(3, 4, 1, 3), (16, 16)),
        "if3": integrate_and_fire((3, 16, 14)),
        "flat": nir.Flatten({"input": np.array([3, 16, 14])}, 0, -1),
        "output": nir.Output(np.array([3 * 16 * 14])),
    }
    return chain(nodes)


def test_a_graph_that_needs_every_rewrite_passes_check_and_conforms() -> None:
    graph = stranger()
    assert set(notes(graph)) == {
        "dilation_written_out", "groups_written_out", "kernel_made_square", "left_to_host",
    }  # fmt: skip
    assert notes(graph)["kernel_made_square"].startswith("node 'wide': its kernel is held 3x4x1x3 as 3x4x3x3")
    report = conform(graph, SPECK, [Clip("one", events(0, (2, 16, 16), 40))], runtimes=["builtin"])
    assert report.verdict == "pass", report.failures


def test_rewritten_kernels_are_rounded_in_place_on_the_grid() -> None:
    graph = stranger()
    for name in ("dilated", "grouped", "wide"):
        graph.nodes[name].weight = graph.nodes[name].weight * 0.99
    graph = to_grid(graph, SPECK)
    assert graph.nodes["wide"].weight.shape == (3, 4, 1, 3)
    demand_equal(graph, events(1, (2, 16, 16)))


@settings(max_examples=30, deadline=None)
@given(
    kernel=kernels(), seed=st.integers(0, 99), floor=st.sampled_from([None, 0.0, -1.0]), late=st.booleans()
)
def test_subtraction_one_step_late_gives_the_spikes_of_the_reference(
    kernel: Kernel, seed: int, floor: float | None, late: bool
) -> None:
    """As snnTorch and Spyx do it, which also emits late; membranes differ between spike and next step."""
    graph = layers(kernel, replace(CHIP, reset_at="next", v_min=floor, emit="late" if late else "now"))
    frames = events(seed, graph.shapes["input"])
    assert "before the next input" in notes(graph)["late_subtraction_at_once"]
    program, wanted = lower(graph), reference.run(graph, frames)
    found = run(program, frames)
    assert wanted.dense("if1").any()
    assert [population.zero_reset for population in program.populations] == [False, False]
    for depth, node in enumerate(graph.neurons, 1):
        early = depth * late
        assert program.latencies[node] == -early
        assert np.array_equal(wanted.dense(node)[early:], found.dense(node)[: 20 - early]), node


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 99),
    waits=st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)),
    kind=st.sampled_from([nir.SumPool2d, nir.AvgPool2d]),
    sides=st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 2, 4])),
    after=st.booleans(),
)
def test_delays_that_shift_and_any_pooling_give_the_spikes_of_the_reference(
    seed: int, waits: tuple[int, ...], kind: Any, sides: tuple[int, int], after: bool
) -> None:
    """A delay in front of everything, between populations, and behind; pooling of oblong windows."""
    rng, size = np.random.default_rng(seed), (8 // sides[0], 8 // sides[1])
    window = kind(np.array(sides), np.array(sides), np.array([0, 0]))
    factor = 1 if kind is nir.SumPool2d else sides[0] * sides[1]
    second = rng.integers(-9, 20, (3, 2, 3, 3)) * factor / 64
    pooled = {"conv2": convolution(second, size, padding=1)}
    if after:  # pooling behind the convolution, before the neurons
        pooled = {"conv2": convolution(second, (8, 8), padding=1), "pool": window}
    else:
        pooled = {"pool": window, **pooled}
    nodes = {
        "input": nir.Input(np.array([2, 8, 8])),
        "wait0": nir.Delay(np.full((2, 8, 8), float(waits[0]))),
        "conv1": convolution(rng.integers(-9, 20, (2, 2, 3, 3)) / 64, (8, 8), padding=1),
        "if1": integrate_and_fire((2, 8, 8)),
        "wait1": nir.Delay(np.full((2, 8, 8), float(waits[1]))),
        **pooled,
        "if2": integrate_and_fire((3, *size)),
        "wait2": nir.Delay(np.full((3, *size), float(waits[2]))),
        "output": nir.Output(np.array([3, *size])),
    }
    graph, frames = chain(nodes), events(seed, (2, 8, 8))
    assert ("delay_only_shifts" in notes(graph)) == (sum(waits[:2]) > 0)
    assert ("factor_in_weights" in notes(graph)) == (kind is nir.AvgPool2d)
    program, wanted = lower(graph), reference.run(graph, frames)
    found = run(program, frames)
    assert program.latencies == {"if1": -waits[0], "if2": -waits[0] - waits[1]}
    for name, early in ((name, -late) for name, late in program.latencies.items()):
        assert np.array_equal(wanted.dense(name)[early:], found.dense(name)[: 20 - early]), name
        assert not wanted.dense(name)[:early].any()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 99),
    side=st.sampled_from([2, 3, 4, 5, 6, 7, 8, 12, 16, 32]),
    kind=st.sampled_from([nir.SumPool2d, nir.AvgPool2d]),
    behind=st.sampled_from(["linear", "convolution", "neurons"]),
    more=st.tuples(st.integers(1, 2), st.integers(0, 1)),
)
def test_pooling_of_any_size_goes_into_the_kernel_as_far_as_the_chip_lacks_it(
    seed: int, side: int, kind: Any, behind: str, more: tuple[int, int]
) -> None:
    """Also global average pooling before a classifier, where the chip pools by no such number."""
    rng, size, after = np.random.default_rng(seed), side * more[0] + more[1], more[0]
    nodes: dict[str, nir.NIRNode] = {
        "input": nir.Input(np.array([2, size, size])),
        "conv1": convolution(rng.integers(-9, 20, (2, 2, 3, 3)) / 64, (size, size), padding=1),
        "if1": integrate_and_fire((2, size, size)),
        "pool": pool(side, kind=kind),
    }
    factor = 1 if kind is nir.SumPool2d else side**2
    if behind == "linear":
        nodes["flat"] = nir.Flatten({"input": np.array([2, after, after])}, 0, -1)
        nodes["linear"] = nir.Affine(rng.integers(-9, 20, (3, 2 * after**2)) * factor / 64, np.zeros(3))
    elif behind == "convolution":
        nodes["conv2"] = convolution(rng.integers(-9, 20, (3, 2, 1, 1)) * factor / 64, (after, after))
    shape = (3,) if behind == "linear" else (3 if behind == "convolution" else 2, after, after)
    nodes |= {"if2": integrate_and_fire(shape), "output": nir.Output(np.array(shape))}
    graph = chain(nodes)
    left = side // max(part for part in (1, 2, 4) if side % part == 0)  # for the kernel, if it takes that
    if size <= 64 and left * after <= 16 and (size == side or behind == "linear" or left in (1, 2, 4, 8)):
        listed = notes(graph)
        assert "one_kernel_of_several" in listed or left == 1 or behind == "neurons"
        if kind is nir.SumPool2d or factor & (factor - 1) == 0:  # else an average is no binary fraction
            demand_equal(graph, events(seed, (2, size, size)))
        else:
            assert lower(graph)
    elif found := errors(check(graph, SPECK)):
        assert {"pooling_is_supported", "kernel_fits", "output_map_fits"} >= {each.rule for each in found}


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 99), floor=st.sampled_from([None, 0.0]), reset=st.sampled_from(["zero", "subtract"])
)
def test_thresholds_and_gains_per_channel_give_the_spikes_of_the_reference(
    seed: int, floor: float | None, reset: Any
) -> None:
    """Thresholds and resistances of channels are powers of two, so that float sums have no error."""
    rng = np.random.default_rng(seed)
    threshold, gain = (2.0 ** rng.integers(-2, 3, (4, 1, 1)) for _ in range(2))
    threshold[:2, 0, 0] = 0.25, 2.0  # never all the same
    bias = rng.integers(-3, 4, 4) / 64 * np.ravel(threshold / gain)
    weight = rng.integers(-9, 20, (4, 2, 3, 3)) / 64 * (threshold / gain)[..., None]
    shape = (4, 8, 8)
    nodes = {
        "input": nir.Input(np.array([2, 8, 8])),
        "conv": convolution(weight, (8, 8), padding=1, bias=bias),
        "if": nir.IF(*(np.broadcast_to(each, shape).copy() for each in (gain, threshold, 0.0))),
        "output": nir.Output(np.array(shape)),
    }
    graph = chain(nodes, replace(CHIP, v_min=floor, reset=reset))
    assert "from 0.25 to" in notes(graph)["threshold_in_weights"]
    demand_equal(graph, events(seed, (2, 8, 8)))


def forked(hidden: bool) -> Graph:
    """input -> a -> b and c, which both end in the output; with `hidden`, a does too."""
    rng = np.random.default_rng(2)
    nodes: dict[str, nir.NIRNode] = {"input": nir.Input(np.array([2, 8, 8]))}
    for name in "abc":
        weight = rng.integers(-9, 24, (2, 2, 3, 3)) / 64
        nodes |= {f"c{name}": convolution(weight, (8, 8), padding=1), name: integrate_and_fire((2, 8, 8))}
    nodes["output"] = nir.Output(np.array([2, 8, 8]))
    edges = [*pairwise(["input", "ca", "a", "cb", "b", "output"]), *pairwise(["a", "cc", "c", "output"])]
    return chain(nodes, CHIP, [*edges, ("a", "output")] if hidden else edges)


@pytest.mark.parametrize("hidden", [False, True])
def test_several_outputs_and_hidden_populations_are_read_and_conform(hidden: bool) -> None:
    graph = forked(hidden)
    read = ("a", "b", "c") if hidden else ("b", "c")
    assert set(lower(graph).read) == {*read}
    assert all(f"'{name}'" in notes(graph)["left_to_host"] for name in read)
    frames = events(0, (2, 8, 8), 30)
    report = conform(graph, SPECK, [Clip("one", frames)], runtimes=["builtin"])
    assert report.verdict == "pass", report.failures
    found, wanted = run(lower(graph), frames), reference.run(graph, frames)
    summed = sum(wanted.dense(name) for name in read)
    assert np.array_equal(np.asarray(found.membrane("output")), summed)
    assert np.any(summed)
