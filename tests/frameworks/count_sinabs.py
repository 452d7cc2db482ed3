"""A Sinabs network with its NIR file, its spikes, and the synaptic operations that Sinabs itself counts."""

import json
import sys
import warnings
from pathlib import Path

import nir
import numpy as np
import sinabs.layers as sl
import torch
from sinabs.nir import to_nir
from sinabs.synopcounter import SNNAnalyzer
from torch import nn
from witness import save

SHAPE, STEPS = (2, 12, 12), 40

warnings.simplefilter("ignore")
torch.manual_seed(5)
network = nn.Sequential(
    nn.Conv2d(2, 4, 5, stride=2, padding=1, bias=False),
    sl.IAFSqueeze(batch_size=1),
    nn.Conv2d(4, 6, 3, padding=1, bias=False),
    sl.IAFSqueeze(batch_size=1),
    nn.Flatten(),
    nn.Linear(6 * 5 * 5, 7, bias=False),
    sl.IAFSqueeze(batch_size=1),
)
for module in network:
    if hasattr(module, "weight"):
        module.weight.data = module.weight.data * 2 + 0.05
frames = (np.random.default_rng(6).random((STEPS, *SHAPE)) < 0.2).astype(np.float32)
folder = Path(sys.argv[1])
with torch.no_grad():
    graph = to_nir(network, torch.zeros(1, *SHAPE))
    graph.infer_types()
    nir.write(folder / "network.nir", graph)
    for module in network:
        if hasattr(module, "reset_states"):
            module.reset_states()
    analyzer = SNNAnalyzer(network)
    spikes, x = {}, torch.from_numpy(frames)
    for name, module in network.named_children():
        x = module(x)
        if isinstance(module, sl.IAFSqueeze):
            spikes[name] = x.numpy().astype(np.int64)
counts = analyzer.get_layer_statistics()["parameter"]
save(folder / "network.npz", frames.astype(np.uint8), spikes)
print(json.dumps({name: float(entry["synops"]) for name, entry in counts.items()}))
