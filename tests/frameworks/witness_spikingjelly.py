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
from itertools import pairwise
from pathlib import Path
from typing import Any

import nir
import numpy as np
import torch
from spikingjelly.activation_based import functional, layer, neuron
from spikingjelly.activation_based.nir_exchange.to_nir import export_to_nir
from torch import nn
from witness import RATES, SPREAD, TRIALS, draw_input, generator, main, save

Built = tuple[nn.Sequential, tuple[int, ...]]
Neuron = Callable[[np.random.Generator], nn.Module]


def uniform(rng: np.random.Generator, low: float, high: float, shape: tuple[int, ...]) -> torch.Tensor:
    """Random numbers as a float64 tensor."""
    return torch.from_numpy(np.asarray(rng.uniform(low, high, shape)))


def if_node(rng: np.random.Generator, **ranges: tuple[float, float]) -> nn.Module:
    """IFNode: v = v + x; z = v >= v_threshold; v = v_reset where z = 1; v starts at v_reset."""
    return neuron.IFNode(**_draw(rng, ranges))


def lif_node(rng: np.random.Generator, decay_input: bool = True, **ranges: tuple[float, float]) -> nn.Module:
    """LIFNode: v = v + (x - (v - v_reset)) / tau; without `decay_input` v = v - (v - v_reset) / tau + x.

    Spike, reset and start as IFNode.
    """
    return neuron.LIFNode(decay_input=decay_input, **_draw(rng, ranges))


def plif_node(rng: np.random.Generator, decay_input: bool = True, **ranges: tuple[float, float]) -> nn.Module:
    """ParametricLIFNode: as LIFNode with 1 / tau = sigmoid(w)."""
    return neuron.ParametricLIFNode(decay_input=decay_input, **_draw(rng, ranges)).double()


def cuba_node(rng: np.random.Generator, **ranges: tuple[float, float]) -> nn.Module:
    """CUBALIFNode: i = c_decay i + x; v = v_decay v + i; z = v >= v_threshold; v = v_reset where z = 1."""
    return neuron.CUBALIFNode(**_draw(rng, ranges))


def _draw(rng: np.random.Generator, ranges: dict[str, tuple[float, float]]) -> dict[str, float]:
    return {name: float(rng.uniform(*limits)) for name, limits in ranges.items()}


def _weights(rng: np.random.Generator, module: Any) -> Any:
    """Random weights, more excitation than inhibition, and small biases."""
    fan = module.weight[0].numel()
    module.weight.data = uniform(rng, -1, 2, tuple(module.weight.shape)) / np.sqrt(fan)
    if module.bias is not None:
        module.bias.data = uniform(rng, -0.1, 0.1, tuple(module.bias.shape))
    return module


def dense(rng: np.random.Generator, node: Neuron) -> Built:
    """Two or three fully connected layers."""
    sizes = rng.integers(6, 16, rng.integers(3, 5)).tolist()
    modules: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        modules += [_weights(rng, layer.Linear(inputs, outputs, bias=bool(rng.integers(2)))), node(rng)]
    return nn.Sequential(*modules), (sizes[0],)


def conv(rng: np.random.Generator, node: Neuron) -> Built:
    """Convolution, average pooling, convolution and a fully connected layer, on 2 maps of 10 x 10."""
    stride, padding = int(rng.integers(1, 3)), int(rng.integers(0, 2))
    first = _weights(rng, layer.Conv2d(2, 3, 3, stride=stride, padding=padding, bias=bool(rng.integers(2))))
    modules: list[nn.Module] = [first, node(rng)]
    if stride == 1:
        modules += [layer.AvgPool2d(2)]
    modules += [_weights(rng, layer.Conv2d(3, 3, 3, padding=1)), node(rng), layer.Flatten()]
    features = nn.Sequential(*modules)(torch.zeros(1, 2, 10, 10)).shape[1]
    modules += [_weights(rng, layer.Linear(features, 5)), node(rng)]
    return nn.Sequential(*modules), (2, 10, 10)


TAU: dict[str, Any] = {"tau": (1.2, 8.0)}
INIT_TAU: dict[str, Any] = {"init_tau": (1.2, 8.0)}
THRESHOLD: dict[str, Any] = {"v_threshold": (0.4, 1.6)}
RESET: dict[str, Any] = {"v_reset": (-0.4, 0.1)}
DECAYS: dict[str, Any] = {"c_decay": (0.1, 0.9), "v_decay": (0.3, 0.95)}

CASES: dict[str, Callable[[np.random.Generator], Built]] = {
    "if_default": partial(dense, node=if_node),
    "if_threshold": partial(dense, node=partial(if_node, **THRESHOLD)),
    "if_ties": partial(dense, node=if_node),
    "if_v_reset": partial(dense, node=partial(if_node, **THRESHOLD, **RESET)),
    "conv_if_default": partial(conv, node=if_node),
    "lif_default": partial(dense, node=lif_node),
    "lif_tau": partial(dense, node=partial(lif_node, **TAU, **THRESHOLD)),
    "lif_v_reset": partial(dense, node=partial(lif_node, **TAU, **RESET)),
    "lif_no_decay_input": partial(dense, node=partial(lif_node, decay_input=False, **TAU)),
    "lif_no_decay_input_v_reset": partial(dense, node=partial(lif_node, decay_input=False, **TAU, **RESET)),
    "conv_lif_default": partial(conv, node=lif_node),
    "conv_lif_v_reset": partial(conv, node=partial(lif_node, **TAU, **RESET)),
    "plif_default": partial(dense, node=plif_node),
    "plif_tau": partial(dense, node=partial(plif_node, **INIT_TAU, **THRESHOLD)),
    "plif_no_decay_input": partial(dense, node=partial(plif_node, decay_input=False, **INIT_TAU)),
    "cuba_default": partial(dense, node=cuba_node),
    "cuba_decays": partial(dense, node=partial(cuba_node, **DECAYS, **THRESHOLD)),
    "cuba_v_reset": partial(dense, node=partial(cuba_node, **DECAYS, **RESET)),
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


def tune(network: nn.Sequential, frames: np.ndarray, least: float) -> dict[str, np.ndarray]:
    """Scale the weights, first layer first, until all rates are from `least` to SPREAD times that."""
    weighted = [module for module in network if isinstance(module, nn.Linear | nn.Conv2d)]
    for _ in range(TRIALS):
        spikes = run(network, frames)
        for module, counts in zip(weighted, spikes.values(), strict=True):
            if not least <= counts.mean() <= SPREAD * least:
                module.weight.data *= 1.25 if counts.mean() < least else 0.85
                if module.bias is not None and counts.mean() > least:
                    module.bias.data *= 0.85
                break
        else:
            return spikes
    raise ValueError("no weights found with which every layer fires")


def round_weights(network: nn.Sequential, frames: np.ndarray) -> dict[str, np.ndarray]:
    """Round the weights to multiples of 1/16: membranes meet the threshold exactly. The new spikes."""
    for parameter in network.parameters():
        parameter.data = torch.round(16 * parameter.data) / 16
    return run(network, frames)


def make(case: str, seed: int, folder: Path) -> None:
    """Write `<case>_<seed>.nir` and `<case>_<seed>.npz`."""
    torch.set_default_dtype(torch.float64)
    rng = generator(CASES, case, seed)
    with torch.no_grad():
        network, shape = CASES[case](rng)
        functional.reset_net(network)
        functional.set_step_mode(network, "m")
        frames = draw_input(rng, shape)
        spikes = tune(network, frames, rng.uniform(*RATES))
        if case.endswith("ties"):
            spikes = round_weights(network, frames)
        graph = export_to_nir(network, torch.zeros(1, 1, *shape))
    nir.write(folder / f"{case}_{seed}.nir", graph, compression=None)
    save(folder / f"{case}_{seed}.npz", frames, spikes)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(make, CASES, ("spikingjelly", "torch", "nir", "nirtorch", "numpy"))
