"""Cases in children: each forked with everything imported, with 4 GB of memory and 10 seconds.

A case is a number: with the name of its format it gives the same file every time. It ends in one of

    read      the file was taken, and everything that a command does with it was done
    refused   one InputError, short, printable, that names the file
    fault     any other exception, a message that is not so, more memory than a small file may take
    crash     the process died of a signal
    hang      no end within the time limit
"""

import ctypes
import gc
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np

from nrf.errors import InputError
from tests.fuzz.formats import FORMATS

MEMORY, SECONDS = 4 << 30, 10
PATIENCE = 6  # a busy machine may take this many times longer than the processor does
SMALL = 2 << 30  # what a file of less than 100 MB may take
FINE = ("read", "refused")


@dataclass(frozen=True)
class Outcome:
    """What came of one case."""

    format: str
    number: int
    kind: str  # read, refused, fault, crash, hang
    what: str  # the message, exception and place, or the signal
    peak: int  # bytes of resident memory

    def __str__(self) -> str:
        return f"{self.format} {self.number}: {self.kind}: {self.what}"


def case(name: str, number: int) -> tuple[bytes, str]:
    """The mutated file of a case, and its ending."""
    return FORMATS[name].make(np.random.default_rng((zlib.crc32(name.encode()), number)))


def explore(name: str, numbers: Iterable[int], seconds: float = inf) -> Iterator[Outcome]:
    """Run cases of a format, for some seconds at most."""
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_fast()) as folder:
        for seed in FORMATS[name].seeds:  # which must be read, and leave all compiled for the children
            path = Path(folder) / f"seed-{seed.name}" / f"case{seed.suffix}"
            path.parent.mkdir()
            FORMATS[name].use(Path(shutil.copy(seed, path)))
        if "torch" in sys.modules:  # a child has none of its parent's threads, and would wait for them
            sys.modules["torch"].set_num_threads(1)
        gc.freeze()  # a collection in a child would copy every page
        if seconds > 60:
            _make_forks_cheap()
        for number in numbers:
            yield _one(name, number, Path(folder) / "in")
            if time.monotonic() > end:
                return


def outcome(name: str, path: Path) -> tuple[str, str]:
    """Read one file as its format here and now: what came of it, and what was wrong."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            FORMATS[name].use(path)
    except InputError as error:
        return _said(str(error), path)
    except BaseException as error:  # Rust's panics are no Exceptions
        frames = [
            frame for frame in traceback.extract_tb(error.__traceback__) if "/tests/" not in frame.filename
        ]
        ours = [
            frame
            for frame in frames
            if any(part in frame.filename for part in ("/nrf/", "/export/", "/backends/"))
        ]
        last = (ours or frames or [None])[-1]
        where = f"{Path(last.filename).name}:{last.lineno} in {last.name}" if last else "?"
        return "fault", f"{type(error).__name__} at {where}: {str(error)[:80]!r}".replace(
            str(path.parent), ""
        )
    return "read", ""


def _said(text: str, path: Path) -> tuple[str, str]:
    lines = text.split("\n")
    if not all(line.isprintable() for line in lines):
        return "fault", "a message with control characters"
    if max(map(len, lines)) > 600 or len(lines) > 25:
        return "fault", f"a message of {len(lines)} lines, the longest {max(map(len, lines))}"
    if not any(name in text for name in (path.name, "dataset.json", "000000", "case.json")):
        return "fault", f"a message that does not name the file: {text[:100]}"
    return "refused", text


def _one(name: str, number: int, folder: Path) -> Outcome:
    """One case in a child of its own; whatever becomes of it, nothing of it stays."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(name, number, folder, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        in_time = bool(select.select([pipe], [], [], PATIENCE * SECONDS)[0])
        if not in_time:
            os.kill(child, signal.SIGKILL)
        answer = pipe.read()
    _, status, usage = os.wait4(child, 0)
    shutil.rmtree(folder, ignore_errors=True)
    peak = usage.ru_maxrss * 1024
    if answer:
        kind, what = json.loads(answer)
        if kind in FINE and peak > SMALL:
            kind, what = "fault", "memory above 2 GB"
    elif not in_time or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
        kind, what = "hang", f"no end within {SECONDS} s"
    elif os.WIFSIGNALED(status):
        kind, what = "crash", signal.Signals(os.WTERMSIG(status)).name
    else:
        kind, what = "crash", f"exit {os.WEXITSTATUS(status)}"
    return Outcome(name, number, kind, what, peak)


def _child(name: str, number: int, folder: Path, writer: int) -> None:
    """Make the file and use it, and say what came of it in one write at the end."""
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        data, ending = case(name, number)
        folder.mkdir()
        path = folder / f"case{ending}"
        path.write_bytes(data)
        answer = outcome(name, path)
    except BaseException:
        answer = "fault", f"of the engine: {traceback.format_exc()[-300:]}"
    os.write(writer, json.dumps([answer[0], answer[1][:300]]).encode())
    os._exit(0)


def _make_forks_cheap() -> None:
    """Join the pages of this process to huge ones, where Linux can: a fork copies a tenth of the tables."""
    huge, collapse = 2 << 20, 25  # MADV_COLLAPSE, which Python's mmap does not know
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    if madvise is None or not Path("/proc/self/maps").exists():
        return
    for line in Path("/proc/self/maps").read_text().splitlines():
        area, rights = line.split()[:2]
        begin, end = (int(place, 16) for place in area.split("-"))
        begin, end = -(-begin // huge) * huge, end // huge * huge
        if rights == "rw-p" and "/" not in line and begin < end:
            madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), collapse)


def _fast() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
