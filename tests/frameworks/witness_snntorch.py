"""Random snnTorch networks, their NIR export and the spikes snnTorch itself computes for them.

The file is written as snnTorch's documentation shows, with one addition, `ignore_dims=[0]`, without which the
exporter of today fails on the batch axis:

    graph = snntorch.export_nir.export_to_nir(network, torch.zeros(1, *shape), ignore_dims=[0])
    nir.write("network.nir", graph, compression=None)

(uncompressed, because compressing many small arrays one by one makes the file larger).

Everything is in float64, in the cases "float32" in float32. snnTorch's surrogate functions return float32
whatever they are given, so the neurons get a spike function with the same values (1 where the membrane
exceeds the threshold) in the dtype of its input.
"""

import warnings
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import nir
import numpy as np
import snntorch
import torch
from snntorch.export_nir import export_to_nir
from torch import nn
from witness import RATES, draw_input, generator, main, save
from witness_torch import Built, Neuron, conv, round_weights, tune, uniform, weighted

RECURRENT = (snntorch.RLeaky, snntorch.RSynaptic)
SPIKING = (snntorch.Leaky, snntorch.Synaptic, *RECURRENT)


def heaviside(x: torch.Tensor) -> torch.Tensor:
    """1 where x > 0, as all surrogate functions of snnTorch, in the dtype of x."""
    return (x > 0).to(x.dtype)


def leaky(
    rng: np.random.Generator, shape: tuple[int, ...], beta: float | None = None, **options: Any
) -> nn.Module:
    """Leaky: v = beta v + x - R thr (subtract), beta (1 - R) v + x (zero), beta v + x (none); z = v > thr.

    With `reset_delay=False` the membrane is reset in the step of the spike: v - (z - R) thr or v - (z - R) v.
    """
    values = uniform(rng, 0.5, 0.97, shape) if beta is None else torch.full(shape, beta)
    return snntorch.Leaky(beta=values, **_options(shape, options))


def synaptic(rng: np.random.Generator, shape: tuple[int, ...], **options: Any) -> nn.Module:
    """Synaptic: i = alpha i + x; v = beta v + i - R thr, or (1 - R)(beta v + i) (zero); z = v > thr."""
    alpha, beta = uniform(rng, 0.2, 0.9, shape), uniform(rng, 0.5, 0.97, shape)
    return snntorch.Synaptic(alpha=alpha, beta=beta, **_options(shape, options))


def rleaky(rng: np.random.Generator, shape: tuple[int, ...], dense: bool = True, **options: Any) -> nn.Module:
    """RLeaky: u = beta v + x + W z[t-1]; v = u - R thr (subtract) or (1 - R) u (zero); z = v > thr."""
    options = _options(shape, options) | _recurrence(rng, shape, dense)
    return _draw_recurrent(rng, snntorch.RLeaky(beta=uniform(rng, 0.5, 0.97, shape), **options))


def rsynaptic(
    rng: np.random.Generator, shape: tuple[int, ...], dense: bool = True, **options: Any
) -> nn.Module:
    """RSynaptic: i = alpha i + x + W z[t-1]; the rest as Synaptic."""
    options = _options(shape, options) | _recurrence(rng, shape, dense)
    alpha, beta = uniform(rng, 0.2, 0.9, shape), uniform(rng, 0.5, 0.97, shape)
    return _draw_recurrent(rng, snntorch.RSynaptic(alpha=alpha, beta=beta, **options))


def _options(shape: tuple[int, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Options of all neurons: states kept inside; a threshold for each neuron, without which export fails."""
    threshold = torch.as_tensor(options.pop("threshold", 1.0)).expand(shape).clone()
    return {"threshold": threshold, "init_hidden": True, "spike_grad": heaviside, **options}


def _recurrence(rng: np.random.Generator, shape: tuple[int, ...], dense: bool) -> dict[str, Any]:
    if dense:
        return {"linear_features": shape[0]}
    return {"all_to_all": False, "V": uniform(rng, -0.5, 0.5, shape)}


def _draw_recurrent(rng: np.random.Generator, neuron: Any) -> Any:
    """Random recurrent weights from `rng` in place of torch's own."""
    for parameter in neuron.recurrent.parameters():
        scale = 1 / np.sqrt(parameter.shape[-1])
        parameter.data = uniform(rng, -scale, scale, tuple(parameter.shape))
    return neuron


def dense(rng: np.random.Generator, neuron: Neuron, thresholds: tuple[float, float] | None = None) -> Built:
    """Two or three fully connected layers."""
    sizes = rng.integers(6, 16, rng.integers(3, 5))
    layers = []
    for inputs, outputs in pairwise(sizes):
        shape = (int(outputs),)
        options = {} if thresholds is None else {"threshold": uniform(rng, *thresholds, shape)}
        layers += [weighted(rng, nn.Linear(int(inputs), *shape, bias=bool(rng.integers(2))))]
        layers += [neuron(rng, shape, **options)]
    return nn.Sequential(*layers), (int(sizes[0]),)


def mixed(rng: np.random.Generator) -> Built:
    """One layer of each kind, with different reset mechanisms."""
    kinds = [
        leaky,
        rsynaptic,
        partial(synaptic, reset_mechanism="zero"),
        partial(rleaky, reset_mechanism="none"),
    ]
    sizes = rng.integers(6, 14, len(kinds) + 1).tolist()
    layers: list[nn.Module] = []
    for index, (inputs, outputs) in zip(rng.permutation(len(kinds)), pairwise(sizes), strict=True):
        layers += [weighted(rng, nn.Linear(inputs, outputs)), kinds[index](rng, (outputs,))]
    return nn.Sequential(*layers), (sizes[0],)


pooled = partial(conv, pool=nn.AvgPool2d(2), spiking=SPIKING)
ZERO: dict[str, Any] = {"reset_mechanism": "zero"}
NONE: dict[str, Any] = {"reset_mechanism": "none"}
AT_ONCE: dict[str, Any] = {"reset_delay": False}

CASES: dict[str, Callable[[np.random.Generator], Built]] = {
    "leaky_default": partial(dense, neuron=leaky),
    "leaky_threshold": partial(dense, neuron=leaky, thresholds=(0.3, 2.0)),
    "leaky_reset_zero": partial(dense, neuron=partial(leaky, **ZERO)),
    "leaky_reset_none": partial(dense, neuron=partial(leaky, **NONE)),
    "leaky_at_once_subtract": partial(dense, neuron=partial(leaky, **AT_ONCE)),
    "leaky_at_once_zero": partial(dense, neuron=partial(leaky, **AT_ONCE, **ZERO)),
    "leaky_beta_one": partial(dense, neuron=partial(leaky, beta=1.0)),
    "leaky_beta_one_ties": partial(dense, neuron=partial(leaky, beta=1.0)),
    "leaky_float32": partial(dense, neuron=leaky),
    "leaky_beta_zero": partial(dense, neuron=partial(leaky, beta=0.0)),
    "conv_leaky_default": partial(pooled, neuron=leaky),
    "conv_leaky_reset_zero": partial(pooled, neuron=partial(leaky, **ZERO)),
    "conv_leaky_at_once_subtract": partial(pooled, neuron=partial(leaky, **AT_ONCE)),
    "synaptic_default": partial(dense, neuron=synaptic),
    "synaptic_threshold": partial(dense, neuron=synaptic, thresholds=(0.3, 2.0)),
    "synaptic_reset_zero": partial(dense, neuron=partial(synaptic, **ZERO)),
    "synaptic_reset_none": partial(dense, neuron=partial(synaptic, **NONE)),
    "synaptic_at_once_subtract": partial(dense, neuron=partial(synaptic, **AT_ONCE)),
    "synaptic_at_once_zero": partial(dense, neuron=partial(synaptic, **AT_ONCE, **ZERO)),
    "synaptic_float32": partial(dense, neuron=synaptic),
    "conv_synaptic_default": partial(pooled, neuron=synaptic),
    "rleaky_default": partial(dense, neuron=rleaky),
    "rleaky_one_to_one": partial(dense, neuron=partial(rleaky, dense=False)),
    "rleaky_reset_zero": partial(dense, neuron=partial(rleaky, **ZERO)),
    "rleaky_reset_none": partial(dense, neuron=partial(rleaky, **NONE)),
    "rleaky_at_once_subtract": partial(dense, neuron=partial(rleaky, **AT_ONCE)),
    "rleaky_at_once_zero": partial(dense, neuron=partial(rleaky, **AT_ONCE, **ZERO)),
    "rsynaptic_default": partial(dense, neuron=rsynaptic),
    "rsynaptic_one_to_one": partial(dense, neuron=partial(rsynaptic, dense=False)),
    "rsynaptic_threshold": partial(dense, neuron=rsynaptic, thresholds=(0.3, 2.0)),
    "rsynaptic_reset_zero": partial(dense, neuron=partial(rsynaptic, **ZERO)),
    "rsynaptic_reset_none": partial(dense, neuron=partial(rsynaptic, **NONE)),
    "mixed": mixed,
}


def run(network: nn.Sequential, frames: np.ndarray) -> dict[str, np.ndarray]:
    """Spikes of every spiking layer, under the names that the exporter gives them."""
    record: dict[str, list[np.ndarray]] = {}
    for layer in network:
        if isinstance(layer, SPIKING):
            layer.reset_mem()
    for frame in torch.from_numpy(frames).to(torch.get_default_dtype()):
        value = frame[None]
        for name, layer in network.named_children():
            value = layer(value)
            if isinstance(layer, SPIKING):
                node = f"{name}.lif" if isinstance(layer, RECURRENT) else name
                record.setdefault(node, []).append(value[0].numpy())
    return {name: np.stack(spikes).astype(np.uint8) for name, spikes in record.items()}


def driving(network: nn.Sequential) -> list[list[nn.Parameter]]:
    """Weights and biases of every layer, with the recurrent ones: they may be what drives it."""
    layers = [layer for layer in network if isinstance(layer, (nn.Linear, nn.Conv2d, *SPIKING))]
    pairs = zip(layers[::2], layers[1::2], strict=True)
    return [[*weights.parameters(), *neuron.parameters()] for weights, neuron in pairs]


def make(case: str, seed: int, folder: Path) -> None:
    """Write `<case>_<seed>.nir` and `<case>_<seed>.npz`."""
    torch.set_default_dtype(torch.float32 if case.endswith("float32") else torch.float64)
    rng = generator(CASES, case, seed)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nirtorch announces that its extract_nir_graph will go
        network, shape = CASES[case](rng)
        frames = draw_input(rng, shape)
        spikes = tune(lambda: run(network, frames), driving(network), rng.uniform(*RATES))
        if case.endswith("ties"):
            round_weights(driving(network))
            spikes = run(network, frames)
        graph = export_to_nir(network, torch.zeros(1, *shape), ignore_dims=[0])
    nir.write(folder / f"{case}_{seed}.nir", graph, compression=None)
    save(folder / f"{case}_{seed}.npz", frames, spikes)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(make, CASES, ("snntorch", "torch", "nir", "nirtorch", "numpy"))
