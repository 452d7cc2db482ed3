"""Lowering to Loihi 2 in a process of its own: the trained demo, and the preset `paper`, fresh.

    python -m benchmarks.speed.lowering lower model.nir

prints CPU seconds to load torch, to read, to check and to lower, and the most memory in gigabytes, as JSON.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from benchmarks.speed.rows import Row, Size


def lowering(size: Size) -> Iterator[Row]:
    """Choosing all numbers of the trained demo anew, its clips included; then the largest preset."""
    if size.short:
        return
    demo = size.trained / "demo" / "loihi2" / "model.nir"
    if demo.is_file():
        _in_a_process("lower", demo)  # byte code and kernels are on disk, as for whoever has lowered before
        loading, *_, lowered, _ = _in_a_process("lower", demo)
        seconds, note = loading + lowered, f"a new process; {loading:.1f} s of it load torch"
        yield Row("lowering the trained demo to loihi2, CPU", seconds, "s", 2.0, seconds, seconds, note)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "paper.nir"
        _in_a_process("write", path)
        *times, gigabytes = _in_a_process("lower", path)
    seconds, work = sum(times), "`paper` read, checked and lowered"
    note = "a new process; torch loaded {:.1f}, read {:.1f}, checked {:.1f}, lowered {:.1f} s".format(*times)
    yield Row(f"{work}, CPU", seconds, "s", 20.0, seconds, seconds, note)
    yield Row(f"{work}, memory", gigabytes, "GB", 3.0, gigabytes, gigabytes)


def _in_a_process(step: str, path: Path) -> list[float]:
    call = [sys.executable, "-m", "benchmarks.speed.lowering", step, str(path)]
    with_byte_code = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # as an installed package has
    done = subprocess.run(call, check=True, capture_output=True, text=True, env=with_byte_code)
    figures: list[float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def write(path: str) -> list[float]:
    """The graph of the preset."""
    from nrf.export import write_graph
    from nrf.export.trained import from_network
    from nrf.model.network import build
    from nrf.training.presets import load_preset

    write_graph(path, from_network(build(load_preset("paper").network)))
    return []


def lower(path: str) -> list[float]:
    """CPU seconds to load torch, to read, to check and to lower; gigabytes at most."""
    import nrf
    from nrf.cli.memory import keep_freed_memory
    from nrf.lazy import load_numba

    keep_freed_memory()  # as `nrf` does
    clock = [time.process_time()]
    import torch  # noqa: F401

    clock.append(time.process_time())
    graph = nrf.read(path)
    clock.append(time.process_time())
    load_numba()  # as `nrf` does
    nrf.check(graph, "loihi2")
    clock.append(time.process_time())
    nrf.lower(graph, "loihi2")
    clock.append(time.process_time())
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9  # Linux counts in KiB
    return [*(after - before for before, after in pairwise(clock)), most]


if __name__ == "__main__":
    print(json.dumps({"write": write, "lower": lower}[sys.argv[1]](sys.argv[2])))
