"""The student is the chip: the same graph in thresholds, on the chip's numbers, to the last spike."""

from dataclasses import replace
from itertools import pairwise

import nir
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nrf.backends import reference
from nrf.backends.border import LowerOptions, RunOptions, Spikes, backend_of, load_chip
from nrf.backends.border.student import Setting
from nrf.backends.tuning import Options, tune
from nrf.backends.tuning.figures import play
from nrf.backends.tuning.layers import Layer, Whole, layers, resampled
from nrf.backends.tuning.neuron import on_chip_neuron
from nrf.backends.tuning.training import Lesson, Plan, distance, lessons, micro_steps, stacked
from nrf.errors import InputError
from nrf.events import Sample
from nrf.export import Contract, Graph, canonical
from nrf.model import scan as scan_module

SPECK, LOIHI = load_chip("speck2f"), load_chip("loihi2")


def network(rng: np.random.Generator, contract: Contract, tau: float | None = None) -> Graph:
    """Pooling, a convolution and a linear layer; thresholds and resistances differ by channel."""
    dt = contract.dt or 1.0

    def neurons(*shape: int) -> nir.NIRNode:
        channel = 2.0 ** rng.integers(-2, 1, (shape[0], *(1,) * (len(shape) - 1)))
        threshold, one = np.broadcast_to(channel, shape), np.ones(shape)
        if tau is None:
            return nir.IF(one / dt, threshold, 0 * one)
        return nir.LIF(one * tau, one * 4, 0 * one, threshold, 0 * one)

    def whole(*shape: int) -> np.ndarray:  # type: ignore[type-arg]
        return rng.integers(-24, 33, shape) / 256

    nodes = {
        "input": nir.Input(np.array([2, 8, 8])),
        "pool": nir.SumPool2d(np.array([2, 2]), np.array([2, 2]), np.array([0, 0])),
        "conv": nir.Conv2d(None, whole(3, 2, 3, 3), 1, 1, 1, 1, whole(3) / 16),
        "first": neurons(3, 4, 4),
        "flatten": nir.Flatten(None, 0, -1),
        "linear": nir.Affine(whole(5, 48), whole(5) / 16),
        "second": neurons(5),
        "output": nir.Output(None),
    }
    names = list(nodes)
    edges = list(pairwise(names))
    return canonical(nir.NIRGraph(nodes, edges, type_check=False), contract, "test")


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), leaky=st.booleans())
def test_in_thresholds_the_graph_fires_the_same_spikes(seed: int, leaky: bool) -> None:
    """Where the chip's neuron is that of the graph, only the unit changes."""
    rng = np.random.default_rng(seed)
    contract = Contract(dt=1e-3, reset="zero", fire="gt")
    graph = network(rng, contract, 4e-3 if leaky else None)
    student = backend_of(LOIHI).student
    assert student is not None
    changed = on_chip_neuron(graph, student(LOIHI), Setting())
    frames = (rng.random((20, 2, 8, 8)) < 0.2).astype(np.float64)
    before, after = (reference.run(g, frames, dtype=torch.float64) for g in (graph, changed))
    assert before.spikes == after.spikes
    assert before.spikes["first"].count


@pytest.mark.parametrize(("chip", "leak"), [(SPECK, 0.0), (LOIHI, 0.0), (LOIHI, 0.0625)])
def test_layers_in_torch_are_the_chips_integers(chip, leak: float) -> None:  # type: ignore[no-untyped-def]
    """Rounded to the grid, the lowered program fires what the layers in torch fire, spike by spike."""
    rng, backend = np.random.default_rng(3), backend_of(chip)
    assert backend.student is not None
    student = backend.student(chip)
    floor = student.settings[0].floor
    graph = on_chip_neuron(network(rng, Contract(dt=1e-3)), student, Setting(floor, leak))
    for layer in layers(graph, student):
        now = Layer(graph, layer.name, student)
        parameters = {name: (w * 1.234, b * 1.234) for name, (w, b) in now.parameters().items()}
        graph = now.written(parameters, now.grid(parameters))
    frames = (rng.random((25, 2, 8, 8)) < 0.15).astype(np.float32)
    program = backend.lower(graph, chip, LowerOptions([frames], "given"))
    run = play(backend, program, frames, "builtin")
    for layer in layers(graph, student):
        heard = {
            name: Spikes.from_dense(frames) if name == "input" else run.spikes[name] for name in layer.sources
        }
        lesson = Lesson(heard, run.spikes[layer.name], 25)
        inputs, target = stacked(layer, [lesson], Plan(), rng)
        found = layer.spikes(inputs, layer.parameters())
        differ = int((found != target).sum())
        assert target.sum() > 20
        assert differ <= (0 if leak == 0 else 0.02 * target.sum())  # Loihi cuts decays towards zero


def test_micro_steps_split_every_event_and_keep_all() -> None:
    rng = np.random.default_rng(0)
    student = backend_of(SPECK).student
    assert student is not None
    graph = on_chip_neuron(network(rng, Contract(dt=1e-3)), student(SPECK), Setting(-1.0))
    layer = layers(graph, student(SPECK))[0]
    counts = rng.poisson(0.5, (10, 2, 8, 8))
    lesson = Lesson({"input": Spikes.from_dense(counts)}, Spikes.none(), 10)
    inputs, _ = stacked(layer, [lesson], Plan(micro=8), rng)
    dense = inputs["input"].dense((2, 8, 8))
    assert np.array_equal(dense.reshape(10, 8, 2, 8, 8).sum(1).numpy(), counts)
    assert (dense > 1).sum() < (torch.as_tensor(counts) > 1).sum() / 4
    assert 4 <= micro_steps(layer, [lesson]) <= 32


@pytest.mark.parametrize("average", [False, True])
def test_events_drive_a_layer_as_dense_convolutions_do(average: bool) -> None:
    """Drive, and gradients of weights and biases, of both layers, against torch's own convolutions."""
    rng, student = np.random.default_rng(2), backend_of(SPECK).student(SPECK)
    graph = network(rng, Contract(dt=1e-3))
    if average:
        pool = nir.AvgPool2d(np.array([2, 2]), np.array([2, 2]), np.array([0, 0]))
        graph = replace(graph, nodes=graph.nodes | {"pool": pool})
    graph = on_chip_neuron(graph, student, Setting(-1.0))
    for layer in layers(graph, student):
        (source,) = layer.sources
        shape = graph.shapes[source]
        lesson = Lesson({source: Spikes.from_dense(rng.poisson(0.3, (6, *shape)))}, Spikes.none(), 6)
        inputs, _ = stacked(layer, [lesson] * 3, Plan(micro=4), rng)
        given, found = torch.randn(24, 3, int(np.prod(layer.shape))), []
        for each in (inputs, {source: inputs[source].dense(shape)}):
            pairs = {k: (w.requires_grad_(), b.requires_grad_()) for k, (w, b) in layer.parameters().items()}
            drive = layer.drive(each, pairs, 4)
            (drive * given).sum().backward()
            found.append([drive.detach(), *(x.grad for pair in pairs.values() for x in pair)])
        assert found[0][0].abs().sum() > 1
        for sparse, dense in zip(*found, strict=True):
            torch.testing.assert_close(sparse, dense, rtol=1e-4, atol=1e-4)


def test_kernels_whose_taps_share_a_synapse_stay_dense() -> None:
    """Overlapping pooling: one input reaches a neuron by several weights."""
    student, graph = backend_of(SPECK).student(SPECK), network(np.random.default_rng(0), Contract(dt=1e-3))
    pool = nir.SumPool2d(np.array([3, 3]), np.array([2, 2]), np.array([1, 1]))
    graph = on_chip_neuron(replace(graph, nodes=graph.nodes | {"pool": pool}), student, Setting(-1.0))
    first, second = layers(graph, student)
    assert first.adjacencies is None and second.adjacencies is not None


def test_one_event_at_a_time_is_what_the_asynchronous_simulator_does() -> None:
    """With one event per step no order is left open: micro-steps or not, torch fires as the chip does."""
    rng, backend = np.random.default_rng(5), backend_of(SPECK)
    assert backend.student is not None
    student = backend.student(SPECK)
    graph = on_chip_neuron(network(rng, Contract(dt=1e-3)), student, Setting(-1.0))
    graph = replace(graph, nodes=graph.nodes | {"conv": _without_bias(graph.nodes["conv"])})
    layer = layers(graph, student)[0]
    parameters = layer.parameters()
    graph = layer.written(parameters, layer.grid(parameters))
    frames = np.zeros((300, 2, 8, 8), np.float32)
    frames.reshape(300, -1)[np.arange(300), rng.integers(128, size=300)] = 1
    run = backend.run(backend.lower(graph, SPECK, LowerOptions()), frames, "asynchronous", RunOptions())
    layer = Layer(graph, "first", student)
    lesson = Lesson({"input": Spikes.from_dense(frames)}, run.spikes["first"], 300)
    for micro in (1, 4):
        inputs, target = stacked(layer, [lesson], Plan(micro=micro), rng)
        assert torch.equal(layer.spikes(inputs, layer.parameters(), micro), target)
    assert target.sum() > 20


@pytest.mark.parametrize("chip", [SPECK, LOIHI])
def test_layers_together_fire_as_they_do_one_after_the_other(chip) -> None:  # type: ignore[no-untyped-def]
    """Step by step the chain is exact, and every weight of every layer gets a gradient."""
    rng, make = np.random.default_rng(1), backend_of(chip).student
    assert make is not None
    student = make(chip)
    graph = on_chip_neuron(network(rng, Contract(dt=1e-3)), student, Setting(student.settings[0].floor))
    frames = (rng.random((25, 2, 8, 8)) < 0.15).astype(np.float32)
    lesson = Lesson({"input": Spikes.from_dense(frames)}, Spikes.none(), 25)
    first, second = layers(graph, student)
    for micro in (1, 1), (2, 8), (8, 2):
        whole = Whole(graph, "second", student, {"first": micro[0], "second": micro[1]})
        inputs, _ = stacked(whole, [lesson], Plan(micro=micro[0]), rng)
        parameters = {k: (w.requires_grad_(), b.requires_grad_()) for k, (w, b) in whole.parameters().items()}
        found = whole.spikes(inputs, parameters, micro[0])
        assert found.shape == (25, 1, 5) and found.sum() > 20
        if micro == (1, 1):
            fired = first.fired(inputs, {"conv": parameters["conv"]})
            assert torch.equal(found, second.spikes({"first": fired}, {"linear": parameters["linear"]}))
        found.sum().backward()
        assert all(weight.grad.abs().sum() > 0 for weight, _ in parameters.values())
    assert whole.grid(parameters) == first.grid(first.parameters()) | second.grid(second.parameters())


@pytest.mark.parametrize("chip", [SPECK, LOIHI])
def test_every_tensor_of_training_follows_the_device(chip, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """On torch's device without memory, which stands for a GPU: a tensor that stayed behind is refused."""
    monkeypatch.setattr(scan_module, "numbers_of", _numbers)
    rng, student = np.random.default_rng(0), backend_of(chip).student(chip)
    graph = on_chip_neuron(network(rng, Contract(dt=1e-3), 4e-3), student, Setting(student.settings[0].floor))
    plan = Plan(micro=2, device="meta", is_output=True)
    for layer in layers(graph, student):
        (source,) = layer.sources
        heard = {source: Spikes.from_dense(rng.poisson(0.3, (6, *graph.shapes[source])))}
        inputs, target = stacked(layer, [Lesson(heard, Spikes.none(), 6)], plan, rng)
        pairs = layer.parameters(plan.device)
        pairs = {name: (w.requires_grad_(), b.requires_grad_()) for name, (w, b) in pairs.items()}
        found = layer.spikes(inputs, layer.rounded(pairs, layer.grid(layer.parameters())), 2)
        distance(found, target, plan.is_output).backward()
        tensors = [found, target, *(x.grad for pair in pairs.values() for x in pair)]
        assert {tensor.device.type for tensor in tensors} == {"meta"}
        with pytest.raises(RuntimeError):  # so that the test can fail
            layer.spikes(inputs, layer.parameters(), 2)


def _numbers(threshold: torch.Tensor, dynamics: scan_module.Dynamics) -> scan_module.Numbers:
    """Of a threshold of 1, without looking into a tensor that has no values."""
    subtract = dynamics.reset == "subtract"
    figures = (1.0, 1.0, 1.0, dynamics.v_min, float(dynamics.leaky), dynamics.alpha)
    return scan_module.Numbers(*figures, dynamics.fires, subtract, dynamics.rectified)


def test_no_spike_is_lost_between_layers_of_different_micro_steps() -> None:
    spikes = torch.rand(12, 3, 2, 5) < 0.3
    for times in (3, 12, 48):
        found = resampled(spikes.float(), times, torch.Generator().manual_seed(0))
        assert found.shape == (times, 3, 2, 5)
        whole = min(times, 12)
        expected = spikes.float().unflatten(0, (whole, -1)).sum(1)
        assert torch.equal(found.unflatten(0, (whole, -1)).sum(1), expected)
    assert found.max() == 1 and len(set(found.argmax(0).flatten().tolist())) > 4  # at random, one each


def _without_bias(node: nir.NIRNode) -> nir.NIRNode:
    return nir.Conv2d(None, node.weight, node.stride, node.padding, node.dilation, node.groups, 0 * node.bias)


def test_what_cannot_be_tuned_is_refused_by_name() -> None:
    rng, student = np.random.default_rng(0), backend_of(SPECK).student
    assert student is not None
    graph = network(rng, Contract(dt=1e-3))
    cuba = nir.CubaLIF(*(np.ones(5) * x for x in (0.01, 0.01, 1.0, 0.0, 1.0)), np.zeros(5), np.ones(5))
    for nodes, words in (
        ({"second": cuba}, "node 'second': tune knows IF and LIF neurons on this chip, not CubaLIF"),
        (
            {"second": nir.IF(np.ones(5), np.ones(5), np.zeros(5)), "first": _uneven()},
            "differ within a channel",
        ),
        ({"flatten": nir.Delay(np.full((3, 4, 4), 2e-3))}, "node 'flatten': tune takes no Delay"),
    ):
        with pytest.raises(InputError, match=words):
            on_chip_neuron(replace(graph, nodes=graph.nodes | nodes), student(SPECK), Setting())


def loop(contract: Contract, r: float = 3.0) -> Graph:
    """A recurrent population of CubaLIF neurons that another one hears."""
    rng, one, few = np.random.default_rng(4), np.ones(12), np.ones(5)

    def cuba(ones: np.ndarray) -> nir.NIRNode:  # type: ignore[type-arg]
        return nir.CubaLIF(ones * 2e-3, ones * 6e-3, ones * r, 0 * ones, ones, 0 * ones, ones * 2)

    nodes = {
        "input": nir.Input(np.array([8])),
        "in": nir.Affine(rng.normal(0.4, 0.5, (12, 8)), 0.1 * one),
        "first": cuba(one),
        "back": nir.Affine(rng.normal(0, 0.4, (12, 12)), 0 * one),
        "out": nir.Affine(rng.normal(0.2, 0.5, (5, 12)), 0 * few),
        "second": cuba(few),
        "output": nir.Output(None),
    }
    edges = [("input", "in"), ("in", "first"), ("first", "back"), ("back", "first"), ("first", "out")]
    edges += [("out", "second"), ("second", "output")]
    return canonical(nir.NIRGraph(nodes, edges, type_check=False), contract, "loop")


def test_recurrence_is_refused_before_any_clip_is_played_where_the_chip_has_none() -> None:
    with pytest.raises(InputError, match="loop: has recurrent connections; the chip has none"):
        tune(loop(Contract(dt=1e-3)), SPECK, [])


@pytest.mark.parametrize("synapse", ["scaled", "unit", "decayed"])
@pytest.mark.parametrize("delay", [0, 1])
def test_layers_with_currents_loops_and_delays_are_the_references(synapse: str, delay: int) -> None:
    """In thresholds a recurrent CubaLIF network fires the same spikes, and its layers in torch, fed with the
    spikes of the run as late as the contract says, fire them too."""
    contract = Contract(dt=1e-3, reset="zero", fire="gt", delay=delay, synapse=synapse)  # type: ignore[arg-type]
    graph, student = loop(contract), replace(backend_of(LOIHI).student(LOIHI), decay_steps=2**40)
    changed = on_chip_neuron(graph, student, Setting())
    frames = (np.random.default_rng(1).random((40, 8)) < 0.3).astype(np.float64)
    before, after = (reference.run(g, frames, dtype=torch.float64) for g in (graph, changed))
    assert before.spikes == after.spikes
    assert min(spikes.count for spikes in before.spikes.values()) > 20
    for layer in layers(changed, student):
        (lesson,) = lessons(layer, [after], [after], [Spikes.from_dense(frames)])
        inputs, target = stacked(layer, [lesson], Plan(), np.random.default_rng(0))
        found = layer.spikes(inputs, layer.parameters())
        assert int((found != target).sum()) <= 1  # single precision against double


def test_a_recurrent_network_with_currents_is_tuned_for_loihi() -> None:
    """Several spikes per step and reset by subtraction become one and a reset to zero, by teacher forcing."""
    contract = Contract(dt=1e-3, reset="subtract", fire="ge", max_spikes=0)
    rates = np.random.default_rng(0).uniform(0.1, 0.9, (48, 1, 8))
    samples = [
        Sample(f"{n}", (np.random.default_rng(n).random((40, 8)) < rate).astype(np.float32))
        for n, rate in enumerate(rates)
    ]
    tuned = tune(loop(contract, 0.8), LOIHI, samples, Options(iterations=60))
    rows = {row.stage: row.figures for row in tuned.rows}
    assert tuned.gained and tuned.graph.recurrent
    assert rows["before"].ratio < 0.75 and abs(1 - rows["tuned"].ratio) < 0.15
    assert rows["tuned"].error < rows["before"].error / 2


def _uneven() -> nir.NIRNode:
    one = np.ones((3, 4, 4))
    return nir.IF(one, one + np.arange(4) / 8, 0 * one)


def test_a_contract_is_adopted_where_the_chip_can_follow_it():
    contract = Contract(dt=1e-3, reset="subtract", fire="gt", max_spikes=0, v_min=-1.0)
    own = backend_of(LOIHI).student(LOIHI).adopted(contract)
    assert own == Contract(dt=1e-3, reset="zero", fire="gt", max_spikes=1, v_min=None)
