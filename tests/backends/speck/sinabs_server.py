"""Stays open in Sinabs' environment and answers a program per line: property tests need one process.

python sinabs_server.py FOLDER_OF_WORKER      then on standard input: PROGRAM FRAMES ANSWER, all .npz
"""

import json
import sys

import numpy as np
import torch

sys.path.insert(0, sys.argv[1])
import worker

torch.set_num_threads(1)
print("ready", flush=True)
for line in sys.stdin:
    program, frames, answer = line.split()
    with np.load(program) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(arrays.pop("header").tobytes())["program"]
    spikes, membranes = worker.simulate(header, arrays, np.load(frames)["frames"])
    found = {f"{node}/s": x.numpy() for node, x in spikes.items()}
    np.savez(answer, **found, **{f"{node}/v": x.numpy() for node, x in membranes.items()})
    print("done", flush=True)
