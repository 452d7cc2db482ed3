"""A Norse model of your own: to a NIR file, checked, and run in float with everything recorded.

python examples/norse_to_nir.py [FOLDER]
"""

import sys
from pathlib import Path

import norse.torch as norse
import numpy as np
import torch
from torch import nn

from nrf.backends.reference import run
from nrf.export import Contract, from_torch, read_graph, write_graph
from nrf.export.describe import describe

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
torch.manual_seed(0)

# Two time constants in turn, one per channel; the rest is Norse's default.
taus = torch.tensor([4e-3, 16e-3, 4e-3, 16e-3]).reshape(4, 1, 1)
model = norse.SequentialState(
    nn.Conv2d(2, 4, kernel_size=5, padding=2),
    norse.LIFBoxCell(norse.LIFBoxParameters(tau_mem_inv=1 / taus, v_th=torch.tensor(0.1))),
    nn.AvgPool2d(2),
    nn.Flatten(),
    nn.Linear(4 * 8 * 8, 10),
    norse.LIBoxCell(),
)

# dt must be the cells' own; the contract says the rest: reset to zero, spike if v > threshold, no delays.
graph = from_torch(model, torch.zeros(1, 2, 16, 16), Contract(dt=1e-3, output="membrane"))
write_graph(folder / "norse.nir", graph)

for row in describe(read_graph(folder / "norse.nir")):
    print(f"{row.name:8} {row.kind:10} {row.shape!s:14} {row.neurons:5} neurons {row.synapses:7} synapses")

frames = (np.random.default_rng(0).random((100, 2, 16, 16)) < 0.1).astype(np.float32)
recording = run(read_graph(folder / "norse.nir"), frames)
recording.save(folder / "norse.npz")

# The same input through Norse, one step at a time.
state, outputs = None, []
with torch.no_grad():
    for frame in torch.as_tensor(frames):
        output, state = model(frame[None], state)
        outputs.append(output[0].numpy())
difference = np.abs(recording.membrane("5") - np.array(outputs)).max()
print(f"{recording.dense('1').sum()} spikes in layer 1; outputs differ from Norse's by {difference:.1e} V")
