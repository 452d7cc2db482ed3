"""The vendor's side of the protocol: program and frames in, recording out. Or by hand, on a chip's host:

    python worker_main.py WORKER.py PROGRAM FRAMES.npz RECORDING.npz ['{"option": 1}']

Runs on Python 3.10 with NumPy alone; `nrf` is not installed here. WORKER.py holds one function:

    def run(program, arrays, frames, options):
        '''program: its fields as the file has them, with the names of `arrays` in the place of arrays.
        frames: (T, *input shape). options: a dictionary.'''
        return {
            "spikes": {"lif1": counts},          # node -> integer counts (T, *shape of the node)
            "membranes": {"lif1": volts},        # node -> (T, *shape), where recorded; may be absent
            "latencies": {"lif1": 1},            # node -> steps against the contract; may be absent
            "runtime": "lava",                   # what really ran
            "device": "simulation",              # simulation | chip
            "versions": {"lava-nc": "0.10.0"},
            "counters": {}, "details": {},       # may be absent
        }

An exception ends in RECORDING.npz.error as a traceback and exit code 1. Modules beside WORKER.py can be
imported by it; Lava runs every file beside a custom Process, so keep those in a folder of their own.
"""

import importlib.util
import json
import multiprocessing.shared_memory as shared_memory
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

RECORDING_VERSION = 2  # as in nrf/backends/border/recording.py


def write_recording(path: str, result: dict[str, Any], program: dict[str, Any], steps: int) -> None:
    """The format of nrf.backends.border.recording, sparse spikes sorted by step then neuron."""
    result = {"membranes": {}, "latencies": {}, "counters": {}, "details": {}, **result}
    arrays: dict[str, NDArray[Any]] = {}
    shapes: dict[str, list[int]] = {}
    for node, counts in result["spikes"].items():
        counts = np.asarray(counts)
        if len(counts) != steps:
            raise ValueError(f"node '{node}': {len(counts)} steps recorded, {steps} given")
        flat = counts.reshape(steps, int(np.prod(counts.shape[1:])))
        t, i = np.nonzero(flat)
        arrays |= {f"{node}/t": t, f"{node}/i": i, f"{node}/n": flat[t, i].astype(np.int64)}
        shapes[node] = list(counts.shape[1:])
    for node, volts in result["membranes"].items():
        arrays[f"{node}/v"] = np.asarray(volts)
        shapes[node] = list(np.shape(volts)[1:])
    said = {key: result[key] for key in ("runtime", "device", "versions", "counters", "details")}
    header = {
        "version": RECORDING_VERSION,
        "steps": steps,
        "shapes": shapes,
        "latencies": result["latencies"],
        "provenance": said | {"target": program["target"], "checksum": program["checksum"]},
    }
    text = json.dumps(header, default=int)  # counts may be NumPy's
    arrays["header"] = np.frombuffer(text.encode(), np.uint8)
    part = Path(f"{path}.part")
    with part.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    part.replace(path)  # the parent never sees half a recording


def die_with_parent(segments: str) -> None:
    """End this process group when the parent ends, however it ends: its end of our standard input closes."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        for path in Path("/dev/shm").glob(f"{segments}*"):
            path.unlink(missing_ok=True)  # its siblings watch as well
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def name_segments(prefix: str) -> None:
    """Give all shared memory of this process and its forks one prefix, so that the parent can remove it."""
    names: Any = shared_memory  # where multiprocessing keeps its own prefix, "/psm_"
    names._SHM_NAME_PREFIX = f"/{prefix}"
    names._SHM_SAFE_NAME_LENGTH = len(prefix) + 9


def load(worker: Path) -> Any:
    """The worker as a module under its own name, whatever else the environment calls so."""
    sys.path.append(str(worker.parent))
    spec = importlib.util.spec_from_file_location(worker.stem, worker)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[worker.stem] = module
    spec.loader.exec_module(module)
    return module


def main(
    worker: str, file: str, frames: str, recording: str, options: str = "{}", segments: str = ""
) -> None:
    """Run one clip; ends the process."""
    code = 0
    try:
        if segments:  # set by the parent
            name_segments(segments)
            die_with_parent(segments)
        arrays = dict(np.load(file, allow_pickle=False))
        header = json.loads(arrays.pop("header").tobytes())
        program = header["program"] | {"checksum": header["checksum"]}
        clip = np.load(frames, allow_pickle=False)["frames"]
        result = load(Path(worker)).run(program, arrays, clip, json.loads(options))
        write_recording(recording, result, program, len(clip))
    except BaseException:
        Path(f"{recording}.error").write_text(traceback.format_exc())
        code = 1
    sys.stdout.flush()
    os._exit(code)  # not sys.exit: threads and children of a broken simulator would keep us here


if __name__ == "__main__":
    main(*sys.argv[1:])
