"""The way to a Speck board: Sinabs' DynapcnnNetwork with the program's integers as they are.

    deploy     cores and destinations as the program says, all populations monitored
    play       every frame's events at their step, in microseconds
    read       spikes back into steps, per core

samna and Sinabs' backend are imported only after `real_samna` has found the real one.
"""

from typing import Any

import numpy as np
import sinabs.layers as sl
from real_samna import require_samna  # type: ignore[import-not-found]
from torch import Tensor, nn
from worker import Record, convolution, neurons  # type: ignore[import-not-found]


class Cores(nn.Module):
    """All cores as one module that Sinabs can trace: convolution, neurons, and pooling on the way."""

    def __init__(self, program: Record, arrays: Record) -> None:
        super().__init__()
        self.program = program
        for index, core in enumerate(program["cores"]):
            setattr(self, f"conv{index}", convolution(core, arrays))
            setattr(self, f"spikes{index}", neurons(core, sl.IAFSqueeze, batch_size=1))
            for number, source in enumerate(core["sources"]):
                # pooling by 1 as well: Sinabs 3.1.3 fails on a mixture
                if source["name"] != program["input"]:
                    setattr(self, f"pool{index}_{number}", sl.SumPool2d(source["pool"]))
            if len(core["sources"]) > 1:
                setattr(self, f"merge{index}", sl.Merge())

    def forward(self, x: Tensor) -> Tensor:
        """Spikes of the last core; the input is pooled already, as the host does that."""
        seen = {self.program["input"]: x}
        for index, core in enumerate(self.program["cores"]):
            arriving = []
            for number, source in enumerate(core["sources"]):
                pool = getattr(self, f"pool{index}_{number}", None)
                arriving.append(pool(seen[source["name"]]) if pool else seen[source["name"]])
            merged = getattr(self, f"merge{index}")(*arriving) if len(arriving) > 1 else arriving[0]
            seen[core["node"]] = getattr(self, f"spikes{index}")(getattr(self, f"conv{index}")(merged))
        last: Tensor = seen[self.program["cores"][-1]["node"]]
        return last


def deploy(program: Record, arrays: Record, board: str, slow_clock: int, dimensions: Record) -> Any:
    """The network on the board. Sinabs is told the dimensions of every core: it would not crop a map."""
    from sinabs.backend.dynapcnn import DynapcnnNetwork

    entry = next(c for c in program["cores"] if any(s["name"] == program["input"] for s in c["sources"]))
    network = DynapcnnNetwork(
        Cores(program, arrays), input_shape=tuple(entry["input_shape"]), discretize=False
    )
    core_map = {}
    free = list(program["cores"])
    for layer, content in network.dynapcnn_layers.items():  # Sinabs numbers layers in its own way
        weight = content.conv_layer.weight.detach().numpy()
        core = next(core for core in free if np.array_equal(weight, arrays[core["weight"]]))
        free.remove(core)
        core_map[layer] = core["core"]

    def resized(config: Any) -> Any:
        for core, sizes in dimensions.items():
            config.cnn_layers[int(core)].dimensions = sizes
        return config

    settings = {"slow_clk_frequency": slow_clock, "layer2core_map": core_map}
    network.to(board, monitor_layers="all", config_modifier=resized, **settings)
    return network


def stimulus(program: Record, frames: Any, board: str, unit: int) -> list[Any]:
    """All input events as samna spikes, `unit` microseconds per step, pooled as the sensor stage would."""
    from sinabs.backend.dynapcnn.chip_factory import ChipFactory

    t, p, y, x = np.nonzero(frames)
    repeats = frames[t, p, y, x].astype(int)
    events = []
    for core in program["cores"]:
        for source in core["sources"]:
            if source["name"] != program["input"]:
                continue
            _, height, width = core["input_shape"]
            kind = [("x", int), ("y", int), ("t", int), ("p", int)]
            xytp = np.zeros(len(t), kind)
            xytp["x"], xytp["y"], xytp["t"], xytp["p"] = x // source["pool"], y // source["pool"], t * unit, p
            xytp = np.repeat(xytp, repeats)
            xytp = xytp[(xytp["x"] < width) & (xytp["y"] < height)]
            if len(xytp):
                events += ChipFactory(board).xytp_to_events(xytp, layer=core["core"], reset_timestamps=False)
    return sorted(events, key=lambda event: event.timestamp)


def counts(program: Record, events: list[Any], steps: int, unit: int) -> Record:
    """Spikes of the chip per node (steps, *shape); those after the last step count in it."""
    recorded = {core["node"]: np.zeros((steps, *core["shape"]), np.int64) for core in program["cores"]}
    node = {core["core"]: core["node"] for core in program["cores"]}
    for event in events:
        if getattr(event, "layer", None) in node and hasattr(event, "feature"):
            step = min(int(event.timestamp // unit), steps - 1)
            recorded[node[event.layer]][step, event.feature, event.y, event.x] += 1
    return recorded


def run(program: Record, arrays: Record, frames: Any, options: Record) -> Record:
    """Play the frames `repeats` times; the last one is recorded, the totals of all are in the details."""
    require_samna()
    import samna  # type: ignore[import-not-found]
    import sinabs

    contract_dt = options.get("dt") or 1e-3
    board = options.get("board") or "speck2fmodule:0"
    unit = max(round(contract_dt * 1e6), 1)
    slow_clock = options.get("slow_clock") or round(1 / contract_dt)
    network = deploy(program, arrays, board, slow_clock, options["dimensions"])
    events = stimulus(program, frames, board, unit)
    totals: list[Record] = []
    spikes: Record = {}
    for _ in range(int(options.get("repeats", 1))):
        network.reset_states()
        spikes = counts(program, network(events) if events else [], len(frames), unit)
        totals.append({node: int(steps.sum()) for node, steps in spikes.items()})
    shapes = {core["node"]: (len(frames), *core["node_shape"]) for core in program["cores"]}
    return {
        "spikes": {node: steps.reshape(shapes[node]) for node, steps in spikes.items()},
        "runtime": "speck",
        "device": "chip",
        "versions": {"sinabs": sinabs.__version__, "samna": getattr(samna, "__version__", "unknown")},
        "details": {"board": board, "step_us": unit, "totals": totals},
    }
