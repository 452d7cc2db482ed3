"""A snnTorch network with its NIR file, its spikes, and what NeuroBench counts in it."""

import json
import sys
import warnings
from pathlib import Path

import nir
import numpy as np
import snntorch
import torch
from neurobench.metrics.workload import ActivationSparsity, MembraneUpdates, SynapticOperations
from neurobench.models import SNNTorchModel
from snntorch.export_nir import export_to_nir
from torch import nn
from witness import save

SHAPE, STEPS, CLIPS = (2, 8, 8), 30, 3

warnings.simplefilter("ignore")
torch.manual_seed(5)
network = nn.Sequential(
    nn.Conv2d(2, 3, 3, stride=2, bias=False),
    snntorch.Leaky(torch.full((3, 3, 3), 0.8), torch.full((3, 3, 3), 0.4), init_hidden=True),
    nn.Flatten(),
    nn.Linear(27, 10, bias=False),
    snntorch.Leaky(torch.full((10,), 0.9), torch.full((10,), 0.3), init_hidden=True, output=True),
)
rates = np.random.default_rng(6).random((CLIPS, STEPS, *SHAPE))
frames = torch.from_numpy((rates < 0.3).astype(np.float32))
folder = Path(sys.argv[1])
with torch.no_grad():
    model = SNNTorchModel(network)
    model.register_hooks()
    metrics = [SynapticOperations(), ActivationSparsity(), MembraneUpdates()]
    for metric in metrics[::2]:
        metric.reset()
    sparsity = []
    spikes = {name: [] for name, module in network.named_children() if isinstance(module, snntorch.Leaky)}
    for clip in frames:
        snntorch.utils.reset(network)
        model.reset_hooks()
        x = clip[None]
        model(x)
        data = (x, torch.zeros(1))
        metrics[0](model, None, data)
        sparsity.append(metrics[1](model, None, data))
        metrics[2](model, None, data)
        for hook in model.activation_hooks:
            spikes[hook.name].append(torch.cat(hook.activation_outputs).numpy().astype(np.int64))
    counts = {
        "SynapticOperations": metrics[0].compute(),
        "ActivationSparsity": float(np.mean(sparsity)),
        "MembraneUpdates": metrics[2].compute(),
    }
    model.cleanup_hooks()
    snntorch.utils.reset(network)
    graph = export_to_nir(network, torch.zeros(1, *SHAPE), ignore_dims=[0])
    nir.write(folder / "network.nir", graph, compression=None)
for n, clip in enumerate(frames):
    recorded = {name: clips[n] for name, clips in spikes.items()}
    save(folder / f"clip{n}.npz", clip.numpy().astype(np.uint8), recorded)
print(json.dumps(counts, default=float))
