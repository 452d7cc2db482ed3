"""Random Speck programs: pooling, strides, padding, fan-out, fan-in, biases, both resets."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from nrf.backends.border import Recording, RunOptions
from nrf.backends.speck import BACKEND
from nrf.backends.speck.chip import Bits
from nrf.backends.speck.program import PooledSource, Population, SpeckProgram
from nrf.export.contract import Contract

CHANNELS = 2
BITS = Bits(weight=8, bias=8, state=16)


def run(program: SpeckProgram, frames: Any, runtime: str = "builtin", **options: Any) -> Recording:
    """As the backend runs it."""
    return BACKEND.run(program, np.asarray(frames), runtime, RunOptions(**{"membranes": True} | options))


def single(threshold: int, weight: int, bias: int = 0, floor: int = -(2**15)) -> SpeckProgram:
    """One neuron with one synapse."""
    population = Population(
        node="n", core=0, sources=(PooledSource("input"),), input_shape=(1, 1, 1), shape=(1, 1, 1),
        node_shape=(1, 1, 1), stride=(1, 1), padding=(0, 0), threshold=threshold, floor=floor,
        zero_reset=False, weight=np.full((1, 1, 1, 1), weight, np.int8), bias=np.full(1, bias, np.int8),
        volts=np.ones(1),
    )  # fmt: skip
    return SpeckProgram("speck2f", Contract(), BITS, (1, 1, 1), (population,), ("n",))


@st.composite
def programs(
    draw: st.DrawFn, leaks: bool = True, small_weights: bool = False, many: bool = False
) -> SpeckProgram:
    """Up to four populations; every later one reads one or two earlier maps of as many channels."""
    height, width = draw(st.integers(4, 12)), draw(st.integers(4, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    maps = {"input": (CHANNELS, height, width)}
    reads = {"input": 0}
    populations: list[Population] = []
    input_pool = draw(st.sampled_from([1, 2]))
    for index in range(draw(st.integers(1, 4))):
        free = [name for name in maps if reads[name] < 2]
        sources = draw(st.lists(st.sampled_from(free), min_size=1, max_size=2, unique=True))
        entries = [
            PooledSource(name, input_pool if name == "input" else draw(st.sampled_from([1, 2, 4])))
            for name in sources
        ]
        sizes = [tuple(side // entry.pool for side in maps[entry.name][1:]) for entry in entries]
        channels = {maps[entry.name][0] for entry in entries}
        rows, columns = min(size[0] for size in sizes), min(size[1] for size in sizes)
        if min(rows, columns) < 1 or len(channels) > 1:
            continue
        kernel = draw(st.integers(1, 5))
        stride = (draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2])))
        padding = (draw(st.integers(0, 3)), draw(st.integers(0, 3)))
        shape = tuple(
            (side + 2 * pad - kernel) // step + 1
            for side, pad, step in zip((rows, columns), padding, stride, strict=True)
        )
        if min(shape) < 1:
            continue
        features = draw(st.sampled_from([CHANNELS, CHANNELS, 3, 7, 18]))  # vectors of all lengths
        bound = 8 if small_weights else 127
        populations.append(
            Population(
                node=f"if{index}",
                core=index,
                sources=tuple(entries),
                input_shape=(channels.pop(), rows, columns),
                shape=(features, *shape),
                node_shape=(features, *shape),
                stride=stride,
                padding=padding,
                threshold=draw(st.integers(1, 400)),
                floor=draw(st.sampled_from([0, -1, -50, -300, -(2**15)])),
                zero_reset=draw(st.booleans()),
                weight=rng.integers(
                    -bound - 1, bound + 1, (features, maps[sources[0]][0], kernel, kernel), np.int8
                ),
                bias=rng.integers(-9, 10, features, np.int8) * np.int8(leaks and draw(st.booleans())),
                volts=np.full(features, 0.01),
                max_spikes=draw(st.sampled_from([0, 1, 3])) if many else 1,
            )
        )
        for entry in entries:
            reads[entry.name] += 1
        maps[f"if{index}"], reads[f"if{index}"] = (features, *shape), 0
    if not populations:
        return draw(programs(leaks, small_weights, many))
    return SpeckProgram(
        "speck2f", Contract(), BITS, maps["input"], tuple(populations), (populations[-1].node,)
    )


def clip(program: SpeckProgram, rng: np.random.Generator, steps: int = 12) -> NDArray[Any]:
    """Sparse counts of events, some larger than 1; every second clip ends in silence."""
    counts = rng.integers(0, 4, (steps, *program.input_shape))
    counts[rng.choice([3, steps]) :] = 0
    return counts * (rng.random(counts.shape) < 0.15)
