"""Work counted by the rule, and counted by hand: every spike times every synapse behind it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_ladder import clips, tracker

from nrf.backends.border import RunOptions, backend_of, load_chip
from nrf.backends.border.chip import Energy
from nrf.backends.conformance import conform
from nrf.backends.conformance.suite import load_case
from nrf.backends.conformance.work import added, busiest, costs, loads
from nrf.backends.lowering.calibration import lower_options
from nrf.backends.lowering.fan_out import fan_out
from nrf.backends.lowering.operators import Conv, Matrix

small = st.integers(1, 3)


@given(st.data())
def test_the_fan_out_of_a_convolution_is_the_columns_of_its_matrix(data):
    groups, stride, padding = data.draw(small), data.draw(small), data.draw(st.integers(0, 2))
    dilation, kernel = data.draw(st.integers(1, 2)), (data.draw(small), data.draw(small))
    inputs, outputs = groups * data.draw(small), groups * data.draw(small)
    sides = [data.draw(st.integers((k - 1) * dilation + 1, 9)) for k in kernel]
    weight = np.ones((outputs, inputs // groups, *kernel))
    conv = Conv(weight, (inputs, *sides), (stride,) * 2, (padding,) * 2, (dilation,) * 2, groups)
    matrix = conv.matrix()
    first = data.draw(st.integers(0, matrix.shape[0] - 1))
    last = data.draw(st.integers(first, matrix.shape[0] - 1))
    for operator in (conv, Matrix(matrix)):
        assert np.array_equal(fan_out(operator), (matrix != 0).sum(0))
        assert np.array_equal(fan_out(operator, first, last), (matrix[first : last + 1] != 0).sum(0))


def lowered(name, graph):
    chip = load_chip(name)
    backend = backend_of(chip)
    return chip, backend, backend.lower(graph, chip, lower_options(graph))


def test_loihi_counts_every_synapse_of_every_spike_that_arrives():
    graph, (clip,) = tracker(), clips()
    _, backend, program = lowered("loihi2", graph)
    run = backend.run(program, clip.frames, "builtin", RunOptions(membranes=True))
    work = {
        load.population: load
        for load in loads(run, clip.frames, backend.fan_out(program), program.lowered.placement)
    }
    for name, source in (("lif1", clip.frames), ("li", run.dense("lif1"))):
        ones = [replace(s.operator, weight=np.ones_like(s.operator.weight)) for s in program.into(name)]
        by_hand = sum(source.reshape(len(source), -1) @ op.matrix().T for op in ones)
        assert work[name].synaptic_operations == by_hand.sum()
        assert work[name].peak == by_hand.sum(1).max()
        assert work[name].dense_operations == len(source) * sum(op.matrix().nnz for op in ones)
    changed = np.diff(run.membrane("lif1"), axis=0) != 0
    assert work["lif1"].membrane_updates == changed.sum() + changed[0].size
    assert work["lif1"].spikes == run.events("lif1").count


def test_cores_add_up_to_their_population():
    graph, (clip,) = tracker(), clips()
    chip = load_chip("loihi2")
    few = replace_cores(chip, 100)  # neurons per core, so that populations are cut inside a channel
    backend = backend_of(few)
    program = backend.lower(graph, few, lower_options(graph))
    run = backend.run(program, clip.frames, "builtin", RunOptions(membranes=True))
    work = loads(run, clip.frames, backend.fan_out(program), program.lowered.placement)
    for whole in (load for load in work if load.core is None):
        parts = [load for load in work if load.population == whole.population and load.core is not None]
        assert len(parts) > 1
        for key in ("neurons", "spikes", "synaptic_operations", "dense_operations", "membrane_updates"):
            assert sum(getattr(part, key) for part in parts) == getattr(whole, key), key
        assert max(part.peak for part in parts) <= whole.peak <= sum(part.peak for part in parts)
    population, core = busiest(work)
    assert core.peak == max(load.peak for load in work if load.core is not None)
    assert population.core is None


def replace_cores(chip, neurons):
    from msgspec import structs

    return structs.replace(chip, cores=structs.replace(chip.cores, neurons=neurons))


@pytest.mark.parametrize("case", ["sum_pool", "conv2d_stride", "conv2d"])
def test_speck_counts_what_its_asynchronous_simulator_executes(case):
    """Event by event the simulator counts operations itself, with kernel and pooling of its own."""
    one = load_case(case)
    chip, backend, program = lowered("speck2f", one.graph)
    run = backend.run(program, one.clip.frames, "asynchronous", RunOptions())
    work = loads(run, one.clip.frames, backend.fan_out(program), program.lowered.placement)
    executed = run.provenance.details["synaptic_operations"]
    assert {load.population: load.synaptic_operations for load in work if load.core is None} == executed
    static, dynamic, latency = costs(chip, work)
    assert (static.unit, dynamic.unit, latency.unit) == ("W", "J", "s") and "Yao" in static.source
    assert latency.band[0] == pytest.approx(3.7e-7 * len(executed))


def test_energy_is_a_band_with_a_source_and_nothing_is_printed_without_one():
    graph, (clip,) = tracker(), clips()
    chip, backend, program = lowered("loihi2", graph)
    run = backend.run(program, clip.frames, "builtin", RunOptions(membranes=True))
    work = loads(run, clip.frames, backend.fan_out(program), program.lowered.placement)
    (dynamic,) = costs(chip, work)
    whole = [load for load in work if load.core is None]
    low = sum(24e-12 * each.synaptic_operations + 51e-12 * each.neurons * 20 for each in whole)
    assert dynamic.band[0] == pytest.approx(low + 69e-12 * sum(each.spikes for each in whole))
    assert dynamic.band[0] < dynamic.band[1]
    assert "Loihi 1" in dynamic.title and "Davies" in dynamic.source and dynamic.status == "advisory"
    from msgspec import structs

    assert costs(structs.replace(chip, energy=None), work) == []
    assert costs(structs.replace(chip, energy=Energy()), work) == []


def test_clips_add_up_in_the_report():
    report = conform(tracker(), load_chip("loihi2"), clips(2), runtimes=["builtin"])
    apart = [conform(tracker(), load_chip("loihi2"), [clip], runtimes=["builtin"]) for clip in clips(2)]
    assert report.work["builtin"] == added(*(each.work["builtin"] for each in apart))
    content = report.to_json()["work"]["builtin"]
    assert content["neurobench"]["SynapticOperations"]["Effective_ACs"] * 2 == sum(
        load["synaptic_operations"] for load in content["loads"] if load["core"] is None
    )
