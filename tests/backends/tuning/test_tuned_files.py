"""What a tuned graph does elsewhere: on the vendors' simulators, and with coordinates for an answer."""

from itertools import pairwise

import nir
import numpy as np
import pytest

import nrf
from nrf.backends.border import load_chip
from nrf.backends.tuning import Options, tune
from nrf.events import Sample
from nrf.export import Contract, Graph, canonical, read_graph, write_graph
from nrf.model.readout import Readout
from tests.backends.tuning.test_tune import LEAKY, classifier, clips

SEVERAL = Contract(dt=1e-3, reset="subtract", fire="ge", max_spikes=0)


@pytest.mark.parametrize(
    ("target", "vendor", "graph"),
    [
        pytest.param("loihi2", "lava", classifier(SEVERAL, False), marks=pytest.mark.needs_vendor("lava")),
        pytest.param("speck2f", "sinabs", LEAKY, marks=pytest.mark.needs_vendor("sinabs")),
    ],
)
def test_a_tuned_graph_is_exact_on_the_vendors_simulator(target: str, vendor: str, graph: Graph) -> None:
    """What was learnt in torch is what the vendor's own software computes, spike by spike."""
    tuned = tune(graph, load_chip(target), clips(24, mean=0.7), Options(iterations=10))
    assert tuned.gained
    report = nrf.conform(tuned.graph, target, [clips(1, 5)[0].frames], runtimes=["builtin", vendor])
    exact = [m for m in report.measured if (m.runtime, m.rung) == (vendor, "L0")]
    assert {m.node for m in exact} == {"first", "second"}
    assert all(m.figures["spikes_differ"] == 0 for m in exact), exact
    assert report.verdict == "pass"


def tracker() -> Graph:
    """Two leaky layers on 2x16x16 pixels that follow a spot; the host reads coordinates from 1x4x4 counts."""
    near = np.exp(-(np.hypot(*np.mgrid[-2:3, -2:3]) ** 2) / 4)
    one, dt = np.ones((4, 8, 8)), 1e-3
    last = np.ones((1, 4, 4))
    nodes = {
        "input": nir.Input(np.array([2, 16, 16])),
        "conv1": nir.Conv2d(None, np.tile(near * 0.4, (4, 2, 1, 1)), 2, 2, 1, 1, np.zeros(4)),
        "first": nir.LIF(one * 8 * dt, one * 8, 0 * one, one, 0 * one),
        "conv2": nir.Conv2d(None, np.tile(near * 0.08, (1, 4, 1, 1)), 2, 2, 1, 1, np.zeros(1)),
        "second": nir.LIF(last * 8 * dt, last * 8, 0 * last, last, 0 * last),
        "output": nir.Output(None),
    }
    contract = Contract(dt=dt, readout=Readout(gain=8.0, stride=4.0, offset=1.5, leak=0.2))
    return canonical(nir.NIRGraph(nodes, list(pairwise(nodes)), type_check=False), contract, "tracker")


def spots(count: int) -> list[Sample]:
    """Events of a spot that moves."""
    samples = []
    for number in range(count):
        rng = np.random.default_rng((7, number))
        start, speed = rng.uniform(3, 12, 2), rng.uniform(-0.25, 0.25, 2)
        centres = start + speed * np.arange(20)[:, None]
        far = np.hypot(*(np.mgrid[:16, :16][:, None] - centres.T[:, :, None, None]))
        means = np.repeat(np.exp(-((far / 2) ** 2))[:, None], 2, axis=1) * 0.5 + 0.01
        samples.append(Sample(f"{number}", rng.poisson(means).astype(np.float32)))
    return samples


def test_coordinates_are_tuned_in_pixels(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """The table is in pixels, nothing speaks of classes, and `conform` compares all three in pixels."""
    model, out = tmp_path / "tracker.nir", tmp_path / "tuned.nir"
    write_graph(model, tracker())
    samples = spots(32)
    np.savez(tmp_path / "clips.npz", frames=np.stack([sample.frames for sample in samples]))
    tuned = nrf.tune(model, "speck2f", [tmp_path / "clips.npz"], iterations=15, out=out)
    rows = {row.stage: row.figures for row in tuned.rows if row.runtime == "asynchronous"}
    kept = rows[tuned.did["kept"]]
    assert tuned.gained and kept.agreement is None
    assert kept.pixels is not None and rows["before"].pixels is not None
    assert kept.pixels < rows["before"].pixels and kept.loss < rows["before"].loss
    assert not any("class" in line for line in tuned.summary)
    assert read_graph(out).contract.readout == tracker().contract.readout
    clip = tmp_path / "clip.npz"
    np.savez(clip, frames=samples[0].frames)
    report = nrf.conform(out, "speck2f", [clip], runtimes=["builtin", "asynchronous"])
    compared = {(m.runtime, m.rung) for m in report.measured if m.node == "coordinates"}
    assert {("builtin", "L3"), ("builtin", "golden"), ("reference", "golden")} <= compared
