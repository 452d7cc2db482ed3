"""The way to a Speck board: our configuration through Sinabs' plumbing; no layer is traced or guessed.

    deploy     the configuration that `chip_config` writes, all populations monitored
    play       every frame's events at their step, in microseconds, each to all cores that the input feeds
    read       spikes back into steps, per core

samna and Sinabs' backend are imported only after `real_samna` has found the real one.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from real_samna import require_samna  # type: ignore[import-not-found]
from torch import nn
from worker import Record  # type: ignore[import-not-found]


def deploy(config: Record, board: str, slow_clock: int) -> Any:
    """A board with a configuration, as a function from events in to events out."""
    from sinabs.backend.dynapcnn import DynapcnnNetwork
    from sinabs.backend.dynapcnn.chip_factory import ChipFactory

    class Configured(DynapcnnNetwork):  # type: ignore[misc]
        """Sinabs' device handling without a network: the cores are given."""

        def __init__(self) -> None:
            nn.Module.__init__(self)

        def make_config(self, device: str, **_: Any) -> Any:
            """The board's own configuration, filled in."""
            builder = ChipFactory(device).get_config_builder()
            filled = builder.get_default_config()
            filled.dvs_layer.pass_sensor_events = False
            for core in config["cores"]:
                write_core(filled.cnn_layers[core["core"]], core)
            if not builder.validate_configuration(filled):
                raise RuntimeError(f"the driver of {device} refuses the configuration; lower again")
            return filled

    network = Configured()
    network.to(board, slow_clk_frequency=slow_clock)
    return network


def write_core(layer: Any, core: Record) -> None:
    """One core of a configuration as samna has it; every core is monitored."""
    for slot, destination in zip(layer.destinations, core["destinations"], strict=False):
        for key, value in destination.items():
            setattr(slot, key, value)
    for key in core.keys() - {"core", "node", "destinations"}:
        setattr(layer, key, core[key])
    layer.monitor_enable = True


def stimulus(config: Record, frames: Any, board: str, unit: int) -> list[Any]:
    """All input events as samna spikes, `unit` microseconds per step, pooled as the sensor stage would."""
    from sinabs.backend.dynapcnn.chip_factory import ChipFactory

    t, p, y, x = np.repeat(np.nonzero(frames), frames[np.nonzero(frames)].astype(int), axis=1)
    size = config["sensor"]["pooling"]
    xytp = np.zeros(len(t), [(key, int) for key in "xytp"])
    xytp["x"], xytp["y"], xytp["t"], xytp["p"] = x // size, y // size, t * unit, p
    sizes = {core["core"]: core["dimensions"]["input_shape"]["size"] for core in config["cores"]}
    events: list[tuple[int, Any]] = []
    for core in config["sensor"]["destinations"]:
        inside = np.flatnonzero((xytp["x"] < sizes[core]["x"]) & (xytp["y"] < sizes[core]["y"]))
        if len(inside):
            sent = ChipFactory(board).xytp_to_events(xytp[inside], layer=core, reset_timestamps=False)
            events += zip(inside.tolist(), sent, strict=True)
    return [event for _, event in sorted(events, key=lambda pair: pair[0])]


def counts(program: Record, events: list[Any], steps: int, unit: int) -> Record:
    """Spikes of the chip per node (steps, *shape); those after the last step count in it."""
    recorded = {core["node"]: np.zeros((steps, *core["shape"]), np.int64) for core in program["cores"]}
    node = {core["core"]: core["node"] for core in program["cores"]}
    for event in events:
        if getattr(event, "layer", None) in node and hasattr(event, "feature"):
            step = min(int(event.timestamp // unit), steps - 1)
            recorded[node[event.layer]][step, event.feature, event.y, event.x] += 1
    return recorded


def run(program: Record, frames: Any, options: Record) -> Record:
    """Play the frames `repeats` times; the last one is recorded, the totals of all are in the details."""
    require_samna()
    import samna  # type: ignore[import-not-found]
    import sinabs

    contract_dt = options.get("dt") or 1e-3
    board = options.get("board") or "speck2fmodule:0"
    unit = max(round(contract_dt * 1e6), 1)
    config = json.loads(Path(options["config"]).read_text())
    network = deploy(config, board, options.get("slow_clock") or round(1 / contract_dt))
    events = stimulus(config, frames, board, unit)
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
