"""Much of everything: `python -m tests.fuzz.load [clips] [stream] [setup]`.

    clips    `nrf run` over 1,000 clips
    stream   a million steps through the session of a program, a thousand at a time
    setup    10 processes that build one vendor's environment at once: one builds, all get the same

What memory a process has after a tenth of its work, and at most in the rest, goes into docs/reliability.md.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from tests.fuzz import book, kills

CLIPS, STEPS, BLOCK, BUILDERS = 1_000, 1_000_000, 1_000, 10


def main() -> None:
    """Do each, and write down what it took."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.load", description=__doc__)
    loads: dict[str, Callable[[Path], dict[str, object]]] = {"clips": clips, "stream": stream, "setup": setup}
    parser.add_argument("loads", nargs="*", help=", ".join(loads))
    for name in parser.parse_args().loads or loads:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="load-") as folder:
            figures = loads[name](Path(folder))
        print(name, figures, f"{time.monotonic() - begin:.0f} s", flush=True)
        with book.entry("load", name) as row:
            row.clear()
            row |= {**figures, "at": book.commit()}


def clips(folder: Path) -> dict[str, object]:
    """1,000 clips through a program, a recording of each."""
    (folder / "clips").mkdir()
    rng = np.random.default_rng(0)
    for number in range(CLIPS):
        frames = (rng.random((20, 2, 8, 8)) < 0.2).astype(np.uint8)
        np.savez(folder / "clips" / f"{number:04}.npz", frames=frames)
    program, out = kills.SEEDS / "maps.loihi2", folder / "out"
    words = ["run", str(program), "-i", str(folder / "clips"), "-o", str(out), "--runtime", "builtin"]
    process = kills.start(words, folder)
    early = late = 0
    while kills.running(process):
        if out.is_dir() and len(list(out.iterdir())) >= CLIPS // 10:
            late = max(late, _resident(process))
            early = early or late
        time.sleep(0.05)
    assert kills.wait(process) == 0, (folder / "said").read_text()
    return _flat(f"{len(list(out.glob('*.npz'))):,} recordings", early, late)


def stream(folder: Path) -> dict[str, object]:
    """A million steps, whose state is kept from block to block."""
    from nrf.api.files import load_program
    from nrf.backends.border import backend_of

    chip, program = load_program(kills.SEEDS / "loop.loihi2")
    session, rng = backend_of(chip).session(program), np.random.default_rng(0)
    early = late = spikes = 0
    for block in range(STEPS // BLOCK):
        frames = rng.integers(0, 4, (BLOCK, *program.input_shape))
        spikes += sum(events.count for events in session(frames).spikes.values())
        if block >= STEPS // BLOCK // 10:
            late = max(late, _resident(os.getpid()))
            early = early or late
    return _flat(f"{STEPS:,} steps, {spikes:,} spikes", early, late)


def setup(folder: Path) -> dict[str, object]:
    """Ten builds of one small environment at once."""
    (folder / "work").mkdir()
    kills.prepare(folder / "work")
    os.environ["NRF_CACHE"] = str(folder / "cache")
    folders = [folder / str(number) for number in range(BUILDERS)]
    for one in folders:
        one.mkdir()
    processes = [kills.start(["setup", "toy"], one) for one in folders]
    codes = [kills.wait(process) for process in processes]
    said = [(one / "said").read_text() for one in folders]
    builds = sum("Installing collected packages" in text for text in said)
    pythons = {text.strip().splitlines()[-1] for text in said}
    assert codes == [0] * BUILDERS, said
    return {"what": f"{BUILDERS} processes, {builds} built, {len(pythons)} result"}


def _flat(what: str, early: int, late: int) -> dict[str, object]:
    return {"what": what, "MB after a tenth": early >> 20, "MB at most": late >> 20}


def _resident(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main())
