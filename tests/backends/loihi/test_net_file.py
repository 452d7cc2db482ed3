"""netx files, loaded by the real lava.lib.dl.netx, give the same spikes; what netx cannot say is refused."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import nir
import numpy as np
import pytest

from nrf.backends.loihi.net_file import write_net
from nrf.backends.vendors import run_worker
from nrf.errors import InputError
from nrf.export import Graph
from tests.backends.loihi.chip import LOIHI, lower, run
from tests.backends.loihi.graphs import chain, joined, lif

RNG = np.random.default_rng(0)


def convolved_and_recurrent() -> Graph:
    """Conv with bias and stride, grouped conv, flatten, a matrix that feeds back into itself."""
    channels = np.ones((4, 1, 1))
    nodes = {
        "conv1": nir.Conv2d(None, RNG.normal(0.5, 1, (4, 2, 3, 3)), 2, 1, 1, 1, RNG.normal(0.1, 0.05, 4)),
        "lif1": nir.LIF(np.array([4e-3, 4e-3, 8e-3, 8e-3])[:, None, None], channels, 0 * channels, channels),
        "conv2": nir.Conv2d(None, RNG.normal(0.5, 2, (4, 2, 3, 3)), 1, (1, 0), 1, 2, np.zeros(4)),
        "lif2": nir.LIF(6e-3 * channels, channels, 0 * channels, channels),
        "flat": nir.Flatten({"input": None}, 0, -1),
        "fc": nir.Affine(RNG.normal(0.3, 0.7, (10, 4 * 4 * 2)), RNG.normal(0, 0.1, 10)),
        "lif3": lif(10),
        "back": nir.Affine(RNG.normal(-0.5, 1, (10, 10)), np.zeros(10)),
    }
    names = ["input", "conv1", "lif1", "conv2", "lif2", "flat", "fc", "lif3"]
    edges = [*pairwise(names), ("lif3", "back"), ("back", "lif3"), ("lif3", "output")]
    return joined(nodes, edges, (2, 8, 8))


@pytest.mark.needs_vendor("lava-dl")
def test_netx_gives_the_same_spikes(tmp_path: Path) -> None:
    program = lower(convolved_and_recurrent(), LOIHI, format="net")
    program.save(tmp_path / "model.loihi2")
    write_net(program, tmp_path / "model.net")
    frames = (np.random.default_rng(1).random((25, 2, 8, 8)) < 0.15).astype(np.int64)
    worker = Path(__file__).parent / "netx_worker.py"
    net = {"net": str(tmp_path / "model.net")}
    theirs = run_worker("lava-dl", worker, tmp_path / "model.loihi2", frames, 300, net)
    ours = run(program, frames)
    for name, spikes in ours.spikes.items():
        assert len(spikes.t) > 10, f"{name} is too silent to tell"
        np.testing.assert_array_equal(spikes.t, theirs.spikes[name].t, err_msg=name)
        np.testing.assert_array_equal(spikes.i, theirs.spikes[name].i, err_msg=name)


def test_branches_are_refused_by_name(tmp_path: Path) -> None:
    nodes = {key: nir.Affine(RNG.normal(0, 1, (4, 4)), np.zeros(4)) for key in "abc"} | {
        "x": lif(4),
        "y": lif(4),
    }
    edges = [("input", "a"), ("a", "x"), ("x", "b"), ("b", "y"), ("input", "c"), ("c", "y"), ("y", "output")]
    program = lower(joined(nodes, edges, (4,)), LOIHI, format="net")
    with pytest.raises(InputError, match="node 'y' is fed by input, x; netx has only chains"):
        write_net(program, tmp_path / "model.net")
    assert not (tmp_path / "model.net").exists()


def test_what_the_format_has_no_words_for_is_refused(tmp_path: Path) -> None:
    graph = chain(nir.Affine(RNG.normal(0, 1, (4, 4)), np.full(4, 0.1)), lif(4), shape=(4,))
    program = lower(graph, LOIHI, format="net")
    (into,), neurons = program.synapses, program.neurons["n2"]
    broken = {
        "biases are no multiples of 64": {
            "neurons": {"n2": replace(neurons, bias_exp=neurons.bias_exp * 0 + 1)}
        },
        "netx starts from silence": {"neurons": {"n2": replace(neurons, v0=neurons.v0 + 1)}},
        "a delay of 3 steps": {"synapses": (replace(into, delay=3),)},
        "beyond 9 bit": {"synapses": (replace(into, exponent=7),)},
    }
    write_net(program, tmp_path / "good.net")
    for text, change in broken.items():
        with pytest.raises(InputError, match=text):
            write_net(replace(program, **change), tmp_path / "model.net")  # type: ignore[arg-type]
