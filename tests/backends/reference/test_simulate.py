"""The float reference against Norse's own cells, recorded traces, and itself."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import nir
import norse.torch as norse
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from norse.torch.functional.reset import reset_subtract, reset_value

from nrf.backends.border.recording import Recording
from nrf.backends.reference import run
from nrf.errors import InputError
from nrf.export import Contract, Graph, canonical, read_graph

PAPER = Path(__file__).parents[4] / "shared" / "nir_paper"
needs_paper = pytest.mark.skipif(not PAPER.is_dir(), reason=f"no recorded traces in {PAPER}")
SIZE = 7


def graph_of(*nodes: nir.NIRNode, shape: tuple[int, ...] = (SIZE,), **contract: Any) -> Graph:
    """A chain of nodes n0, n1, ... between input and output."""
    named = {"input": nir.Input(np.array(shape)), **{f"n{k}": node for k, node in enumerate(nodes)}}
    named["output"] = nir.Output(None)
    names = list(named)
    raw = nir.NIRGraph(named, list(pairwise(names)), type_check=False)
    return canonical(raw, Contract(**contract))


def step_through(cell: torch.nn.Module, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and membranes of a Norse cell, step by step."""
    state, outputs, membranes = None, [], []
    for frame in torch.as_tensor(frames):
        output, state = cell(frame[None], state)
        outputs.append(output[0].detach().numpy())
        membranes.append(state.v[0].detach().numpy())
    return np.array(outputs), np.array(membranes)


@st.composite
def parameters(draw: st.DrawFn) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ranges = {
        "tau_mem_inv": (50, 900),
        "tau_syn_inv": (50, 900),
        "v_leak": (-0.2, 0.2),
        "v_th": (0.3, 1.0),
        "v_reset": (-0.2, 0.2),
    }
    values = {key: torch.as_tensor(rng.uniform(*span, SIZE)) for key, span in ranges.items()}
    return values | {"frames": rng.normal(0.4, 1.5, (60, SIZE))}


@pytest.mark.parametrize("reset", ["zero", "subtract"])
@settings(max_examples=25)
@given(p=parameters())
def test_lif_is_norses_lif_box_cell(reset: str, p: dict[str, Any]) -> None:
    method = reset_value if reset == "zero" else reset_subtract
    shared = {key: p[key] for key in ("tau_mem_inv", "v_leak", "v_th", "v_reset")}
    cell = norse.LIFBoxCell(norse.LIFBoxParameters(**shared, reset_method=method), dt=1e-3)
    spikes, membranes = step_through(cell, p["frames"])
    tau, rest, threshold, low = (value.numpy() for value in shared.values())
    node = nir.LIF(1 / tau, np.ones(SIZE), rest, threshold, low)
    recording = run(graph_of(node, dt=1e-3, reset=reset), p["frames"], dtype=torch.float64)
    np.testing.assert_array_equal(recording.dense("n0"), spikes)
    np.testing.assert_allclose(recording.membrane("n0"), membranes, atol=1e-12)
    assert spikes.any()


@settings(max_examples=25)
@given(p=parameters())
def test_cuba_lif_is_norses_lif_cell(p: dict[str, Any]) -> None:
    keys = ("tau_syn_inv", "tau_mem_inv", "v_leak", "v_th", "v_reset")
    cell = norse.LIFCell(norse.LIFParameters(**{key: p[key] for key in keys}), dt=1e-3)
    spikes, membranes = step_through(cell, p["frames"])
    syn, mem, rest, threshold, low = (p[key].numpy() for key in keys)
    node = nir.CubaLIF(1 / syn, 1 / mem, np.ones(SIZE), rest, threshold, low, w_in=1 / syn / 1e-3)
    recording = run(graph_of(node, dt=1e-3), p["frames"], dtype=torch.float64)
    np.testing.assert_array_equal(recording.dense("n0"), spikes)
    np.testing.assert_allclose(recording.membrane("n0"), membranes, atol=1e-12)
    assert spikes.any()


@settings(max_examples=15)
@given(p=parameters())
def test_integrators_are_norses(p: dict[str, Any]) -> None:
    syn, mem, rest = (p[key].numpy() for key in ("tau_syn_inv", "tau_mem_inv", "v_leak"))
    one = np.ones(SIZE)
    box = norse.LIBoxCell(norse.LIBoxParameters(p["tau_mem_inv"], p["v_leak"]), dt=1e-3)
    cuba = norse.LICell(norse.LIParameters(p["tau_syn_inv"], p["tau_mem_inv"], p["v_leak"]), dt=1e-3)
    pairs = (
        (box, nir.LI(1 / mem, one, rest)),
        (cuba, nir.CubaLI(1 / syn, 1 / mem, one, rest, 1 / syn / 1e-3)),
    )
    for cell, node in pairs:
        recording = run(graph_of(node, dt=1e-3), p["frames"], dtype=torch.float64)
        np.testing.assert_allclose(recording.membrane("n0"), step_through(cell, p["frames"])[1], atol=1e-12)


@needs_paper
def test_recorded_lif_of_the_nir_paper(tmp_path: Path) -> None:
    trace = np.genfromtxt(PAPER / "lif_norse.csv", delimiter=",")
    np.savez(tmp_path / "input.npz", frames=trace[:, :1])
    command = [sys.executable, "-c", "from nrf.cli import main; main()", "run", PAPER / "lif_norse.nir"]
    options = [
        "--dt",
        "1e-4",
        "--reset",
        "zero",
        "--input",
        tmp_path / "input.npz",
        "-o",
        tmp_path / "rec.npz",
    ]
    subprocess.run([*command, *options], check=True, capture_output=True)
    recording = Recording.load(tmp_path / "rec.npz")
    assert recording.events("1").t.tolist() == [460, 510, 710, 760]
    np.testing.assert_array_equal(recording.dense("1")[:, 0], trace[:, 2])
    np.testing.assert_allclose(recording.membrane("1")[:, 0], trace[:, 1], atol=1e-7)


@needs_paper
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_spiking_cnn_of_the_nir_paper_equals_norse_layer_by_layer(dtype: torch.dtype) -> None:
    raw = nir.read(PAPER / "cnn_sinabs.nir")
    frames = (np.random.default_rng(0).random((60, 2, 34, 34)) < 0.05).astype(np.float32)
    recording = run(read_graph(PAPER / "cnn_sinabs.nir", dt=1.0, reset="zero"), frames, dtype=dtype)
    states: dict[str, Any] = {}
    found: dict[str, list[np.ndarray]] = {name: [] for name in recording.nodes}
    for frame in torch.as_tensor(frames).to(dtype):
        x = frame[None]
        for name in map(str, range(13)):
            node = raw.nodes[name]
            if isinstance(node, nir.Conv2d):
                weight, bias = (torch.as_tensor(v).to(dtype) for v in (node.weight, node.bias))
                x = torch.conv2d(x, weight, bias, node.stride.tolist(), node.padding.tolist())
            elif isinstance(node, nir.Affine):
                x = x @ torch.as_tensor(node.weight).to(dtype).T + torch.as_tensor(node.bias).to(dtype)
            elif isinstance(node, nir.SumPool2d):
                x = 4 * torch.nn.functional.avg_pool2d(x, 2)
            elif isinstance(node, nir.Flatten):
                x = x.flatten(1)
            else:
                assert (node.r == 1).all()
                cell = norse.IAFCell(norse.IAFParameters(v_th=torch.as_tensor(node.v_threshold)))
                x, states[name] = cell(x, states.get(name))
                found[name].append(x[0].detach().numpy())
    for name, spikes in found.items():
        assert (recording.dense(name) != np.array(spikes)).sum() == 0, name
    assert recording.dense("12").any()


def recurrent(delay: int = 0) -> Graph:
    """Two populations that excite each other and themselves."""
    rng = np.random.default_rng(3)
    ones = np.ones(SIZE)

    def matrix() -> nir.Affine:
        return nir.Affine(rng.normal(0, 1, (SIZE, SIZE)), rng.normal(0, 0.2, SIZE))

    def lif() -> nir.LIF:
        return nir.LIF(rng.uniform(3e-3, 2e-2, SIZE), 3 * ones, 0 * ones, 0.4 * ones)

    nodes = {"input": nir.Input(np.array([SIZE])), "output": nir.Output(np.array([SIZE]))}
    nodes |= {"a": lif(), "b": lif(), "in": matrix(), "ab": matrix(), "ba": matrix(), "aa": matrix()}
    edges = [("input", "in"), ("in", "a"), ("a", "ab"), ("ab", "b"), ("b", "ba"), ("ba", "a")]
    edges += [("a", "aa"), ("aa", "a"), ("b", "output")]
    return canonical(nir.NIRGraph(nodes, edges, type_check=False), Contract(dt=1e-3, delay=delay))


def test_recurrence_is_norses_recurrent_cell() -> None:
    rng = np.random.default_rng(5)
    torch.manual_seed(0)
    cell = norse.LIFRecurrentCell(SIZE, SIZE, autapses=True).double()
    frames = (rng.random((80, SIZE)) < 0.5) * 2.0
    spikes, membranes = step_through(cell, frames)
    from nrf.export import from_torch

    graph = from_torch(cell, torch.zeros(1, SIZE), Contract(dt=1e-3))
    name = graph.neurons[0]
    recording = run(graph, frames, dtype=torch.float64)
    assert spikes.any() and graph.recurrent
    np.testing.assert_array_equal(recording.dense(name), spikes)
    np.testing.assert_allclose(recording.membrane(name), membranes, atol=1e-6)


def test_teacher_forcing_with_the_own_recording_changes_nothing() -> None:
    frames = np.random.default_rng(0).normal(0.5, 1, (50, SIZE))
    for graph in (recurrent(), recurrent(delay=1)):
        free = run(graph, frames, dtype=torch.float64)
        forced = run(graph, frames, teacher=free, dtype=torch.float64)
        for name in free.nodes:
            np.testing.assert_array_equal(forced.dense(name), free.dense(name))
            np.testing.assert_array_equal(forced.membrane(name), free.membrane(name))


def test_teacher_forcing_replaces_what_later_nodes_see() -> None:
    graph = graph_of(
        nir.LIF(*(np.full(SIZE, v) for v in (5e-3, 1.0, 0.0, 0.2))),
        nir.Affine(5 * np.eye(SIZE), np.zeros(SIZE)),
        nir.LIF(*(np.full(SIZE, v) for v in (5e-3, 1.0, 0.0, 0.2))),
        dt=1e-3,
    )
    loud = run(graph, np.full((30, SIZE), 2.0))
    quiet = run(graph, np.zeros((30, SIZE)))
    taught = run(graph, np.zeros((30, SIZE)), teacher=loud)
    assert loud.dense("n2").any() and not quiet.dense("n2").any()
    np.testing.assert_array_equal(taught.dense("n0"), quiet.dense("n0"))
    np.testing.assert_array_equal(taught.dense("n2"), loud.dense("n2"))


def test_contract_delay_moves_each_layer_by_one_more_step() -> None:
    lif = [np.full(SIZE, v) for v in (5e-3, 1.0, 0.0, 0.2)]
    nodes = (nir.LIF(*lif), nir.Linear(5 * np.eye(SIZE)), nir.LIF(*lif))
    frames = np.random.default_rng(0).normal(0.5, 1, (40, SIZE))
    now, late = (run(graph_of(*nodes, dt=1e-3, delay=d), frames) for d in (0, 1))
    np.testing.assert_array_equal(late.dense("n0")[1:], now.dense("n0")[:-1])
    np.testing.assert_array_equal(late.dense("n2")[2:], now.dense("n2")[:-2])
    assert now.dense("n2").any()


def test_without_membranes_only_the_outputs_is_kept() -> None:
    frames = np.random.default_rng(0).normal(0.5, 1, (20, SIZE))
    full, lean = run(recurrent(), frames), run(recurrent(), frames, membranes=False)
    assert set(full.membranes) == {"a", "b"} and set(lean.membranes) == {"b"}
    np.testing.assert_array_equal(full.dense("a"), lean.dense("a"))


def test_an_output_that_is_no_neuron_is_recorded_too() -> None:
    frames = np.random.default_rng(0).normal(0.5, 1, (20, SIZE))
    recording = run(
        graph_of(
            nir.LIF(*(np.full(SIZE, v) for v in (5e-3, 1.0, 0.0, 0.2))), nir.Linear(2 * np.eye(SIZE)), dt=1e-3
        ),
        frames,
    )
    assert recording.nodes == ["n0", "output"]
    np.testing.assert_array_equal(recording.membrane("output"), 2 * recording.dense("n0"))


def test_frames_of_another_shape_are_refused() -> None:
    with pytest.raises(InputError, match=r"frames have shape \(4, 3\).*'input' takes \(T, 7\)"):
        run(recurrent(), np.zeros((4, 3)))
    with pytest.raises(InputError, match="not finite"):
        run(recurrent(), np.full((4, SIZE), np.nan))
    with pytest.raises(InputError, match="5 frames, but the teacher has 4 steps"):
        run(recurrent(), np.zeros((5, SIZE)), teacher=run(recurrent(), np.zeros((4, SIZE))))


def test_provenance_says_what_ran() -> None:
    graph = recurrent()
    provenance = run(graph, np.zeros((2, SIZE))).provenance
    assert (provenance.runtime, provenance.device) == ("reference", "simulation")
    assert provenance.checksum == graph.checksum
    assert provenance.versions["torch"] == torch.__version__
