"""The report as one HTML file that needs nothing else: no network, no other file.

Names come from graphs, so nothing of the data is ever markup: it travels as JSON with every `<` written as
`\\u003c`, and the script puts it on the page as text.

What the page draws is cut to what a reader can see, and says so: some neurons of each node (those that differ
first), the first steps of the first clips, as many as fit into 8 MB (at most 50).
"""

import html
import json
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border import FIGURES, RUNGS, Program, Recording
from nrf.backends.conformance.changes import changes
from nrf.backends.conformance.clips import Clip
from nrf.backends.conformance.compare import spikes_of
from nrf.backends.conformance.report import Report
from nrf.backends.lowering.metrics import aligned
from nrf.export.graph import SPIKING, Graph
from nrf.files import atomic_write

ROWS = 96  # neurons per raster
STEPS = 300  # of the player
Track = list[list[list[float]] | None]  # per step the (x, y) of every shape


@dataclass(frozen=True)
class Overview:
    """A table over several reports; each row opens one of them."""

    title: str
    text: str
    columns: list[str]
    rows: list[list[str]]
    reports: list[int]  # which report each row belongs to


def render(*reports: Report, overview: Overview | None = None) -> str:
    """The page as text; several reports share one page, under an overview."""
    data = {
        "reports": [
            {
                **report.to_json(),
                "views": [json.loads(view) for view in report.views],
                "placement": asdict(report.lowered.placement) if report.lowered else None,
                "changes": changes(report),
            }
            for report in reports
        ],
        "overview": overview and asdict(overview),
        "meanings": FIGURES,
        "rungs": RUNGS,
    }
    first = reports[0]
    title = overview.title if overview else f"{first.verdict}: {first.graph.name} on {first.chip.name}"
    folder = resources.files(__package__)
    return Template((folder / "template.html").read_text()).substitute(
        title=html.escape(title),
        style=(folder / "report.css").read_text(),
        script=(folder / "report.js").read_text(),
        data=as_script_data(data),
    )


def as_script_data(data: Any) -> str:
    """JSON that can stand inside a script element.

    >>> as_script_data("</script>")
    '"\\\\u003c/script>"'
    """
    return json.dumps(data, separators=(",", ":"), allow_nan=False, default=str).replace("<", "\\u003c")


def write_page(path: str | Path, *reports: Report, overview: Overview | None = None) -> None:
    """Write `report.html`."""
    with atomic_write(path) as part:
        part.write_text(render(*reports, overview=overview), encoding="utf-8")


def build_view(
    graph: Graph, clip: Clip, recordings: dict[str, Recording], program: Program
) -> dict[str, Any]:
    """Rasters and player for one clip."""
    nodes = [name for name in graph.neurons if isinstance(graph.nodes[name], SPIKING)]
    return {
        "name": clip.name,
        "rasters": [raster(name, recordings) for name in nodes],
        "player": player(clip, recordings, program),
    }


def raster(node: str, recordings: dict[str, Recording]) -> dict[str, Any]:
    """Spikes of some neurons of a node, per runtime as triples (step, row, kind) in one flat list.

    Kinds are 0 for spikes that both have, 1 for those of the reference alone, 2 for the candidate's alone.
    """
    reference = recordings["reference"]
    size = int(np.prod(reference.shapes[node]))
    spikes, differ, active = {}, {}, np.zeros(size, np.int64)
    for name, run in recordings.items():
        if name == "reference" or node not in run.shapes:
            continue
        pair = aligned(spikes_of(reference, node), spikes_of(run, node), reference.steps, run.latency(node))
        wanted, actual = (np.unique((s.t * size + s.i)[s.t >= 0]) for s in pair)
        kinds = (np.intersect1d(wanted, actual), np.setdiff1d(wanted, actual), np.setdiff1d(actual, wanted))
        parts = [np.stack([*np.divmod(keys, size), np.full_like(keys, n)], 1) for n, keys in enumerate(kinds)]
        spikes[name] = np.concatenate(parts)
        differ[name] = np.bincount(spikes[name][len(kinds[0]) :, 1], minlength=size)
        active += np.bincount(spikes[name][:, 1], minlength=size)
    # Those that differ come first; by the first runtime, as an asynchronous one differs everywhere.
    order = np.lexsort((-active, *(-count for count in reversed(differ.values()))))
    chosen = np.sort(order[:ROWS])
    runs = {}
    for name, triples in spikes.items():
        shown = triples[np.isin(triples[:, 1], chosen)]
        shown[:, 1] = np.searchsorted(chosen, shown[:, 1])
        runs[name] = shown.ravel().tolist()
    return {
        "node": node,
        "shape": list(reference.shapes[node]),
        "size": size,
        "differ": {name: int((count > 0).sum()) for name, count in differ.items()},
        "neurons": chosen.tolist(),
        "steps": reference.steps,
        "runs": runs,
    }


def player(clip: Clip, recordings: dict[str, Recording], program: Program) -> dict[str, Any] | None:
    """Events of every step as (x, y, polarity) in one flat list, and coordinates; None for other inputs."""
    frames = clip.frames[:STEPS]
    if frames.ndim != 4 or frames.shape[1] > 2:
        return None
    outputs = program.outputs if program.contract.readout else ()
    truths = {} if clip.truth is None else {"truth": [_track(clip.truth, 0, len(frames))] * len(outputs)}
    tracks = truths | {
        name: [_track(run.answers[node], run.latencies.get(node, 0), len(frames)) for node in outputs]
        for name, run in recordings.items()
    }
    return {
        "width": frames.shape[3],
        "height": frames.shape[2],
        "dt": program.contract.dt,
        "events": [np.argwhere(frame)[:, ::-1].ravel().tolist() for frame in frames],
        "tracks": {name: _together(each) for name, each in tracks.items() if each},
    }


def _together(outputs: list[Track]) -> Track:
    """The shapes of all outputs, one output after the other; None where one of them has no answer."""
    steps = zip(*outputs, strict=True)
    return [None if None in each else [place for part in each for place in part or ()] for each in steps]


def _track(coordinates: NDArray[Any], latency: int, steps: int) -> Track:
    """Per step the (x, y) of every shape on the reference's clock; None where there is no finite answer."""
    pixels = np.asarray(coordinates, np.float64).round(2)
    known = {n for n in range(len(pixels)) if np.isfinite(pixels[n]).all()}
    return [pixels[n].tolist() if n in known else None for n in range(latency, latency + steps)]
