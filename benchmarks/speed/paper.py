"""The preset `paper` with fresh weights, checked and lowered to Loihi 2 in a process of its own.

python -m benchmarks.speed.paper            CPU seconds and the most memory of check and lower, as JSON
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.speed.rows import Row, Size


def paper(size: Size) -> Iterator[Row]:
    """The largest preset, in a process of its own."""
    if not size.short:
        seconds, gigabytes = checked_and_lowered()
        work = "`paper` read, checked and lowered"
        yield Row(f"{work}, CPU", seconds, "s", 20.0, seconds, seconds, "once, cold")
        yield Row(f"{work}, memory", gigabytes, "GB", 3.0, gigabytes, gigabytes)


def checked_and_lowered() -> tuple[float, float]:
    """CPU seconds, and gigabytes at most, of a process that reads the graph, checks and lowers it."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "paper.nir")
        for step in ("write", "lower"):
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.speed.paper", step, path],
                check=True,
                capture_output=True,
                text=True,
            )
    seconds, gigabytes = json.loads(done.stdout.splitlines()[-1])
    return seconds, gigabytes


def main(step: str, path: str) -> None:
    """Write the graph, or check and lower it."""
    if step == "write":
        from nrf.export import write_graph
        from nrf.export.trained import from_network
        from nrf.model.network import build
        from nrf.training.presets import load_preset

        write_graph(path, from_network(build(load_preset("paper").network)))
        return
    import nrf

    start = time.process_time()
    graph = nrf.read(path)
    nrf.check(graph, "loihi2")
    nrf.lower(graph, "loihi2")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9  # Linux counts in KiB
    print(json.dumps([time.process_time() - start, most]))


if __name__ == "__main__":
    if sys.argv[1:]:
        main(*sys.argv[1:])
    else:
        print(json.dumps(checked_and_lowered()))
