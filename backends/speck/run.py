"""Run a program: built-in simulators here, Sinabs and the chip in a process of their own."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nrf
from nrf.backends.border import Absent, Frames, Provenance, Recording, RunOptions, Spikes
from nrf.backends.lowering.readout import Host
from nrf.backends.lowering.scatter import counted
from nrf.backends.lowering.timing import on_chip_clock
from nrf.backends.speck import asynchronous
from nrf.backends.speck.chip import Bits
from nrf.backends.speck.chip_config import write_chip_config
from nrf.backends.speck.program import SpeckProgram, map_shape
from nrf.backends.speck.simulate import Simulator, Trace
from nrf.backends.vendors import absent, run_worker
from nrf.backends.vendors.environment import answers, own_python, python_of
from nrf.errors import InputError, did_you_mean
from nrf.files import scratch

WORKER = Path(__file__).parent / "sinabs_worker" / "worker.py"
BOARD = Bits(weight=8, bias=8, state=16)


def run(program: SpeckProgram, frames: Frames, runtime: str, options: RunOptions) -> Recording:
    """Run frames (T, *input shape) through a program; only `builtin` can be teacher-forced."""
    if options.teacher is not None and runtime != "builtin":
        raise InputError(f"runtime '{runtime}' cannot be teacher-forced; use builtin")
    if options.choices and runtime != "asynchronous":
        raise InputError(
            f"runtime '{runtime}' has no choices ({', '.join(options.choices)}); asynchronous has"
        )
    match runtime:
        case "builtin":
            own = [each.node for each in program.populations]
            record = own if options.membranes else _membranes_read(program)
            recording = _played(Simulator(program), frames, options.teacher, record)
        case "asynchronous":
            recording = _asynchronous(program, frames, options)
        case "sinabs" | "speck":
            recording = _vendor(program, frames, runtime, options)
        case _:
            raise InputError(f"no runtime '{runtime}'; Speck has builtin, asynchronous, sinabs, speck")
    forced = None if options.teacher is None else on_chip_clock(options.teacher, program.latencies)
    return Host(program).read(recording, frames, forced).read_out(program.outputs, program.contract)


def session(program: SpeckProgram) -> Callable[[Frames], Recording]:
    """The built-in simulator as a function from the next frames to the recording of that piece.

    Membranes are recorded where the contract's output is one. There are no coordinates: the host's leaky
    integrator goes on from piece to piece as well, see `nrf.backends.stream`.
    """
    simulator, host = Simulator(program), Host(program)
    record = _membranes_read(program)
    return lambda frames: host.read(_played(simulator, frames, record=record), frames)


def _membranes_read(program: SpeckProgram) -> list[str]:
    """Populations whose membranes the host reads."""
    return [*program.outputs] if program.contract.output == "membrane" else []


def _played(
    simulator: Simulator, frames: Frames, teacher: Recording | None = None, record: list[str] | None = None
) -> Recording:
    """The recording of the next frames; `record` names populations whose membranes are kept."""
    program, spikes = simulator.program, input_spikes(simulator.program, frames)
    forced = on_chip_clock(teacher, program.latencies) if teacher is not None else None
    trace = simulator.advance(spikes, len(frames), forced, record or [])
    membranes: dict[str, NDArray[Any]] = {}
    for population in program.populations:
        if population.node in trace.membranes:
            integers = trace.membranes[population.node].reshape(len(frames), *population.shape)
            volts = (integers * population.volts[:, None, None]).astype(np.float32)
            membranes[population.node] = volts.reshape(len(frames), *population.node_shape)
    return _recording(program, trace, len(frames), "builtin", membranes=membranes)


def input_spikes(program: SpeckProgram, frames: Frames) -> Spikes:
    """Frames as spikes; refuses what no spike can carry. A vector is a map of one pixel."""
    if frames.ndim < 2 or map_shape(frames.shape[1:]) != program.input_shape:
        wanted = ", ".join(map(str, program.input_shape))
        raise InputError(f"frames have shape {frames.shape}, the program takes (T, {wanted})")
    spikes, whole, lowest, highest = counted(frames)
    if not whole or lowest < 0:
        raise InputError("frames must hold counts of events (0, 1, 2 ...): the chip takes events only")
    if highest >= 2**31:
        raise InputError(
            f"frames hold {highest} events of one pixel in a step, at most {2**31 - 1} are counted"
        )
    return spikes


def _asynchronous(program: SpeckProgram, frames: Frames, options: RunOptions) -> Recording:
    for key, value in options.choices.items():
        if key not in asynchronous.CHOICES:
            raise InputError(f"unknown choice '{key}'; {did_you_mean(key, asynchronous.CHOICES)}")
        if value not in asynchronous.CHOICES[key]:
            raise InputError(f"choice {key} is '{value}'; {did_you_mean(value, asynchronous.CHOICES[key])}")
    spikes, rng = input_spikes(program, frames), np.random.default_rng(options.seed)
    choices, state = asynchronous.Choices(**options.choices), asynchronous.new_state(program)  # type: ignore[arg-type]
    trace = asynchronous.simulate(program, spikes, len(frames), rng, state, choices)
    details = {"seed": options.seed, "synaptic_operations": trace.operations, "choices": asdict(choices)}
    return _recording(program, trace, len(frames), "asynchronous", details)


def _recording(
    program: SpeckProgram,
    trace: Trace,
    steps: int,
    runtime: str,
    details: dict[str, Any] | None = None,
    membranes: Mapping[str, NDArray[Any]] = MappingProxyType({}),
) -> Recording:
    return Recording(
        steps=steps,
        shapes=dict(program.node_shapes),
        spikes=trace.spikes,
        provenance=Provenance(
            runtime=runtime,
            device="simulation",
            target=program.target,
            versions={"nrf": nrf.__version__},
            checksum=program.checksum,
            counters={"saturated": trace.saturated},
            details=details or {},
        ),
        membranes=membranes,
        latencies=program.latencies,
    )


def _vendor(program: SpeckProgram, frames: Frames, runtime: str, options: RunOptions) -> Recording:
    """Sinabs, or the chip through Sinabs."""
    if runtime == "speck" and program.bits != BOARD:
        raise InputError(
            f"the program has {program.bits.weight}-bit weights, {program.bits.bias}-bit biases and "
            f"{program.bits.state}-bit states, the board has {BOARD.weight}, {BOARD.bias} and {BOARD.state}; "
            "run it on builtin"
        )
    spikes = input_spikes(program, frames)
    if np.any(spikes.n > 2**24):  # where single precision, in which Sinabs counts, ends
        raise InputError(f"frames hold up to {spikes.n.max()} events per pixel; {runtime} counts to {2**24}")
    counts = spikes.dense(len(frames), program.input_shape).astype(np.int32)
    asked = {key: getattr(options, key) for key in ("device", "repeats", "board", "slow_clock", "seed")}
    with scratch() as folder:
        path = folder / "program.speck2f"
        program.save(path)
        asked |= {"runtime": runtime, "dt": program.contract.dt, "config": f"{path}.json"}
        if runtime == "speck":
            write_chip_config(program, Path(f"{path}.json"))
        recording = run_worker("sinabs", WORKER, path, counts, options.timeout, asked)
    return replace(recording, latencies=program.latencies)


@cache
def chip_absent() -> Absent | None:
    """Why the chip cannot run here, without importing samna: its public stub would try to install itself."""
    if reason := absent("sinabs"):
        return reason
    code = (
        f"import sys; sys.path.insert(0, {str(WORKER.parent)!r})\n"
        "import real_samna\n"
        "try: real_samna.require_samna(); print('here')\n"
        "except RuntimeError as error: print(error)"
    )
    python = python_of("sinabs") or Path()
    answer = answers(python, code, isolated=not own_python("sinabs"))
    if not answer:  # silence is no sign of a chip
        return Absent(f"{python} could not look for samna; name a Python that starts in NRF_SINABS_PYTHON")
    return None if answer == "here" else Absent(answer)
