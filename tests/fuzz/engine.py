"""Cases in children that have everything imported, with 4 GB of memory, and 10 seconds for each.

A child takes many cases, one after another, and reports after each; where it dies or hangs, the case is
known, and the next child goes on behind it.

A case is a number: with the name of its format it gives the same file every time. It ends in one of

    read      the file was taken, and everything that a command does with it was done
    refused   one InputError, short, printable, that names the file
    fault     any other exception, a message that is not so, more memory than a small file may take
    crash     the process died of a signal
    hang      no end within the time limit
"""

import gc
import itertools
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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, inf
from pathlib import Path

import numpy as np

from nrf.errors import InputError
from tests.fuzz.formats import FORMATS

MEMORY, SECONDS = 4 << 30, 10
PATIENCE = 6  # a busy machine may take this many times longer than the processor does
BATCH, GROWTH = 1000, 256 << 20  # files of a child, and bytes that it may keep of them
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
        todo = iter(numbers)
        rest: list[int] = []
        while rest := rest or list(itertools.islice(todo, BATCH)):
            for result in _batch(name, rest, Path(folder) / "in"):
                rest = rest[1:]
                yield result
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


def _batch(name: str, numbers: Sequence[int], folder: Path) -> Iterator[Outcome]:
    """Cases in one child, which reports after each; it ends early where one kills it, or memory grew."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(name, numbers, folder, writer)
    os.close(writer)
    todo, text, in_time = iter(numbers), b"", True
    try:
        while in_time := bool(select.select([reader], [], [], PATIENCE * SECONDS)[0]):
            if not (piece := os.read(reader, 1 << 16)):
                break
            *lines, text = (text + piece).split(b"\n")
            for line in lines:
                kind, what, peak = json.loads(line)
                if kind in FINE and peak > SMALL:
                    kind, what = "fault", "memory above 2 GB"
                yield Outcome(name, next(todo), kind, what, peak)
    finally:
        if not in_time or sys.exception():  # nobody wants more of it
            os.kill(child, signal.SIGKILL)
        os.close(reader)
        _, status, usage = os.wait4(child, 0)
        shutil.rmtree(folder, ignore_errors=True)
    if status == 0:
        return  # all done, or it has grown
    what = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"status {status >> 8}"
    hang = not in_time or what == "SIGXCPU"
    kind, what = ("hang", f"no end within {SECONDS} s") if hang else ("crash", what)
    yield Outcome(name, next(todo), kind, what, usage.ru_maxrss * 1024)


def _child(name: str, numbers: Sequence[int], folder: Path, writer: int) -> None:
    """Make each file and use it, and say what came of it in one write."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    begin = _memory("VmRSS")
    for number in numbers:
        _new_limits()
        try:
            data, ending = case(name, number)
            folder.mkdir()
            path = folder / f"case{ending}"
            path.write_bytes(data)
            answer = outcome(name, path)
            shutil.rmtree(folder)
        except BaseException:
            answer = "fault", f"of the engine: {traceback.format_exc()[-300:]}"
        os.write(writer, json.dumps([answer[0], answer[1][:300], _memory("VmHWM")]).encode() + b"\n")
        if _memory("VmRSS") - begin > GROWTH:
            break
    os._exit(0)


def _new_limits() -> None:
    """So many seconds of the processor from now on; the peak of memory begins anew."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = ceil(usage.ru_utime + usage.ru_stime)
    resource.setrlimit(resource.RLIMIT_CPU, (used + SECONDS, resource.RLIM_INFINITY))
    Path("/proc/self/clear_refs").write_text("5")


def _memory(key: str) -> int:
    """Bytes that this process has resident (VmRSS), or had at most (VmHWM)."""
    with Path("/proc/self/status").open() as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key)) * 1024


def _fast() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
