"""Run a vendor's simulator in a process group of its own, with a time limit, and leave nothing behind.

Simulators hang, fork and keep shared memory when something goes wrong. So the parent kills the whole group
whatever happens, removes the shared memory that carries the group's name, and turns every failure into one
line that quotes the vendor; the full traceback hangs on the error as its cause (`--debug` shows it).
"""

import json
import os
import re
import secrets
import signal
import subprocess
import time
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border.recording import Recording
from nrf.backends.vendors.environment import absent, own_python, python_of
from nrf.errors import InputError
from nrf.files import scratch

SHARED_MEMORY = Path("/dev/shm")


def run_worker(
    vendor: str,
    worker: Path,
    program: Path,
    frames: NDArray[Any],
    timeout: float,
    options: dict[str, Any] | None = None,
) -> Recording:
    """Run frames (T, *input shape) through a program file in a vendor's environment.

    `worker` is a file with one function, see `worker_main.py`. `timeout` is in seconds of wall time.
    """
    python = python_of(vendor)
    if python is None:
        raise InputError(str(absent(vendor)))
    segments = f"nrf{secrets.token_hex(4)}-"
    main = resources.files("nrf.backends.vendors") / "worker_main.py"
    with scratch() as folder, resources.as_file(main) as script:
        np.savez(folder / "frames.npz", frames=frames)
        recording = folder / "recording.npz"
        isolated = [] if own_python(vendor) else ["-I"]  # the user's own may need its PYTHONPATH
        files = [script, worker.resolve(), Path(program).resolve(), folder / "frames.npz", recording]
        command = [python, *isolated, *files, json.dumps(options or {}), segments]
        with (folder / "output.txt").open("w+b") as output:
            code = _run_group([str(part) for part in command], folder, output, segments, timeout)
            if code is None:
                what = f"no answer within {timeout:g} s, stopped"
            elif code < 0:
                what = f"killed by {signal.Signals(-code).name}"
            elif code > 0 or not recording.is_file():
                what = f"ended with code {code} without a recording"
            else:
                try:
                    return Recording.load(recording)
                except InputError as error:
                    what = f"wrote an unreadable recording: {error}"
            raise _failure(vendor, what, folder, output)


def _run_group(
    command: list[str], folder: Path, output: IO[bytes], segments: str, timeout: float
) -> int | None:
    """Exit code of a process in a session of its own, or None after `timeout` seconds; nothing of it stays.

    Its standard input stays open as long as we live.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, "TMPDIR": str(folder)},  # its own temporary files go with it
            start_new_session=True,
        )
    except OSError as error:
        raise InputError(f"{command[0]} does not start: {error.strerror}") from error
    with process:
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            end = time.monotonic() + 0.5  # orphans stay as zombies until init reaps them: not for us to wait
            with suppress(ProcessLookupError, PermissionError):
                while time.monotonic() < end:
                    os.killpg(process.pid, 0)
                    time.sleep(0.01)
            for path in SHARED_MEMORY.glob(f"{segments}*"):
                path.unlink(missing_ok=True)


def _failure(vendor: str, what: str, folder: Path, output: IO[bytes]) -> InputError:
    """One line, with the vendor's own last words; everything it said as the cause."""
    output.seek(0)
    said = output.read().decode(errors="replace")
    # Python's tracker of shared memory outlives the worker for a moment and complains: not its words.
    words = [line.strip() for line in said.splitlines() if line.strip() and "resource_tracker" not in line]
    raised = [line for line in words if re.match(r"\w+(Error|Exception)\b", line)]  # in a child of the worker
    words = raised or words
    traceback = folder / "recording.npz.error"
    if traceback.is_file():
        text = traceback.read_text()
        file, line, function = re.findall(r'File "(.+)", line (\d+), in (.+)', text)[-1]
        what = f"{text.strip().splitlines()[-1]} (in {function}, {file}:{line})"
        said, words = said + text, raised
    if words:
        what += f"; its last words: {words[-1][:200]}"
    error = InputError(f"{vendor} worker: {what}")
    error.__cause__ = RuntimeError(said)
    return error
