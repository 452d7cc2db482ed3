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
from pathlib import Path
from typing import Any

import nir
import numpy as np
import sinabs.layers as sl
import torch
from sinabs.activation import MaxSpike, MembraneReset, SingleSpike
from sinabs.nir import to_nir
from torch import nn
from witness import RATES, draw_input, generator, main, save
from witness_torch import Built, conv, dense, round_weights, synapses, tune, uniform

FLOOR = -0.1  # min_v_mem of the cases "floor"; not in the file
TAU_SYN = 3.0  # of the cases "synaptic"; not in the file
MOST_SPIKES = 2  # of the cases "max_spike"; not in the file


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


pooled = partial(conv, pool=sl.SumPool2d(2), spiking=sl.LIF)

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
    "conv_iaf_default": partial(pooled, neuron=iaf),
    "conv_iaf_threshold": partial(pooled, neuron=partial(iaf, threshold="layer")),
    "conv_iaf_single_spike": partial(pooled, neuron=partial(iaf, **SINGLE)),
    "conv_iaf_floor": partial(pooled, neuron=partial(iaf, **BOUND)),
    "lif_default": partial(dense, neuron=lif),
    "lif_threshold": partial(dense, neuron=partial(lif, threshold="layer")),
    "lif_each": partial(dense, neuron=partial(lif, each=True)),
    "lif_unnormalised": partial(dense, neuron=partial(lif, norm_input=False)),
    "lif_single_spike": partial(dense, neuron=partial(lif, **SINGLE)),
    "lif_reset_zero": partial(dense, neuron=partial(lif, **ZERO)),
    "lif_single_spike_reset_zero": partial(dense, neuron=partial(lif, **SINGLE, **ZERO)),
    "lif_floor": partial(dense, neuron=partial(lif, **BOUND)),
    "lif_synaptic": partial(dense, neuron=partial(lif, **SYNAPSE)),
    "conv_lif_each": partial(pooled, neuron=partial(lif, each=True)),
    "conv_lif_each_unnormalised": partial(pooled, neuron=partial(lif, each=True, norm_input=False)),
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
        # rounded to the float32 of the file each time
        tune(lambda: run(network.float().double(), frames), synapses(network.double()), rng.uniform(*RATES))
        if case.endswith("ties"):
            round_weights(synapses(network))
        graph = export(network.float(), shape)
        spikes = run(network.double(), frames)
    nir.write(folder / f"{case}_{seed}.nir", graph)
    save(folder / f"{case}_{seed}.npz", frames, spikes)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(make, CASES, ("sinabs", "torch", "nir", "nirtorch", "numpy"))
