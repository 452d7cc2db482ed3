"""Random Spyx networks, their NIR export and the spikes Spyx itself computes for them.

Names of nodes are those of the flattened graph (a node `b` of sub-graph `a` is `a.b`), arrays are channels
first as in the file (Spyx has them last).

The file is written as Spyx's documentation shows, in float32:

    graph = spyx.nir.to_nir(network, {"input": np.array(shape)}, {"output": np.array(output_shape)})
    nir.write("network.nir", graph, compression=None)

(uncompressed, because compressing many small arrays one by one makes the file larger). Weights and parameters
are float32, as Spyx draws them; the network runs in float64 on these numbers.

All neurons but PSU_LIF emit z[t] = v[t-1] > thr: the spike of the membrane before this step's update.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import nir
import numpy as np
import spyx.nir
from flax import nnx
from spyx import nn
from witness import RATES, SPREAD, TRIALS, draw_input, generator, main, save

DT = 0.001  # of the case "dt"; Spyx exports with dt = 1 unless told otherwise
NEURONS = (nn.IF, nn.LIF, nn.CuBaLIF, nn.PSU_LIF, nn.RIF, nn.RLIF, nn.RCuBaLIF)
RECURRENT = (nn.RIF, nn.RLIF, nn.RCuBaLIF)

Built = tuple[nn.Sequential, tuple[int, ...]]
Neuron = Callable[..., nnx.Module]


def uniform(rng: np.random.Generator, low: float, high: float, shape: tuple[int, ...]) -> jax.Array:
    """Random numbers as a float32 array."""
    return jnp.asarray(rng.uniform(low, high, shape), jnp.float32)


def _seed(rng: np.random.Generator) -> nnx.Rngs:
    return nnx.Rngs(int(rng.integers(2**31)))


def neuron(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    kind: type[nnx.Module],
    scalar: bool = False,
    thresholds: bool = False,
) -> nnx.Module:
    """A layer of neurons with random decays (one per neuron, or one for all) and weights.

    IF: v = v + x - thr z. LIF: v = beta v + x - thr z. CuBaLIF: i = alpha i + x; v = beta (v - thr z) + i.
    RIF, RLIF: x + W z in place of x. RCuBaLIF: i = alpha i + x + W z. In all of them z = v[t-1] > thr.
    PSU_LIF: v = beta v + x; z = v > thr (this step's), no reset.
    """
    options = {"threshold": int(rng.integers(32, 97)) / 64} if thresholds else {}
    layer = kind(shape, rngs=_seed(rng), **options)
    for name in ("alpha", "beta"):
        if hasattr(layer, name):
            getattr(layer, name)[...] = uniform(rng, 0.2, 0.95, shape)
            if scalar:
                setattr(layer, name, nnx.Param(uniform(rng, 0.2, 0.95, ())))
    if isinstance(layer, RECURRENT):
        layer.recurrent_w[...] = uniform(rng, -0.5, 0.5, layer.recurrent_w.shape)
    return layer


def _weights(rng: np.random.Generator, layer: nnx.Module) -> nnx.Module:
    """Random weights, more excitation than inhibition, and small biases."""
    fan = layer.kernel[...].size // layer.kernel.shape[-1]
    layer.kernel[...] = uniform(rng, -1, 2, layer.kernel.shape) / np.float32(np.sqrt(fan))
    if layer.bias is not None:
        layer.bias[...] = uniform(rng, -0.1, 0.1, layer.bias.shape)
    return layer


def dense(rng: np.random.Generator, make_neuron: Neuron) -> Built:
    """Two or three fully connected layers."""
    sizes = rng.integers(6, 16, rng.integers(3, 5)).tolist()
    layers: list[nnx.Module] = []
    for inputs, outputs in pairwise(sizes):
        linear = nnx.Linear(inputs, outputs, use_bias=bool(rng.integers(2)), rngs=_seed(rng))
        layers += [_weights(rng, linear), make_neuron(rng, (outputs,))]
    return nn.Sequential(*layers), (sizes[0],)


def conv(rng: np.random.Generator, make_neuron: Neuron, flat: bool = True) -> Built:
    """Convolution, sum pooling, convolution and a fully connected layer, on 2 maps of 10 x 10."""
    strides = int(rng.integers(1, 3))
    padding = "VALID" if strides == 2 else str(rng.choice(["SAME", "VALID"]))
    layers = [_conv(rng, 2, strides=(strides, strides), padding=padding)]
    layers += [make_neuron(rng, _shape(layers))]
    if strides == 1:
        layers += [nn.SumPool(2, 2, "VALID")]
    layers += [_conv(rng, 3, padding=((1, 1), (1, 1)))]
    layers += [make_neuron(rng, _shape(layers))]
    if flat:
        layers += [nn.Flatten()]
        layers += [_weights(rng, nnx.Linear(_shape(layers)[0], 5, rngs=_seed(rng))), make_neuron(rng, (5,))]
    return nn.Sequential(*layers), (2, 10, 10)


def _conv(rng: np.random.Generator, inputs: int, **options: Any) -> nnx.Module:
    return _weights(rng, nnx.Conv(inputs, 3, (3, 3), rngs=_seed(rng), **options))


def _shape(layers: list[nnx.Module]) -> tuple[int, ...]:
    """Output shape, without batch axis and channels last, of layers on 10 x 10 x 2."""
    value = jnp.zeros((1, 10, 10, 2))
    for layer in layers:
        value = value if isinstance(layer, NEURONS) else layer(value)
    return tuple(value.shape[1:])


def mixed(rng: np.random.Generator) -> Built:
    """One layer of each of four kinds, in random order."""
    kinds = [nn.LIF, nn.RCuBaLIF, nn.PSU_LIF, nn.RIF]
    sizes = rng.integers(6, 14, len(kinds) + 1).tolist()
    layers: list[nnx.Module] = []
    for index, (inputs, outputs) in zip(rng.permutation(len(kinds)), pairwise(sizes), strict=True):
        linear = _weights(rng, nnx.Linear(inputs, outputs, rngs=_seed(rng)))
        layers += [linear, neuron(rng, (outputs,), kinds[index], thresholds=True)]
    return nn.Sequential(*layers), (sizes[0],)


CASES: dict[str, Callable[[np.random.Generator], Built]] = {
    "if_default": partial(dense, make_neuron=partial(neuron, kind=nn.IF)),
    "if_ties": partial(dense, make_neuron=partial(neuron, kind=nn.IF)),
    "if_threshold": partial(dense, make_neuron=partial(neuron, kind=nn.IF, thresholds=True)),
    "lif_default": partial(dense, make_neuron=partial(neuron, kind=nn.LIF)),
    "lif_scalar": partial(dense, make_neuron=partial(neuron, kind=nn.LIF, scalar=True)),
    "lif_threshold": partial(dense, make_neuron=partial(neuron, kind=nn.LIF, thresholds=True)),
    "lif_dt": partial(dense, make_neuron=partial(neuron, kind=nn.LIF)),
    "psu_lif_default": partial(dense, make_neuron=partial(neuron, kind=nn.PSU_LIF)),
    "cubalif_default": partial(dense, make_neuron=partial(neuron, kind=nn.CuBaLIF)),
    "cubalif_threshold": partial(dense, make_neuron=partial(neuron, kind=nn.CuBaLIF, thresholds=True)),
    "rif_default": partial(dense, make_neuron=partial(neuron, kind=nn.RIF)),
    "rlif_default": partial(dense, make_neuron=partial(neuron, kind=nn.RLIF)),
    "rlif_scalar": partial(dense, make_neuron=partial(neuron, kind=nn.RLIF, scalar=True)),
    "rlif_threshold": partial(dense, make_neuron=partial(neuron, kind=nn.RLIF, thresholds=True)),
    "rcubalif_default": partial(dense, make_neuron=partial(neuron, kind=nn.RCuBaLIF)),
    "rcubalif_threshold": partial(dense, make_neuron=partial(neuron, kind=nn.RCuBaLIF, thresholds=True)),
    "conv_if_default": partial(conv, make_neuron=partial(neuron, kind=nn.IF)),
    "conv_lif_default": partial(conv, make_neuron=partial(neuron, kind=nn.LIF)),
    "conv_lif_scalar": partial(conv, make_neuron=partial(neuron, kind=nn.LIF, scalar=True), flat=False),
    "conv_psu_lif_default": partial(conv, make_neuron=partial(neuron, kind=nn.PSU_LIF)),
    "mixed": mixed,
}


def compiled(network: nn.Sequential) -> Callable[[nn.Sequential, np.ndarray], dict[str, np.ndarray]]:
    """A function that runs the network, layer by layer, and returns the spikes of all its spiking layers."""
    definition, _ = nnx.split(network)

    @jax.jit
    def spikes(parameters: nnx.State, frames: jax.Array) -> dict[str, jax.Array]:
        model = nnx.merge(definition, parameters)

        def step(state: list[Any], value: jax.Array) -> tuple[list[Any], dict[str, jax.Array]]:
            following, record = [], {}
            for index, (layer, old) in enumerate(zip(model.layers, state, strict=True)):
                value, new = layer(value, old) if isinstance(layer, NEURONS) else (layer(value), None)
                following.append(new)
                if isinstance(layer, NEURONS):
                    record[node_name(index, layer)] = value[0]
            return following, record

        return jax.lax.scan(step, model.initial_state(1), frames)[1]

    def run(model: nn.Sequential, frames: np.ndarray) -> dict[str, np.ndarray]:
        last = np.moveaxis(frames, 1, -1) if frames.ndim == 4 else frames
        record = spikes(nnx.split(model)[1], jnp.asarray(last, jnp.float64)[:, None])
        names = [node_name(i, layer) for i, layer in enumerate(model.layers) if isinstance(layer, NEURONS)]
        arrays = {name: np.asarray(record[name]).astype(np.uint8) for name in names}
        return {name: np.moveaxis(a, -1, 1) if a.ndim == 4 else a for name, a in arrays.items()}

    return run


def node_name(index: int, layer: nnx.Module) -> str:
    """Name of the spiking node that the exporter writes for a layer."""
    if isinstance(layer, RECURRENT):
        return f"layer_{index}.layer_{index}.lif"
    return f"layer_{index}_threshold" if isinstance(layer, nn.PSU_LIF) else f"layer_{index}"


def tune(network: nn.Sequential, frames: np.ndarray, least: float) -> dict[str, np.ndarray]:
    """Scale the weights, first layer first, until all rates are from `least` to SPREAD times that.

    Where a layer fires too much, its biases and recurrent weights shrink too: they may be what drives it.
    """
    run = compiled(network)
    weighted = [layer for layer in network.layers if isinstance(layer, nnx.Linear | nnx.Conv)]
    neurons = [layer for layer in network.layers if isinstance(layer, NEURONS)]
    for _ in range(TRIALS):
        spikes = run(network, frames)
        for layer, following, counts in zip(weighted, neurons, spikes.values(), strict=True):
            if counts.mean() < least:
                layer.kernel[...] *= np.float32(1.25)
                break
            if counts.mean() > SPREAD * least:
                for parameter in (layer.kernel, layer.bias, getattr(following, "recurrent_w", None)):
                    if parameter is not None:
                        parameter[...] *= np.float32(0.85)
                break
        else:
            return spikes
    raise ValueError("no weights found with which every layer fires")


def round_weights(network: nn.Sequential, frames: np.ndarray) -> dict[str, np.ndarray]:
    """Round the weights to multiples of 1/16: membranes meet the threshold exactly. The new spikes."""
    for layer in network.layers:
        if isinstance(layer, nnx.Linear):
            for parameter in (layer.kernel, layer.bias):
                if parameter is not None:
                    parameter[...] = jnp.round(16 * parameter[...]) / 16
    return compiled(network)(network, frames)


def make(case: str, seed: int, folder: Path) -> None:
    """Write `<case>_<seed>.nir` and `<case>_<seed>.npz`."""
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_disable_most_optimizations", True)  # same spikes, compiled in half the time
    rng = generator(CASES, case, seed)
    network, shape = CASES[case](rng)
    frames = draw_input(rng, shape)
    spikes = tune(network, frames, rng.uniform(*RATES))
    if case.endswith("ties"):
        spikes = round_weights(network, frames)
    options = {"dt": DT} if case.endswith("_dt") else {}
    output = list(spikes.values())[-1].shape[1:]
    graph = spyx.nir.to_nir(network, {"input": np.array(shape)}, {"output": np.array(output)}, **options)
    nir.write(folder / f"{case}_{seed}.nir", graph, compression=None)
    save(folder / f"{case}_{seed}.npz", frames, spikes)


if __name__ == "__main__":
    main(make, CASES, ("spyx", "jax", "flax", "nir", "numpy"))
