"""Runs a Speck program with Sinabs, on CPU, GPU or the chip. Imports only NumPy, torch and Sinabs.

Layers are built by hand from the program's integers: `sinabs.nir.from_nir` drops nodes without a word. All
integers stay below 2^24, so that single precision holds them exactly.
"""

from typing import Any

import numpy as np
import sinabs
import sinabs.layers as sl
import torch
from sinabs.activation import MaxSpike, MembraneReset, MembraneSubtract
from torch import Tensor, nn

Record = dict[str, Any]  # parts of the program, arrays by the names that stand there


def convolution(population: Record, arrays: Record) -> nn.Conv2d:
    """The kernel of a population as a torch layer."""
    weight = torch.tensor(arrays[population["weight"]].astype(np.float32))
    bias = torch.tensor(arrays[population["bias"]].astype(np.float32))
    layer = nn.Conv2d(
        *(weight.shape[1], weight.shape[0], weight.shape[2]),
        stride=tuple(population["stride"]),
        padding=tuple(population["padding"]),
    )
    layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(bias)
    return layer


def neurons(population: Record, kind: Any = sl.IAF, **options: Any) -> Any:
    """The neurons of a population."""
    return kind(
        spike_threshold=torch.tensor(float(population["threshold"])),
        spike_fn=MaxSpike(population["max_spikes"] or None),
        reset_fn=MembraneReset() if population["zero_reset"] else MembraneSubtract(),
        min_v_mem=torch.tensor(float(population["floor"])),
        **options,
    )


def arriving(x: Tensor, pool: int, population: Record) -> Tensor:
    """Spikes of a source after sum pooling; what is left over at the border is dropped."""
    _, height, width = population["input_shape"]
    x = x if pool == 1 else nn.functional.avg_pool2d(x, pool, divisor_override=1)
    return x[:, :, :height, :width]


def driven(kernel: nn.Conv2d, x: Tensor, size: list[int]) -> Tensor:
    """A map of the size that the core was told: zeros around a kernel may give other lines at its end."""
    side = kernel.kernel_size[0]
    padding: Any = kernel.padding
    short = [
        max(0, (size[axis] - 1) * kernel.stride[axis] + side - 2 * padding[axis] - x.shape[2 + axis])
        for axis in (0, 1)
    ]
    drive: Tensor = kernel(nn.functional.pad(x, (0, short[1], 0, short[0])))
    return drive[:, :, : size[0], : size[1]]


@torch.no_grad()
def simulate(
    program: Record, arrays: Record, frames: Any, device: str = "cpu", record: bool = True
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Spike counts and membranes (integers) of every population, dense over time."""
    seen = {program["input"]: torch.as_tensor(np.asarray(frames, np.float32), device=device)}
    membranes = {}
    for population in program["populations"]:
        parts = [
            arriving(seen[source["name"]], source["pool"], population) for source in population["sources"]
        ]
        x = torch.stack(parts).sum(0)
        drive = driven(convolution(population, arrays).to(device), x, population["shape"][1:])
        spiking = neurons(population, record_states=record).to(device)
        seen[population["node"]] = spiking(drive[None])[0]
        if record:
            membranes[population["node"]] = spiking.recordings["v_mem"][0]
    del seen[program["input"]]
    return seen, membranes


def run(program: Record, arrays: Record, frames: Any, options: Record) -> Record:
    """See worker_main.py."""
    if options.get("runtime") == "speck":
        from chip import run as run_on_chip  # type: ignore[import-not-found]

        answer: Record = run_on_chip(program, frames, options)
        return answer
    device = options.get("device", "cpu")
    spikes, membranes = simulate(program, arrays, frames, device)
    shapes = {each["node"]: (len(frames), *each["node_shape"]) for each in program["populations"]}
    volts = {
        each["node"]: membranes[each["node"]].cpu().numpy() * arrays[each["volts"]][:, None, None]
        for each in program["populations"]
    }
    return {
        "spikes": {
            node: x.cpu().numpy().astype(np.int64).reshape(shapes[node]) for node, x in spikes.items()
        },
        "membranes": {node: x.astype(np.float32).reshape(shapes[node]) for node, x in volts.items()},
        "runtime": "sinabs",
        "device": "simulation",
        "versions": {"sinabs": sinabs.__version__, "torch": torch.__version__},
        "details": {"torch_device": device},
    }
