"""Run a program: built-in simulators here, Sinabs and the chip in a process of their own."""

import subprocess
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nrf
from nrf.backends.border.recording import Provenance, Recording, Spikes
from nrf.backends.speck import asynchronous
from nrf.backends.speck import simulate as synchronous
from nrf.backends.speck.program import Core, SpeckProgram
from nrf.backends.speck.tables import Events, counts_of, events_of
from nrf.backends.vendors import missing, run_worker
from nrf.backends.vendors.environment import python_of
from nrf.errors import InputError

WORKER = Path(__file__).parent / "sinabs_worker" / "worker.py"
PROBE_SECONDS = 60.0  # starting a Python takes one; a cold disk may take a few


def run(
    program: SpeckProgram,
    frames: NDArray[Any],
    runtime: str = "builtin",
    *,
    seed: int = 0,
    teacher: Recording | None = None,
    timeout: float = 300.0,
    **options: Any,
) -> Recording:
    """Run frames (T, *input shape) through a program.

    `seed` draws the order of events for the runtime asynchronous; with `teacher`, builtin feeds every
    population the spikes of another recording instead of those of its own sources. Other options go to the
    worker: `device` for sinabs ("cpu", "cuda"); `board` ("speck2fmodule:0"), `slow_clock` (Hz) and `repeats`
    for the chip.
    """
    if teacher is not None and runtime != "builtin":
        raise InputError(f"runtime '{runtime}' cannot be teacher-forced; use builtin")
    if runtime in ("sinabs", "speck"):
        return _vendor(program, frames, runtime, timeout, options)
    if runtime == "asynchronous":
        return _asynchronous(program, frames, seed)
    if runtime != "builtin":
        raise InputError(f"unknown runtime '{runtime}'; speck2f has builtin, asynchronous, sinabs, speck")
    return _synchronous(program, frames, teacher)


def _synchronous(program: SpeckProgram, frames: NDArray[Any], teacher: Recording | None) -> Recording:
    events, steps = events_of(counts_of(program, frames)), len(frames)
    forced = None
    if teacher is not None:
        early = _latencies(program)
        forced = {core.node: _events(teacher, core, early[core.node]) for core in program.cores}
    state = synchronous.new_state(program)
    result = synchronous.simulate(program, events, steps, state, forced, membranes=True)
    recording = _recording(program, steps, result.spikes, result.saturated, "builtin", {})
    membranes = {
        core.node: (result.membranes[core.node] * core.volts[:, None, None])
        .astype(np.float32)
        .reshape(steps, *core.node_shape)
        for core in program.cores
    }
    return replace(recording, membranes=membranes).read_out(program.output, program.contract)


def _events(teacher: Recording, core: Core, latency: int) -> Events:
    """A teacher's spikes on the chip's clock."""
    spikes = teacher.events(core.node)
    known = spikes.t + latency >= 0
    c, y, x = np.unravel_index(spikes.i[known], core.shape)
    return Events(spikes.t[known] + latency, c, y, x, spikes.n[known])


def _asynchronous(program: SpeckProgram, frames: NDArray[Any], seed: int) -> Recording:
    events, rng = events_of(counts_of(program, frames)), np.random.default_rng(seed)
    result = asynchronous.simulate(program, events, len(frames), synchronous.new_state(program), rng)
    details = {"seed": seed, "synaptic_operations": result.operations}
    found = _recording(program, len(frames), result.spikes, result.saturated, "asynchronous", details)
    return found.read_out(program.output, program.contract)


def _recording(
    program: SpeckProgram,
    steps: int,
    events: dict[str, Events],
    saturated: int,
    runtime: str,
    details: dict[str, Any],
) -> Recording:
    spikes = {}
    for core in program.cores:
        found, (_, height, width) = events[core.node], core.shape
        place = (found.c * height + found.y) * width + found.x
        order = np.lexsort((place, found.t))
        spikes[core.node] = Spikes(found.t[order], place[order], found.n[order])
    return Recording(
        steps=steps,
        shapes={core.node: core.node_shape for core in program.cores},
        spikes=spikes,
        provenance=Provenance(
            runtime=runtime,
            device="simulation",
            target=program.target,
            versions={"nrf": nrf.__version__},
            checksum=program.checksum,
            counters={"saturated": saturated},
            details=details,
        ),
        latencies=_latencies(program),
    )


def _latencies(program: SpeckProgram) -> dict[str, int]:
    """The chip adds no steps; against a contract with one per connection it is early by its depth."""
    depth = {program.input: 0}
    for core in program.cores:
        depth[core.node] = 1 + max(depth[source.name] for source in core.sources)
    return {core.node: -depth[core.node] * program.contract.delay for core in program.cores}


def _vendor(
    program: SpeckProgram, frames: NDArray[Any], runtime: str, timeout: float, options: dict[str, Any]
) -> Recording:
    counts = counts_of(program, frames).astype(np.int32)
    with tempfile.TemporaryDirectory(prefix="nrf-") as folder:
        path = Path(folder) / "program.speck2f"
        program.save(path)
        options = {"runtime": runtime, "dt": program.contract.dt, **options}
        recording = run_worker("sinabs", WORKER, path, counts, timeout, options)
    recording = replace(recording, latencies=_latencies(program))
    return recording.read_out(program.output, program.contract)


@cache
def chip_missing() -> str | None:
    """Why the chip cannot run here, without importing samna: its public stub would try to install itself."""
    if reason := missing("sinabs"):
        return reason
    code = (
        f"import sys; sys.path.insert(0, {str(WORKER.parent)!r})\n"
        "import real_samna\n"
        "try: real_samna.require_samna(); print('here')\n"
        "except RuntimeError as error: print(error)"
    )
    python = str(python_of("sinabs"))
    try:
        answer = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, timeout=PROBE_SECONDS, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        answer = ""
    if not answer:  # silence is no sign of a chip
        return f"{python} could not look for samna; name a Python that starts in NRF_SINABS_PYTHON"
    return None if answer == "here" else answer
