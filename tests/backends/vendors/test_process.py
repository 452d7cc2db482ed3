"""Workers that misbehave, and environments that are built half: one clear line, and nothing left behind."""

import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from nrf.backends.border.program import save_program
from nrf.backends.border.recording import Recording
from nrf.backends.vendors import run_worker
from nrf.errors import InputError

FRAMES = np.arange(12, dtype=np.float32).reshape(3, 2, 2)

GOOD = """
    import numpy as np

    def run(program, arrays, frames, options):
        counts = (frames * arrays[program["weight"]] > options["threshold"]).astype(int)
        return {"spikes": {"lif": counts}, "membranes": {"lif": frames}, "latencies": {"lif": 1},
                "runtime": "lava", "device": "simulation", "versions": {"numpy": np.__version__}}
"""

# A simulator as bad as they come: children and shared memory, then `ENDING`.
BAD = """
    import os, signal, subprocess, sys, time
    from multiprocessing import shared_memory

    def run(program, arrays, frames, options):
        segment = shared_memory.SharedMemory(create=True, size=64)
        children = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
        with open(options["diary"], "w") as diary:
            print(os.getpgrp(), segment.name, file=diary, flush=True)
        ENDING
"""


LEAKS = "print('bye\\n warnings.warn(resource_tracker: leaked)', flush=True)"
GARBAGE = "open('recording.npz', 'wb').write(os.urandom(99)); os.write(1, os.urandom(99))"


@dataclass(frozen=True)
class Weights:
    """The smallest program: a target and one array."""

    target: str
    weight: np.ndarray


@pytest.fixture
def program(tmp_path: Path) -> Path:
    save_program(tmp_path / "program.npz", Weights("loihi2", np.array([2, 1])))
    return tmp_path / "program.npz"


@pytest.fixture(autouse=True)
def this_python_is_the_vendor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NRF_LAVA_PYTHON", sys.executable)


def worker(folder: Path, text: str) -> Path:
    path = folder / "some_worker.py"
    path.write_text(textwrap.dedent(text))
    return path


def test_a_recording_comes_back(tmp_path: Path, program: Path) -> None:
    recording = run_worker("lava", worker(tmp_path, GOOD), program, FRAMES, 30, {"threshold": 6})
    assert np.array_equal(recording.dense("lif"), FRAMES * [2, 1] > 6)
    assert np.array_equal(recording.membrane("lif"), FRAMES)  # type: ignore[arg-type]
    assert recording.latency("lif") == 1
    assert recording.provenance.device == "simulation"
    assert recording.provenance.target == "loihi2"
    assert len(recording.provenance.checksum) == 16
    recording.save(tmp_path / "again.npz")  # the worker writes the same format as we do
    assert np.array_equal(Recording.load(tmp_path / "again.npz").dense("lif"), recording.dense("lif"))


ENDINGS = {  # what a worker does, seconds that it has, what is said about it
    "hangs": ("time.sleep(600)", 3, "no answer within 3 s"),
    "raises": ("raise ValueError('weights are too heavy')", 30, "ValueError: weights are too heavy"),
    "exits": ("raise SystemExit('I give up')", 30, "SystemExit: I give up"),
    "quits": ("print('bye', flush=True); os._exit(7)", 30, "ended with code 7 .*last words: bye"),
    "leaks and quits": (f"{LEAKS}; os._exit(7)", 30, "last words: bye"),
    "says nothing": ("os._exit(0)", 30, "without a recording"),
    "crashes": ("os.kill(os.getpid(), signal.SIGSEGV)", 30, "killed by SIGSEGV"),
    "is killed": ("os.killpg(0, signal.SIGKILL)", 30, "killed by SIGKILL"),
    "writes garbage": (f"{GARBAGE}; os._exit(0)", 30, "unreadable recording"),
    "returns garbage": ("return {'spikes': {}}", 30, "KeyError: 'runtime'"),
    "returns nonsense": ("return 3", 30, "TypeError"),
}


@pytest.mark.parametrize(("ending", "timeout", "expected"), ENDINGS.values(), ids=ENDINGS)
def test_a_bad_worker_gives_one_line_and_leaves_nothing(
    tmp_path: Path, program: Path, ending: str, timeout: float, expected: str
) -> None:
    diary = tmp_path / "diary"
    bad = worker(tmp_path, BAD.replace("ENDING", ending))
    started = time.monotonic()
    with pytest.raises(InputError, match=expected) as caught:
        run_worker("lava", bad, program, FRAMES, timeout, {"diary": str(diary)})
    assert time.monotonic() - started < timeout + 5
    assert str(caught.value).startswith("lava worker: ")
    assert len(str(caught.value).splitlines()) == 1
    assert nothing_left(diary)


def test_a_vendor_traceback_is_the_cause(tmp_path: Path, program: Path) -> None:
    with pytest.raises(InputError, match=r"some_worker.py:3") as caught:
        run_worker("lava", worker(tmp_path, "def run(*given):\n    'f'\n    1 / 0\n"), program, FRAMES, 30)
    assert "Traceback (most recent call last)" in str(caught.value.__cause__)


def test_a_worker_dies_with_its_parent(tmp_path: Path, program: Path) -> None:
    diary = tmp_path / "diary"
    worker(tmp_path, BAD.replace("ENDING", "time.sleep(600)"))
    code = f"""
        import numpy as np, pathlib
        from nrf.backends.vendors import run_worker
        here = pathlib.Path({str(tmp_path)!r})
        run_worker("lava", here / "some_worker.py", here / "program.npz", np.zeros((1, 2, 2)), 600,
                   {{"diary": {str(diary)!r}}})
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)])
    wait_for(lambda: diary.is_file() and diary.read_text().endswith("\n"))
    assert not nothing_left(diary)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_for(lambda: nothing_left(diary))


# Lava as users meet it: a float where an integer belongs, and it hangs for ever without a word.
LAVA = """
    import os, threading, time
    from multiprocessing import shared_memory
    import numpy as np
    from lava.magma.core.run_conditions import RunSteps
    from lava.magma.core.run_configs import Loihi2SimCfg
    from lava.proc.dense.process import Dense
    from lava.proc.io import sink, source
    from lava.proc.lif.process import LIF

    def note(options):
        mine = shared_memory._SHM_NAME_PREFIX.strip("/")  # others may be running Lava at this moment
        names = []
        while not names:
            time.sleep(0.1)
            names = [name for name in os.listdir("/dev/shm") if name.startswith(mine)]
        with open(options["diary"], "w") as diary:
            print(os.getpgrp(), *names, file=diary)

    def run(program, arrays, frames, options):
        ones = source.RingBuffer(data=np.ones((4, len(frames)), int))
        dense, lif = Dense(weights=np.eye(4, dtype=int)), LIF(shape=(4,), du=options["du"], vth=1)
        spikes = sink.RingBuffer(shape=(4,), buffer=len(frames))
        ones.s_out.connect(dense.s_in)
        dense.a_out.connect(lif.a_in)
        lif.s_out.connect(spikes.a_in)
        threading.Thread(target=note, args=[options], daemon=True).start()
        lif.run(RunSteps(len(frames)), Loihi2SimCfg(select_tag="fixed_pt"))
"""


@pytest.mark.needs_vendor("lava")
def test_a_hanging_lava_is_stopped_with_all_its_children_and_memory(
    tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NRF_LAVA_PYTHON")
    options = {"diary": str(tmp_path / "diary"), "du": 0.5}
    with pytest.raises(InputError, match="no answer within 15 s"):
        run_worker("lava", worker(tmp_path, LAVA), program, FRAMES, 15, options)
    group, *segments = (tmp_path / "diary").read_text().split()
    assert segments
    assert all(name.startswith("nrf") for name in segments)  # it had memory of its own, under our name
    assert not members(int(group))
    assert not [name for name in segments if (Path("/dev/shm") / name).exists()]


def nothing_left(diary: Path) -> bool:
    """No living process of the group, no segment."""
    group, segment = diary.read_text().split()
    return not members(int(group)) and not (Path("/dev/shm") / segment).exists()


def members(group: int) -> list[int]:
    """Processes of a group, zombies apart (only init can reap an orphan)."""
    living = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(pgrp) == group and state != "Z":
            living.append(int(stat.parent.name))
    return living


def wait_for(condition, seconds: float = 30) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
