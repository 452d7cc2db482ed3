"""Random SpikingJelly networks, their NIR export and the spikes SpikingJelly itself computes for them.

The file is written as SpikingJelly's documentation shows, from a network in multi-step mode:

    from spikingjelly.activation_based.nir_exchange.to_nir import export_to_nir
    graph = export_to_nir(network, torch.zeros(1, 1, *shape))
    nir.write("network.nir", graph, compression=None)

(uncompressed, because compressing many small arrays one by one makes the file larger). SpikingJelly refuses
to export soft reset (`v_reset=None`), grouped convolutions and recurrent containers. Everything is in
float64.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import nir
import numpy as np
import torch
from spikingjelly.activation_based import functional, layer, neuron
from spikingjelly.activation_based.nir_exchange.to_nir import export_to_nir
from torch import nn
from witness import RATES, draw_input, generator, main, save
from witness_torch import Built, Neuron, dense, round_weights, synapses, tune, weighted

Random = np.random.Generator
Range = tuple[float, float]
Shape = tuple[int, ...]


def if_node(rng: Random, _: Shape = (), **ranges: Range) -> nn.Module:
    """IFNode: v = v + x; z = v >= v_threshold; v = v_reset where z = 1; v starts at v_reset."""
    return neuron.IFNode(**_draw(rng, ranges))


def lif_node(rng: Random, _: Shape = (), decay_input: bool = True, **ranges: Range) -> nn.Module:
    """LIFNode: v = v + (x - (v - v_reset)) / tau; without `decay_input` v = v - (v - v_reset) / tau + x.

    Spike, reset and start as IFNode.
    """
    return neuron.LIFNode(decay_input=decay_input, **_draw(rng, ranges))


def plif_node(rng: Random, _: Shape = (), decay_input: bool = True, **ranges: Range) -> nn.Module:
    """ParametricLIFNode: as LIFNode with 1 / tau = sigmoid(w)."""
    return neuron.ParametricLIFNode(decay_input=decay_input, **_draw(rng, ranges)).double()


def cuba_node(rng: Random, _: Shape = (), **ranges: Range) -> nn.Module:
    """CUBALIFNode: i = c_decay i + x; v = v_decay v + i; z = v >= v_threshold; v = v_reset where z = 1."""
    return neuron.CUBALIFNode(**_draw(rng, ranges))


def _draw(rng: Random, ranges: dict[str, Range]) -> dict[str, float]:
    return {name: float(rng.uniform(*limits)) for name, limits in ranges.items()}


full = partial(dense, linear=layer.Linear)


def conv(rng: Random, node: Neuron) -> Built:
    """Convolution, average pooling, convolution and a fully connected layer, on 2 maps of 10 x 10."""
    stride, padding = int(rng.integers(1, 3)), int(rng.integers(0, 2))
    first = weighted(rng, layer.Conv2d(2, 3, 3, stride=stride, padding=padding, bias=bool(rng.integers(2))))
    modules: list[nn.Module] = [first, node(rng)]
    if stride == 1:
        modules += [layer.AvgPool2d(2)]
    modules += [weighted(rng, layer.Conv2d(3, 3, 3, padding=1)), node(rng), layer.Flatten()]
    features = nn.Sequential(*modules)(torch.zeros(1, 2, 10, 10)).shape[1]
    modules += [weighted(rng, layer.Linear(features, 5)), node(rng)]
    return nn.Sequential(*modules), (2, 10, 10)


TAU: dict[str, Any] = {"tau": (1.2, 8.0)}
INIT_TAU: dict[str, Any] = {"init_tau": (1.2, 8.0)}
THRESHOLD: dict[str, Any] = {"v_threshold": (0.4, 1.6)}
RESET: dict[str, Any] = {"v_reset": (-0.4, 0.1)}
DECAYS: dict[str, Any] = {"c_decay": (0.1, 0.9), "v_decay": (0.3, 0.95)}

CASES: dict[str, Callable[[Random], Built]] = {
    "if_default": partial(full, neuron=if_node),
    "if_threshold": partial(full, neuron=partial(if_node, **THRESHOLD)),
    "if_ties": partial(full, neuron=if_node),
    "if_v_reset": partial(full, neuron=partial(if_node, **THRESHOLD, **RESET)),
    "conv_if_default": partial(conv, node=if_node),
    "lif_default": partial(full, neuron=lif_node),
    "lif_tau": partial(full, neuron=partial(lif_node, **TAU, **THRESHOLD)),
    "lif_v_reset": partial(full, neuron=partial(lif_node, **TAU, **RESET)),
    "lif_no_decay_input": partial(full, neuron=partial(lif_node, decay_input=False, **TAU)),
    "lif_no_decay_input_v_reset": partial(full, neuron=partial(lif_node, decay_input=False, **TAU, **RESET)),
    "conv_lif_default": partial(conv, node=lif_node),
    "conv_lif_v_reset": partial(conv, node=partial(lif_node, **TAU, **RESET)),
    "plif_default": partial(full, neuron=plif_node),
    "plif_tau": partial(full, neuron=partial(plif_node, **INIT_TAU, **THRESHOLD)),
    "plif_no_decay_input": partial(full, neuron=partial(plif_node, decay_input=False, **INIT_TAU)),
    "cuba_default": partial(full, neuron=cuba_node),
    "cuba_decays": partial(full, neuron=partial(cuba_node, **DECAYS, **THRESHOLD)),
    "cuba_v_reset": partial(full, neuron=partial(cuba_node, **DECAYS, **RESET)),
    "conv_cuba_default": partial(conv, node=cuba_node),
}


def run(network: nn.Sequential, frames: np.ndarray) -> dict[str, np.ndarray]:
    """Spikes of every spiking layer, under the names that the exporter gives them ("_1" for "1")."""
    functional.reset_net(network)
    record = {}
    value = torch.from_numpy(frames).double()[:, None]
    for name, module in network.named_children():
        value = module(value)
        if isinstance(module, neuron.BaseNode):
            record[f"_{name}"] = value[:, 0].numpy().astype(np.uint8)
    return record


def make(case: str, seed: int, folder: Path) -> None:
    """Write `<case>_<seed>.nir` and `<case>_<seed>.npz`."""
    torch.set_default_dtype(torch.float64)
    rng = generator(CASES, case, seed)
    with torch.no_grad():
        network, shape = CASES[case](rng)
        functional.reset_net(network)
        functional.set_step_mode(network, "m")
        frames = draw_input(rng, shape)
        spikes = tune(lambda: run(network, frames), synapses(network), rng.uniform(*RATES))
        if case.endswith("ties"):
            round_weights(synapses(network))
            spikes = run(network, frames)
        graph = export_to_nir(network, torch.zeros(1, 1, *shape))
    nir.write(folder / f"{case}_{seed}.nir", graph, compression=None)
    save(folder / f"{case}_{seed}.npz", frames, spikes)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(make, CASES, ("spikingjelly", "torch", "nir", "nirtorch", "numpy"))
