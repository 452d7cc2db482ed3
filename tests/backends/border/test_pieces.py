"""A run that is written piece by piece is the run: the same recording, in memory that does not grow."""

import subprocess
import sys
import tracemalloc
from itertools import pairwise
from pathlib import Path

import nir
import numpy as np
import pytest

import nrf
from nrf.api import running
from nrf.backends.border import Recording, archive, chip_names
from nrf.events import make, write
from nrf.export import Contract, Graph, canonical
from nrf.model.readout import Readout


def graph(contract: Contract) -> Graph:
    """Events of 8x8 pixels through two layers."""
    shape, rng = (2, 8, 8), np.random.default_rng(0)
    nodes: dict[str, nir.NIRNode] = {"input": nir.Input(np.array(shape))}
    for name in ("1", "2"):
        weight = rng.integers(-10, 40, (2, 2, 3, 3)) / 64
        nodes["conv" + name] = nir.Conv2d((8, 8), weight, 1, 1, 1, 1, np.zeros(2))
        nodes["n" + name] = nir.IF(np.full(shape, 1e3), np.ones(shape), np.zeros(shape))
    nodes["output"] = nir.Output(np.array(shape))
    names = list(nodes)
    return canonical(nir.NIRGraph(nodes, list(pairwise(names)), type_check=False), contract, "test")


def program(folder: Path, chip: str, **contract: object) -> Path:
    """A program file."""
    speck = chip == "speck2f"
    fields = {"dt": 1e-3, "fire": "ge", "reset": "subtract" if speck else "zero"} | contract
    fields |= {"v_min": -1.0} if speck else {}
    nrf.lower(graph(Contract(**fields)), chip, out=folder / "program")  # type: ignore[arg-type]
    return folder / "program"


def events(path: Path, steps: int) -> Path:
    """A recording of a camera."""
    rng = np.random.default_rng(1)
    t, place = np.sort(rng.integers(0, steps * 1000, 8 * steps)), rng.integers(0, 8, (2, 8 * steps))
    write(path, make(t, *place, rng.integers(0, 2, 8 * steps), (8, 8), start=0, stop=steps * 1000))
    return path


READOUTS: list[dict[str, object]] = [
    {},
    {"readout": Readout(gain=5.0, leak=0.1)},
    {"classes": 0},
    {"classes": 3},
    {"classes": 0, "delay": 1},
    {"classes": 40, "emit": "late"},
    {"classes": 1, "output": "membrane"},
]


@pytest.mark.parametrize("contract", READOUTS, ids=str)
@pytest.mark.parametrize("chip", chip_names())
@pytest.mark.parametrize("steps", [1, 7])
def test_pieces_make_the_recording_of_the_whole(
    chip: str, contract: dict[str, object], steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if chip not in ("loihi2", "speck2f"):
        pytest.skip("its package says what it lowers")
    path, clip = program(tmp_path, chip, **contract), events(tmp_path / "clip.csv", 60)
    monkeypatch.setattr(running, "PIECE", steps * 128)
    monkeypatch.setattr(archive, "HELD", 100)  # bytes, so that most of it waits on disk
    whole = nrf.run(path, clip)
    summary = nrf.record(path, clip, tmp_path / "out.npz")
    written = Recording.load(tmp_path / "out.npz")
    assert (
        written == whole and written.provenance == whole.provenance and written.decisions == whole.decisions
    )
    assert summary.counts == {name: spikes.count for name, spikes in whole.spikes.items()}
    assert whole.latencies == written.latencies and any(summary.counts.values())


def test_memory_does_not_grow_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path, "speck2f")
    monkeypatch.setattr(running, "PIECE", 2**16)
    monkeypatch.setattr(archive, "HELD", 2**16)
    peaks = []
    for steps in (2000, 20_000):
        clip = nrf.api.running.read_events(events(tmp_path / f"{steps}.npz", steps))
        frames = tmp_path / "clip.npz"
        write(frames, clip)
        tracemalloc.start()
        nrf.record(path, frames, tmp_path / "out.npz")
        peaks.append(tracemalloc.get_traced_memory()[1] - 48 * len(clip))  # reading events takes memory
        tracemalloc.stop()
    assert peaks[1] < 1.5 * max(peaks[0], 2**22), peaks


@pytest.mark.parametrize("chip", ["loihi2", "speck2f"])
def test_running_a_program_imports_nothing_slow_that_it_does_not_need(chip: str, tmp_path: Path) -> None:
    path, clip = program(tmp_path, chip), events(tmp_path / "clip.csv", 20)
    words = ["nrf", "run", str(path), "-i", str(clip), "-o", str(tmp_path / "out.npz")]
    code = f"""
import atexit, sys
from nrf.cli import main
sys.argv = {words!r}
atexit.register(lambda: print("heavy:", *{{"torch", "norse", "scipy.sparse", "networkx"}} & {{*sys.modules}}))
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "heavy:\n" in done.stdout, done.stdout
    assert (tmp_path / "out.npz").is_file()
