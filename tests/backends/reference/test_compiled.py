"""The fast ways: compiled neurons have torch's bits, event-driven convolutions the spikes of dense ones."""

from itertools import product
from typing import Any

import nir
import numpy as np
import pytest
import torch

from nrf.backends.border import Spikes
from nrf.backends.reference import nodes, run
from nrf.backends.reference.coefficients import Neuron, neuron
from nrf.backends.reference.compiled import compilable, compiled_scan, spikes_of
from nrf.export.contract import Contract
from nrf.model import convolution
from tests.backends.loihi.graphs import chain

SHAPE = 3, 5, 4


def neurons(kind: type[nir.NIRNode], rng: np.random.Generator) -> nir.NIRNode:
    """One of each shape, with other numbers for every neuron."""
    ranges = {"tau": (0.002, 0.02), "v_leak": (-0.1, 0.1), "v_threshold": (0.3, 1), "v_reset": (-0.2, 0.1)}
    ranges["r"] = (0.5, 2) if kind in (nir.LIF, nir.LI) else (500, 2000)
    fields = [key for key in ranges if key in kind.__dataclass_fields__]
    return kind(**{key: rng.uniform(*ranges[key], SHAPE) for key in fields})


@pytest.mark.parametrize("kind", [nir.LIF, nir.IF, nir.LI, nir.I])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_neurons_have_the_bits_of_torch(kind: type[nir.NIRNode], dtype: torch.dtype) -> None:
    rng = np.random.default_rng(0)
    options = product(("zero", "subtract", "none"), ("gt", "ge"), ("scaled", "unit"), (None, -0.3), (0, 1))
    for reset, fire, membrane, v_min, last in options:
        asked: dict[str, Any] = {"reset": reset, "fire": fire, "membrane": membrane, "v_min": v_min}
        contract = Contract(dt=1e-3, start="reset", **asked)
        floats = vars(neuron(neurons(kind, rng), contract)).items()
        one: Any = Neuron(**{k: v if v is None else torch.as_tensor(v).to(dtype) for k, v in floats})
        assert compilable(one, contract)
        x = torch.as_tensor(rng.normal(0.5, 2, (20, *SHAPE))).to(dtype)
        x = x.contiguous(memory_format=torch.channels_last) if last else x
        signal, volts, _ = nodes.scan(x, None, one, contract)
        compiled = compiled_scan(one, contract, membranes=True)
        first = compiled(x[:7], None)
        second = compiled(x[7:], first[2])  # goes on where the first ended
        assert torch.equal(torch.cat([first[0], second[0]]), signal)
        assert first[1] is not None and second[1] is not None and volts is not None
        assert torch.equal(torch.cat([first[1], second[1]]), volts)


def test_neurons_that_the_loops_do_not_know_stay_with_torch() -> None:
    rng = np.random.default_rng(0)
    one = neuron(neurons(nir.LIF, rng), Contract(dt=1e-3))
    for other in ({"max_spikes": 0}, {"reset_at": "next"}, {"reset_at": "held", "reset": "subtract"}):
        assert not compilable(one, Contract(dt=1e-3, **other))


@pytest.mark.parametrize("bias", [0.0, 0.1])
def test_event_driven_convolutions_give_the_spikes_of_dense_ones(
    bias: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    ones = np.ones((16, 12, 12))
    weight = rng.normal(0.3, 1, (16, 2, 5, 5))
    conv = nir.Conv2d(None, weight, 1, 2, 1, 1, np.full(16, bias))
    spiking = nir.LIF(5e-3 * ones, ones, 0 * ones, 0.3 * ones, 0 * ones)
    graph = chain(conv, spiking, shape=(2, 12, 12))
    frames = (rng.random((40, 2, 12, 12)) < 0.05).astype(np.float32)
    sparse = run(graph, frames, dtype=torch.float64)
    monkeypatch.setattr(convolution, "ROW", float("inf"))
    dense = run(graph, frames, dtype=torch.float64)
    name = graph.neurons[0]
    assert sparse.events(name).count > 500
    np.testing.assert_array_equal(sparse.dense(name), dense.dense(name))
    np.testing.assert_allclose(sparse.membranes[name], dense.membranes[name], atol=1e-12)


@pytest.mark.parametrize("density", [0.0, 0.2, 1.0])
def test_spikes_in_any_order_of_memory_are_listed_in_the_order_of_neurons(density: float) -> None:
    maps = (torch.rand(6, 3, 5, 4, generator=torch.Generator().manual_seed(0)) < density).float()
    for layout in (torch.contiguous_format, torch.channels_last):
        found, wanted = spikes_of(maps.contiguous(memory_format=layout)), Spikes.from_dense(maps.numpy())
        for key in ("t", "i", "n"):
            np.testing.assert_array_equal(getattr(found, key), getattr(wanted, key))
