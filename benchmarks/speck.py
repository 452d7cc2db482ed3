"""Built-in Speck simulator and quantised Sinabs side by side, one thread each, results equal.

    python benchmarks/speck.py

2x64x64 input, conv 9x9/2 -> 16, 5x5 -> 16, 3x3 -> 3, 50 steps, 1 % of the pixels active per step.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from nrf.backends.border import RunOptions
from nrf.backends.speck import BACKEND
from nrf.backends.speck.chip import Bits
from nrf.backends.speck.program import Core, Source, SpeckProgram
from nrf.backends.speck.run import WORKER, input_spikes
from nrf.backends.speck.simulate import Simulator
from nrf.backends.vendors.environment import python_of
from nrf.export.contract import Contract

BITS = Bits(weight=8, bias=8, state=16)
SINABS = """
import json, sys, time
import numpy as np, torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
import worker
with np.load(sys.argv[2]) as file:
    arrays = {name: file[name] for name in file.files}
header = json.loads(arrays.pop("header").tobytes())["program"]
frames = np.load(sys.argv[3])["frames"]
seconds = []
for _ in range(6):
    start = time.process_time()
    spikes, _ = worker.simulate(header, arrays, frames, record=False)
    seconds.append(time.process_time() - start)
print(json.dumps({"seconds": min(seconds), "totals": {k: int(v.sum()) for k, v in spikes.items()}}))
np.savez(sys.argv[4], **{k: v.numpy() for k, v in spikes.items()})
"""


def program() -> SpeckProgram:
    """Three cores with small random weights, and thresholds at which a few per cent fire per step."""
    rng = np.random.default_rng(0)

    def core(
        node: str,
        source: str,
        before: tuple[int, int, int],
        features: int,
        kernel: int,
        stride: int,
        mean: float,
    ) -> Core:
        side = (before[1] + 2 * (kernel // 2) - kernel) // stride + 1
        weight = np.clip(rng.normal(mean, 20, (features, before[0], kernel, kernel)), -128, 127)
        return Core(
            node=node, core=ord(node) - ord("a"), sources=(Source(source),), input_shape=before,
            shape=(features, side, side), node_shape=(features, side, side), stride=(stride, stride),
            padding=(kernel // 2, kernel // 2), threshold=400, floor=-400, zero_reset=False,
            weight=weight.astype(np.int8), bias=np.zeros(features, np.int8), volts=np.full(features, 1 / 400),
        )  # fmt: skip

    first = core("a", "input", (2, 64, 64), 16, 9, 2, 5.0)
    second = core("b", "a", first.shape, 16, 5, 1, 3.0)
    third = core("c", "b", second.shape, 3, 3, 1, 12.0)
    return SpeckProgram("speck2f", Contract(dt=1e-3), BITS, (2, 64, 64), (first, second, third), "c")


def main() -> None:
    """Print the table; fail where the results differ."""
    if absent := BACKEND.runtimes["sinabs"].absent():
        sys.exit(f"error: {absent}")
    chip = program()
    frames = (np.random.default_rng(1).random((50, *chip.input_shape)) < 0.01).astype(np.int64)
    seconds = []
    for _ in range(8):  # the first one compiles
        start = time.process_time()
        ours = Simulator(chip).advance(input_spikes(chip, frames), len(frames))
        seconds.append(time.process_time() - start)
    recording = BACKEND.run(chip, frames, "builtin", RunOptions())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chip.save(folder / "program.npz")
        np.savez(folder / "frames.npz", frames=frames)
        files = [str(folder / part) for part in ("program.npz", "frames.npz", "answer.npz")]
        command = [str(python_of("sinabs")), "-I", "-c", SINABS, str(WORKER.parent), *files]
        answer = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        theirs = np.load(files[2])
        equal = all(np.array_equal(recording.dense(core.node), theirs[core.node]) for core in chip.cores)
    counts = ", ".join(f"{node} {len(spikes.t)}" for node, spikes in ours.spikes.items())
    print(f"spikes: {counts}; equal: {equal}")
    print(f"{'built-in':20s} {min(seconds) * 1e3:8.2f} ms CPU")
    print(f"{'quantised Sinabs':20s} {answer['seconds'] * 1e3:8.2f} ms CPU")
    print(f"{'times faster':20s} {answer['seconds'] / min(seconds):8.1f}")
    if not equal:
        sys.exit("error: the two disagree")


if __name__ == "__main__":
    main()
