"""What the HTML page draws: rasters, a player of the clip, and the chip's cores, as plain JSON.

Everything is cut to what a reader can see, and says so: some neurons of each node (those that differ first),
the first steps of the first clip.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border import Placement
from nrf.backends.border.recording import Recording
from nrf.backends.conformance.compare import output_population, spikes_of
from nrf.backends.lowering.metrics import aligned
from nrf.export.graph import SPIKING, Graph

ROWS = 96  # neurons per raster
STEPS = 300  # of the player
FEW = 16  # cores


def build(
    graph: Graph,
    frames: NDArray[Any],
    truth: NDArray[Any] | None,
    recordings: dict[str, Recording],
    placement: Placement,
) -> dict[str, Any]:
    """Rasters, player and cores for one clip."""
    nodes = [name for name in graph.neurons if isinstance(graph.nodes[name], SPIKING)]
    return {
        "rasters": [raster(name, recordings) for name in nodes],
        "player": player(graph, frames, truth, recordings),
        "cores": cores(placement),
    }


def raster(node: str, recordings: dict[str, Recording]) -> dict[str, Any]:
    """Spikes of some neurons of a node, per runtime as triples (step, row, kind) in one flat list.

    Kinds are 0 for spikes that both have, 1 for those of the reference alone, 2 for the candidate's alone.
    """
    reference = recordings["reference"]
    size = int(np.prod(reference.shapes[node]))
    kinds, differ, active = {}, {}, np.zeros(size, np.int64)
    for name, run in recordings.items():
        if name == "reference" or node not in run.shapes:
            continue
        pair = aligned(spikes_of(reference, node), spikes_of(run, node), reference.steps, run.latency(node))
        wanted, actual = (np.unique((s.t * size + s.i)[s.t >= 0]) for s in pair)
        kinds[name] = [
            np.intersect1d(wanted, actual), np.setdiff1d(wanted, actual), np.setdiff1d(actual, wanted),
        ]  # fmt: skip
        differ[name] = np.bincount(np.concatenate(kinds[name][1:]) % size, minlength=size)
        active += np.bincount(np.concatenate(kinds[name]) % size, minlength=size)
    # Those that differ come first; by the first runtime, as an asynchronous one differs everywhere.
    order = np.lexsort((-active, *(-count for count in reversed(differ.values()))))
    chosen = np.sort(order[:ROWS])
    row_of = np.full(size, -1)
    row_of[chosen] = np.arange(len(chosen))
    runs = {}
    for name, spikes in kinds.items():
        triples = [
            np.stack([keys // size, row_of[keys % size], np.full_like(keys, kind)], axis=1)
            for kind, keys in enumerate(spikes)
        ]
        rows = np.concatenate(triples)
        runs[name] = rows[rows[:, 1] >= 0].ravel().tolist()
    return {
        "node": node,
        "shape": list(reference.shapes[node]),
        "size": size,
        "differ": {name: int((count > 0).sum()) for name, count in differ.items()},
        "neurons": chosen.tolist(),
        "steps": reference.steps,
        "runs": runs,
    }


def player(
    graph: Graph, frames: NDArray[Any], truth: NDArray[Any] | None, recordings: dict[str, Recording]
) -> dict[str, Any] | None:
    """Events of every step as (x, y, polarity) in one flat list, and coordinates; None for other inputs."""
    if frames.ndim != 4 or frames.shape[1] > 2:
        return None
    frames = frames[:STEPS]
    events = [np.argwhere(frame)[:, ::-1].ravel().tolist() for frame in frames]
    tracks = {}
    if truth is not None:
        tracks["truth"] = _track(truth, 0, len(frames))
    for name, run in recordings.items():
        if run.coordinates is not None:
            late = run.latency(output_population(graph, run))
            tracks[name] = _track(run.coordinates, late, len(frames))
    return {
        "width": frames.shape[3],
        "height": frames.shape[2],
        "dt": graph.contract.dt,
        "events": events,
        "tracks": tracks,
    }


def cores(placement: Placement) -> dict[str, Any]:
    """What cores hold and how full they are; chips with few cores show the free ones too."""
    used: list[dict[str, Any]] = [
        {
            "core": use.core,
            "holds": use.population
            + (f" {use.first}–{use.last}" if len(placement.of(use.population)) > 1 else ""),
            "memory": {memory.name: [memory.used, memory.size] for memory in use.memories},
        }
        for use in placement.cores
    ]
    taken = {use.core for use in placement.cores}
    count = placement.available * placement.chips
    free = [{"core": n, "holds": "", "memory": {}} for n in range(count) if n not in taken]
    shown = used + free if count <= FEW else used
    note = f"{len(taken)} of {count} cores in use"
    return {"note": note, "cores": sorted(shown, key=lambda entry: entry["core"]) if used else []}


def _track(coordinates: NDArray[Any], latency: int, steps: int) -> list[list[list[float]] | None]:
    """Per step the (x, y) of every shape on the reference's clock; None where the answer was not recorded."""
    pixels = np.asarray(coordinates, np.float64).round(2)
    late = range(latency, latency + steps)
    return [pixels[n].tolist() if 0 <= n < len(pixels) else None for n in late]
