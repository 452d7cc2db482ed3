"""Random Rockpool networks, their NIR export and the spikes Rockpool itself computes for them.

The file is written as Rockpool's documentation shows, in float32:

    graph = rockpool.nn.modules.torch.nir.to_nir(network)
    nir.write("network.nir", graph, compression=None)

(uncompressed, because compressing many small arrays one by one makes the file larger). Rockpool has no
convolutions; it exports a recurrent LIFTorch without its recurrent weights, so there is no such case here.
The network runs in float64 on the very numbers that are in the file; Rockpool's spike function returns
float32 whatever it is given, so it is wrapped to return the dtype of its input.
"""

import warnings
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import nir
import numpy as np
import torch
from rockpool.nn.combinators import Sequential
from rockpool.nn.modules.torch import LIFNeuronTorch, LIFTorch, LinearTorch
from rockpool.nn.modules.torch.lif_torch import StepPWL
from rockpool.nn.modules.torch.nir import to_nir
from witness import RATES, SPREAD, TRIALS, draw_input, generator, main, save

BIAS = 0.02  # of the cases "bias"; not in the file
SLOW_DT = 0.002  # of the cases "dt"; in the file only through r

Built = tuple[torch.nn.Module, tuple[int, ...]]
Neuron = Callable[..., torch.nn.Module]


class StepSameDtype(StepPWL):
    """Rockpool's default spike function, z = floor(v / thr) where v >= thr, in the dtype of v."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *args: torch.Tensor) -> torch.Tensor:
        """Spike counts."""
        return StepPWL.forward(ctx, x, *args).to(x.dtype)


def uniform(rng: np.random.Generator, low: float, high: float, shape: tuple[int, ...]) -> torch.Tensor:
    """Random numbers as a float32 tensor."""
    return torch.from_numpy(np.asarray(rng.uniform(low, high, shape), np.float32))


def lif(rng: np.random.Generator, size: int, each: bool = False, **options: Any) -> torch.nn.Module:
    """LIFTorch: i = b (i + x); v = a v + i + bias; z = floor(v / thr) where v >= thr, else 0; v = v - z thr.

    a = exp(-dt / tau_mem), b = exp(-dt / tau_syn); z is at most `max_spikes_per_dt` (default 65536).
    """
    if each:
        options["tau_mem"] = uniform(rng, 0.002, 0.03, (size,))
        options["tau_syn"] = uniform(rng, 0.002, 0.03, (size, 1))
        options["threshold"] = uniform(rng, 0.5, 1.5, (size,))
    return LIFTorch(size, spike_generation_fn=StepSameDtype, **options)


def lif_neuron(rng: np.random.Generator, size: int, each: bool = False, **options: Any) -> torch.nn.Module:
    """LIFNeuronTorch: v = a v + x + bias with a = exp(-dt / tau_mem), the rest as LIFTorch."""
    if each:
        options["tau_mem"] = uniform(rng, 0.002, 0.03, (size,))
        options["threshold"] = uniform(rng, 0.5, 1.5, (size,))
    return LIFNeuronTorch(size, spike_generation_fn=StepSameDtype, **options)


def decays(rng: np.random.Generator, size: int) -> torch.nn.Module:
    """LIFTorch with trained decays a and b in place of time constants."""
    alpha, beta = uniform(rng, 0.5, 0.97, (size,)), uniform(rng, 0.3, 0.95, (size, 1))
    neuron = LIFTorch(size, leak_mode="decays", spike_generation_fn=StepSameDtype)
    neuron.alpha.data, neuron.beta.data = alpha, beta
    return neuron


def bitshifts(rng: np.random.Generator, size: int) -> torch.nn.Module:
    """LIFTorch with decays a = 1 - 2^-dash_mem and b = 1 - 2^-dash_syn, as on Xylo."""
    neuron = LIFTorch(size, leak_mode="bitshifts", spike_generation_fn=StepSameDtype)
    neuron.dash_mem.data = torch.from_numpy(rng.integers(1, 6, size).astype(np.float32))
    neuron.dash_syn.data = torch.from_numpy(rng.integers(1, 6, (size, 1)).astype(np.float32))
    return neuron


def dense(rng: np.random.Generator, neuron: Neuron) -> Built:
    """Two or three fully connected layers."""
    sizes = rng.integers(6, 16, rng.integers(3, 5)).tolist()
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [_linear(rng, inputs, outputs), neuron(rng, outputs)]
    return Sequential(*layers), (sizes[0],)


def _linear(rng: np.random.Generator, inputs: int, outputs: int) -> torch.nn.Module:
    """Random weights, more excitation than inhibition, and for half of the layers small biases."""
    weight = uniform(rng, -1, 2, (inputs, outputs)) / float(np.sqrt(inputs))
    if rng.integers(2):
        return LinearTorch((inputs, outputs), weight=weight)
    return LinearTorch(
        (inputs, outputs), weight=weight, bias=uniform(rng, -0.03, 0.03, (outputs,)), has_bias=True
    )


ONE: dict[str, Any] = {"max_spikes_per_dt": torch.tensor(1.0)}

CASES: dict[str, Callable[[np.random.Generator], Built]] = {
    "lif_default": partial(dense, neuron=lif),
    "lif_each": partial(dense, neuron=partial(lif, each=True)),
    "lif_single_spike": partial(dense, neuron=partial(lif, each=True, **ONE)),
    "lif_dt": partial(dense, neuron=partial(lif, each=True, dt=SLOW_DT)),
    "lif_bias": partial(dense, neuron=partial(lif, each=True, bias=BIAS)),
    "lif_decays": partial(dense, neuron=decays),
    "lif_bitshifts": partial(dense, neuron=bitshifts),
    "lif_neuron_default": partial(dense, neuron=lif_neuron),
    "lif_neuron_ties": partial(dense, neuron=partial(lif_neuron, tau_mem=2e-5)),
    "lif_neuron_each": partial(dense, neuron=partial(lif_neuron, each=True)),
    "lif_neuron_single_spike": partial(dense, neuron=partial(lif_neuron, each=True, **ONE)),
    "lif_neuron_dt": partial(dense, neuron=partial(lif_neuron, each=True, dt=SLOW_DT)),
    "lif_neuron_bias": partial(dense, neuron=partial(lif_neuron, each=True, bias=BIAS)),
}


def run(network: torch.nn.Module, frames: np.ndarray) -> dict[str, np.ndarray]:
    """Spike counts of every spiking layer; the network must be in float64."""
    network.reset_state()
    network.double()
    _, _, record = network(torch.from_numpy(frames).double()[None], record=True)
    neurons = [name for name, layer in network.named_children() if not isinstance(layer, LinearTorch)]
    return {name: record[f"{name}_output"][0].numpy().astype(np.uint8) for name in neurons}


def tune(network: torch.nn.Module, frames: np.ndarray, least: float) -> None:
    """Scale the weights, first layer first, until all rates are from `least` to SPREAD times that.

    All numbers stay representable in float32, in which the network is exported.
    """
    value = torch.from_numpy(frames).double()[None]
    layers = list(network.children())
    for weights, neuron in zip(layers[::2], layers[1::2], strict=True):
        for _ in range(TRIALS):
            neuron.reset_state()
            network.double()
            spikes, _, _ = neuron(weights(value)[0])
            rate = float(spikes.mean())
            if least <= rate <= SPREAD * least:
                break
            weights.weight.data *= 1.25 if rate < least else 0.85
            if weights.bias is not None and rate > least:
                weights.bias.data *= 0.85
            network.float()
        else:
            raise ValueError("no weights found with which every layer fires")
        value = spikes


def round_weights(network: torch.nn.Module) -> None:
    """Round the weights to multiples of 1/16: membranes without memory meet the threshold exactly."""
    for layer in network.children():
        if isinstance(layer, LinearTorch):
            for parameter in layer.parameters().values():
                parameter.data = torch.round(16 * parameter.data) / 16


def make(case: str, seed: int, folder: Path) -> None:
    """Write `<case>_<seed>.nir` and `<case>_<seed>.npz`."""
    rng = generator(CASES, case, seed)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nirtorch announces that its extract_nir_graph will go
        network, shape = CASES[case](rng)
        frames = draw_input(rng, shape)
        torch.set_default_dtype(torch.float64)
        tune(network, frames, rng.uniform(*RATES))
        if case.endswith("ties"):
            round_weights(network)
        spikes = run(network, frames)
        torch.set_default_dtype(torch.float32)
        network.reset_state()
        graph = to_nir(network.float())
    nir.write(folder / f"{case}_{seed}.nir", graph, compression=None)
    save(folder / f"{case}_{seed}.npz", frames, spikes)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(make, CASES, ("rockpool", "torch", "nir", "nirtorch", "numpy"))
