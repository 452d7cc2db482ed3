"""The chip's configuration as plain JSON: what samna would be told, readable without samna.

    {"target": "speck2f", "checksum": ..., "dt": seconds per step and tick of the slow clock, or null,
     "sensor": {"pooling": 2, "destinations": [core, ...]},       what the input feeds, and its sum pooling
     "outputs": [{"core": 7, "node": "if3"}],                     whose spikes the host reads
     "cores": [{"core": 0..8, "node": name in the graph,
        "dimensions": {"input_shape": {"size": {"x", "y"}, "feature_count"},
                       "output_shape": {"size": {"x", "y"}, "feature_count"},
                       "padding": {"x", "y"}, "stride": {"x", "y"}, "kernel_size"},
        "weights": [out][in][x][y],                               samna counts columns first
        "biases": [out], "leak_enable": any bias is not 0,
        "threshold_high", "threshold_low", "return_to_zero": reset to 0 instead of by subtraction,
        "neurons_initial_value": [out][x][y],
        "destinations": [{"layer": core, "enable": true, "pooling": 1 | 2 | 4}], "monitor_enable"}, ...]}

Names and order within a core are those of samna's CNNLayerConfig, as Sinabs writes them.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from nrf.backends.speck.program import Core, SpeckProgram
from nrf.files import atomic_write


def chip_config(program: SpeckProgram) -> dict[str, Any]:
    """The whole configuration of a program."""
    fed = program.readers(program.input)
    return {
        "target": program.target,
        "checksum": program.checksum,
        "dt": program.contract.dt,
        "sensor": {
            "pooling": fed[0][1],
            "destinations": [program.cores[index].core for index, _ in fed],
        },
        "outputs": [{"core": program.core_of(node).core, "node": node} for node in program.read],
        "cores": [_core(program, core) for core in program.cores],
    }


def write_chip_config(program: SpeckProgram, path: Path) -> None:
    """Write the configuration as a JSON file."""
    with atomic_write(path) as part:
        part.write_text(json.dumps(chip_config(program)))


def _core(program: SpeckProgram, core: Core) -> dict[str, Any]:
    (channels, height, width), (features, rows, columns) = core.input_shape, core.shape
    return {
        "core": core.core,
        "node": core.node,
        "dimensions": {
            "input_shape": {"size": {"x": width, "y": height}, "feature_count": channels},
            "output_shape": {"size": {"x": columns, "y": rows}, "feature_count": features},
            "padding": {"x": core.padding[1], "y": core.padding[0]},
            "stride": {"x": core.stride[1], "y": core.stride[0]},
            "kernel_size": core.weight.shape[2],
        },
        "weights": core.weight.transpose(0, 1, 3, 2).tolist(),
        "biases": core.bias.tolist(),
        "leak_enable": bool(np.any(core.bias)),
        "return_to_zero": core.zero_reset,
        "threshold_high": core.threshold,
        "threshold_low": core.floor,
        "monitor_enable": core.node in program.read,
        "neurons_initial_value": np.zeros((features, columns, rows), int).tolist(),
        "destinations": [
            {"layer": program.cores[index].core, "enable": True, "pooling": pool}
            for index, pool in program.readers(core.node)
        ],
    }
