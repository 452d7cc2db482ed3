"""From files to a recording: a graph runs in float, a program on its chip's runtime."""

from pathlib import Path
from typing import Any

import numpy as np

from nrf.backends import backend_of
from nrf.backends.border.chip import Target, load_target, target_names
from nrf.backends.border.program import load_program
from nrf.backends.border.recording import Recording
from nrf.errors import InputError
from nrf.events import load_frames
from nrf.export.graph import Graph
from nrf.findings import Finding

HDF5 = b"\x89HDF\r\n\x1a\n"


def is_graph(path: str | Path) -> bool:
    """Whether a file is a NIR graph (HDF5), or else a program."""
    try:
        with Path(path).open("rb") as file:
            return Path(path).suffix == ".nir" or file.read(len(HDF5)) == HDF5
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def run_graph(
    graph: Graph,
    source: str | Path,
    device: str = "cpu",
    precision: str = "float32",
    membranes: bool = True,
    width: float | None = None,
) -> Recording:
    """Run an input file through a graph with the float reference.

    >>> run_graph(read_graph("model.nir"), "clip.npz").save("reference.npz")
    """
    import torch

    from nrf.backends.reference import run

    precisions = {"float32": torch.float32, "float64": torch.float64}
    if precision not in precisions:
        raise InputError(f"precision is '{precision}', expected one of {', '.join(precisions)}")
    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda", "mps"):
        raise InputError(f"device is '{device}', expected cpu, cuda, cuda:N or mps")
    if (kind == "cuda" and not torch.cuda.is_available()) or (
        kind == "mps" and not torch.backends.mps.is_available()
    ):
        raise InputError(f"device '{device}' is not there, or this torch cannot use it; use cpu")
    frames = load_frames(source, width or graph.contract.dt, graph.shapes[graph.input])
    return run(graph, frames, device=device, dtype=precisions[precision], membranes=membranes)


def run_program(
    path: str | Path,
    source: str | Path,
    runtime: str = "builtin",
    target: str | None = None,
    width: float | None = None,
) -> Recording:
    """Run an input file through a program file on one of its chip's runtimes.

    >>> run_program("model.loihi", "clip.npz", runtime="lava")
    """
    chip = target_of(path, target)
    backend = backend_of(chip)
    if runtime not in backend.RUNTIMES:
        raise InputError(f"{chip.name} has no runtime '{runtime}'; there are {', '.join(backend.RUNTIMES)}")
    if reason := backend.RUNTIMES[runtime].missing():
        raise InputError(f"runtime '{runtime}' cannot run here: {reason}")
    program = backend.load(path)
    frames = load_frames(source, width or program.contract.dt, program.input_shape)
    return backend.run(program, frames, runtime=runtime)


def target_of(path: str | Path, given: str | None = None) -> Target:
    """The chip that a program file is for; `given` is the file of a chip that does not ship with nrf."""
    name = load_program(path)[0]["target"]
    if given is None and name not in target_names():
        raise InputError(f"{path}: is for '{name}', which does not ship with nrf; give --target FILE.toml")
    target = load_target(given or name)
    if target.name != name:
        raise InputError(f"{path}: is for '{name}', not for '{target.name}'")
    return target


def busyness(graph: Graph, target: Target, source: str | Path, width: float | None = None) -> list[Finding]:
    """How busy a chip would be on an input file, where its package knows (`activity`)."""
    activity = getattr(backend_of(target), "activity", None)
    if activity is None:
        raise InputError(f"{target.name}: nothing is known about its load; leave --input out")
    frames = load_frames(source, width or graph.contract.dt, graph.shapes[graph.input])
    found: list[Finding] = activity(graph, target, frames)
    return found


def summary(recording: Recording) -> dict[str, Any]:
    """What a person wants to know first: spikes per node, what ran, where the shapes are at the end."""
    nodes: dict[str, Any] = {}
    for name in recording.nodes:
        shape, spikes = recording.shapes[name], recording.spikes.get(name)
        count = None if spikes is None else int(spikes.n.sum())
        rate = None if count is None else count / max(recording.steps * int(np.prod(shape)), 1)
        nodes[name] = {
            "shape": list(shape),
            "spikes": count,
            "rate": rate,
            "latency": recording.latency(name),
        }
    where = recording.coordinates
    return {
        "steps": recording.steps,
        "nodes": nodes,
        "coordinates": None if where is None or not recording.steps else where[-1].tolist(),  # last step
        "provenance": recording.provenance.__dict__,
    }
