"""Runs a Loihi 2 program on Lava: its fixed-point simulation, or the chip where Intel's extension is.

Uses the standard library, NumPy, SciPy (which Lava brings) and Lava. Populations are flat, in the order of
the program (channels, rows, columns); Lava's Conv counts (columns, rows, channels) and turns its kernel.
"""

import platform
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

UNITY = 4096  # ATRLIF takes its decays as fractions, and counts in these
DENSE = 0.5  # share of entries from which a matrix becomes Dense instead of Sparse


def run(
    header: dict[str, Any], arrays: dict[str, Any], frames: Any, options: dict[str, Any]
) -> dict[str, Any]:
    """Spikes and integer states of all populations; see nrf/backends/vendors/worker_main.py."""
    from lava.magma.core.run_conditions import RunSteps
    from lava.utils import loihi

    chip = bool(options.get("chip"))
    if chip and not loihi.is_installed():
        raise RuntimeError("Intel's lava-loihi extension is not installed here")
    with tempfile.TemporaryDirectory() as folder:
        states = bool(options.get("states", True))
        populations, files = build(header, arrays, frames, Path(folder), chip, states)
        first = next(iter(populations.values()))
        first.create_runtime(run_cfg=run_config(chip))
        start = time.perf_counter()
        first.run(condition=RunSteps(num_steps=len(frames)))
        seconds = time.perf_counter() - start
        first.stop()
        shapes = {name: entry["shape"] for name, entry in header["neurons"].items()}
        kept = {name: np.array(np.memmap(path, np.int32, "r")) for name, path in files.items()}
    kept = {name: data.reshape(len(frames), 4, *shapes[name]) for name, data in kept.items()}
    subtracting = [name for name, entry in header["neurons"].items() if entry["subtracts"]]
    return {
        "spikes": {name: data[:, 0] for name, data in kept.items()},
        "membranes": {name: data[:, 2] - data[:, 3] for name, data in kept.items()}
        | {name + "/u": data[:, 1] for name, data in kept.items()}
        | {name + "/r": kept[name][:, 3] for name in subtracting},
        "latencies": {name: entry["latency"] for name, entry in header["neurons"].items()},
        "runtime": "loihi2" if chip else "lava",
        "device": "chip" if chip else "simulation",
        "versions": {"lava-nc": version("lava-nc"), "python": platform.python_version()},
        "details": {"seconds": seconds},  # without compiling and starting
    }


def run_config(chip: bool) -> Any:
    """Lava's choice of models: those that run on the chip, or those that count as it does."""
    from lava.magma.core.run_configs import Loihi2HwCfg, Loihi2SimCfg

    return Loihi2HwCfg() if chip else Loihi2SimCfg(select_tag="fixed_pt")


def build(
    header: dict[str, Any], arrays: dict[str, Any], frames: Any, folder: Path, chip: bool, states: bool
) -> tuple[dict[str, Any], dict[str, Path]]:
    """All processes, connected; populations by name, and the files that their recorders write."""
    from lava.proc.io.source import RingBuffer
    from lava_processes.processes import Recorder, Relay

    data = np.ascontiguousarray(frames.reshape(len(frames), -1).T.astype(np.int32))
    outputs = {header["input"]: RingBuffer(data=data).s_out}
    populations, files = {}, {}
    for number, (name, entry) in enumerate(header["neurons"].items()):
        lif = population(entry, arrays)
        populations[name], files[name], outputs[name] = lif, folder / str(number), lif.s_out
        Recorder(lif, steps=len(frames), path=str(files[name]), states=states)
    for entry in header["synapses"]:
        spikes = outputs[entry["source"]]
        if entry["delay"]:
            relay = Relay(size=spikes.size, steps=entry["delay"])
            spikes.connect(relay.s_in)
            spikes = relay.s_out
        graded = 24 if entry["source"] == header["input"] else 0
        connect = convolution if entry["operator"]["kind"] == "conv" else matrix
        connect(entry, arrays, graded, spikes, populations[entry["target"]].a_in, chip)
    return populations, files


def population(entry: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """A population of LIF neurons, or of ATRLIF that subtract; one number where all neurons share it."""
    from lava.proc.atrlif.process import ATRLIF
    from lava.proc.lif.process import LIF

    size = int(np.prod(entry["shape"]))

    def each(key: str, one: bool = False) -> Any:
        array = arrays[entry[key]].astype(int)
        if one and len(np.unique(array)) == 1:
            return int(array[0])
        return np.repeat(array, size // len(array))

    common = {"shape": (size,), "v": each("v0"), "bias_mant": each("bias_mant"), "bias_exp": each("bias_exp")}
    du, dv, vth = (each(key, one=True) for key in ("du", "dv", "vth"))
    if not entry["subtracts"]:
        return LIF(u=each("u0"), du=du, dv=dv, vth=vth, **common)
    return ATRLIF(
        i=each("u0"),
        theta=vth,
        theta_0=vth,
        delta_i=du / UNITY,  # Lava adds 1 / 4096 to it
        delta_v=dv / UNITY,
        delta_r=dv / UNITY,
        delta_theta=0,
        theta_step=0,
        **common,
    )


def matrix(
    entry: dict[str, Any], arrays: dict[str, Any], graded: int, spikes: Any, target: Any, chip: bool
) -> None:
    """Dense or Sparse. Weights are doubled since mixed signs cost the lowest of nine bits."""
    from lava.proc.dense.process import Dense
    from lava.proc.sparse.process import Sparse
    from lava.utils.weightutils import SignMode

    csr = entry["operator"]["weight"]
    data, indices, indptr = (arrays[csr[key]] for key in ("data", "indices", "indptr"))
    doubled = csr_matrix((data.astype(np.int32) * 2, indices, indptr), shape=csr["shape"])
    dense = doubled.nnz >= DENSE * np.prod(csr["shape"])
    kind = Dense if dense else Sparse
    synapses = kind(
        weights=doubled.toarray() if dense else doubled,
        weight_exp=entry["exponent"] - 1,
        sign_mode=SignMode.MIXED,
        num_message_bits=graded,
    )
    spikes.connect(synapses.s_in)
    synapses.a_out.connect(target)


def convolution(
    entry: dict[str, Any], arrays: dict[str, Any], graded: int, spikes: Any, target: Any, chip: bool
) -> None:
    """Conv. Its CPU model ignores the exponent: there the weights are shifted instead, or the sums."""
    from lava.proc.conv.process import Conv
    from lava_processes.processes import Relay

    conv, exponent = entry["operator"], entry["exponent"]
    kernel = arrays[conv["weight"]].astype(np.int32)
    if not chip:
        kernel = kernel << max(exponent, 0)
    synapses = Conv(
        weight=np.ascontiguousarray(kernel[:, :, ::-1, ::-1].transpose(0, 3, 2, 1)),
        weight_exp=exponent if chip else 0,
        input_shape=tuple(conv["input_shape"][::-1]),
        stride=tuple(conv["stride"][::-1]),
        padding=tuple(conv["padding"][::-1]),
        dilation=tuple(conv["dilation"][::-1]),
        groups=conv["groups"],
        num_message_bits=graded,
    )
    spikes.reshape(tuple(conv["input_shape"])).transpose([2, 1, 0]).connect(synapses.s_in)
    sums = synapses.a_out.transpose([2, 1, 0]).flatten()
    if exponent < 0 and not chip:
        relay = Relay(size=int(np.prod(synapses.a_out.shape)), bits=-exponent)
        sums.connect(relay.s_in)
        sums = relay.s_out
    sums.connect(target)
