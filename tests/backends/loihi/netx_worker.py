"""Runs a `.net` file with the real lava.lib.dl.netx in lava-dl's environment; used by test_net_file.py."""

import numpy as np


def run(header, arrays, frames, options):
    from lava.lib.dl.netx.hdf5 import Network
    from lava.magma.core.run_conditions import RunSteps
    from lava.magma.core.run_configs import Loihi2SimCfg
    from lava.proc.io.sink import RingBuffer as Sink
    from lava.proc.io.source import RingBuffer as Source

    network = Network(net_config=options["net"], input_message_bits=24)
    clip = frames.transpose(0, *range(frames.ndim - 1, 0, -1)) if len(network.inp.shape) > 1 else frames
    data = np.moveaxis(clip.reshape(len(frames), *network.inp.shape), 0, -1).astype(int)
    source = Source(data=np.ascontiguousarray(data))
    source.s_out.connect(network.inp)
    sinks = []
    for layer in network.layers:
        sinks.append(Sink(shape=layer.shape, buffer=len(frames)))
        layer.neuron.s_out.connect(sinks[-1].a_in)
    network.run(condition=RunSteps(num_steps=len(frames)), run_cfg=Loihi2SimCfg(select_tag="fixed_pt"))
    spikes = {}
    for (name, entry), sink in zip(header["neurons"].items(), sinks, strict=True):
        seen = np.moveaxis(sink.data.get(), -1, 0)
        seen = seen.transpose(0, *range(seen.ndim - 1, 0, -1))
        spikes[name] = seen.reshape(len(frames), *entry["shape"]).astype(int)
    network.stop()
    return {"spikes": spikes, "runtime": "lava", "device": "simulation", "versions": {}}
