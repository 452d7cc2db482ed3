"""Commands that are killed at any moment: `python -m tests.fuzz.kills [COMMAND ...] --kills 50`.

Each command runs in a session of its own, and gets -9, TERM or Ctrl-C (INT to the whole session) after a
random part of the time that it takes unharmed. Counted into docs/reliability.md is how often

    lost     a file that is there cannot be read, or one that was there before is gone
    left     a process or shared memory stays; or, after the next whole run, a temporary file
    rerun    a whole run, after every fifth kill, fails or gives something else than the unharmed one

and the longest that TERM or INT took: in seconds of the processor, and by the clock of a machine that may be
busy.
"""

import argparse
import hashlib
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests.fuzz import book

SEEDS = Path(__file__).parent / "seeds"
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
RERUN = 5  # every which kill is followed by a whole run
MARK = "NRF_KILLED"  # in the environment of all that a command starts


@dataclass(frozen=True)
class Command:
    """A command line, in which W is the folder that it works in, and what it should leave there."""

    words: str
    made: str  # the file that says that it is there
    result: Callable[[Path], str]  # of that folder: the same after every whole run; fails on a broken file
    resumes: bool = False  # has nothing to do where its result is


def _program(work: Path) -> str:
    from nrf.api.files import load_program

    return str(load_program(work / "out.loihi2")[1].checksum)


def _recording(work: Path) -> str:
    from nrf.backends.border import Recording

    recording = Recording.load(work / "out.npz")
    return str({node: spikes.count for node, spikes in recording.spikes.items()})


def _graph(work: Path) -> str:
    import nrf

    return str(nrf.read(work / "out.nir").checksum)


def _dataset(work: Path) -> str:
    from nrf.events.dataset import read_clip, read_description

    folder = work / "out"
    about = read_description(folder)
    clips = [read_clip(folder, about, int(file.stem)).frames() for file in sorted(folder.glob("clips/*.npz"))]
    return f"{len(clips)} {sum(int(frames.sum()) for frames in clips)}"


def _training(work: Path) -> str:
    from nrf.training import checkpoint

    folder = work / "out"
    read = [checkpoint.read(file) for file in sorted(folder.glob("*.safetensors"))]
    return hashlib.sha256(b"".join(sorted(repr(one.summary).encode() for one in read))).hexdigest()


def _report(work: Path) -> str:
    folder = work / "out"
    checks = json.loads((folder / "report.json").read_text())["checks"]
    assert (folder / "report.html").stat().st_size > 1000
    return str([(check["rung"], check["node"], check["verdict"]) for check in checks])


def _environment(work: Path) -> str:
    from nrf.backends.vendors import environment

    python = environment.python_of("toy")
    return environment.probe("toy", python) if python else ""


COMMANDS = {
    "data": Command(
        "data -o W/out --clips 24 --resolution 32 --workers 2 --no-preview",
        "out/dataset.json",
        _dataset,
        True,
    ),
    "train": Command(
        "train --preset tiny -o W/out --steps 6 --device cpu", "out/last.safetensors", _training, True
    ),
    "lower": Command(f"lower {SEEDS}/maps.nir --target loihi2 -o W/out.loihi2", "out.loihi2", _program),
    "run": Command(
        f"run {SEEDS}/maps.loihi2 -i W/clip.npz -o W/out.npz --runtime lava", "out.npz", _recording
    ),
    "tune": Command(
        f"tune {SEEDS}/speck.nir --target speck2f -o W/out.nir --clips 8 --iterations 3", "out.nir", _graph
    ),
    "conform": Command(
        f"conform {SEEDS}/maps.nir --target loihi2 --input W/clip.npz --runtime builtin -o W/out",
        "out/report.json",
        _report,
    ),
    "setup": Command("setup toy", "out/envs", _environment, True),
}


def main() -> None:
    """Kill, look, run again, count."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.kills", description=__doc__)
    parser.add_argument("commands", nargs="*", help=", ".join(COMMANDS))
    parser.add_argument("--kills", type=int, default=50, help="of each command, earlier ones included")
    asked = parser.parse_args()
    for name in asked.commands or COMMANDS:
        with tempfile.TemporaryDirectory(prefix=f"kills-{name}-") as folder:
            harm(name, asked.kills - book.read("kills").get(name, {}).get("kills", 0), Path(folder))


def harm(name: str, kills: int, folder: Path) -> None:
    """Kill one command so many times."""
    work, temporary = folder / "work", folder / "temporary"
    work.mkdir()
    prepare(work)
    if name == "setup":
        os.environ["NRF_CACHE"] = str(work / "out")
    command, chance = COMMANDS[name], random.Random(name)
    for _ in range(2):  # the first fills all caches
        _clear(work)
        begin = time.monotonic()
        _whole(name, folder)
    takes, wanted = time.monotonic() - begin, command.result(work)
    for number in range(kills):
        if number % RERUN == 0 and (command.resumes or chance.random() < 0.5):
            _clear(work)  # else what follows finds an older result
        memory, before = set(_shared_memory()), _files(work)
        process, sign = _start(name, folder), SIGNALS[number % len(SIGNALS)]
        time.sleep(chance.uniform(0, takes))
        spent, used, begin = _processor_time(process, folder), _children_time(), time.monotonic()
        (os.killpg if sign == signal.SIGINT else os.kill)(process, sign)
        code = wait(process)
        ended = (max(0.0, _children_time() - used - spent), time.monotonic() - begin)
        found: dict[str, Any] = {"left": _left(process, folder) + sorted(set(_shared_memory()) - memory)}
        found["lost"] = sorted(before - _files(work)) if name != "setup" else []  # which begins anew
        try:
            if (work / command.made).exists():
                command.result(work)
        except Exception:
            found["lost"] = traceback.format_exc(limit=-1)
        if number % RERUN == RERUN - 1:
            try:
                _whole(name, folder)
                found["rerun"] = (
                    "" if (got := command.result(work)) == wanted else f"{got} instead of {wanted}"
                )
            except Exception as error:
                found["rerun"] = str(error)[-500:]
            files = [*work.rglob(".*"), *temporary.glob("*")]
            found["left"] = [
                *found["left"],
                *(str(path) for path in files if path.is_file() or path.parent == temporary),
            ]
        if sign != signal.SIGKILL and ended[0] > 1:
            print(f"{name} #{number} {sign.name}: took {ended[0]:.1f} s to end, code {code}", flush=True)
        for key, what in found.items():
            if what:
                print(f"{name} #{number} {sign.name}: {key}: {what}", flush=True)
        with book.entry("kills", name) as row:
            for key in ("kills", "lost", "left", "rerun"):
                row[key] = row.get(key, 0) + (key == "kills" or bool(found.get(key)))
            if sign != signal.SIGKILL:
                for key, seconds in zip(("end, s of processor", "s by the clock"), ended, strict=True):
                    row[key] = round(max(row.get(key, 0.0), seconds), 2)
    print(f"{name}: {kills} kills, {takes:.1f} s unharmed", flush=True)


def prepare(work: Path) -> None:
    """A clip, a vendor that can be built in seconds, and everything imported for the children."""
    import numpy as np

    for module in ("api", "cli", "cli.data", "cli.train", "cli.tune", "training.loop", "backends.tuning"):
        importlib.import_module(f"nrf.{module}")

    from nrf.backends.vendors import environment
    from tests.backends.vendors.test_environment import toy_wheel

    frames = (np.random.default_rng(0).random((20, 2, 8, 8)) < 0.2).astype(np.uint8)
    np.savez(work / "clip.npz", frames=frames)
    wheel = toy_wheel(work)
    pin = f"{wheel} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}"
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    environment.VENDORS["toy"] = environment.Vendor("toy", "toy", "import toy", python)
    ours = environment._requirements
    environment._requirements = lambda vendor: pin if vendor == "toy" else ours(vendor)


def _clear(work: Path) -> None:
    for path in work.glob("out*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _files(work: Path) -> set[str]:
    """Results: no temporary files, nor what `nrf tune` goes on from until it is done."""
    files = (path for path in work.rglob("*") if path.is_file())
    return {str(path) for path in files if not path.name.startswith(".") and path.suffix != ".state"}


def _whole(name: str, folder: Path) -> None:
    code = wait(_start(name, folder))
    if code and (name, code) != ("tune", 1):  # nothing was gained
        raise RuntimeError(f"exit code {code}: {(folder / 'said').read_text()}")


def _start(name: str, folder: Path) -> int:
    words = COMMANDS[name].words.replace("W/", f"{folder / 'work'}/").split()
    if name == "train" and (folder / "work" / "out" / "last.safetensors").exists():
        words.append("--resume")
    return start(words, folder)


def start(words: list[str], folder: Path) -> int:
    """A command in a child that has everything imported, and leads a session; its number."""
    (folder / "temporary").mkdir(exist_ok=True)
    reader, writer = os.pipe()
    process = os.fork()
    os.close(writer if process else reader)
    if process:
        os.read(reader, 1)  # until it hears Ctrl-C
        os.close(reader)
        return process
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has it ignored
        os.close(writer)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        said = os.open(folder / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(said, stream)
        os.environ |= {MARK: str(folder), "TMPDIR": str(folder / "temporary")}
        tempfile.tempdir = None
        sys.argv = ["nrf", *words]
        from nrf.cli import main as command

        command()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def wait(process: int, seconds: float = 600.0) -> int:
    """The exit code of a child, negative for a signal."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not running(process):
            return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        time.sleep(0.005)
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    raise TimeoutError(f"no end within {seconds} s")


def running(process: int) -> bool:
    """Whether a child lives; it can still be waited for."""
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def _left(process: int, folder: Path) -> list[str]:
    """Processes that the command started and that do not end by themselves.

    On a busy machine that takes a while; an installer ends its step first, and holds the lock so long.
    """
    end = time.monotonic() + 120
    while (found := list(_started(process, folder))) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def _started(process: int, folder: Path) -> Iterator[str]:
    for path in _processes(process, folder):
        with suppress(OSError):
            yield f"{path.name} {(path / 'cmdline').read_bytes().decode()[:80]}"


def _processes(process: int, folder: Path) -> Iterator[Path]:
    """Those that live of the session of a command, and of all that it started."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            session = (path / "stat").read_text().rpartition(")")[2].split()[3]
            known = f"{MARK}={folder}".encode() in (path / "environ").read_bytes().split(b"\0")
            if known or session == str(process):
                yield path


def _shared_memory() -> list[str]:
    """Segments that no living process has mapped."""
    segments = [str(path) for path in Path("/dev/shm").glob("*") if path.is_file()]
    mapped = ""
    for path in Path("/proc").glob("[0-9]*/maps") if segments else ():
        with suppress(OSError):  # it has ended, or is not ours
            mapped += path.read_text()
    return [name for name in segments if name not in mapped]


def _processor_time(process: int, folder: Path) -> float:
    """Seconds that a command, its workers, and those of them that have ended, have used until now."""
    ticks = 0
    for path in _processes(process, folder):
        with suppress(OSError):
            ticks += sum(map(int, (path / "stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _children_time() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
