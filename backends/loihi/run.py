"""Run a program: frames in, recording out, and what really ran it."""

import tempfile
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nrf
from nrf.backends.border.recording import Provenance, Recording
from nrf.backends.loihi.calibrate import on_chip_clock
from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.loihi.simulate import Route, input_spikes, simulate
from nrf.backends.loihi.split import merge, split
from nrf.backends.vendors import missing, run_worker
from nrf.backends.vendors.environment import answers, python_of
from nrf.errors import InputError


def run(program: LoihiProgram, frames: NDArray[Any], runtime: str = "builtin", **options: Any) -> Recording:
    """Run frames (steps, *input shape) on a runtime; see its function for the options."""
    if runtime == "builtin":
        return run_builtin(program, frames, **options)
    if runtime == "lava":
        return run_lava(program, frames, **options)
    if runtime == "loihi2":
        if reason := chip_missing():
            raise InputError(reason)
        return run_lava(program, frames, chip=True, **options)
    raise InputError(f"Loihi 2 has no runtime '{runtime}'; there are builtin, lava, loihi2")


def chip_missing() -> str | None:
    """Why no program can run on a chip here, or None."""
    python = python_of("lava")
    if python is None:
        return missing("lava")
    ask = "from lava.utils import loihi; raise SystemExit(not loihi.is_installed())"
    if answers(python, ask) is None:
        return (
            "no Loihi 2 here: Intel's extension lava-loihi is not installed beside Lava (members of Intel's "
            "neuromorphic research community get it); use --runtime lava or builtin"
        )
    return None


def run_builtin(
    program: LoihiProgram,
    frames: NDArray[Any],
    *,
    teacher: Recording | None = None,
    raw: bool = False,
    path: Route = "events",
) -> Recording:
    """Run on the built-in simulator.

    `teacher`: every population is fed these spikes (of the reference, on its clock) instead of its sources'.
    `raw`: membranes are integers instead of volts, and `<node>/u` holds the currents.
    """
    late = {name: one.latency for name, one in program.neurons.items()}
    forced = on_chip_clock(teacher, late) if teacher is not None else None
    trace, _ = simulate(program, frames, path=path, record=program.neurons, teacher=forced)
    provenance = Provenance(
        runtime="builtin",
        device="simulation",
        target=program.target,
        versions={"nrf": nrf.__version__, "numpy": np.__version__},
        checksum=program.checksum,
        counters={"wrapped": sum(trace.wrapped.values()), "saturated": sum(trace.saturated.values())},
        details={"wrapped": trace.wrapped, "saturated": trace.saturated, "path": path},
    )
    integers = Recording(
        steps=trace.steps,
        shapes={name: one.shape for name, one in program.neurons.items()},
        spikes=trace.spikes,
        provenance=provenance,
        membranes=trace.v | {f"{name}/u": values for name, values in trace.u.items()},
    )
    return in_volts(program, integers, raw)


def run_lava(
    program: LoihiProgram,
    frames: NDArray[Any],
    *,
    raw: bool = False,
    states: bool = True,
    timeout: float = 600.0,
    chip: bool = False,
    worker: Path | None = None,
) -> Recording:
    """Run on Lava, in its own environment and process: its fixed-point simulation, or the chip.

    On the chip a population is split by decay and threshold first, and put together again afterwards.
    Without `states` only spikes are recorded, which is faster; membranes are then 0.
    """
    input_spikes(program, frames)  # what Lava would hang on is refused here
    ready, parts = split(program) if chip else (program, {})
    ours = resources.files("nrf.backends.loihi") / "lava_worker" / "worker.py"
    with tempfile.TemporaryDirectory() as folder, resources.as_file(ours) as path:
        file = Path(folder) / "program.npz"
        ready.save(file)
        integers = run_worker("lava", worker or path, file, frames, timeout, {"chip": chip, "states": states})
    integers = merge(integers, program, parts) if chip else integers
    return in_volts(program, integers, raw)


def in_volts(program: LoihiProgram, integers: Recording, raw: bool) -> Recording:
    """A recording of integer u and v as volts (or as it is, if `raw`), with latencies and coordinates."""
    shapes = {name: one.shape for name, one in program.neurons.items()}
    found = replace(
        integers,
        shapes=shapes,
        spikes={name: spikes for name, spikes in integers.spikes.items() if program.neurons[name].fires},
        membranes={name: one.volts(integers.membranes[name]) for name, one in program.neurons.items()},
        latencies={name: one.latency for name, one in program.neurons.items()},
    ).read_out(program.output, program.contract)
    if not raw:
        return found
    states = {name: values.shape[1:] for name, values in integers.membranes.items()}
    return replace(found, shapes=shapes | states, membranes=integers.membranes)
