"""What a run leaves behind: sparse spikes, membranes, coordinates, and what really ran it.

On disk one `.npz` that NumPy alone can read:

    header                JSON as bytes: version, steps, shapes, latency, provenance
    <node>/t, <node>/i, <node>/n   step, flat neuron index, count of every spike of a node
    <node>/v              membrane (steps, *shape), where recorded
    <node>/coordinates    (steps, objects, 2) pixels of an output, where the contract has a readout
    <node>/scores         (classes,) of an output, where the contract reads classes
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from nrf.backends.border.archive import Arrays, Header, read_archive, write_archive
from nrf.errors import InputError
from nrf.export.contract import Contract
from nrf.files import DEPTH, require_memory
from nrf.model.readout import coordinates, scores

VERSION = 2
ONES = np.broadcast_to(np.int64(1), 2**40)  # any number of them, without memory
Values = NDArray[np.number]
Answers = dict[str, NDArray[np.float64]]  # output -> coordinates (steps, objects, 2) or scores (classes,)


@dataclass(frozen=True)
class Provenance:
    """What really ran: a simulator's recording can never be taken for a chip's."""

    runtime: str  # reference | builtin | lava | loihi2 | sinabs | speck
    device: Literal["simulation", "chip"]
    target: str = ""  # loihi2, speck2f; empty for the reference
    versions: dict[str, str] = field(default_factory=dict)
    checksum: str = ""  # of the program (or graph) that ran
    counters: dict[str, int] = field(default_factory=dict)  # saturated, wrapped, ... per run
    details: dict[str, object] = field(default_factory=dict)

    def __add__(self, other: "Provenance") -> "Provenance":
        """Of two pieces or clips: counters are summed, also where details say more about one of them."""
        counters = {key: self.counters.get(key, 0) + n for key, n in other.counters.items()}
        details = other.details | self.details
        for key in counters.keys() & self.details.keys() & other.details.keys():
            one, two = self.details[key], other.details[key]
            if isinstance(one, dict) and isinstance(two, dict):
                details[key] = {name: one[name] + two[name] for name in one}
        return replace(self, counters=self.counters | counters, details=details)


@dataclass(frozen=True, eq=False, repr=False)
class Spikes:
    """Spikes of one node: step, flat neuron index and count, sorted by step then neuron.

    >>> Spikes.from_dense(np.eye(3))
    Spikes(3 in steps 0 to 2)
    """

    t: NDArray[np.int64]
    i: NDArray[np.int64]
    n: NDArray[np.int64]

    def __repr__(self) -> str:
        span = f" in steps {self.t.min()} to {self.t.max()}" if len(self.t) else ""
        return f"Spikes({self.count}{span})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spikes) and all(
            np.array_equal(getattr(self, key), getattr(other, key)) for key in "tin"
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def count(self) -> int:
        """Number of spikes, several of one neuron in one step counted each."""
        return int(self.n.sum())

    @classmethod
    def none(cls) -> "Spikes":
        """Silence."""
        return cls(*(np.zeros(0, np.int64) for _ in range(3)))

    @classmethod
    def sorted(cls, t: NDArray[np.int64], i: NDArray[np.int64], n: NDArray[np.int64]) -> "Spikes":
        """From spikes in any order."""
        order = np.argsort(t * (i.max(initial=0) + 1) + i)  # much quicker than by two keys
        return cls(t[order], i[order], n[order])

    @classmethod
    def joined(cls, parts: "Iterable[Spikes]") -> "Spikes":
        """One after the other, as they come."""
        parts = list(parts)
        if len(parts) == 1:
            return parts[0]
        return cls(*(np.concatenate([getattr(part, key) for part in parts]) for key in "tin"))

    def where(self, keep: NDArray[np.bool_]) -> "Spikes":
        """Some of them."""
        return Spikes(self.t[keep], self.i[keep], self.n[keep])

    def later(self, steps: int) -> "Spikes":
        """The same spikes some steps later."""
        return Spikes(self.t + steps, self.i, self.n)

    def before(self, stop: int) -> "Spikes":
        """Those before a step."""
        return self.where(self.t < stop)

    def between(self, start: int, stop: int) -> "Spikes":
        """Spikes from step `start` up to `stop`, counted from `start`."""
        first, last = np.searchsorted(self.t, (start, stop))
        return Spikes(self.t[first:last] - start, self.i[first:last], self.n[first:last])

    def dense(self, steps: int, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Counts (steps, *shape)."""
        counts = np.zeros((steps, int(np.prod(shape))), np.int64)
        np.add.at(counts, (self.t, self.i), self.n)
        return counts.reshape(steps, *shape)

    @classmethod
    def from_dense(cls, counts: NDArray[np.generic]) -> "Spikes":
        """From counts (T, *shape)."""
        flat = np.asarray(counts).ravel()
        place = np.flatnonzero(flat != 0)  # much quicker than nonzero along two axes
        t, i = np.divmod(place, max(1, int(np.prod(np.shape(counts)[1:]))))
        return cls(t, i, flat[place].astype(np.int64))


@dataclass(frozen=True, eq=False, repr=False)
class Recording:
    """One clip as one runtime saw it. Arrays are raw, as they came: latency is declared, not removed.

    Recordings are equal if all spikes, membranes and coordinates are, whatever ran them.
    """

    steps: int
    shapes: dict[str, tuple[int, ...]]
    spikes: dict[str, Spikes]
    provenance: Provenance
    membranes: Mapping[str, Values] = field(default_factory=dict)
    latencies: dict[str, int] = field(default_factory=dict)  # steps against the contract
    answers: Answers = field(default_factory=dict)  # what the host made of every output, see `read_out`

    @property
    def coordinates(self) -> NDArray[np.float64] | None:
        """Of the only or first output, (steps, objects, 2) in pixels, if the contract reads coordinates."""
        return next((answer for answer in self.answers.values() if answer.ndim == 3), None)

    @property
    def decisions(self) -> dict[str, int | None]:
        """Of every output that is read so, the class with the largest score; None where all are equal."""
        scores = {output: answer for output, answer in self.answers.items() if answer.ndim == 1}
        return {name: int(np.argmax(each)) if np.ptp(each) else None for name, each in scores.items()}

    @property
    def nodes(self) -> list[str]:
        """Names of the recorded nodes, as in the graph."""
        return list(self.shapes)

    def dense(self, node: str) -> NDArray[np.int64]:
        """Spike counts (T, *shape) of a node."""
        spikes, shape = self.events(node), self.shapes[node]
        require_memory(
            f"node '{node}'", 8 * self.steps * prod(shape), "counts of every neuron and step", "use `events`"
        )
        return spikes.dense(self.steps, shape)

    def events(self, node: str) -> Spikes:
        """Sparse spikes of a node."""
        if self._known(node) not in self.spikes:
            raise InputError(f"node '{node}' does not spike; ask for its membrane")
        return self.spikes[node]

    def membrane(self, node: str) -> Values | None:
        """Membrane (T, *shape) of a node in volts, or None where it was not recorded."""
        return self.membranes.get(self._known(node))

    def latency(self, node: str) -> int:
        """Declared steps of delay of a node against the contract."""
        return self.latencies.get(self._known(node), 0)

    def maps(self, output: str, contract: Contract) -> Values:
        """What the host reads: membranes if the contract says so or nothing spikes, else counts."""
        membrane = self.membranes.get(output)
        spikes = output in self.spikes and (contract.output == "spikes" or membrane is None)
        return self.dense(output) if spikes else np.asarray(membrane)

    def scores_of(self, output: str, contract: Contract, stop: int | None = None) -> NDArray[np.float64]:
        """Scores of the classes from the answers to the steps before `stop`, or to all that were answered."""
        late = self.latencies.get(output, 0)
        answers = self.maps(output, contract)[max(late, 0) : self.steps + min(late, 0)]
        return scores(answers[:stop], contract.classes or 0)

    def read_out(self, outputs: Iterable[str], contract: Contract, stop: int | None = None) -> "Recording":
        """The same with what the host makes of the outputs, if the contract says so: coordinates or scores.

        Scores are of the answers to the steps before `stop`.
        """
        if contract.classes is not None:
            return replace(self, answers={name: self.scores_of(name, contract, stop) for name in outputs})
        if (readout := contract.readout) is None:
            return self
        return replace(
            self, answers={name: coordinates(self.maps(name, contract), readout) for name in outputs}
        )

    def cut(self, steps: int) -> "Recording":
        """The first steps alone; scores stay as they were read."""
        return replace(
            self,
            steps=min(steps, self.steps),
            spikes={node: spikes.before(steps) for node, spikes in self.spikes.items()},
            membranes={node: values[:steps] for node, values in self.membranes.items()},
            answers={name: each if each.ndim == 1 else each[:steps] for name, each in self.answers.items()},
        )

    def __repr__(self) -> str:
        ran = f"{self.provenance.target or 'float'} {self.provenance.runtime}"
        counts = ", ".join(f"{node} {spikes.count}" for node, spikes in self.spikes.items())
        return f"Recording({self.steps} steps on {ran}, spikes: {counts or 'none'})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Recording) or (self.steps, self.shapes) != (other.steps, other.shapes):
            return False
        ours, theirs = self.arrays, other.arrays
        return ours.keys() == theirs.keys() and all(np.array_equal(ours[key], theirs[key]) for key in ours)

    __hash__ = None  # type: ignore[assignment]

    def _repr_html_(self) -> str:
        from nrf.backends.border.raster import raster_svg

        return raster_svg(self)

    def _known(self, node: str) -> str:
        if node not in self.shapes:
            raise InputError(f"recording has no node '{node}'; it has {', '.join(self.shapes)}")
        return node

    @property
    def header(self) -> Header:
        """What a file of it says beside its arrays."""
        return {
            "version": VERSION,
            "steps": self.steps,
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "latencies": self.latencies,
            "provenance": self.provenance.__dict__,
        }

    @property
    def arrays(self) -> Arrays:
        """The arrays of a file; small types, since what is not written need not be compressed."""
        arrays: Arrays = {f"{name}/v": membrane for name, membrane in self.membranes.items()}
        for name, spikes in self.spikes.items():
            neuron = np.min_scalar_type(prod(self.shapes[name]))
            types = {"t": np.uint32, "i": neuron, "n": np.uint32}
            arrays |= {f"{name}/{key}": getattr(spikes, key).astype(types[key]) for key in "tin"}
        kinds = {1: "scores", 3: "coordinates"}
        return arrays | {f"{name}/{kinds[answer.ndim]}": answer for name, answer in self.answers.items()}

    def save(self, path: str | Path) -> None:
        """Write the recording as one file."""
        write_archive(path, self.header, self.arrays)

    @classmethod
    def load(cls, path: str | Path) -> "Recording":
        """Read what `save`, or a worker, wrote."""
        header, arrays = read_archive(path, "recording", VERSION, "run again")
        try:
            known = msgspec.convert(header, _Header)
            return known.recording(arrays)
        except (ValueError, KeyError) as error:
            raise InputError(f"{path}: not a recording of nrf ({error})") from error


Size = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
Name = Annotated[str, msgspec.Meta(max_length=1000)]


@dataclass(frozen=True)
class _Header:
    """What a recording file says beside its arrays, and what these must then be (else ValueError)."""

    steps: Size
    shapes: dict[Name, tuple[Size, ...]]
    latencies: dict[Name, Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)]]
    provenance: Provenance

    def recording(self, arrays: Arrays) -> Recording:
        for name, shape in self.shapes.items():
            if len(shape) >= DEPTH or prod(shape) > 2**31:
                raise ValueError(f"{name} has the shape {shape}, expected at most 2^31 neurons")
        spikes = {name: self._spikes(name, arrays) for name in self.shapes if f"{name}/t" in arrays}
        membranes = {
            name: _of_shape(arrays[f"{name}/v"], (self.steps, *shape), f"{name}/v")
            for name, shape in self.shapes.items()
            if f"{name}/v" in arrays
        }
        answers = {}
        for name in self.shapes:
            for kind in ("coordinates", "scores"):
                if (key := f"{name}/{kind}") in arrays:
                    values = arrays[key]
                    shape = (self.steps, *values.shape[1:2], 2) if kind == "coordinates" else values.shape[:1]
                    answers[name] = _of_shape(values, shape, key).astype(np.float64)
        return Recording(self.steps, self.shapes, spikes, self.provenance, membranes, self.latencies, answers)

    def _spikes(self, name: str, arrays: Arrays) -> Spikes:
        """Spikes of a node, inside its steps and neurons, sorted by step."""
        t, i, n = (arrays[f"{name}/{key}"] for key in "tin")
        neurons = prod(self.shapes[name])
        for key, values, end in (("t", t, self.steps), ("i", i, neurons), ("n", n, 2**31)):
            _of_shape(values, (t.size,), f"{name}/{key}")
            if values.dtype.kind not in "iu" or (len(values) and not 0 <= values.min() <= values.max() < end):
                raise ValueError(f"{name}/{key} are not whole numbers from 0 to {end - 1}")
        if np.any(np.diff(t.astype(np.int64)) < 0):
            raise ValueError(f"{name}/t is not sorted")
        return Spikes(*(values.astype(np.int64) for values in (t, i, n)))


def _of_shape(values: NDArray[np.generic], shape: tuple[int, ...], name: str) -> Values:
    if values.shape != shape or values.dtype.kind not in "biuf":
        raise ValueError(f"{name} is {values.dtype} of shape {values.shape}, expected numbers of {shape}")
    return values  # type: ignore[return-value]
