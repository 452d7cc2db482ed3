"""Memory over 1,000 clips: `nrf run`, and `nrf conform --jobs 2`, on files that are read one at a time.

    python -m benchmarks.many_clips [CLIPS]

Prints the resident memory of the main process and of its workers after some clips.
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np

import nrf
from nrf.backends.conformance.cases import load_case

AT = (1, 10, 100, 250, 500, 750, 1000)


def resident(pid: int) -> float:
    """Megabytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def workers() -> list[int]:
    """Processes that this one has started."""
    pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return [pid for pid in pids if _parent(pid) == os.getpid()]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended meanwhile
        return 0


def say(what: str, done: int) -> None:
    """One line, at some clips."""
    if done in AT:
        others = sum(resident(pid) for pid in workers())
        print(
            f"{what}: {done:5} clips, main {resident(os.getpid()):4.0f} MB, workers {others:4.0f} MB",
            flush=True,
        )


def main() -> None:
    """Make the clips, run and compare them."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    case, rng = load_case("deep_chain"), np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "clips"
        folder.mkdir()
        for n in range(count):
            shuffled = rng.permutation(case.clip.frames)
            np.savez_compressed(folder / f"{n:05}.npz", frames=shuffled)
        for done, _ in enumerate(nrf.run_many(case.graph, [folder]), 1):
            say("run", done)
        nrf.conform(
            case.graph, "speck2f", [folder], runtimes=["builtin"], jobs=2,
            progress=lambda done, of: say("conform --jobs 2", done),
        )  # fmt: skip


if __name__ == "__main__":
    main()
