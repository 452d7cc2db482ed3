"""Every preset: trained briefly, exported, read in a new process, run: the spikes of the model."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from nrf.backends.border.recording import Recording
from nrf.errors import InputError
from nrf.events.synthetic import clip
from nrf.export import from_checkpoint, read_graph, write_graph
from nrf.model.network import Network
from nrf.model.neurons import LI, Neuron
from nrf.training import checkpoint
from nrf.training.config import Config
from nrf.training.loop import train
from nrf.training.presets import load_preset, preset_names
from tests.norse_cells import cell

CLIPS = 20
READER = """
import sys
from pathlib import Path
import numpy as np, torch
from nrf.backends.reference import run
from nrf.export import read_graph
for folder in map(Path, sys.argv[1:]):
    graph = read_graph(folder / "model.nir")
    for number, frames in enumerate(np.load(folder / "clips.npz")["clips"]):
        run(graph, frames, dtype=torch.float64).save(folder / f"{number}.npz")
"""


EXPORTED = [name for name in preset_names() if name != "paper-code"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All presets trained and exported here, then read and run in one new process."""
    root = tmp_path_factory.mktemp("presets")
    for name in EXPORTED:
        config = small(load_preset(name))
        train(config, root / name)
        write_graph(root / name / "model.nir", from_checkpoint(root / name))
        clips = np.stack([clip(seed, config.data.shapes).frames() for seed in range(CLIPS)])
        np.savez_compressed(root / name / "clips.npz", clips=clips)
    subprocess.run([sys.executable, "-c", READER, *(root / name for name in EXPORTED)], check=True)
    return root


def small(config: Config) -> Config:
    """The preset's own network (the paper's thinner, on a smaller map) with a brief training."""
    shapes = replace(config.data.shapes, steps=15)
    network = config.network
    if network.input[1] > 64:
        shapes = replace(shapes, resolution=64, scales=(10.0, 14.0))
        blocks = tuple(replace(block, features=4) for block in network.blocks)
        network = replace(network, input=(2, 64, 64), blocks=blocks)
    training = replace(
        config.training,
        steps=2,
        batch=2,
        window=10,
        warm_up=5,
        pretrain=replace(config.training.pretrain, steps=2 if config.training.pretrain.steps else 0, batch=4),
    )
    return replace(
        config, network=network, training=training, data=replace(config.data, clips=5, shapes=shapes)
    )


def in_double(network: Network) -> Network:
    """The network in float64, with the very rates that it has in float32: those are what is exported."""
    leaky = [module for module in network.body.children() if isinstance(module, LI)]
    rates = [neuron.rate.detach().double() for neuron in leaky]
    network.double()
    for neuron, rate in zip(leaky, rates, strict=True):
        neuron.log_steps.data = -rate.log()
    return network


def norse_run(network: Network, frames: Tensor) -> dict[str, np.ndarray]:
    """Outputs of every population with Norse's own cells, step by step; ours where Norse has none."""
    cells = {name: cell(module) for name, module in network.body.named_children() if isinstance(module, LI)}
    states: dict[str, object] = {}
    found: dict[str, list[np.ndarray]] = {}

    def fire(name: str, neuron: Neuron, drive: Tensor) -> Tensor:
        if name in cells:
            output, states[name] = cells[name](drive[0], states.get(name))
            output = output[None]
        else:
            output, states[name] = neuron(drive, states.get(name))
        found.setdefault(name, []).append(output[0, 0].numpy())
        return output

    with torch.no_grad():
        for frame in frames:
            network.body.walk(frame[None, None], fire)
    return {name: np.array(steps) for name, steps in found.items()}


def test_the_published_network_trains_and_says_why_it_is_not_exported(tmp_path: Path) -> None:
    train(small(load_preset("paper-code")), tmp_path / "run")
    with pytest.raises(InputError) as refused:
        from_checkpoint(tmp_path / "run")
    assert "NIR has no max-pooling" in str(refused.value)
    assert "NIR has no transposed convolution" in str(refused.value)


@pytest.mark.parametrize("name", EXPORTED)
def test_a_preset_survives_export_and_a_new_process(name: str, folder: Path) -> None:
    network = in_double(checkpoint.read(folder / name).network())
    total = 0
    for number, frames in enumerate(np.load(folder / name / "clips.npz")["clips"]):
        recording = Recording.load(folder / name / f"{number}.npz")
        expected = norse_run(network, torch.as_tensor(frames).double())
        assert set(recording.nodes) == set(expected)
        for node in recording.spikes:
            np.testing.assert_array_equal(recording.dense(node), expected[node], err_msg=f"{number} {node}")
            total += int(expected[node].sum())
        if "out" not in recording.spikes:
            np.testing.assert_allclose(recording.membrane("out"), expected["out"], atol=1e-6)
        found = network.coordinates(torch.as_tensor(expected["out"])[:, None])[0][:, 0]
        np.testing.assert_allclose(recording.coordinates, found.numpy(), atol=1e-4)  # pixels
    assert total > 0


def test_the_file_says_where_it_comes_from(folder: Path) -> None:
    graph = read_graph(folder / "tiny" / "model.nir")
    assert graph.metadata["preset"] == "tiny"
    assert json.loads(graph.metadata["training"])["error"] > 0
    assert graph.metadata["checksum"] == graph.checksum
    assert graph.contract.readout == checkpoint.read(folder / "tiny").network().readout
    assert graph.nodes["lif1_1"].tau.shape == graph.shapes["lif1_1"]
