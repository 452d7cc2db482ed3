"""What a run leaves behind: sparse spikes, membranes, coordinates, and what really ran it.

On disk one `.npz` that NumPy alone can read:

    header                JSON as bytes: version, steps, shapes, latency, provenance
    <node>/t, <node>/i, <node>/n   step, flat neuron index, count of every spike of a node
    <node>/v              membrane (steps, *shape), where recorded
    coordinates           (steps, shapes, 2) pixels, where the contract has a readout
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border.program import DAMAGED
from nrf.errors import InputError
from nrf.export.contract import Contract
from nrf.files import atomic_write
from nrf.model.readout import coordinates

VERSION = 1


@dataclass(frozen=True)
class Provenance:
    """What really ran: a simulator's recording can never be taken for a chip's."""

    runtime: str  # reference | builtin | lava | loihi2 | sinabs | speck
    device: Literal["simulation", "chip"]
    target: str = ""  # loihi2, speck2f; empty for the reference
    versions: dict[str, str] = field(default_factory=dict)
    checksum: str = ""  # of the program (or graph) that ran
    counters: dict[str, int] = field(default_factory=dict)  # saturated, wrapped, ... per run
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Spikes:
    """Spikes of one node: step, flat neuron index and count, sorted by step then neuron."""

    t: NDArray[np.int64]
    i: NDArray[np.int64]
    n: NDArray[np.int64]

    @classmethod
    def from_dense(cls, counts: NDArray[Any]) -> "Spikes":
        """From counts (T, *shape)."""
        flat = np.asarray(counts).reshape(len(counts), int(np.prod(np.shape(counts)[1:])))
        t, i = np.nonzero(flat)
        return cls(t.astype(np.int64), i.astype(np.int64), flat[t, i].astype(np.int64))


@dataclass(frozen=True)
class Recording:
    """One clip as one runtime saw it. Arrays are raw, as they came: latency is declared, not removed."""

    steps: int
    shapes: dict[str, tuple[int, ...]]
    spikes: dict[str, Spikes]
    provenance: Provenance
    membranes: dict[str, NDArray[Any]] = field(default_factory=dict)
    coordinates: NDArray[np.float64] | None = None  # (steps, shapes, 2), pixels
    latencies: dict[str, int] = field(default_factory=dict)  # steps against the contract

    @property
    def nodes(self) -> list[str]:
        """Names of the recorded nodes, as in the graph."""
        return list(self.shapes)

    def dense(self, node: str) -> NDArray[np.int64]:
        """Spike counts (T, *shape) of a node."""
        spikes = self.events(node)
        counts = np.zeros((self.steps, int(np.prod(self.shapes[node]))), np.int64)
        np.add.at(counts, (spikes.t, spikes.i), spikes.n)
        return counts.reshape(self.steps, *self.shapes[node])

    def events(self, node: str) -> Spikes:
        """Sparse spikes of a node."""
        if self._known(node) not in self.spikes:
            raise InputError(f"node '{node}' does not spike; ask for its membrane")
        return self.spikes[node]

    def membrane(self, node: str) -> NDArray[Any] | None:
        """Membrane (T, *shape) of a node in volts, or None where it was not recorded."""
        return self.membranes.get(self._known(node))

    def latency(self, node: str) -> int:
        """Declared steps of delay of a node against the contract."""
        return self.latencies.get(self._known(node), 0)

    def read_out(self, output: str, contract: Contract) -> "Recording":
        """The same with the coordinates that the host makes of the output, if the contract says how.

        From membranes where the contract reads these, and where the output has no spikes to read.
        """
        if contract.readout is None:
            return self
        membrane = self.membranes.get(output)
        spikes = output in self.spikes and (contract.output == "spikes" or membrane is None)
        maps = self.dense(output) if spikes else membrane
        return replace(self, coordinates=coordinates(np.asarray(maps), contract.readout))

    def _known(self, node: str) -> str:
        if node not in self.shapes:
            raise InputError(f"recording has no node '{node}'; it has {', '.join(self.shapes)}")
        return node

    def save(self, path: str | Path) -> None:
        """Write the recording as one file."""
        header = {
            "version": VERSION,
            "steps": self.steps,
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "latencies": self.latencies,
            "provenance": self.provenance.__dict__,
        }
        arrays: dict[str, NDArray[Any]] = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
        for name, spikes in self.spikes.items():
            arrays |= {f"{name}/t": spikes.t, f"{name}/i": spikes.i, f"{name}/n": spikes.n}
        arrays |= {f"{name}/v": membrane for name, membrane in self.membranes.items()}
        if self.coordinates is not None:
            arrays["coordinates"] = self.coordinates
        with atomic_write(path) as part, part.open("wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: str | Path) -> "Recording":
        """Read what `save`, or a worker, wrote."""
        try:
            with np.load(path, allow_pickle=False) as file:
                header = json.loads(file["header"].tobytes())
                if header["version"] != VERSION:
                    raise InputError(
                        f"{path}: recording version {header['version']}, this nrf reads {VERSION}"
                    )
                shapes = {name: tuple(shape) for name, shape in header["shapes"].items()}
                return cls(
                    steps=header["steps"],
                    shapes=shapes,
                    spikes={
                        name: Spikes(file[f"{name}/t"], file[f"{name}/i"], file[f"{name}/n"])
                        for name in shapes
                        if f"{name}/t" in file
                    },
                    membranes={name: file[f"{name}/v"] for name in shapes if f"{name}/v" in file},
                    coordinates=file.get("coordinates"),
                    latencies=header["latencies"],
                    provenance=Provenance(**header["provenance"]),
                )
        except DAMAGED as error:
            raise InputError(f"{path}: not a recording of nrf ({error})") from error
