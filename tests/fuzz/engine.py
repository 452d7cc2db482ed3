"""Cases in children: forked with everything imported, 4 GB of memory, 10 seconds each.

A case is a number: with the name of its format it gives the same file every time. It ends in one of

    read      the file was taken, and everything that a command does with it was done
    refused   one InputError, short, printable, that names the file
    fault     any other exception, a message that is not so, more memory than a small file may take
    crash     the process died of a signal
    hang      no end within the time limit
"""

import json
import os
import resource
import select
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

import numpy as np
import torch

from nrf.errors import InputError
from tests.fuzz.formats import FORMATS

MEMORY, SECONDS = 4 << 30, 10.0
SMALL = 2 << 30  # what a file of less than 100 MB may take
BATCH = 500  # cases of one child
FRESH = 3  # its exit code where another one should go on


@dataclass(frozen=True)
class Finding:
    """A file that was not dealt with."""

    format: str
    number: int
    kind: str  # fault, crash, hang
    what: str  # exception and place, or the signal

    def __str__(self) -> str:
        return f"{self.format} {self.number}: {self.kind}: {self.what}"


@dataclass
class Tally:
    """What came of the cases of a format."""

    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[str, Finding] = field(default_factory=dict)  # the first of each kind
    times: Counter[str] = field(default_factory=Counter)
    peak: int = 0  # bytes

    def add(self, finding: Finding) -> None:
        key = f"{finding.kind}: {finding.what}"
        self.outcomes[finding.kind] += 1
        self.times[key] += 1
        self.findings.setdefault(key, finding)


def case(name: str, number: int) -> tuple[bytes, str]:
    """The mutated file of a case, and its ending."""
    return FORMATS[name].make(np.random.default_rng((sorted(FORMATS).index(name), number)))


def explore(name: str, numbers: Iterable[int], seconds: float = inf) -> Tally:
    """Run cases of a format, for some seconds at most."""
    torch.set_num_threads(1)  # a child has none of its parent's threads, and would wait for them
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_fast()) as folder:
        for seed in FORMATS[name].seeds:  # which must be read, and leave all compiled for the children
            path = Path(folder) / f"{seed.stem}-seed" / f"case{seed.suffix}"
            path.parent.mkdir()
            FORMATS[name].use(Path(shutil.copy(seed, path)))
    todo, tally, end = list(numbers), Tally(), time.monotonic() + seconds
    while todo and time.monotonic() < end:
        with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_fast()) as folder:
            done = _batch(name, todo[:BATCH], Path(folder), tally, end)
        todo = todo[done:]
    return tally


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
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > SMALL:
        return "fault", "memory above 2 GB"
    return "read", ""


def _said(text: str, path: Path) -> tuple[str, str]:
    lines = text.split("\n")
    if not all(line.isprintable() for line in lines):
        return "fault", "a message with control characters"
    if max(map(len, lines)) > 600 or len(lines) > 25:
        return "fault", f"a message of {len(lines)} lines, the longest {max(map(len, lines))}"
    if path.name not in text and "dataset.json" not in text and "000000" not in text:
        return "fault", f"a message that does not name the file: {text[:100]}"
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > SMALL:
        return "fault", "memory above 2 GB"
    return "refused", text


def _batch(name: str, numbers: list[int], folder: Path, tally: Tally, end: float) -> int:
    """Run cases in one child until one ends it; how many are done."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(name, numbers, folder, writer, end)
    os.close(writer)
    done = 0
    try:
        with os.fdopen(reader, "rb", buffering=0) as pipe:
            for line in _lines(pipe.fileno(), child):
                if not line:
                    continue
                kind, what, peak = json.loads(line)
                tally.peak = max(tally.peak, peak)
                if kind in ("read", "refused"):
                    tally.outcomes[kind] += 1
                else:
                    tally.add(Finding(name, numbers[done], kind, what))
                done += 1
    except TimeoutError:
        tally.add(Finding(name, numbers[done], "hang", f"no end within {SECONDS:g} s"))
        return done + 1
    finally:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if done < len(numbers) and not (done and os.WIFEXITED(status) and os.WEXITSTATUS(status) == FRESH):
        what = (
            signal.Signals(os.WTERMSIG(status)).name
            if os.WIFSIGNALED(status)
            else f"exit {os.WEXITSTATUS(status)}"
        )
        tally.add(Finding(name, numbers[done], "crash", what))
        done += 1
    return done


def _lines(pipe: int, child: int) -> Iterator[bytes]:
    """Lines of a pipe, each of which must come in time: of the processor's, on a machine that is busy."""
    rest = b""
    while True:
        begin, used = time.monotonic(), _processor_time(child)
        while not select.select([pipe], [], [], SECONDS)[0]:
            if _processor_time(child) - used >= 0.9 * SECONDS or time.monotonic() - begin > 6 * SECONDS:
                raise TimeoutError
        data = os.read(pipe, 1 << 16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from lines


def _child(name: str, numbers: list[int], folder: Path, writer: int, end: float) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    try:
        for number in numbers:
            data, ending = case(name, number)
            inside = folder / "in"
            inside.mkdir()
            path = inside / f"case{ending}"
            path.write_bytes(data)
            os.write(writer, b"\n")  # the time begins
            kind, what = outcome(name, path)
            shutil.rmtree(inside, ignore_errors=True)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            os.write(writer, json.dumps([kind, what[:300], peak]).encode() + b"\n")
            if peak > SMALL or time.monotonic() > end:
                os._exit(FRESH)  # the peak of a process never falls: go on in a fresh one
        os._exit(0)
    except BaseException:
        os.write(writer, json.dumps(["engine", traceback.format_exc()[-300:], 0]).encode() + b"\n")
        os._exit(FRESH)


def _processor_time(process: int) -> float:
    """Seconds that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _fast() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
