"""Reset by subtraction, as Lava's ATRLIF does it."""

from pathlib import Path
from typing import Any

import nir
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nrf
from nrf.backends import reference
from nrf.backends.loihi.check import check
from nrf.backends.loihi.net_file import write_net
from nrf.cli import app
from nrf.cli.common import report_errors
from nrf.errors import InputError
from nrf.export import Graph, write_graph
from nrf.findings import errors
from tests.backends.loihi.chip import LOIHI, integers, lower, run
from tests.backends.loihi.graphs import DT, chain, joined, lif
from tests.backends.loihi.test_lava import assert_same
from tests.backends.loihi.test_wide import scores

STEPS = 150


def trains(seed: int, rate: float = 0.15, steps: int = STEPS) -> Any:
    return (np.random.default_rng(seed).random((steps, 8)) < rate).astype(np.float32)


def integrators(seed: int, **contract: Any) -> Graph:
    """Two populations of IF with weights, biases and thresholds of 32nds."""
    rng = np.random.default_rng(seed)

    def layer(rows: int, columns: int) -> tuple[nir.NIRNode, nir.NIRNode]:
        weight, bias = rng.integers(-12, 20, (rows, columns)) / 32, rng.integers(-2, 3, rows) / 32
        threshold = rng.choice([0.5, 1.0, 1.25], rows)
        return nir.Affine(weight, bias), nir.IF(np.full(rows, 1 / DT), threshold, np.zeros(rows))

    return chain(*layer(10, 8), *layer(5, 10), shape=(8,), **{"reset": "subtract", **contract})


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    fire=st.sampled_from(["gt", "ge"]),
    at=st.sampled_from(["spike", "next"]),
    start=st.sampled_from(["leak", "reset"]),
)
def test_integrators_on_the_grid_spike_as_the_reference(seed: int, fire: str, at: str, start: str) -> None:
    graph = integrators(seed, fire=fire, reset_at=at, start=start)
    program, frames = lower(graph, clips=[trains(seed + 1)]), trains(seed + 2)
    assert all(neurons.subtracts for neurons in program.neurons.values())
    wanted, found = reference.run(graph, frames), run(program, frames)
    assert found.provenance.counters["saturated"] == 0
    for node, spikes in wanted.spikes.items():
        late = found.latency(node)
        assert spikes.before(STEPS - late) == found.spikes[node].later(-late), node
        if at == "spike":
            volts = wanted.membranes[node][: STEPS - late]
            assert np.allclose(found.membranes[node][late:], volts, atol=1e-3), node


def test_a_subtraction_one_step_late_is_written_as_one_at_the_spike_where_nothing_leaks() -> None:
    """Off the grid, and with few spikes, so that membranes decide: they must be those of the same moment."""
    rng, one = np.random.default_rng(3), np.ones(6)
    nodes = nir.Affine(rng.normal(0.02, 0.1, (6, 8)), 0 * one), nir.IF(one / DT, one, 0 * one)
    at_once, late = (chain(*nodes, shape=(8,), reset="subtract", reset_at=at) for at in ("spike", "next"))
    first, second = (lower(graph, clips=[trains(1)]) for graph in (at_once, late))
    assert 0 < reference.run(late, trains(1)).spikes["n2"].count < 300
    lost, lost_late = first.lowered.losses[0], second.lowered.losses[0]
    assert lost.notes == lost_late.notes and lost_late.membrane_rms == pytest.approx(
        lost.membrane_rms, rel=1e-3
    )
    assert integers(first, trains(2)) == integers(second, trains(2))


def leaky(kind: str, seed: int, **contract: Any) -> Graph:
    """Two populations that leak, with biases, off any grid."""
    rng = np.random.default_rng(seed)

    def neurons(n: int) -> nir.NIRNode:
        one = np.ones(n)
        if kind == "LIF":
            return lif(n, tau=8e-3, threshold=0.1, v_leak=0.01)
        return nir.CubaLIF(one * 3e-3, one * 8e-3, one, 0 * one, one * 0.1, 0 * one, one)

    def affine(rows: int, columns: int) -> nir.Affine:
        return nir.Affine(rng.normal(0.1, 0.3, (rows, columns)), rng.normal(0, 0.02, rows))

    nodes = affine(12, 8), neurons(12), affine(5, 12), neurons(5)
    return chain(*nodes, shape=(8,), **{"reset": "subtract", **contract})


@pytest.mark.parametrize("at", ["spike", "next"])
@pytest.mark.parametrize("kind", ["LIF", "CubaLIF"])
def test_leaky_neurons_keep_their_spikes(kind: str, at: str) -> None:
    found = []
    for seed in range(3):
        graph, frames = leaky(kind, seed, reset_at=at), trains(seed + 9, steps=300)
        program = lower(graph, clips=[trains(seed + 20 * k, steps=200) for k in range(1, 4)], weights="16")
        assert not program.safe_steps
        found.append(min(scores(reference.run(graph, frames), run(program, frames))))
    assert np.median(found) > 0.98 and min(found) > (0.99 if kind == "LIF" else 0.9), found


def counting() -> Graph:
    """One neuron that fires in every step in which all inputs do."""
    return chain(
        nir.Affine(np.full((1, 8), 0.125), np.zeros(1)),
        nir.IF(np.full(1, 1 / DT), np.ones(1), np.zeros(1)),
        shape=(8,), reset="subtract", fire="ge",
    )  # fmt: skip


def test_the_state_of_integrators_fits_for_as_many_steps_as_are_stated() -> None:
    """A neuron that fires in every step: v grows by its threshold each time, until it meets 24 bits."""
    graph = counting()
    program = lower(graph, clips=[trains(0, 1.0)])
    safe = program.safe_steps["n2"]
    assert program.lowered.losses[0].notes["safe steps"] == str(safe) and safe >= 2 * STEPS - 2
    within, beyond = run(program, np.ones((safe, 8))), run(program, np.ones((safe + 3, 8)))
    assert within.provenance.counters["saturated"] == 0
    assert "steps_beyond_safe" not in within.provenance.counters
    assert within.spikes["n2"].count == safe - 1
    assert beyond.provenance.counters["steps_beyond_safe"] == 3
    assert run(program, np.ones((safe + 9, 8))).provenance.counters["saturated"] > 0


def test_conform_says_how_far_a_clip_went_beyond_the_safe_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = lower(counting(), clips=[trains(0, 1.0)])
    write_graph(tmp_path / "model.nir", counting())
    program.save(tmp_path / "program")
    np.savez(tmp_path / "clip.npz", frames=np.ones((program.safe_steps["n2"] + 9, 8), np.float32))
    words = "conform model.nir --target loihi2 --runtime builtin -i clip.npz --program program -o report"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["nrf", *words.split()])
    assert report_errors(app) == 0  # few enough
    said = capsys.readouterr().out
    assert "builtin: saturated " in said and "steps beyond safe 9" in said


def test_subtraction_is_marked_as_another_neuron(tmp_path: Path) -> None:
    found = check(integrators(0), LOIHI)
    assert not errors(found)
    marks = [finding for finding in found if finding.rule == "subtraction_needs_atrlif"]
    assert [finding.node for finding in marks] == ["n2", "n4"] and marks[0].severity == "warning"
    with pytest.raises(InputError, match="netx has no ATRLIF"):
        write_net(lower(integrators(0)), tmp_path / "model.net")
    (finding,) = errors(check(integrators(0, reset_at="held"), LOIHI))
    assert finding.rule == "reset_exists_on_chip" and "holds" in finding.message


def test_programs_that_subtract_survive_the_file(tmp_path: Path) -> None:
    program = lower(integrators(1))
    program.save(tmp_path / "program")
    loaded: Any = nrf.load(tmp_path / "program")
    assert loaded == program and loaded.safe_steps == program.safe_steps


@pytest.mark.needs_vendor("lava")
def test_lava_computes_the_same_bits() -> None:
    recurrent = {
        "in": nir.Affine(np.random.default_rng(0).normal(0.1, 0.3, (6, 8)), np.zeros(6)),
        "n": lif(6, tau=5e-3, threshold=0.05),
        "back": nir.Affine(np.random.default_rng(1).normal(0, 0.05, (6, 6)), np.zeros(6)),
    }
    edges = [("input", "in"), ("in", "n"), ("n", "back"), ("back", "n"), ("n", "output")]
    for graph in (leaky("CubaLIF", 0), joined(recurrent, edges, (8,), reset="subtract")):
        program, frames = lower(graph), trains(3, steps=60)
        ours = integers(program, frames)
        assert all(spikes.count > 20 for spikes in ours.spikes.values())
        assert_same(ours, integers(program, frames, "lava"))
