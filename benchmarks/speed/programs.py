"""Programs and clips that speed is measured on: random weights, thresholds at which every layer fires."""

from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nrf.backends.loihi.program import LoihiProgram, Neurons, Synapses
from nrf.backends.loihi.run import LAVA
from nrf.backends.lowering.operators import Conv, Matrix
from nrf.backends.speck.chip import Bits
from nrf.backends.speck.program import PooledSource, Population, SpeckProgram
from nrf.export.contract import Contract

Shape = tuple[int, int, int]
LAYERS = ((16, 5, 1, 230), (16, 5, 2, 700), (3, 5, 1, 900))  # of Loihi: channels, kernel, stride, threshold


def clip(shape: tuple[int, ...], steps: int, density: float, seed: int = 1) -> NDArray[np.float32]:
    """Random events: a share of the pixels has one in each step. Frames as `Events.frames` makes them."""
    return (np.random.default_rng(seed).random((steps, *shape)) < density).astype(np.float32)


def neurons(shape: tuple[int, ...], threshold: int, latency: int) -> Neurons:
    """Leaky neurons without a current of their own."""
    number = np.ones(1, np.int32)
    keys = "bias_mant", "bias_exp", "u0", "v0"
    return Neurons(
        shape, number * 4095, number * 512, number * threshold, **dict.fromkeys(keys, number * 0),
        scale=np.ones(1), offset=np.zeros(1), latency=latency,
    )  # fmt: skip


def loihi(side: int = 64) -> LoihiProgram:
    """Three convolutions."""
    rng = np.random.default_rng(0)
    shape: Shape = (2, side, side)
    populations, synapses, source = {}, [], "input"
    for number, (channels, kernel, stride, threshold) in enumerate(LAYERS):
        weight = rng.integers(-60, 100, (channels, shape[0], kernel, kernel)).astype(np.int8)
        conv = Conv(weight, shape, (stride, stride), (kernel // 2, kernel // 2))
        name, shape = f"lif{number + 1}", conv.output_shape
        populations[name] = neurons(shape, threshold, number + 1)
        synapses.append(Synapses(source, name, conv))
        source = name
    return LoihiProgram(
        "bench",
        "loihi2",
        LAVA,
        Contract(dt=1e-3),
        "input",
        (2, side, side),
        (source,),
        populations,
        tuple(synapses),
    )


def recurrent(size: int = 1000, share: float = 0.1) -> LoihiProgram:
    """Neurons that mostly inhibit each other, with an input of their own; about 1 % fire in a step."""
    rng = np.random.default_rng(0)
    inner = sparse.random_array((size, size), density=share, rng=rng, format="csr")
    inner.data = rng.integers(-80, 40, inner.nnz).astype(np.int8)
    outer = sparse.csr_array(sparse.eye_array(size, dtype=np.int8) * np.int8(100))
    synapses = Synapses("input", "lif", Matrix(outer)), Synapses("lif", "lif", Matrix(inner))
    population = {"lif": neurons((size,), 90, 1)}
    return LoihiProgram(
        "recurrent", "loihi2", LAVA, Contract(dt=1e-3), "input", (size,), ("lif",), population, synapses
    )


def speck(side: int = 64) -> SpeckProgram:
    """Three populations."""
    rng = np.random.default_rng(0)
    before: Shape = (2, side, side)
    populations, source = [], "input"
    for number, (features, kernel, stride, mean) in enumerate(
        ((16, 9, 2, 5.0), (16, 5, 1, 3.0), (3, 3, 1, 12.0))
    ):
        size = (before[1] + 2 * (kernel // 2) - kernel) // stride + 1
        weight = np.clip(rng.normal(mean, 20, (features, before[0], kernel, kernel)), -128, 127)
        shape = features, size, size
        populations.append(
            Population(
                node=f"if{number + 1}", core=number, sources=(PooledSource(source),), input_shape=before,
                shape=shape, node_shape=shape, stride=(stride, stride), padding=(kernel // 2, kernel // 2),
                threshold=400, floor=-400, zero_reset=False, weight=weight.astype(np.int8),
                bias=np.zeros(features, np.int8), volts=np.full(features, 1 / 400),
            )
        )  # fmt: skip
        before, source = shape, populations[-1].node
    bits = Bits(weight=8, bias=8, state=16)
    return SpeckProgram("speck2f", Contract(dt=1e-3), bits, (2, side, side), tuple(populations), (source,))


def layers(program: LoihiProgram | SpeckProgram) -> list[tuple[Conv, int]]:
    """Convolution and threshold (of the state) of every layer, for `peers.CLoop`."""
    if isinstance(program, SpeckProgram):
        return [(each.conv, each.threshold) for each in program.populations]
    thresholds = [int(one.vth[0]) << program.bits.shift for one in program.neurons.values()]
    convs = [one.operator for one in program.synapses if isinstance(one.operator, Conv)]
    return list(zip(convs, thresholds, strict=True))


def sizes(program: LoihiProgram | SpeckProgram) -> list[int]:
    """Neurons of every layer."""
    return [prod(conv.output_shape) for conv, _ in layers(program)]
