"""Weights of 16 bits as two synapses: strangers' networks keep the spikes that 8 bits lose."""

from dataclasses import replace
from pathlib import Path

import nir
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.tune_cases import digit_clips
from nrf.backends import reference
from nrf.backends.border import Recording
from nrf.backends.loihi.net_file import write_net
from nrf.backends.lowering.calibration import generated_clips
from nrf.backends.lowering.metrics import aligned, f1, matched
from nrf.errors import InputError
from nrf.export import Graph, read_graph
from tests.backends.loihi.chip import LOIHI, integers, lower, run
from tests.backends.loihi.graphs import DT as GRAPH_DT
from tests.backends.loihi.graphs import chain, convolutions, joined, lif
from tests.backends.loihi.test_lava import assert_same

SHARED = Path(__file__).parents[4] / "shared" / "nir_paper"
DT = 1e-4


def recurrent(seed: int, hidden: int = 38, outputs: int = 7) -> Graph:
    """CubaLIF with decays per neuron, biases, and a layer that feeds itself, as snnTorch exports it."""
    rng = np.random.default_rng(seed)

    def cuba(size: int) -> nir.CubaLIF:
        one, alpha, beta = np.ones(size), rng.uniform(0.3, 0.8, size), rng.uniform(0.7, 0.95, size)
        taus = DT / (1 - alpha), DT / (1 - beta)
        return nir.CubaLIF(*taus, 1 / (1 - beta), 0 * one, one, 0 * one, 1 / (1 - alpha))

    def affine(rows: int, columns: int, mean: float, deviation: float) -> nir.Affine:
        return nir.Affine(rng.normal(mean, deviation, (rows, columns)), rng.normal(0, 0.01, rows))

    nodes = {
        "in": affine(hidden, 12, 0.02, 0.15),
        "hidden": cuba(hidden),
        "back": affine(hidden, hidden, 0.0, 0.02),  # stronger loops lose more: see docs/loihi.md
        "out": affine(outputs, hidden, 0.03, 0.12),
        "last": cuba(outputs),
    }
    edges = [
        ("input", "in"), ("in", "hidden"), ("hidden", "back"), ("back", "hidden"), ("hidden", "out"),
        ("out", "last"), ("last", "output"),
    ]  # fmt: skip
    return joined(nodes, edges, (12,), dt=DT)


def trains(seed: int, steps: int = 256) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).random((steps, 12)) < 0.2).astype(np.float32)


def scores(wanted: Recording, found: Recording) -> list[float]:
    """F1 of every population."""
    result = []
    for node, spikes in wanted.spikes.items():
        r, c = aligned(spikes, found.spikes[node], wanted.steps, found.latency(node))
        result.append(f1(matched(r, c), r.count, c.count))
    return result


def test_recurrent_networks_keep_most_of_their_spikes() -> None:
    """On most clips all; on the others decays of 12 bits move a spike, and the loop moves the rest.

    Which clips these are hangs on every rounding: so many are asked, not one of each network.
    """
    narrow, wide = [], []
    calibration = [trains(1000 + k) for k in range(4)]
    for seed in range(5):
        graph = recurrent(seed)
        for bits, worst in (("8", narrow), ("auto", wide)):
            program = lower(graph, LOIHI, calibration, weights=bits)  # type: ignore[arg-type]
            for frames in (trains(clip + seed) for clip in range(100, 700, 100)):
                worst.append(min(scores(reference.run(graph, frames), run(program, frames))))
    assert np.mean(narrow) < 0.9 and np.mean(wide) > 0.98
    assert np.mean(np.array(wide) > 0.99) > 0.75 > 2 * np.mean(np.array(narrow) > 0.99)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the NIR paper's files are not beside the checkout")
def test_the_nir_papers_cnn_keeps_most_of_its_spikes_on_digits() -> None:
    """A saccade over digits is what it was trained for; single clips hang on single spikes of layer 1."""
    graph = read_graph(SHARED / "cnn_sinabs.nir", fire="ge", reset="zero")
    (calibration, _), (clips, _) = (digit_clips(10, seed) for seed in (7, 8))
    programs = [lower(graph, LOIHI, calibration, weights=bits) for bits in ("8", "auto")]
    pairs = [(reference.run(graph, clip), [run(program, clip) for program in programs]) for clip in clips]
    narrow, wide = np.mean([[scores(wanted, ours) for ours in found] for wanted, found in pairs], axis=0)
    assert narrow[3] < 0.75 and wide[3] > 0.9
    assert min(wide[:3]) > 0.98 and wide[4] > 0.85


def test_an_output_that_hardly_fires_is_written_by_where_it_may_fire() -> None:
    """Inhibition drives most of its membranes far down: how well these are met moves no spike."""
    rng, one = np.random.default_rng(0), np.ones(10)
    weight = rng.normal(-0.02, 0.15, (10, 40))
    graph = chain(nir.Affine(weight, 0 * one), nir.IF(one / GRAPH_DT, one, 0 * one), shape=(40,))
    quiet = [(np.random.default_rng(k).random((100, 40)) < 0.05).astype(np.float32) for k in range(8)]
    program = lower(graph, LOIHI, quiet[:4])
    near = []
    for frames in quiet[4:]:
        wanted, found = reference.run(graph, frames), run(program, frames)
        late = found.latency("n2")
        ours, theirs = found.membranes["n2"][late:], wanted.membranes["n2"][: len(frames) - late]
        near.append(np.abs(ours - theirs)[theirs > 0.5])
    assert sum(reference.run(graph, frames).spikes["n2"].count for frames in quiet[:4]) < 300
    assert len(np.concatenate(near)) > 30 and np.median(np.concatenate(near)) < 1e-3


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), exponent=st.sampled_from([-9, 7]), mean=st.sampled_from([-0.05, 0.02]))
def test_the_unit_of_voltage_changes_no_integer(seed: int, exponent: int, mean: float) -> None:
    """With few spikes membranes decide: in volts they are as large as the exporter likes."""
    rng, one, volt = np.random.default_rng(seed), np.ones(6), 2.0**exponent
    weight, clips = rng.normal(mean, 0.15, (6, 12)), [trains(seed, 60)]
    plain, scaled = (
        lower(
            chain(nir.Affine(weight * v, 0 * one), nir.IF(one / GRAPH_DT, one * v, 0 * one), shape=(12,)),
            LOIHI,
            clips,
        )
        for v in (1.0, volt)
    )
    assert integers(plain, clips[0]) == integers(scaled, clips[0])
    assert plain.lowered.losses[0].notes == scaled.lowered.losses[0].notes


def test_a_graph_on_the_grid_needs_one_synapse_per_weight() -> None:
    graph = chain(nir.Affine(np.arange(-8, 8).reshape(4, 4) / 16, np.zeros(4)), lif(4), shape=(4,))
    program = lower(graph)
    assert len(program.synapses) == 1
    assert program.lowered.losses[0].notes["weight bits"].endswith(" 8")
    assert program.lowered.losses[0].notes["cost of 16 bits"] == "none"


def test_what_each_connection_got_is_reported_and_placed() -> None:
    graph = recurrent(0)
    narrow, wide = lower(graph, weights="8"), lower(graph, weights="16")
    assert [loss.notes["weight bits"] for loss in narrow.lowered.losses] == ["in 8, back 8", "out 8"]
    assert [loss.notes["weight bits"] for loss in wide.lowered.losses] == ["in 16, back 16", "out 16"]
    costs = [int(loss.notes["cost of 16 bits"].split()[0].replace(",", "")) for loss in wide.lowered.losses]
    assert len(wide.synapses) == 2 * len(narrow.synapses)
    more = wide.lowered.placement.totals["synapses"] / narrow.lowered.placement.totals["synapses"]
    assert 1.5 < more <= 2.1
    narrow_ones = [int(one.operator.matrix().nnz) for one in wide.synapses[::2]]
    assert sum(costs) == wide.lowered.placement.totals["synapses"] - sum(narrow_ones)


@pytest.mark.parametrize("fire", ["gt", "ge"])
@pytest.mark.parametrize(("leak", "beyond"), [(0.0, 32.0), (0.25, 0.5)])
def test_thresholds_off_the_grid_are_numbers_that_the_chip_has(fire: str, leak: float, beyond: float) -> None:
    """Half way between multiples of 64 where membranes are such, on one of them where they leak."""
    rng, one = np.random.default_rng(0), np.ones(8)
    threshold = rng.uniform(0.5, 2, 8)
    decaying = nir.LIF(GRAPH_DT / 0.25 * one, 4 * one, 0 * one, threshold)
    neurons = decaying if leak else nir.IF(one / GRAPH_DT, threshold, 0 * one)
    graph = chain(nir.Affine(rng.normal(0.1, 0.4, (8, 6)), 0 * one), neurons, shape=(6,))
    graph = replace(graph, contract=graph.contract.with_(fire=fire))
    written = lower(graph, weights="16").neurons["n2"]
    above = written.scale * threshold - 64.0 * written.vth
    assert np.allclose(above, beyond, atol=0.1 + 4e-6 * 64 * written.vth.max())


def test_netx_files_have_one_synapse_per_weight(tmp_path: Path) -> None:
    graph = chain(nir.Affine(np.random.default_rng(0).normal(0, 1, (4, 4)), np.zeros(4)), lif(4), shape=(4,))
    write_net(lower(graph, format="net"), tmp_path / "model.net")
    with pytest.raises(InputError, match="input -> n2: two synapses per weight"):
        write_net(lower(graph, weights="16"), tmp_path / "wide.net")
    with pytest.raises(InputError, match=r"a \.net file has one synapse per weight.* use --weights 8"):
        lower(graph, format="net", weights="16")


def test_on_the_grid_one_synapse_is_exact_whatever_was_asked_for() -> None:
    weight = np.random.default_rng(0).integers(-60, 127, (4, 4)) / 64
    graph = chain(nir.Affine(weight, np.zeros(4)), nir.IF(np.ones(4), np.ones(4), np.zeros(4)), shape=(4,))
    programs = [lower(graph, weights=bits) for bits in ("8", "16", "auto")]  # type: ignore[arg-type]
    assert {program.lowered.losses[0].rounding for program in programs} == {"exact"}
    assert len({program.checksum for program in programs}) == 1


@pytest.mark.needs_vendor("lava")
def test_two_synapses_per_weight_give_the_same_bits_on_lava() -> None:
    for graph, frames in ((recurrent(0, 12, 3), trains(1, 30)), (convolutions(), None)):
        clip = generated_clips((2, 24, 24), 20, [1])[0] if frames is None else frames
        program = lower(graph, weights="16")
        assert_same(integers(program, clip), integers(program, clip, "lava"))
