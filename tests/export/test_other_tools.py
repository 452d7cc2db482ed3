"""Our files in other people's tools: plain nir, Norse's own importer, and nirtorch with Norse's cells."""

from pathlib import Path

import nir
import nirtorch
import norse.torch as norse
import numpy as np
import pytest
import torch
from torch import nn

from nrf.backends.reference import run
from nrf.export import Contract, from_torch, read_graph, write_graph

PER_CHANNEL = torch.tensor([200.0, 100.0, 400.0, 50.0]).reshape(4, 1, 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    first = norse.LIFBoxParameters(tau_mem_inv=PER_CHANNEL, v_th=torch.tensor(0.3))
    second = norse.LIFBoxParameters(v_th=torch.tensor(0.02))
    model = norse.SequentialState(
        nn.Conv2d(2, 4, 3, padding=1),
        norse.LIFBoxCell(first),
        nn.Flatten(),
        nn.Linear(4 * 36, 5),
        norse.LIFBoxCell(second),
    )
    write_graph(tmp_path / "model.nir", from_torch(model, torch.zeros(1, 2, 6, 6), Contract(dt=1e-3)))
    return tmp_path / "model.nir"


FRAMES = ((np.random.default_rng(0).random((80, 2, 6, 6)) < 0.3) * 3.0).astype(np.float32)


def outputs(module: nn.Module, batched: bool) -> np.ndarray:
    state, found = None, []
    for frame in torch.as_tensor(FRAMES):
        output, state = module(frame[None] if batched else frame, state)
        found.append(output.detach().numpy().reshape(-1))
    return np.array(found)


def test_plain_nir_reads_and_type_checks_the_file(path: Path) -> None:
    graph = nir.read(path)
    assert graph.check_types()
    assert "nrf_contract" in graph.metadata


def test_norses_importer_gives_the_same_spikes(path: Path) -> None:
    module = norse.from_nir(nir.read(path), dt=1e-3)
    spikes = run(read_graph(path), FRAMES).dense("4")
    assert spikes.any()
    np.testing.assert_array_equal(outputs(module, batched=False), spikes)


def test_nirtorch_gives_the_same_spikes_with_norse_cells(path: Path) -> None:
    def lif(node: nir.LIF) -> nn.Module:
        rate, threshold = (torch.as_tensor(v).float() for v in (1 / node.tau, node.v_threshold))
        return norse.LIFBoxCell(norse.LIFBoxParameters(tau_mem_inv=rate, v_th=threshold), dt=1e-3)

    def affine(node: nir.Affine) -> nn.Module:
        layer = nn.Linear(*node.weight.shape[::-1])
        layer.weight.data, layer.bias.data = torch.as_tensor(node.weight), torch.as_tensor(node.bias)
        return layer

    def conv(node: nir.Conv2d) -> nn.Module:
        layer = nn.Conv2d(2, 4, 3, padding=tuple(int(p) for p in node.padding))
        layer.weight.data, layer.bias.data = torch.as_tensor(node.weight), torch.as_tensor(node.bias)
        return layer

    kinds = {nir.LIF: lif, nir.Affine: affine, nir.Conv2d: conv, nir.Flatten: lambda node: nn.Flatten()}
    module = nirtorch.nir_to_torch(nir.read(path), kinds)
    np.testing.assert_array_equal(outputs(module, batched=True), run(read_graph(path), FRAMES).dense("4"))
