"""Built-in simulator and Lava side by side on one program: 64x64 input, three convolutions, 1 % events.

    python benchmarks/loihi.py [--steps 20]

Results are checked equal first. Prints milliseconds per step, without compiling or starting processes, and
how the built-in simulator's time follows the number of events.
"""

import argparse
import time

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border import RunOptions
from nrf.backends.loihi import BACKEND
from nrf.backends.loihi.program import LoihiProgram, Neurons, Synapses
from nrf.backends.loihi.run import LAVA, run_lava
from nrf.backends.loihi.simulate import Simulator
from nrf.backends.lowering.layers import Conv
from nrf.export.contract import Contract

LAYERS = ((16, 5, 1, 230), (16, 5, 2, 700), (3, 5, 1, 900))  # channels, kernel, stride, threshold


def program() -> LoihiProgram:
    """Random weights, thresholds at which every layer fires at about 1 %."""
    rng = np.random.default_rng(0)
    shape: tuple[int, int, int] = (2, 64, 64)
    neurons: dict[str, Neurons] = {}
    synapses = []
    source = "input"
    for number, (channels, kernel, stride, threshold) in enumerate(LAYERS):
        weight = rng.integers(-60, 100, (channels, shape[0], kernel, kernel)).astype(np.int8)
        conv = Conv(weight, shape, (stride, stride), (kernel // 2, kernel // 2))
        name, shape = f"lif{number + 1}", conv.output_shape
        ones = np.ones(1, np.int32)
        neurons[name] = Neurons(
            shape=shape,
            du=ones * 4095,  # no current of its own
            dv=ones * 512,
            vth=ones * threshold,
            bias_mant=ones * 0,
            bias_exp=ones * 0,
            u0=ones * 0,
            v0=ones * 0,
            scale=np.ones(1),
            offset=np.zeros(1),
            latency=number + 1,
        )
        synapses.append(Synapses(source, name, conv))
        source = name
    shape, contract = (2, 64, 64), Contract(dt=1e-3)
    return LoihiProgram(
        "benchmark", "loihi2", LAVA, contract, "input", shape, source, neurons, tuple(synapses)
    )


def clip(steps: int, density: float) -> NDArray[np.int64]:
    """Random events."""
    return (np.random.default_rng(1).random((steps, 2, 64, 64)) < density).astype(np.int64)


def builtin_milliseconds(loihi: LoihiProgram, frames: NDArray[np.int64]) -> float:
    """Best of five, per step."""
    best = np.inf
    for _ in range(5):
        start = time.perf_counter()
        Simulator(loihi).run(frames)
        best = min(best, time.perf_counter() - start)
    return 1e3 * best / len(frames)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps
    loihi, frames = program(), clip(steps, 0.01)
    ours, lava = BACKEND.run(loihi, frames, "builtin", RunOptions()), run_lava(loihi, frames, states=False)
    assert ours.spikes == lava.spikes, "built-in and Lava differ, no times"
    rates = {name: len(spikes.t) / steps / loihi.neurons[name].size for name, spikes in ours.spikes.items()}
    print("same spikes; rates", ", ".join(f"{name} {rate:.2%}" for name, rate in rates.items()))
    theirs = 1e3 * float(str(lava.provenance.details["seconds"])) / steps
    print(f"{'':24}{'ms per step':>12}{'times faster':>14}")
    print(f"{'Lava ' + lava.provenance.versions['lava-nc']:24}{theirs:12.2f}{1:14}")
    mine = builtin_milliseconds(loihi, frames)
    print(f"{'built-in':24}{mine:12.3f}{theirs / mine:14.0f}")
    print("\nevents in the input     ms per step")
    for density in (0.0, 0.001, 0.01, 0.1):
        print(f"{density:>20.1%}{builtin_milliseconds(loihi, clip(steps, density)):15.3f}")


if __name__ == "__main__":
    main()
