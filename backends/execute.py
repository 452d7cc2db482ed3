"""From files to a recording: a graph runs in float, a program on its chip's runtime."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.backends import backend_of
from nrf.backends.program import load_program
from nrf.backends.recording import Recording
from nrf.backends.target import Target, load_target
from nrf.errors import InputError
from nrf.event_files import load_npz
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
    frames = _frames(source, graph.contract.dt, graph.shapes[graph.input])
    return run(graph, frames, device=device, dtype=precisions[precision], membranes=membranes)


def run_program(path: str | Path, source: str | Path, runtime: str = "builtin") -> Recording:
    """Run an input file through a program file on one of its chip's runtimes.

    >>> run_program("model.loihi", "clip.npz", runtime="lava")
    """
    target = load_target(load_program(path)[0]["target"])
    backend = backend_of(target)
    if runtime not in backend.RUNTIMES:
        raise InputError(f"{target.name} has no runtime '{runtime}'; there are {', '.join(backend.RUNTIMES)}")
    if reason := backend.RUNTIMES[runtime].missing():
        raise InputError(f"runtime '{runtime}' cannot run here: {reason}")
    program = backend.load(path)
    frames = _frames(source, program.contract.dt, program.input_shape)
    return backend.run(program, frames, runtime=runtime)


def busyness(graph: Graph, target: Target, source: str | Path) -> list[Finding]:
    """How busy a chip would be on an input file, where its package knows (`activity`)."""
    activity = getattr(backend_of(target), "activity", None)
    if activity is None:
        raise InputError(f"{target.name}: nothing is known about its load; leave --input out")
    found: list[Finding] = activity(
        graph, target, _frames(source, graph.contract.dt, graph.shapes[graph.input])
    )
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


def _frames(path: str | Path, dt: float | None, shape: tuple[int, ...]) -> NDArray[np.float32]:
    if dt is None and "frames" not in _arrays(path):
        raise InputError(f"{path}: these are events, and no dt is known to bin them by; give --dt SECONDS")
    return load_frames(path, dt or 1.0, shape)


def _arrays(path: str | Path) -> list[str]:
    """Names of the arrays in a .npz file; none for anything else."""
    return list(load_npz(Path(path))) if Path(path).suffix.lower() == ".npz" else []
