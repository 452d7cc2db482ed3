"""The float graph of a trained network in snnTorch, in its environment: a loop over time around all layers.

    v = beta v + x,  z = v > threshold,  v = 0 where z       snntorch.Leaky, reset "zero" without delay

with beta = 1 - dt/tau; the factor dt/tau of our equation goes into the weights. Rounding is not the same, so
that spikes at the very threshold may differ.
"""

import json
import tempfile

import nir
import numpy as np
from numpy.typing import NDArray

from benchmarks.speed.peers import Peer
from nrf.export import Graph

WORKER = """
import json, sys, time
import numpy as np, snntorch, torch
from torch.nn import functional as F
torch.set_num_threads(1)
arrays = np.load(sys.argv[1])
tensor = lambda name: torch.as_tensor(arrays[name])
frames, layers = tensor("frames"), []
for kind, name, *size in json.loads(str(arrays["layers"])):
    if kind == "pool":
        layers.append(("pool", size[0]))
    elif kind == "conv":
        layers.append(("conv", tensor(name + "/weight"), tensor(name + "/bias"), size[0]))
    else:
        cell = snntorch.Leaky(beta=tensor(name + "/beta"), threshold=size[0], reset_mechanism="zero",
                              reset_delay=False, inhibition=False, init_hidden=False)
        layers.append((kind, cell))

def run():
    state, spikes = {}, {}
    for frame in frames:
        x = frame[None]
        for number, (kind, *parts) in enumerate(layers):
            if kind == "pool":
                x = F.avg_pool2d(x, parts[0], divisor_override=1)
            elif kind == "conv":
                x = F.conv2d(x, parts[0], parts[1], padding=parts[2])
            else:
                x, state[number] = parts[0](x, state.get(number, torch.zeros_like(x)))
                spikes[number] = spikes.get(number, 0) + x.sum()
    return [int(z) for number, z in spikes.items() if layers[number][0] == "spiking"]

for line in sys.stdin:
    start = time.process_time()
    with torch.inference_mode():
        spikes = run()
    print(json.dumps([time.process_time() - start, spikes]), flush=True)
"""


class SnnTorch(Peer):
    """A chain of convolutions, sum pools and LIF populations in snnTorch: spikes of every population."""

    def __init__(self, graph: Graph, frames: NDArray[np.generic]) -> None:
        folder = tempfile.TemporaryDirectory()
        path = f"{folder.name}/network.npz"
        np.savez(path, frames=frames.astype(np.float32), **_arrays(graph))
        super().__init__("frameworks", WORKER, folder, path)


def _arrays(graph: Graph) -> dict[str, NDArray[np.generic]]:
    """Layers in order, and their numbers in float32."""
    layers: list[tuple[object, ...]] = []
    arrays: dict[str, NDArray[np.generic]] = {}
    names = [name for name, node in graph.nodes.items() if not isinstance(node, nir.Input | nir.Output)]
    assert all(len(graph.inputs_of(name)) == 1 for name in names), "not a chain"
    for name, after in zip(names, [*names[1:], ""], strict=True):
        node = graph.nodes[name]
        if isinstance(node, nir.SumPool2d):
            layers.append(("pool", name, int(node.kernel_size[0])))
        elif isinstance(node, nir.Conv2d):
            assert {*map(int, (*node.stride, *node.dilation, node.groups))} == {1}
            rate = _rate(graph, after)[:, 0, 0]
            arrays[f"{name}/weight"] = (node.weight * rate[:, None, None, None]).astype(np.float32)
            arrays[f"{name}/bias"] = (node.bias * rate).astype(np.float32)
            layers.append(("conv", name, int(node.padding[0])))
        else:
            arrays[f"{name}/beta"] = (1 - _rate(graph, name)).astype(np.float32)
            spiking = isinstance(node, nir.LIF)
            threshold = float(np.ravel(node.v_threshold)[0]) if spiking else 1e30
            layers.append(("spiking" if spiking else "leaky", name, threshold))
    return {**arrays, "layers": np.array(json.dumps(layers))}


def _rate(graph: Graph, name: str) -> NDArray[np.float64]:
    """dt/tau of a leaky population (C, H, W)."""
    node = graph.nodes[name]
    assert isinstance(node, nir.LIF | nir.LI) and graph.contract.reset == "zero"
    return (graph.contract.dt or 1.0) / np.asarray(node.tau, np.float64)
