"""The chip's configuration as plain JSON: what samna would be told, readable without samna.

    {"target": "speck2f", "checksum": ..., "dt": seconds per step and tick of the slow clock, or null,
     "sensor": {"pooling": 2, "destinations": [core, ...],        what the input feeds, and its sum pooling;
        "merge", "mirror": {"x", "y"}, "mirror_diagonal",         where the contract states the sensor, as
        "origin": {"x", "y"}, "cut": {"x", "y"}},                 samna's DVSLayerConfig has it: pooled pixels
     "outputs": [{"core": 7, "node": "if3"}],                     whose spikes the host reads
     "cores": [{"core": 0..8, "node": name in the graph, "first_channel": of that node, where it is split,
        "dimensions": {"input_shape": {"size": {"x", "y"}, "feature_count"},
                       "output_shape": {"size": {"x", "y"}, "feature_count"},
                       "padding": {"x", "y"}, "stride": {"x", "y"}, "kernel_size"},
        "weights": [out][in][x][y],                               samna counts columns first
        "biases": [out], "leak_enable": any bias is not 0,
        "threshold_high", "threshold_low", "return_to_zero": reset to 0 instead of by subtraction,
        "neurons_initial_value": [out][x][y],
        "destinations": [{"layer": core, "enable": true, "pooling": 1 | 2 | 4,
                          "feature_shift": channels, where a part of a node is not the first one}],
        "monitor_enable"}, ...]}

Names and order within a core are those of samna's CNNLayerConfig, as Sinabs writes them.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from nrf.backends.speck.parts import Part, destinations, parts_of
from nrf.backends.speck.program import SpeckProgram
from nrf.events.sensor import Sensor
from nrf.files import atomic_write


def chip_config(program: SpeckProgram) -> dict[str, Any]:
    """The whole configuration of a program."""
    parts = parts_of(program)
    fed = destinations(parts, program.input)
    return {
        "target": program.target,
        "checksum": program.checksum,
        "dt": program.contract.dt,
        "sensor": {
            "pooling": fed[0][1],
            "destinations": [parts[index].number for index, _ in fed],
            **_sensor_stage(program.contract.sensor, fed[0][1]),
        },
        "outputs": [
            {"core": part.number, "node": node}
            for part in parts
            if (node := part.population.node) in program.read
        ],
        "cores": [_core(program, parts, part) for part in parts],
    }


def write_chip_config(program: SpeckProgram, path: Path) -> None:
    """Write the configuration as a JSON file."""
    with atomic_write(path) as part:
        part.write_text(json.dumps(chip_config(program)))


def _sensor_stage(sensor: str | None, pool: int) -> dict[str, Any]:
    """What the sensor stage does besides pooling, which it does before it cuts."""
    if sensor is None:
        return {}
    stage = Sensor.parse(sensor)
    top, bottom, left, right = (edge // pool for edge in stage.crop)
    return {
        "merge": stage.merge,
        "mirror": {"x": "x" in stage.flip, "y": "y" in stage.flip},
        "mirror_diagonal": False,
        "origin": {"x": left, "y": top},
        "cut": {"x": right - 1, "y": bottom - 1},
    }


def _core(program: SpeckProgram, parts: list[Part], part: Part) -> dict[str, Any]:
    population, (features, rows, columns), kernel = part.population, part.shape, part.kernel
    channels, height, width = population.input_shape
    shift = {"feature_shift": part.first} if part.first else {}
    return {
        "core": part.number,
        "node": population.node,
        "first_channel": part.first,
        "dimensions": {
            "input_shape": {"size": {"x": width, "y": height}, "feature_count": channels},
            "output_shape": {"size": {"x": columns, "y": rows}, "feature_count": features},
            "padding": {"x": population.padding[1], "y": population.padding[0]},
            "stride": {"x": population.stride[1], "y": population.stride[0]},
            "kernel_size": population.weight.shape[2],
        },
        "weights": kernel.weight.transpose(0, 1, 3, 2).tolist(),
        "biases": part.bias.tolist(),
        "leak_enable": bool(np.any(part.bias)),
        "return_to_zero": population.zero_reset,
        "threshold_high": population.threshold,
        "threshold_low": population.floor,
        "monitor_enable": population.node in program.read,
        "neurons_initial_value": np.zeros((features, columns, rows), int).tolist(),
        "destinations": [
            {"layer": parts[index].number, "enable": True, "pooling": pool, **shift}
            for index, pool in destinations(parts, population.node)
        ],
    }
