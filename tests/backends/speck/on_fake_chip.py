"""Stays open in Sinabs' environment with the FAKE samna: our way to the chip, and Sinabs' own configuration.

python on_fake_chip.py FOLDER_OF_WORKER        then a line of JSON on standard input for every program:
    {"program", "frames", "config", "answer": paths, "options": of the device code, "choices": of the board,
     "trace": whether Sinabs is to make a configuration of its own}
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parent / "fake_samna"), sys.argv[1]]
import chip  # noqa: E402
import samna  # noqa: E402
import sinabs.layers as sl  # noqa: E402
import torch  # noqa: E402
from sinabs.backend.dynapcnn import DynapcnnNetwork  # noqa: E402
from sinabs.backend.dynapcnn.chips.speck2f import Speck2FConfigBuilder  # noqa: E402
from sinabs.backend.dynapcnn.dvs_layer import DVSLayer  # noqa: E402
from torch import nn  # noqa: E402
from worker import convolution, neurons  # noqa: E402


class Cores(nn.Module):
    """All populations as one module that Sinabs can trace: convolution, neurons, and pooling on the way."""

    def __init__(self, program, arrays):
        super().__init__()
        self.program = program
        for index, population in enumerate(program["populations"]):
            setattr(self, f"conv{index}", convolution(population, arrays))
            setattr(self, f"spikes{index}", neurons(population, sl.IAFSqueeze, batch_size=1))
            for number, source in enumerate(population["sources"]):
                # pooling by 1 as well: Sinabs 3.1.3 fails on a mixture
                if source["name"] != program["input"]:
                    setattr(self, f"pool{index}_{number}", sl.SumPool2d(source["pool"]))
            if len(population["sources"]) > 1:
                setattr(self, f"merge{index}", sl.Merge())

    def forward(self, x):
        """Spikes of the last population; the input is pooled already, as the host does that."""
        seen = {self.program["input"]: x}
        for index, population in enumerate(self.program["populations"]):
            arriving = []
            for number, source in enumerate(population["sources"]):
                pool = getattr(self, f"pool{index}_{number}", None)
                arriving.append(pool(seen[source["name"]]) if pool else seen[source["name"]])
            merged = getattr(self, f"merge{index}")(*arriving) if len(arriving) > 1 else arriving[0]
            seen[population["node"]] = getattr(self, f"spikes{index}")(getattr(self, f"conv{index}")(merged))
        return seen[self.program["populations"][-1]["node"]]


def configurations(program, arrays):
    """What Sinabs makes of the cores of a program that it can trace, its cores where ours are."""
    entry = next(
        c for c in program["populations"] if any(s["name"] == program["input"] for s in c["sources"])
    )
    shape = tuple(entry["input_shape"])
    network = DynapcnnNetwork(Cores(program, arrays), input_shape=shape, discretize=False)
    core_map = {}
    for layer, content in network.dynapcnn_layers.items():  # Sinabs numbers layers in its own way
        weight = content.conv_layer.weight.detach().numpy()
        population = next(
            each for each in program["populations"] if np.array_equal(weight, arrays[each["weight"]])
        )
        core_map[layer] = population["core"]
    return {
        core_map[index]: Speck2FConfigBuilder.get_dynapcnn_layer_config_dict(
            layer, core_map, network.layer_destination_map[index]
        )
        for index, layer in network.dynapcnn_layers.items()
    }


def sensor_stage(asked):
    """What Sinabs makes of a sensor stage: its configuration, and frames that passed it."""
    layer = DVSLayer(**asked["stage"])
    frames = torch.tensor(np.load(asked["frames"])["frames"].astype(np.float32))
    return {"config": layer.get_config_dict(), "frames": layer(frames).tolist()}


def answer(asked):
    """What the device code says to a program, and the board's configuration as Sinabs would make it."""
    with np.load(asked["program"]) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(arrays.pop("header").tobytes())["program"]
    samna.BOARD.choices = asked["choices"]
    options = {"dt": 1e-3, "config": asked["config"], **asked["options"]}
    result = chip.run(header, np.load(asked["frames"])["frames"], options)
    return {
        "configs": configurations(header, arrays) if asked["trace"] else {},
        "spikes": {node: spikes.tolist() for node, spikes in result["spikes"].items()},
        "details": result["details"],
        "counters": result["counters"],
        "device": result["device"],
    }


time.sleep = samna.BOARD.sleep  # the board's time is not ours
print("ready", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    found = sensor_stage(asked) if "stage" in asked else answer(asked)
    plain = json.dumps(
        found, default=lambda value: value.tolist() if isinstance(value, torch.Tensor) else int(value)
    )
    Path(asked["answer"]).write_text(plain)
    print("done", flush=True)
