"""Run a program: frames in, recording out, and what really ran it."""

from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np

import nrf
from nrf.backends.border import Absent, Frames, Provenance, Recording, RunOptions
from nrf.backends.loihi.chip import Bits
from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.loihi.simulate import Simulator, Trace, input_spikes
from nrf.backends.loihi.split import merge, split
from nrf.backends.lowering.readout import Host
from nrf.backends.lowering.timing import on_chip_clock
from nrf.backends.vendors import absent, run_worker
from nrf.backends.vendors.environment import answers, own_python, python_of
from nrf.errors import InputError
from nrf.files import scratch

LAVA = Bits(8, 4, 12, 24, 17, 13, 3, 32)  # the widths that Lava's fixed-point models have built in


def run(program: LoihiProgram, frames: Frames, runtime: str, options: RunOptions) -> Recording:
    """Run frames (steps, *input shape) on a runtime."""
    record = list(program.neurons) if options.membranes else membranes_read(program)
    if runtime == "builtin":
        teacher = None if options.teacher is None else on_chip_clock(options.teacher, program.latencies)
        trace = Simulator(program).run(frames, record=record, teacher=teacher)
        recording = in_volts(program, recorded(program, trace))
        return Host(program).read(recording, frames, teacher).read_out(program.outputs, program.contract)
    if options.teacher is not None:
        raise InputError(f"runtime '{runtime}' has no teacher forcing; use builtin")
    if runtime not in ("lava", "loihi2"):
        raise InputError(f"Loihi 2 has no runtime '{runtime}'; there are builtin, lava, loihi2")
    if runtime == "loihi2" and (reason := chip_absent()):
        raise InputError(str(reason))
    chip = runtime == "loihi2"
    integers = run_lava(program, frames, states=bool(record), timeout=options.timeout, chip=chip)
    integers = replace(integers, membranes={name: integers.membranes[name] for name in record})
    return Host(program).read(in_volts(program, integers), frames).read_out(program.outputs, program.contract)


def chip_absent() -> Absent | None:
    """Why no program can run on a chip here, or None."""
    python = python_of("lava")
    if python is None:
        return absent("lava")
    ask = "from lava.utils import loihi; raise SystemExit(not loihi.is_installed())"
    if answers(python, ask, isolated=not own_python("lava")) is None:
        return Absent(
            "no Loihi 2 here: Intel's extension lava-loihi is not installed beside Lava (members of Intel's "
            "neuromorphic research community get it); use --runtime lava or builtin"
        )
    return None


def session(program: LoihiProgram) -> Callable[[Frames], Recording]:
    """The built-in simulator as a function of the next frames; it keeps state, and membranes that are read.

    There are no coordinates: their integrator goes on from piece to piece too, see `nrf.backends.stream`.
    """
    simulator, host, record = Simulator(program), Host(program), membranes_read(program)

    def advance(frames: Frames) -> Recording:
        before = simulator.clock
        integers = recorded(program, simulator.run(frames, record=record))
        return host.read(in_volts(program, integers, before), frames)

    return advance


def membranes_read(program: LoihiProgram) -> list[str]:
    """Populations whose membranes the host reads."""
    membranes = program.contract.output == "membrane"
    return [name for name in program.read if membranes or not program.fires(name)]


def recorded(program: LoihiProgram, trace: Trace) -> Recording:
    """What the simulator saw, in integers; `<node>/u` are currents, `<node>/r` is what spikes took off."""
    overflows = {key: getattr(trace, key) for key in ("wrapped", "saturated", "saturated_below")}
    return Recording(
        steps=trace.steps,
        shapes=program.shapes,
        spikes=trace.spikes,
        provenance=Provenance(
            runtime="builtin",
            device="simulation",
            target=program.target,
            versions={"nrf": nrf.__version__, "numpy": np.__version__},
            checksum=program.checksum,
            counters={key: sum(values.values()) for key, values in overflows.items()},
            details=dict(overflows),
        ),
        membranes=trace.membranes
        | {f"{name}/u": values for name, values in trace.u.items()}
        | {f"{name}/r": values for name, values in trace.r.items()},
    )


def run_lava(
    program: LoihiProgram,
    frames: Frames,
    *,
    states: bool = True,
    timeout: float = 600.0,
    chip: bool = False,
    worker: Path | None = None,
) -> Recording:
    """Run on Lava, in its own environment and process: its fixed-point simulation, or the chip. In integers.

    On the chip a population is split by decay and threshold first, and put together again afterwards.
    Without `states` only spikes are recorded, which is faster; membranes are then 0.
    """
    if program.bits != LAVA:
        raise InputError(f"{program.name}: its chip has other widths than Lava counts in; use builtin")
    input_spikes(program, frames)  # what Lava would hang on is refused here
    ready, parts = split(program) if chip else (program, {})
    ours = resources.files("nrf.backends.loihi") / "lava_worker" / "worker.py"
    with scratch() as folder, resources.as_file(ours) as path:
        file = folder / "program.npz"
        ready.save(file)
        integers = run_worker("lava", worker or path, file, frames, timeout, {"chip": chip, "states": states})
    return merge(integers, program, parts) if chip else integers


def flagged(program: LoihiProgram, recording: Recording, before: int = 0) -> Provenance:
    """Where a recording comes from, with the steps beyond those in which no state can meet its limit.

    `before` are the steps of earlier pieces.
    """
    origin, end = recording.provenance, before + recording.steps
    if end <= (safe := min(program.safe_steps.values(), default=end)):
        return origin
    counters = origin.counters | {"steps_beyond_safe": end - max(safe, before)}
    return replace(origin, counters=counters, details=origin.details | {"safe_steps": program.safe_steps})


def in_volts(program: LoihiProgram, integers: Recording, before: int = 0) -> Recording:
    """A recording of integer u and v as membranes in volts, with latencies."""
    return replace(
        integers,
        shapes=program.shapes,
        spikes={name: spikes for name, spikes in integers.spikes.items() if program.fires(name)},
        membranes={
            name: neurons.volts(integers.membranes[name])
            for name, neurons in program.neurons.items()
            if name in integers.membranes
        },
        latencies=dict(program.latencies),
        provenance=flagged(program, integers, before),
    )
