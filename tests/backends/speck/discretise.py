"""Runs in Sinabs' environment with the FAKE samna: Sinabs' own discretisation of many layers.

python discretise.py LAYERS.npz ANSWER.npz
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "fake_samna"))
import sinabs.layers as sl
import torch
from sinabs.backend.dynapcnn.discretize import discretize_conv_spike
from torch import nn

layers = np.load(sys.argv[1])
answer = {}
for index in range(int(layers["count"])):
    weight, bias = (torch.tensor(layers[f"{index}/{key}"]) for key in ("weight", "bias"))
    conv = nn.Conv2d(weight.shape[1], weight.shape[0], weight.shape[2])
    conv.weight.data, conv.bias.data = weight, bias
    low, high = layers[f"{index}/bounds"].tolist()
    neurons = sl.IAF(spike_threshold=high, min_v_mem=None if np.isnan(low) else low)
    conv, neurons = discretize_conv_spike(conv, neurons, to_int=True)
    answer[f"{index}/weight"], answer[f"{index}/bias"] = (
        conv.weight.detach().numpy(),
        conv.bias.detach().numpy(),
    )
    answer[f"{index}/bounds"] = np.array([int(neurons.min_v_mem), int(neurons.spike_threshold)])
np.savez(sys.argv[2], **answer)
