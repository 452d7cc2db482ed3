"""One training step, against the structure of the original code: a loop over time around all layers.

    python benchmarks/training.py [--repeats 5] [--threads 1] [--processes]

Both ways get the same weights, the same clips and the same loss, and take turns, so that a busy machine is
unfair to both. Time is CPU time. The paper's network as its code has it (four temporal channels that share
their weights, learned time constants, kernels of 9, 7 and 5) is measured at 96x96 pixels with 16 kernels per
block, with spiking and with leaky neurons, and the presets tiny and demo as they are. Exits with 1 if a ratio
misses its goal or a result differs. With --processes, trains on one and two.
"""

import argparse
import csv
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from nrf.cli.memory import keep_freed_memory
from nrf.model.config import BlockConfig, NetworkConfig
from nrf.model.layers import AvgPool, Conv, SumPool
from nrf.model.network import Network, Output, build, normalised, share_of
from nrf.model.neurons import LI, LIReLU
from nrf.training.batches import Batch, load_clips, stack
from nrf.training.config import Config
from nrf.training.losses import loss_of
from nrf.training.presets import load_preset
from nrf.training.pretraining import match_rates

sys.path.append(str(Path(__file__).parents[1]))
from tests.norse_cells import cell, parameters

WANTED = {"lif": 5.0, "li": 4.0}  # times faster, for the paper's network
WANTED_OF_PRESETS = 3.0
PLAIN: dict[type, Callable[..., Tensor]] = {  # torch's own, for (B, C, H, W)
    Conv: nn.Conv2d.forward,
    AvgPool: nn.AvgPool2d.forward,
    SumPool: nn.AvgPool2d.forward,
}


class Original(nn.Module):
    """The same network as the original code has it: Norse's cells, and every layer once per time step."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        neurons = {n: m for n, m in network.body.named_children() if isinstance(m, LI)}
        self.cells = nn.ModuleDict({name: cell(neuron) for name, neuron in neurons.items()})

    def forward(self, frames: Tensor) -> Output:
        """Maps (T, B, shapes, h, w) and the share that fires for frames (T, B, C, H, W)."""
        maps, spikes = self.run(frames)
        return Output(maps, {name: share_of(z) for name, z in spikes.items()}, {})

    def run(self, frames: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Maps and spikes."""
        body, state, maps = self.network.body, dict.fromkeys(self.cells), []
        spikes: dict[str, list[Tensor]] = {name: [] for name in body.spiking if name != "out"}
        for name, each in self.cells.items():
            each.p = parameters(body.get_submodule(name), self.network.config.learn_tau)
        for frame in frames:
            merged: Tensor | None = None
            for path in body.paths:
                x = frame
                for name in path:
                    if name in self.cells:
                        x, state[name] = self.cells[name](x, state[name])
                        if name in spikes:
                            spikes[name].append(x)
                        elif isinstance(body.get_submodule(name), LIReLU):
                            x = torch.relu(x)
                    else:
                        layer = body.get_submodule(name)
                        x = PLAIN[type(layer)](layer, x)
                merged = x if merged is None else merged + x
            x, state["out"] = self.cells["out"](merged, state["out"])
            maps.append(x)
        return torch.stack(maps), {name: torch.stack(z) for name, z in spikes.items()}


def paper_small(neuron: str = "lif", side: int = 96, features: int = 16) -> Config:
    """The network of the paper's code, small enough for a CPU."""
    demo = load_preset("demo")
    kernels = (9, features), (7, features), (5, 3)
    blocks = tuple(BlockConfig(features=maps, kernel=kernel, pool=2) for kernel, maps in kernels)
    network = NetworkConfig(
        blocks, (2, side, side), neuron=neuron, share=True, learn_tau=True, tau_max=43.8e-3, c=2.0
    )  # type: ignore[arg-type]
    data = replace(demo.data, shapes=replace(demo.data.shapes, resolution=side))
    training = replace(demo.training, batch=4, window=25)
    return replace(
        demo, name=f"paper, {neuron}, {side}x{side}", network=network, data=data, training=training
    )


def networks(config: Config, batch: Batch) -> tuple[Network, Original]:
    """Both with equal weights; thresholds at 1 and alpha at 1, where Norse's gradient is defined the same."""
    config = replace(config, network=replace(config.network, alpha=1.0))
    network = build(config.network, config.seed)
    match_rates(network, batch.frames, config.training)
    if config.network.share:  # Norse's gradient asks for thresholds of 1, so that weights carry the gain
        for block in range(1, len(config.network.blocks) + 1):
            each = [n for name, n in network.body.spiking.items() if name.startswith(f"lif{block}_")]
            if each:
                gain = 1 / torch.stack([neuron.threshold for neuron in each]).mean()
                network.body.get_submodule(f"conv{block}").weight.data *= gain
        for neuron in network.body.spiking.values():
            neuron.set_threshold(1.0)
    network = normalised(network)
    twin = normalised(network).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return network, Original(twin)


def step(run: Callable[[Tensor], Output], network: Network, batch: Batch, config: Config) -> list[Tensor]:
    """Forward, loss, backward; the maps and all gradients."""
    network.zero_grad()
    output = run(batch.frames)
    loss_of(network, output, batch.coordinates, config.training).total.backward()
    return [output.membrane.detach(), *(p.grad for p in network.parameters() if p.grad is not None)]


def compare(config: Config, repeats: int) -> tuple[float, float, list[float], float]:
    """CPU seconds per step of both, their ratios, and the largest relative difference."""
    batch = stack(load_clips(replace(config, data=replace(config.data, clips=config.training.batch))),
                  range(config.training.batch))  # fmt: skip
    window = slice(0, config.training.window)
    batch = Batch(batch.frames[window], batch.coordinates[window])
    network, original = networks(config, batch)
    fused, looped = [], []
    for _ in range(repeats + 1):  # the first warms up
        start = time.process_time()
        ours = step(network, network, batch, config)
        middle = time.process_time()
        theirs = step(original, original.network, batch, config)
        fused.append(middle - start)
        looped.append(time.process_time() - middle)
    different = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, theirs, strict=True))
    ratios = [b / a for a, b in zip(fused[1:], looped[1:], strict=True)]
    return statistics.median(fused[1:]), statistics.median(looped[1:]), ratios, different


def kept_bytes(segment: int = 5) -> tuple[float, float]:
    """Bytes that the preset `paper` keeps for the way back, at its batch and window: whole, and in segments.

    Per neuron and step they are those of the same network with fewer and smaller maps.
    """
    paper = load_preset("paper")
    small = replace(
        paper.network,
        input=(2, 40, 40),
        blocks=tuple(replace(block, features=4) for block in paper.network.blocks),
    )
    steps, kept = 4, dict[int, int]()

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    frames = (torch.rand(steps, 1, *small.input) < 0.01).float()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        build(small)(frames)
    each = sum(kept.values()) / steps / neurons(small)
    one_step = neurons(paper.network) * paper.training.batch
    states = 4 * one_step * -(-paper.training.window // segment)
    return each * one_step * paper.training.window, each * one_step * segment + states


def neurons(config: NetworkConfig) -> int:
    """Of all blocks and channels."""
    total, (rows, columns) = 0, config.input[1:]
    for block in config.blocks:
        rows, columns = rows // block.pool, columns // block.pool
        total += block.features * config.channels * rows * columns
    return total


def processes(preset: str, steps: int = 20) -> list[tuple[int, float, str]]:
    """Wall seconds of a short run on one and on two CPU processes, and the held-out error of both."""
    rows = []
    for count in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            command = [
                str(Path(sys.executable).with_name("nrf")),
                "train",
                "--preset",
                preset,
                "--out",
                str(out),
            ]
            command += ["--device", "cpu", "--steps", str(steps), "--devices", str(count)]
            subprocess.run(command, check=True, capture_output=True)
            with (out / "log.csv").open(newline="") as file:
                log = list(csv.DictReader(file))
            rows.append((count, float(log[-1]["seconds"]), log[-1]["held_out"]))
    return rows


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--processes", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()  # as `nrf` does
    print("CPU ms per training step         clips  steps  loop over time  all at once  ratio  difference")
    reached, equal = True, True
    for config in (paper_small("lif"), paper_small("li"), load_preset("tiny"), load_preset("demo")):
        fused, looped, ratios, difference = compare(config, arguments.repeats)
        ratio = statistics.median(ratios)
        print(
            f"{config.name:31} {config.training.batch:6} {config.training.window:6} {looped * 1e3:15.1f} "
            f"{fused * 1e3:12.1f} {ratio:6.2f} {difference:11.1e}",
            flush=True,
        )
        reached &= ratio >= (WANTED[config.network.neuron] if config.network.share else WANTED_OF_PRESETS)
        equal = equal and difference < 1e-3
    if arguments.processes:
        for count, seconds, error in processes("tiny"):
            print(f"tiny on {count} process(es): {seconds:.1f} s wall, held out {float(error):.3f} px")
    return 0 if reached and equal else 1


if __name__ == "__main__":
    sys.exit(main())
