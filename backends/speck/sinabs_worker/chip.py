"""The way to a Speck board: our configuration through Sinabs' plumbing; no layer is traced or guessed.

    deploy     the configuration that `chip_config` writes, all populations monitored
    play       every frame's events within their step, each to all cores that the input feeds
    read       spikes back into steps, per core

Step n lasts from (n + 1) to (n + 2) times `unit` microseconds after the start: the slow clock is started at
time 0, with empty membranes, so that its first tick falls on the first step; its events fill the middle half
of a step, in an order drawn from the seed. samna and Sinabs' backend are imported only after `real_samna` has
found the real one.
"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from real_samna import require_samna  # type: ignore[import-not-found]
from torch import nn
from worker import Record  # type: ignore[import-not-found]

SHORTEST = 20  # microseconds of a step: events must find room in it, away from the tick
QUIET = 0.1  # seconds without a spike after which nothing more is expected


def deploy(config: Record, board: str) -> Any:
    """A board with a configuration; its slow clock stands still."""
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
            for key in config["sensor"].keys() - {
                "pooling",
                "destinations",
            }:  # for a sensor that is let in later
                setattr(filled.dvs_layer, key, config["sensor"][key])
            filled.dvs_layer.pass_sensor_events = False  # we play events ourselves
            for core in config["cores"]:
                write_core(filled.cnn_layers[core["core"]], core)
            if not builder.validate_configuration(filled):
                raise RuntimeError(f"the driver of {device} refuses the configuration; lower again")
            return filled

    network = Configured()
    network.to(board)
    return network


def write_core(layer: Any, core: Record) -> None:
    """One core of a configuration as samna has it; every core is monitored."""
    if len(core["destinations"]) > len(layer.destinations):
        raise RuntimeError(f"core {core['core']} feeds {len(core['destinations'])} cores; lower again")
    for slot, destination in zip(layer.destinations, core["destinations"], strict=False):
        for key, value in destination.items():
            setattr(slot, key, value)
    for key in core.keys() - {"core", "node", "first_channel", "destinations"}:
        setattr(layer, key, core[key])
    layer.monitor_enable = True


def stimulus(config: Record, frames: Any, board: str, unit: int, seed: int) -> list[Any]:
    """All input events as samna spikes, `unit` microseconds per step, pooled as the sensor stage would.

    The order within a step is that of the asynchronous simulator with the same seed.
    """
    from sinabs.backend.dynapcnn.chip_factory import ChipFactory

    t, p, y, x = np.repeat(np.nonzero(frames), frames[np.nonzero(frames)].astype(int), axis=1)
    order = np.lexsort((np.random.default_rng(seed).random(len(t)), t))
    t, p, y, x = t[order], p[order], y[order], x[order]
    begin, count = (np.unique(t, return_index=True, return_counts=True)[key] for key in (1, 2))
    place = (np.arange(len(t)) - np.repeat(begin, count) + 0.5) / np.repeat(count, count)  # within the step
    size = config["sensor"]["pooling"]
    xytp = np.zeros(len(t), [(key, int) for key in "xytp"])
    xytp["x"], xytp["y"], xytp["p"] = x // size, y // size, p
    xytp["t"] = (t + 1) * unit + ((0.25 + 0.5 * place) * unit).astype(int)
    sizes = {core["core"]: core["dimensions"]["input_shape"]["size"] for core in config["cores"]}
    events: list[tuple[int, Any]] = []
    for core in config["sensor"]["destinations"]:
        inside = np.flatnonzero((xytp["x"] < sizes[core]["x"]) & (xytp["y"] < sizes[core]["y"]))
        if len(inside):
            sent = ChipFactory(board).xytp_to_events(xytp[inside], layer=core, reset_timestamps=False)
            events += zip(inside.tolist(), sent, strict=True)
    return [event for _, event in sorted(events, key=lambda pair: pair[0])]


def play(network: Any, events: list[Any], board: str, seconds: float, clock: int | None) -> list[Any]:
    """All spikes of the board while it hears the events for some seconds, from empty membranes on.

    The slow clock (`clock` Hz, or none) runs in this time alone, or biases would move membranes before the
    first event and fire after the last.
    """
    from sinabs.backend.dynapcnn.io import disable_timestamps, enable_timestamps, reset_timestamps

    pins = network.samna_device.get_io_module()
    pins.set_slow_clk(False)
    network.reset_states()
    network.samna_output_buffer.get_events()  # what was left there
    reset_timestamps(board)
    enable_timestamps(board)
    if clock:
        pins.set_slow_clk_rate(clock)
        pins.set_slow_clk(True)
    if events:
        network.samna_input_buffer.write(events)
    time.sleep(seconds)
    pins.set_slow_clk(False)
    answers: list[Any] = []
    while True:
        time.sleep(QUIET)
        new = network.samna_output_buffer.get_events()
        answers.extend(new)
        if not new:
            break
    disable_timestamps(board)
    return answers


def counts(program: Record, config: Record, events: list[Any], steps: int, unit: int) -> tuple[Record, int]:
    """Spikes of the chip per node (steps, *shape), and how many came outside of all steps."""
    recorded = {each["node"]: np.zeros((steps, *each["shape"]), np.int64) for each in program["populations"]}
    node = {core["core"]: (core["node"], core["first_channel"]) for core in config["cores"]}
    outside = 0
    for event in events:
        if getattr(event, "layer", None) in node and hasattr(event, "feature"):
            name, first = node[event.layer]
            step = int(event.timestamp // unit) - 1
            if 0 <= step < steps:
                recorded[name][step, first + event.feature, event.y, event.x] += 1
            else:
                outside += 1
    return recorded, outside


def run(program: Record, frames: Any, options: Record) -> Record:
    """Play the frames `repeats` times; the last one is recorded, the totals of all are in the details."""
    require_samna()
    import samna  # type: ignore[import-not-found]
    import sinabs

    contract_dt = options.get("dt") or 1e-3
    board = options.get("board") or "speck2fmodule:0"
    unit = round(contract_dt * 1e6)
    if unit < SHORTEST:
        raise RuntimeError(f"a step is {unit} us, a board needs {SHORTEST} or more; state a longer dt")
    config = json.loads(Path(options["config"]).read_text())
    leaks = any(core["leak_enable"] for core in config["cores"])
    clock = options.get("slow_clock") if leaks else None
    if leaks and not clock:  # in whole Hz: the steps follow it, or ticks would drift through them
        clock = max(round(1e6 / unit), 1)
        unit = round(1e6 / clock)
    network = deploy(config, board)
    events = stimulus(config, frames, board, unit, options.get("seed", 0))
    totals: list[Record] = []
    spikes: Record = {}
    outside = 0
    for _ in range(int(options.get("repeats", 1))):
        answers = play(network, events, board, (len(frames) + 1) * unit * 1e-6, clock)
        spikes, outside = counts(program, config, answers, len(frames), unit)
        totals.append({node: int(steps.sum()) for node, steps in spikes.items()})
    shapes = {each["node"]: (len(frames), *each["node_shape"]) for each in program["populations"]}
    return {
        "spikes": {node: steps.reshape(shapes[node]) for node, steps in spikes.items()},
        "runtime": "speck",
        "device": "chip",
        "versions": {"sinabs": sinabs.__version__, "samna": getattr(samna, "__version__", "unknown")},
        "counters": {"outside": outside},
        "details": {
            "board": board,
            "step_us": unit,
            "slow_clock_hz": clock,
            "seed": options.get("seed", 0),
            "totals": totals,
        },
    }
