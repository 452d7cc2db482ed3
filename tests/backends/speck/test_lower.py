"""Lowering: exact on the grid, as Sinabs where asked, and better than Sinabs off the grid."""

import subprocess
from dataclasses import replace
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
from nrf.backends.border import Loss
from nrf.backends.lowering.calibration import generated_clips
from nrf.backends.speck.check import check
from nrf.backends.speck.chip_config import chip_config
from nrf.backends.speck.grid import to_grid
from nrf.backends.speck.layers import Normal
from nrf.backends.speck.program import PooledSource, Population, SpeckProgram, load
from nrf.backends.speck.quantise import as_sinabs
from nrf.backends.vendors.environment import python_of
from nrf.errors import InputError
from nrf.export import Contract, Graph, read_graph
from nrf.findings import errors
from nrf.model.readout import Readout

from .graphs import CHIP, SPECK, chain, convolution, integrate_and_fire, lower, pool
from .programs import BITS, run

PAPER = Path(__file__).parents[4] / "shared" / "nir_paper" / "cnn_sinabs.nir"


def clip(
    seed: int, shape: tuple[int, ...] = (2, 16, 16), steps: int = 30, share: float = 0.03, most: int = 1
) -> Any:
    """Up to `most` events per pixel and step."""
    rng = np.random.default_rng(seed)
    return ((rng.random((steps, *shape)) < share) * rng.integers(1, most + 1, (steps, *shape))).astype(
        np.float32
    )


def losses(program: SpeckProgram) -> dict[str, Loss]:
    return {loss.population: loss for loss in program.lowered.losses}


def f1(one: Any, other: Any) -> float:
    return float(2 * np.minimum(one, other).sum() / max((one + other).sum(), 1))


@st.composite
def graphs(draw: st.DrawFn, step: float | None = None) -> Graph:
    """Convolution, pooling of either kind, convolution, linear; weights are multiples of `step` if given."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def weights(*shape: int, size: float = 40.0) -> Any:
        values = rng.normal(4, size / 2, shape).clip(-128, 127)
        values.flat[0] = -128
        return (values.round() if step else values) * (step or 1 / 256)

    features, kernel, size = (
        draw(st.integers(1, 4)),
        draw(st.sampled_from([1, 3, 5])),
        draw(st.sampled_from([1, 2, 4])),
    )
    kind = draw(st.sampled_from([nir.SumPool2d, nir.AvgPool2d]))
    side = 16 // draw(st.sampled_from([1, 2]))
    small = side // size
    bias = weights(3) * draw(st.booleans())
    contract = Contract(
        dt=draw(st.sampled_from([1.0, 1e-3])),
        reset=draw(st.sampled_from(["zero", "subtract"])),
        fire="ge",
        v_min=draw(st.sampled_from([None, 0.0, -1.0, -2.5])),
        delay=draw(st.sampled_from([0, 1])),
        max_spikes=draw(st.sampled_from([0, 1, 2])),
        membrane=draw(st.sampled_from(["scaled", "unit"])),
    )
    if contract.delay:
        bias = bias * 0  # a bias acts from the first step on both, but spikes come later in the reference
    threshold = 1.0 if contract.v_min else draw(st.sampled_from([1.0, 2.0]))
    neurons = [
        nir.IF(np.full(shape, 1 / (contract.dt or 1)), np.full(shape, threshold), np.zeros(shape))
        for shape in ((features, side, side), (3, small, small), (5,))
    ]
    nodes = {
        "input": nir.Input(np.array([2, 16, 16])),
        "pool0": pool(16 // side),
        "conv1": convolution(weights(features, 2, kernel, kernel), (side, side), padding=kernel // 2),
        "if1": neurons[0],
        "pool": pool(size, kind=kind),
        "conv2": convolution(weights(3, features, 3, 3), (small, small), padding=1, bias=bias),
        "if2": neurons[1],
        "flat": nir.Flatten({"input": np.array([3, small, small])}, 0, -1),
        "linear": nir.Affine(weights(5, 3 * small * small), np.zeros(5)),
        "if3": neurons[2],
        "output": nir.Output(np.array([5])),
    }
    return chain(nodes, contract)


@settings(max_examples=30)
@given(graph=graphs(step=1 / 256), seed=st.integers(0, 99))
def test_on_the_grid_the_chip_gives_exactly_the_spikes_of_the_reference(graph: Graph, seed: int) -> None:
    program = lower(graph)
    if any(loss.rounding != "exact" for loss in program.lowered.losses):
        return  # average pooling took some weights off the grid
    frames = clip(seed, most=4)
    wanted, found = reference.run(graph, frames), run(program, frames)
    for node in graph.neurons:
        late = found.latency(node)
        one, other = wanted.dense(node), found.dense(node)
        assert np.array_equal(one[-late:], other[: len(other) + late] if late else other), node
        if not late:
            assert np.allclose(wanted.membrane(node), found.membrane(node), atol=1e-5)


@st.composite
def branched(draw: st.DrawFn) -> Graph:
    """Two populations that meet before one convolution; pooling, thresholds, names and ends vary."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pools = st.builds(pool, st.just(2), kind=st.sampled_from([nir.SumPool2d, nir.AvgPool2d]))
    thresholds = st.lists(st.sampled_from([1.0, 2.0, 4.0]), min_size=2, max_size=2).map(
        lambda values: np.array(values)[:, None, None]
    )
    (start, a, b, n), after = draw(st.permutations(["input", "a", "b", "n"])), (2, 4, 4)
    nodes: dict[str, nir.NIRNode] = {start: nir.Input(np.array([2, 8, 8]))}
    edges = []
    for name in (a, b):
        nodes |= {
            f"c{name}": convolution(rng.integers(-4, 8, (2, 2, 3, 3)) / 16, (8, 8), padding=1),
            name: integrate_and_fire((2, 8, 8), draw(thresholds)),
            f"p{name}": draw(pools),
        }
        edges += [(start, f"c{name}"), (f"c{name}", name), (name, f"p{name}"), (f"p{name}", "c")]
    nodes |= {
        "c": convolution(rng.integers(-4, 8, (2, 2, 3, 3)) / 16, (4, 4), padding=1),
        n: integrate_and_fire(after, draw(thresholds)),
        "output": nir.Output(np.array(after)),
    }
    reset, fire = draw(st.sampled_from([("zero", "gt"), ("zero", "ge"), ("subtract", "ge")]))
    contract = Contract(dt=1.0, reset=reset, fire=fire, v_min=draw(st.sampled_from([None, 0.0, -1.0, -0.25])))
    ends = draw(st.sampled_from([(n,), (n,), (n,), (a, b)]))
    if ends != (n,):
        nodes["output"] = nir.Output(np.array([2, 8, 8]))
    return chain(nodes, contract, [*edges, ("c", n), *((end, "output") for end in ends)])


@settings(max_examples=60)
@given(graph=branched(), seed=st.integers(0, 99))
def test_what_is_neither_refused_nor_rounded_gives_the_spikes_of_the_reference(
    graph: Graph, seed: int
) -> None:
    if errors(check(graph, SPECK)):
        return
    frames = clip(seed, (2, 8, 8), share=0.1)
    program, wanted = lower(graph, [frames]), reference.run(graph, frames)
    found = run(program, frames, teacher=wanted)
    for node, loss in losses(program).items():
        if loss.rounding == "exact":
            assert np.array_equal(wanted.dense(node), found.dense(node)), node


@settings(max_examples=15)
@given(graph=graphs(), seed=st.integers(0, 99))
def test_a_graph_put_on_the_grid_runs_the_same_in_float_and_on_the_chip(graph: Graph, seed: int) -> None:
    graph = to_grid(graph, SPECK)
    program, frames = lower(graph), clip(seed, most=4)
    wanted, found = reference.run(graph, frames), run(program, frames)
    for node, loss in losses(program).items():
        assert loss.rounding == "exact", node
        late = found.latency(node)
        one, other = wanted.dense(node), found.dense(node)
        assert np.array_equal(one[-late:], other[: len(other) + late] if late else other), node


def shared_convolution(
    scale: float | None, weights: Any, thresholds: tuple[float, float] = (1.0, 1.0)
) -> Graph:
    """One convolution that two populations read, one of them through a Scale if given; both feed a third."""
    shape = (1, 8, 8)
    nodes = {
        "input": nir.Input(np.array(shape)),
        "c": convolution(weights, (8, 8), padding=1),
        "a": integrate_and_fire(shape, thresholds[0]),
        "b": integrate_and_fire(shape, thresholds[1]),
        "last": convolution(np.full((1, 1, 1, 1), 0.5), (8, 8)),
        "n": integrate_and_fire(shape),
        "output": nir.Output(np.array(shape)),
    }
    edges = [("input", "c"), ("c", "a"), ("a", "last"), ("b", "last"), ("last", "n"), ("n", "output")]
    if scale is not None:
        nodes["s"] = nir.Scale(np.full(shape, scale))
    return chain(nodes, CHIP, [*edges, *([("c", "b")] if scale is None else [("c", "s"), ("s", "b")])])


def test_a_shared_convolution_is_rounded_only_where_that_is_right_for_all_who_read_it() -> None:
    weights = np.random.default_rng(0).normal(0, 0.3, (1, 1, 3, 3))
    rounded = to_grid(shared_convolution(None, weights), SPECK)
    assert np.allclose(rounded.nodes["c"].weight, weights, atol=1 / 256)
    for graph in (shared_convolution(0.5, weights), shared_convolution(None, weights, (1.0, 3.0))):
        with pytest.raises(
            InputError, match=r"node '[ab]': its input passes c.*one convolution per population"
        ):
            to_grid(graph, SPECK)
    integers = weights.round(1) * 10 / 64
    graph = shared_convolution(0.5, integers)
    assert np.array_equal(to_grid(graph, SPECK).nodes["c"].weight, integers), "nothing to round"


def test_neurons_without_weights_are_left_alone_on_the_grid_and_refused_off_it() -> None:
    def graph(threshold: float) -> Graph:
        shape = (2, 4, 4)
        ends = nir.Input(np.array(shape)), nir.Output(np.array(shape))
        return chain({"input": ends[0], "n": integrate_and_fire(shape, threshold), "output": ends[1]}, CHIP)

    assert lower(to_grid(graph(4.0), SPECK)).lowered.losses[0].rounding == "exact"
    with pytest.raises(InputError, match="node 'n': its input passes no weights"):
        to_grid(graph(3.0), SPECK)


def test_a_floor_that_no_core_can_hold_is_refused_on_the_grid() -> None:
    """Steps of 3/2^k V and 5/2^k V have no common multiple near the floor that both can count to."""
    graph = shared_convolution(None, np.full((1, 1, 3, 3), 0.1), (5.0, 5.0))
    uneven = replace(graph, nodes=graph.nodes | {"n": integrate_and_fire((1, 8, 8), 3.0)})
    with pytest.raises(InputError, match=r"node '[abn]': the floor \(v_min"):
        to_grid(uneven, SPECK)
    for v_min in (None, 0.0):
        assert to_grid(replace(uneven, contract=replace(CHIP, v_min=v_min)), SPECK)


@pytest.mark.needs_vendor("sinabs")
def test_compatible_rounding_is_that_of_sinabs(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    layers: dict[str, Any] = {"count": np.array(120)}
    for index in range(120):
        scale = rng.choice([0.01, 0.3, 2.0])
        layers[f"{index}/weight"] = rng.normal(0, scale, (3, 2, 3, 3)).astype(np.float32)
        layers[f"{index}/bias"] = (rng.normal(0, scale, 3) * rng.integers(0, 2)).astype(np.float32)
        low = rng.choice([-1.0, -0.3, np.nan, -4.0])
        layers[f"{index}/bounds"] = np.array([low, rng.choice([1.0, 0.37, 8.0])])
    np.savez(tmp_path / "layers.npz", **layers)
    script = Path(__file__).parent / "discretise.py"
    command = [
        str(python_of("sinabs")),
        "-I",
        str(script),
        *(str(tmp_path / n) for n in ("layers.npz", "a.npz")),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    theirs = np.load(tmp_path / "a.npz")
    for index in range(120):
        low, high = layers[f"{index}/bounds"].tolist()
        weight, bias = (layers[f"{index}/{key}"].astype(float) / high for key in ("weight", "bias"))
        floor = -np.inf if np.isnan(low) else low / high
        ours = as_sinabs(Normal(weight, bias, floor, np.full(3, high)), BITS)
        assert np.array_equal(ours.weight, theirs[f"{index}/weight"]), index
        assert np.array_equal(ours.bias, theirs[f"{index}/bias"]), index
        assert [ours.floor, ours.threshold] == theirs[f"{index}/bounds"].tolist(), index


def stranger(seed: int) -> Graph:
    """An integrate-and-fire graph that knows nothing of the chip, with a few large weights and a readout."""
    rng = np.random.default_rng(seed)

    def weights(*shape: int) -> Any:
        values = rng.normal(0.03, 0.1, shape)
        return np.where(rng.random(shape) < 0.005, 4 * values, values)

    nodes = {
        "input": nir.Input(np.array([2, 32, 32])),
        "pool": pool(2),
        "conv1": convolution(weights(8, 2, 5, 5), (16, 16), padding=2),
        "if1": integrate_and_fire((8, 16, 16)),
        "conv2": convolution(weights(3, 8, 3, 3), (16, 16), padding=1),
        "if2": integrate_and_fire((3, 16, 16)),
        "output": nir.Output(np.array([3, 16, 16])),
    }
    return chain(nodes, CHIP.with_(readout=Readout(gain=4.0, stride=2.0, offset=0.5, leak=0.1)))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_off_the_grid_calibration_beats_sinabs_discretisation(seed: int) -> None:
    graph = stranger(seed)
    calibration = [clip(index, (2, 32, 32), 60) for index in range(4)]
    held_out = [clip(100 + index, (2, 32, 32), 60) for index in range(4)]
    scores = {}
    for compatible in (False, True):
        program = lower(graph, calibration, compatible=compatible)
        runs = [(reference.run(graph, frames), run(program, frames)) for frames in held_out]
        spikes = [np.mean([f1(a.dense(node), b.dense(node)) for a, b in runs]) for node in ("if1", "if2")]
        moved = np.mean([np.linalg.norm(a.coordinates - b.coordinates, axis=-1).mean() for a, b in runs])
        scores[compatible] = [*spikes, -moved]
        assert {"coordinates_moved_px_median", "coordinates_moved_px_p95"} <= set(program.lowered.figures)
    ours, theirs = scores[False], scores[True]
    assert all(a > b for a, b in zip(ours, theirs, strict=True)), (ours, theirs)


def test_a_population_may_be_called_input(tmp_path: Path) -> None:
    def program_of(names: tuple[str, str]) -> SpeckProgram:
        weight, shape = np.random.default_rng(0).integers(-4, 10, (1, 1, 3, 3)) / 16, (1, 8, 8)
        nodes = {
            names[0]: nir.Input(np.array(shape)),
            "c1": convolution(weight, (8, 8), padding=1),
            names[1]: integrate_and_fire(shape),
            "c2": convolution(weight, (8, 8), padding=1),
            "n": integrate_and_fire(shape),
            "output": nir.Output(np.array(shape)),
        }
        program = lower(chain(nodes, CHIP.with_(delay=1)))
        program.save(tmp_path / "program")
        return load(tmp_path / "program")

    usual, odd = program_of(("input", "first")), program_of(("frames", "input"))
    frames = clip(0, (1, 8, 8), 100, 0.2)
    for mode in ("builtin", "asynchronous"):
        wanted, found = run(usual, frames, runtime=mode), run(odd, frames, runtime=mode)
        assert wanted.dense("n").sum() > 20
        assert np.array_equal(wanted.dense("n"), found.dense("n")), mode
        assert (found.latency("input"), found.latency("n")) == (-1, -2)
    assert [core["destinations"] for core in chip_config(odd)["cores"]] == [
        core["destinations"] for core in chip_config(usual)["cores"]
    ]


@pytest.mark.needs_vendor("sinabs")
def test_a_population_called_input_reaches_sinabs_too() -> None:
    program = SpeckProgram("speck2f", CHIP, BITS, (1, 1, 1), (), ("n",), "frames")
    population = Population(
        node="input", core=0, sources=(PooledSource("frames"),), input_shape=(1, 1, 1), shape=(1, 1, 1),
        node_shape=(1, 1, 1), stride=(1, 1), padding=(0, 0), threshold=10, floor=0, zero_reset=False,
        weight=np.full((1, 1, 1, 1), 4, np.int8), bias=np.zeros(1, np.int8), volts=np.ones(1),
    )  # fmt: skip
    last = replace(population, node="n", core=1, sources=(PooledSource("input"),))
    program = replace(program, populations=(population, last))
    frames = np.ones((40, 1, 1, 1), np.int64)
    wanted, found = run(program, frames), run(program, frames, "sinabs")
    for node in ("input", "n"):
        assert np.array_equal(wanted.dense(node), found.dense(node))


def strictly_above(weight: Any) -> Graph:
    """One layer that fires above its threshold and resets to zero: v > T is v >= T + 1 on the chip."""
    nodes = {
        "input": nir.Input(np.array([1, 8, 8])),
        "conv": convolution(weight, (8, 8), padding=1),
        "n": integrate_and_fire((len(weight), 8, 8)),
        "output": nir.Output(np.array([len(weight), 8, 8])),
    }
    return chain(nodes, Contract(dt=1.0, reset="zero", fire="gt"))


@pytest.mark.parametrize("compatible", [False, True])
def test_a_threshold_at_the_end_of_sixteen_bits_can_be_reached(compatible: bool) -> None:
    graph = strictly_above(np.random.default_rng(0).uniform(1e-4, 3e-3, (1, 1, 3, 3)))
    if compatible:  # without a floor Sinabs would round all weights away
        graph = replace(graph, contract=graph.contract.with_(v_min=-1.0))
    frames = np.ones((400, 1, 8, 8), np.float32)
    program = lower(graph, [frames], compatible=compatible)
    assert program.populations[0].threshold == 2**15 - 1
    wanted, found = reference.run(graph, frames), run(program, frames, runtime="asynchronous")
    assert wanted.dense("n").sum() > 200
    assert abs(int(found.dense("n").sum()) - int(wanted.dense("n").sum())) <= 5


@pytest.mark.parametrize("seed", range(4))
def test_candidates_are_judged_by_the_threshold_that_is_written(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = strictly_above(rng.uniform(-0.5, 1, (2, 1, 3, 3)) * 40)  # a threshold of 4, so that 1 counts
    frames = clip(seed, (1, 8, 8), 100, 0.05)
    program = lower(graph, [frames])
    wanted = reference.run(graph, frames)
    alone = f1(wanted.dense("n"), run(program, frames, teacher=wanted).dense("n"))
    assert program.lowered.losses[0].f1 == pytest.approx(alone, abs=1e-12)
    assert program.lowered.losses[0].notes["threshold"] == str(program.populations[0].threshold)


def lif_graph(tau: float) -> Graph:
    rng = np.random.default_rng(5)
    shape = (4, 16, 16)
    nodes = {
        "input": nir.Input(np.array([2, 16, 16])),
        "conv": convolution(rng.normal(0.5, 1.0, (4, 2, 5, 5)), (16, 16), padding=2),
        "lif": nir.LIF(
            np.full(shape, tau), np.ones(shape), np.zeros(shape), np.full(shape, 1.0), np.zeros(shape)
        ),
        "output": nir.Output(np.array(shape)),
    }
    return chain(nodes, Contract(dt=1e-3))


def test_lif_is_refused_unless_an_approximation_is_asked_for() -> None:
    with pytest.raises(InputError, match="leaks exponentially"):
        lower(lif_graph(4e-3))


def test_the_fitted_leak_keeps_most_spikes_and_the_cost_is_stated() -> None:
    graph = lif_graph(4e-3)
    calibration = [clip(index, steps=60, share=0.05) for index in range(4)]
    program = lower(graph, calibration, approximate=True)
    (loss,) = program.lowered.losses
    frames = clip(100, steps=60, share=0.05)
    found = f1(reference.run(graph, frames).dense("lif"), run(program, frames).dense("lif"))
    assert float(loss.notes["leak"].split()[0]) > 0
    assert loss.f1_together is not None
    assert abs(found - loss.f1_together) < 0.1, "what is stated holds on other clips"
    assert abs(found - float(loss.notes["F1 held out"])) < 0.1
    assert 0.5 < float(loss.notes["counts held out"]) < 2
    assert float(loss.notes["F1 held out, asynchronous"]) < float(loss.notes["F1 held out"])
    assert float(loss.notes["counts held out, asynchronous"]) > 0
    assert found > 0.6
    assert program.lowered.calibration.startswith("3 clips")
    (warning,) = program.lowered.warnings
    assert (warning.rule, warning.node) == ("approximation_keeps_spikes", "lif")
    assert "F1 held out, asynchronous 0." in warning.message
    compatible = lower(graph, calibration, approximate=True, compatible=True)
    population = compatible.populations[0]
    assert abs(population.floor + population.threshold) <= 1, (
        "the floor is one threshold below 0, whoever rounds"
    )


@pytest.mark.skipif(not PAPER.is_file(), reason="the NIR paper's graph is not beside the checkout")
def test_the_nir_papers_cnn_fits_and_keeps_its_counts() -> None:
    graph = read_graph(PAPER, dt=1.0, reset="subtract", fire="ge", v_min=-1.0)
    assert not errors(check(graph, SPECK))
    program = lower(graph)
    frames = generated_clips((2, 34, 34), 60, seeds=[50])[0]
    wanted, found = reference.run(graph, frames), run(program, frames)
    for node in graph.neurons:
        counts = wanted.dense(node).sum(), found.dense(node).sum()
        assert abs(int(counts[0]) - int(counts[1])) <= 0.1 * counts[0] + 5, (node, counts)


@pytest.mark.skipif(not PAPER.is_file(), reason="the NIR paper's graph is not beside the checkout")
@pytest.mark.parametrize("events", [5, 8])
def test_the_chip_keeps_the_counts_of_many_spikes_per_step(events: int) -> None:
    """Event by event, the chip fires as often as neurons that may fire several times per step."""

    def frames(seed: int) -> Any:
        whole = generated_clips((2, 34, 34), 60 * events, seeds=[seed])[0]
        return whole.reshape(60, events, 2, 34, 34).sum(1)

    graph = read_graph(PAPER, dialect="sinabs")
    assert graph.contract.max_spikes == 0
    program = lower(graph, [frames(seed) for seed in range(6)])
    wanted, found = dict.fromkeys(graph.neurons, 0), dict.fromkeys(graph.neurons, 0)
    for seed in range(50, 58):
        ours, theirs = run(program, frames(seed), "asynchronous"), reference.run(graph, frames(seed))
        for node in graph.neurons:
            wanted[node] += theirs.events(node).count
            found[node] += ours.events(node).count
    for node in graph.neurons:
        assert found[node] == pytest.approx(wanted[node], rel=0.1), node


def test_the_load_on_a_clip_is_stated_and_too_much_is_a_warning() -> None:
    graph = chain(
        {
            "input": nir.Input(np.array([2, 64, 64])),
            "conv": convolution(np.full((16, 2, 9, 9), 0.1), (64, 64), padding=4),
            "if": integrate_and_fire((16, 64, 64)),
            "output": nir.Output(np.array([16, 64, 64])),
        },
        CHIP.with_(dt=1e-3),
    )
    for share, severity in ((0.0005, "note"), (0.05, "warning")):
        frames = clip(0, (2, 64, 64), 20, share)
        (finding,) = nrf.check(graph, SPECK, frames)
        ones = torch.ones(16, 1, 9, 9)
        reached = torch.conv_transpose2d(torch.ones(1, 16, 64, 64), ones, padding=4)[0].numpy()
        rate = (frames * reached).sum() / 20e-3
        assert finding.severity == severity
        assert f"{rate:.3g}" in finding.message
