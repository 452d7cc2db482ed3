"""The same as train_classifier.py for Spyx, which is JAX: python classifier_spyx.py spyx DATA.npz FOLDER."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import nir
import numpy as np
import optax
import spyx.nir
from flax import nnx
from spyx import nn

HIDDEN, CLASSES, ROUNDS, BATCH = 24, 5, 100, 40


def run(network: nn.Sequential, x: jax.Array) -> list[jax.Array]:
    """Spikes (T, B, neurons) of both layers for x (T, B, inputs)."""
    layers = network.layers
    states = [
        layer.initial_state(x.shape[1]) if hasattr(layer, "initial_state") else None for layer in layers
    ]
    seen: list[list[jax.Array]] = [[] for _ in layers]
    for value in x:
        for n, layer in enumerate(layers):
            if states[n] is None:
                value = layer(value)
            else:
                value, states[n] = layer(value, states[n])
            seen[n].append(value)
    return [jnp.stack(seen[n]) for n in range(len(layers)) if states[n] is not None]


def main() -> None:
    """Train, export, run."""
    path, folder = sys.argv[2], Path(sys.argv[3])
    with np.load(path) as file:
        data = {name: file[name] for name in file.files}
    frames, test = (
        data[name].reshape(*data[name].shape[:2], -1).astype(np.float32) for name in ("train", "test")
    )
    seeds = nnx.Rngs(1)
    network = nn.Sequential(
        nnx.Linear(frames.shape[2], HIDDEN, use_bias=False, rngs=seeds),
        nn.LIF((HIDDEN,), beta=0.9, rngs=seeds),
        nnx.Linear(HIDDEN, CLASSES, use_bias=False, rngs=seeds),
        nn.LIF((CLASSES,), beta=0.9, rngs=seeds),
    )
    weights = nnx.All(nnx.Param, nnx.PathContains("kernel"))  # decays stay as they are
    optimiser = nnx.Optimizer(network, optax.adam(5e-3), wrt=weights)

    @nnx.jit
    def learn(network: nn.Sequential, optimiser: nnx.Optimizer, x: jax.Array, y: jax.Array) -> None:
        def loss(network: nn.Sequential) -> jax.Array:
            counts = run(network, x)[-1].sum(0) / 2
            return optax.softmax_cross_entropy_with_integer_labels(counts, y).mean()

        optimiser.update(network, nnx.grad(loss, argnums=nnx.DiffState(0, weights))(network))

    rng = np.random.default_rng(1)
    for _ in range(ROUNDS):
        some = rng.choice(len(frames), BATCH, replace=False)
        learn(network, optimiser, frames[some].swapaxes(0, 1), data["train_labels"][some])
    hidden, out = (
        np.asarray(part).swapaxes(0, 1).astype(np.uint8) for part in run(network, test.swapaxes(0, 1))
    )
    sizes = ({"input": np.array([test.shape[2]])}, {"output": np.array([CLASSES])})
    nir.write(folder / "network.nir", spyx.nir.to_nir(network, *sizes), compression=None)
    np.savez_compressed(
        folder / "golden.npz",
        input=test.astype(np.uint8),
        labels=data["test_labels"],
        layer_1=hidden,
        layer_3=out,
    )
    print((out.sum(1).argmax(1) == data["test_labels"]).mean())


main()
