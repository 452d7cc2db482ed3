"""Random Sinabs networks, their NIR export and the spikes Sinabs itself computes for them.

The file is written as Sinabs' documentation shows, in float32; the sample is (batch x time, *shape):

    graph = sinabs.nir.to_nir(network, torch.zeros(1, *shape))
    graph.infer_types()  # only with convolutions: nir.write refuses the shapes that to_nir leaves open
    nir.write("network.nir", graph)

The layers are the `Squeeze` ones: with `IAF` and `LIF` the time axis ends up in the shapes of the file.
Sinabs exports no recurrent layers. The network runs in float64 on the very numbers that are in the file.
"""

import contextlib
import sys
import warnings
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import nir
import numpy as np
import sinabs.layers as sl
import torch
from sinabs.activation import MaxSpike, MembraneReset, SingleSpike
from sinabs.nir import to_nir
from torch import nn
from witness import RATES, SPREAD, TRIALS, draw_input, generator, main, save

FLOOR = -0.1  # min_v_mem of the cases "floor"; not in the file
TAU_SYN = 3.0  # of the cases "synaptic"; not in the file
MOST_SPIKES = 2  # of the cases "max_spike"; not in the file

Built = tuple[nn.Sequential, tuple[int, ...]]
Neuron = Callable[..., nn.Module]


def uniform(rng: np.random.Generator, low: float, high: float, shape: tuple[int, ...]) -> torch.Tensor:
    """Random numbers as a float32 tensor."""
    return torch.from_numpy(np.asarray(rng.uniform(low, high, shape), np.float32))


def iaf(rng: np.random.Generator, shape: tuple[int, ...], threshold: str = "", **options: Any) -> nn.Module:
    """IAF: v = v + x; z = trunc(v / thr) where v > 0, else 0; v = v - z thr; v = max(v, min_v_mem).

    `SingleSpike`: z = v >= thr. `MaxSpike(n)`: z = min(z, n). `MembraneReset`: v = 0 where z > 0.
    `tau_syn`: i = a (i + x), v = v + i with a = exp(-1 / tau_syn).
    """
    return sl.IAFSqueeze(batch_size=1, spike_threshold=_threshold(rng, shape, threshold), **options)


def lif(rng: np.random.Generator, shape: tuple[int, ...], each: bool = False, **options: Any) -> nn.Module:
    """LIF: v = a v + (1 - a) x with a = exp(-1 / tau_mem), the rest as IAF. `norm_input=False`: v = a v + x.

    `tau_syn`: b = exp(-1 / tau_syn), i = b (i + x), v = a v + (1 - a) i.
    """
    tau = uniform(rng, 2, 20, shape if each else ())
    threshold = _threshold(rng, shape, "each" if each else options.pop("threshold", ""))
    return sl.LIFSqueeze(tau_mem=tau, batch_size=1, spike_threshold=threshold, **options)


def _threshold(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> torch.Tensor:
    """1, one random threshold for the layer, or one for each neuron.

    Sinabs multiplies single-precision counts with the threshold of a layer: multiples of 1/64 stay exact.
    """
    if kind == "each":
        return uniform(rng, 0.4, 1.6, shape)
    return torch.tensor(int(rng.integers(26, 102)) / 64 if kind == "layer" else 1.0)


def _weights(rng: np.random.Generator, layer: Any) -> Any:
    """Random weights, more excitation than inhibition, and small biases."""
    fan = layer.weight[0].numel()
    layer.weight.data = uniform(rng, -1, 2, tuple(layer.weight.shape)) / float(np.sqrt(fan))
    if layer.bias is not None:
        layer.bias.data = uniform(rng, -0.1, 0.1, tuple(layer.bias.shape))
    return layer


def dense(rng: np.random.Generator, neuron: Neuron) -> Built:
    """Two or three fully connected layers."""
    sizes = rng.integers(6, 16, rng.integers(3, 5)).tolist()
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [
            _weights(rng, nn.Linear(inputs, outputs, bias=bool(rng.integers(2)))),
            neuron(rng, (outputs,)),
        ]
    return nn.Sequential(*layers), (sizes[0],)


def conv(rng: np.random.Generator, neuron: Neuron) -> Built:
    """Convolution, sum pooling, convolution and a fully connected layer, on 2 maps of 10 x 10."""
    stride, padding = int(rng.integers(1, 3)), int(rng.integers(0, 2))
    first = _weights(rng, nn.Conv2d(2, 3, 3, stride=stride, padding=padding, bias=bool(rng.integers(2))))
    groups = int(rng.choice([1, 3]))
    layers: list[nn.Module] = [first, neuron(rng, _shape([first]))]
    if stride == 1:
        layers += [sl.SumPool2d(2)]
    layers += [_weights(rng, nn.Conv2d(3, 3, 3, padding=1, groups=groups))]
    layers += [neuron(rng, _shape(layers)), nn.Flatten()]
    layers += [_weights(rng, nn.Linear(_shape(layers)[0], 5)), neuron(rng, (5,))]
    return nn.Sequential(*layers), (2, 10, 10)


def _shape(layers: list[nn.Module]) -> tuple[int, ...]:
    """Output shape, without time, of layers on 2 maps of 10 x 10."""
    value = torch.zeros(1, 2, 10, 10)
    for layer in layers:
        value = value if isinstance(layer, sl.LIF) else layer(value)
    return tuple(value.shape[1:])


SINGLE: dict[str, Any] = {"spike_fn": SingleSpike}
MOST: dict[str, Any] = {"spike_fn": MaxSpike(MOST_SPIKES)}
ZERO: dict[str, Any] = {"reset_fn": MembraneReset()}
BOUND: dict[str, Any] = {"min_v_mem": FLOOR}
SYNAPSE: dict[str, Any] = {"tau_syn": TAU_SYN}

CASES: dict[str, Callable[[np.random.Generator], Built]] = {
    "iaf_default": partial(dense, neuron=iaf),
    "iaf_ties": partial(dense, neuron=iaf),
    "iaf_single_spike_ties": partial(dense, neuron=partial(iaf, **SINGLE)),
    "iaf_threshold": partial(dense, neuron=partial(iaf, threshold="layer")),
    "iaf_threshold_each": partial(dense, neuron=partial(iaf, threshold="each")),
    "iaf_single_spike": partial(dense, neuron=partial(iaf, **SINGLE)),
    "iaf_max_spike": partial(dense, neuron=partial(iaf, **MOST)),
    "iaf_reset_zero": partial(dense, neuron=partial(iaf, **ZERO)),
    "iaf_single_spike_reset_zero": partial(dense, neuron=partial(iaf, **SINGLE, **ZERO)),
    "iaf_floor": partial(dense, neuron=partial(iaf, **BOUND)),
    "iaf_synaptic": partial(dense, neuron=partial(iaf, **SYNAPSE)),
    "conv_iaf_default": partial(conv, neuron=iaf),
    "conv_iaf_threshold": partial(conv, neuron=partial(iaf, threshold="layer")),
    "conv_iaf_single_spike": partial(conv, neuron=partial(iaf, **SINGLE)),
    "conv_iaf_floor": partial(conv, neuron=partial(iaf, **BOUND)),
    "lif_default": partial(dense, neuron=lif),
    "lif_threshold": partial(dense, neuron=partial(lif, threshold="layer")),
    "lif_each": partial(dense, neuron=partial(lif, each=True)),
    "lif_unnormalised": partial(dense, neuron=partial(lif, norm_input=False)),
    "lif_single_spike": partial(dense, neuron=partial(lif, **SINGLE)),
    "lif_reset_zero": partial(dense, neuron=partial(lif, **ZERO)),
    "lif_single_spike_reset_zero": partial(dense, neuron=partial(lif, **SINGLE, **ZERO)),
    "lif_floor": partial(dense, neuron=partial(lif, **BOUND)),
    "lif_synaptic": partial(dense, neuron=partial(lif, **SYNAPSE)),
    "conv_lif_each": partial(conv, neuron=partial(lif, each=True)),
    "conv_lif_each_unnormalised": partial(conv, neuron=partial(lif, each=True, norm_input=False)),
}


def run(network: nn.Sequential, frames: np.ndarray) -> dict[str, np.ndarray]:
    """Spike counts of every spiking layer; the network must be in float64.

    Sinabs returns single-precision counts: they are cast, layer by layer, for the next one.
    """
    record = {}
    value = torch.from_numpy(frames).double()
    for name, layer in network.named_children():
        if isinstance(layer, sl.LIF):
            layer.reset_states()
        value = layer(value).double()
        if isinstance(layer, sl.LIF):
            record[name] = value.numpy().astype(np.uint8)
    return record


def tune(network: nn.Sequential, frames: np.ndarray, least: float) -> None:
    """Scale the weights, first layer first, until all rates are from `least` to SPREAD times that.

    All numbers stay representable in float32, in which the network is exported.
    """
    weighted = [layer for layer in network if isinstance(layer, nn.Linear | nn.Conv2d)]
    for _ in range(TRIALS):
        for layer, counts in zip(weighted, run(network, frames).values(), strict=True):
            if not least <= counts.mean() <= SPREAD * least:
                layer.weight.data *= 1.25 if counts.mean() < least else 0.85
                if layer.bias is not None and counts.mean() > least:
                    layer.bias.data *= 0.85
                network.float().double()
                break
        else:
            return
    raise ValueError("no weights found with which every layer fires")


def round_weights(network: nn.Sequential) -> None:
    """Round the weights to multiples of 1/16: membranes meet the threshold exactly."""
    for layer in network:
        if isinstance(layer, nn.Linear):
            for parameter in layer.parameters():
                parameter.data = torch.round(16 * parameter.data) / 16


def export(network: nn.Sequential, shape: tuple[int, ...]) -> nir.NIRGraph:
    """The graph as a user writes it."""
    graph = to_nir(network, torch.zeros(1, *shape))
    if any(isinstance(layer, nn.Conv2d) for layer in network):
        with contextlib.redirect_stdout(sys.stderr):
            graph.infer_types()
    return graph


def make(case: str, seed: int, folder: Path) -> None:
    """Write `<case>_<seed>.nir` and `<case>_<seed>.npz`."""
    rng = generator(CASES, case, seed)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network, shape = CASES[case](rng)
        frames = draw_input(rng, shape)
        tune(network.double(), frames, rng.uniform(*RATES))
        if case.endswith("ties"):
            round_weights(network)
        graph = export(network.float(), shape)
        spikes = run(network.double(), frames)
    nir.write(folder / f"{case}_{seed}.nir", graph)
    save(folder / f"{case}_{seed}.npz", frames, spikes)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(make, CASES, ("sinabs", "torch", "nir", "nirtorch", "numpy"))
