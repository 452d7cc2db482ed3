"""Golden recordings: what the user's own framework gave, and which dialect gives the same.

A golden is a `.npz` file that plain NumPy writes, or NIR's own data format (HDF5, `nir.write_data`):

    np.savez("own.npz", input=frames, **{"lif1": spikes1, "lif2": spikes2})

`input` is (steps, *input shape); every other array has the name of a node and holds its spike counts (steps,
*shape of the node). Some nodes may be missing. With one more axis in front, all arrays hold many clips, and
`labels` are their true classes.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nir
import numpy as np
from numpy.typing import NDArray

from nrf.backends import reference
from nrf.backends.border import Provenance, Recording, Spikes
from nrf.backends.lowering.metrics import first_difference
from nrf.containers import read_arrays, read_hdf5
from nrf.errors import InputError
from nrf.events.clips import Label, is_many, read_labels_of
from nrf.export import read_graph
from nrf.export.dialects import DIALECTS
from nrf.export.graph import Graph
from nrf.files import require_memory

INPUT = "input"
Candidate = tuple[str | None, dict[str, Any]]  # a dialect, and fields of the contract that override it


@dataclass(frozen=True)
class Golden:
    """Input frames and the spikes that somebody else's software gave for them."""

    frames: NDArray[np.float32]
    recording: Recording
    label: Label | None = None  # the true class, where the file states it


@dataclass(frozen=True)
class Match:
    """How well the reference under one contract reproduces a golden recording."""

    flags: str  # as on the command line: "--dialect snntorch --reset zero"; "" for the file's own contract
    spikes: int  # of the golden recording
    differ: int  # counts (neuron and step) that differ
    departs: str = ""  # where the reference first leaves the golden recording
    refused: str = ""  # why the graph cannot be read so


def read_golden(path: Path, graph: Graph) -> Golden:
    """A golden recording for a graph, the first clip of many; what does not fit it is refused by name."""
    return next(read_goldens(path, graph))


def read_goldens(path: Path, graph: Graph) -> Iterator[Golden]:
    """All clips of a golden recording, one after the other."""
    arrays = dict(read_arrays(path) if path.suffix.lower() == ".npz" else _read_nir_data(path, graph))
    labels = read_labels_of(arrays, path)
    arrays = {name: values for name, values in arrays.items() if name not in ("label", "labels")}
    shape = graph.shapes[graph.input]
    if INPUT not in arrays or not is_many(arrays[INPUT].shape, shape):
        yield _golden(arrays, path, graph, labels[0] if labels else None)
        return
    count = len(arrays[INPUT])
    for name, values in [*arrays.items(), ("labels", np.zeros(count if labels is None else len(labels)))]:
        if values.shape[:1] != (count,):
            raise InputError(f"{path}: '{name}' has shape {values.shape}, expected {count} clips")
    for n in range(count):
        one = {name: values[n] for name, values in arrays.items()}
        yield _golden(one, path, graph, labels[n] if labels else None)


def _golden(
    arrays: Mapping[str, NDArray[np.generic]], path: Path, graph: Graph, label: Label | None
) -> Golden:
    if INPUT not in arrays:
        raise InputError(f"{path}: no array '{INPUT}' (steps, *input shape); it has {', '.join(arrays)}")
    frames, shape = arrays[INPUT], graph.shapes[graph.input]
    if frames.ndim < 2 or not len(frames) or frames[0].size != int(np.prod(shape)):
        raise InputError(f"{path}: '{INPUT}' has shape {frames.shape}, expected (steps, *{shape})")
    with np.errstate(over="ignore"):
        finite = frames.dtype.kind in "biuf" and np.all(np.isfinite(frames.astype(np.float32)))
    if not finite:
        raise InputError(f"{path}: '{INPUT}' holds {frames.dtype} that are not all finite 32-bit numbers")
    steps, spikes = len(frames), {}
    for name, counts in arrays.items():
        if name == INPUT:
            continue
        if name not in graph.neurons:
            known = ", ".join(graph.neurons)
            raise InputError(f"{path}: '{name}' is no population of {graph.name}; there are {known}")
        if counts.shape[:1] != (steps,) or counts[0].size != int(np.prod(graph.shapes[name])):
            raise InputError(
                f"{path}: '{name}' has shape {counts.shape}, expected {(steps, *graph.shapes[name])}"
            )
        numbers = counts.astype(np.float64) if counts.dtype.kind in "iubf" else np.array(np.nan)
        if not np.all((numbers >= 0) & (numbers < 2**31) & (numbers == np.floor(numbers))):
            raise InputError(f"{path}: '{name}' holds {counts.dtype} that are no spike counts")
        spikes[name] = Spikes.from_dense(counts)
    if not spikes:
        raise InputError(f"{path}: holds the spikes of no node; expected one array per population")
    shapes = {name: graph.shapes[name] for name in spikes}
    recording = Recording(
        steps, shapes, spikes, Provenance("golden", "simulation", details={"file": path.name})
    )
    return Golden(frames.reshape(steps, *shape).astype(np.float32), recording, label)


def _read_nir_data(path: Path, graph: Graph) -> dict[str, NDArray[np.generic]]:
    """The first sample of every node of a NIR data file, sub-graphs flattened."""
    read_hdf5(path)  # refuses what nir would stumble over
    try:
        data = nir.read_data(path)
    except Exception as error:  # h5py and nir raise many kinds
        raise InputError(f"{path}: neither a .npz file nor NIR data ({error})") from error
    arrays: dict[str, NDArray[np.generic]] = {}
    dt = graph.contract.dt or 1.0

    def collect(nodes: Mapping[str, object], prefix: str) -> None:
        for name, node in nodes.items():
            if isinstance(node, nir.NIRGraphData):
                collect(node.nodes, f"{prefix}{name}.")
                continue
            observables = node.observables  # type: ignore[attr-defined]
            signal = observables.get("spikes", next(iter(observables.values()), None))
            if isinstance(signal, nir.EventData):
                require_memory(
                    path, signal.n_samples * signal.t_max / dt * signal.n_neurons, f"the spikes of '{name}'"
                )
                signal = signal.to_time_gridded(dt)
            if signal is not None:
                arrays[INPUT if prefix + name == graph.input else prefix + name] = signal.data[0]

    try:
        collect(data.nodes, "")
    except (ValueError, IndexError, TypeError, AttributeError, OverflowError) as error:
        raise InputError(f"{path}: its signals are not of one sample and whole steps ({error})") from error
    return arrays


def compare(graph: Graph, golden: Golden, flags: str = "") -> Match:
    """The reference under the graph's contract against a golden recording, spike by spike, in float64."""
    run = reference.run(
        graph, golden.frames.astype(np.float64), dtype=reference.dtype_of("float64"), membranes=False
    )
    spikes = differ = 0
    departs: tuple[int, str, int] | None = None
    for name, wanted in golden.recording.spikes.items():
        found = run.events(name)
        spikes += wanted.count
        differ += int(np.count_nonzero(golden.recording.dense(name) != run.dense(name)))
        if first := first_difference(wanted, found):
            departs = min(departs or (first[0], name, first[1]), (first[0], name, first[1]))
    text = f"node '{departs[1]}', step {departs[0]}, neuron {departs[2]}" if departs else ""
    return Match(flags, spikes, differ, text)


def recognise(model: Path, path: Path) -> list[Match]:
    """All dialects and their variants, the best first: which of them gives the golden spikes?

    >>> recognise(Path("model.nir"), Path("own.npz"))[0].flags  # doctest: +SKIP
    '--dialect snntorch --reset zero'
    """
    matches = []
    for dialect, flags in _candidates(model):
        words = [f"--dialect {dialect}"] if dialect else []
        words += [f"--{key.replace('_', '-')} {value}" for key, value in flags.items()]
        try:
            graph = read_graph(model, dialect, **flags)
            matches.append(compare(graph, read_golden(path, graph), " ".join(words)))
        except InputError as error:
            matches.append(Match(" ".join(words), 0, 0, refused=str(error).splitlines()[0]))
    if all(match.refused for match in matches):
        raise InputError(matches[0].refused)
    return sorted(matches, key=lambda match: (bool(match.refused), match.differ))


def _candidates(model: Path) -> list[Candidate]:
    """The file's own contract if it states one, else every dialect with every variant, defaults first."""
    with suppress(InputError):  # no dt, for example; a dialect may know it
        if "file" in read_graph(model).origins.values():
            return [(None, {})]
    plain: list[Candidate] = [(name, {}) for name in DIALECTS]
    return plain + [(name, dict(flags)) for name, entry in DIALECTS.items() for flags in entry.variants]
