"""Runs in Sinabs' environment with the FAKE samna: our way to the chip, and Sinabs' own configuration.

python on_fake_chip.py FOLDER_OF_WORKER PROGRAM FRAMES ANSWER CONFIG
"""

import json
import sys
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parent / "fake_samna"), sys.argv[1]]
import chip  # noqa: E402
import torch  # noqa: E402
from sinabs.backend.dynapcnn.chips.speck2f import Speck2FConfigBuilder  # noqa: E402
from sinabs.backend.dynapcnn.dynapcnn_network import DynapcnnNetwork  # noqa: E402

with np.load(sys.argv[2]) as file:
    arrays = {name: file[name] for name in file.files}
header = json.loads(arrays.pop("header").tobytes())["program"]
frames = np.load(sys.argv[3])["frames"]
deployed: list[DynapcnnNetwork] = []
original = chip.deploy
chip.deploy = lambda *arguments: deployed.append(original(*arguments)) or deployed[-1]
cores = json.loads(Path(sys.argv[5]).read_text())["cores"]
dimensions = {core["core"]: core["dimensions"] for core in cores}
result = chip.run(header, arrays, frames, {"repeats": 2, "dt": 1e-3, "dimensions": dimensions})
network = deployed[0]
configs = {
    network.layer2core_map[index]: Speck2FConfigBuilder.get_dynapcnn_layer_config_dict(
        layer, network.layer2core_map, network.layer_destination_map[index]
    )
    for index, layer in network.dynapcnn_layers.items()
}
answer = Path(sys.argv[4])
answer.write_text(
    json.dumps(
        {
            "configs": configs,
            "spikes": {node: spikes.tolist() for node, spikes in result["spikes"].items()},
            "details": result["details"],
            "device": result["device"],
        },
        default=lambda value: value.tolist() if isinstance(value, torch.Tensor) else int(value),
    )
)
