"""The canonical graph: what every backend reads."""

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import nir
import numpy as np

from nrf.containers import parse_json
from nrf.errors import InputError
from nrf.export.contract import Contract
from nrf.export.order import digraph
from nrf.lazy import networkx as nx

SPIKING = (nir.IF, nir.LIF, nir.CubaLIF, nir.Threshold)
STATEFUL = (nir.IF, nir.LIF, nir.CubaLIF, nir.I, nir.LI, nir.CubaLI)  # may close a cycle
NEURONS = (*SPIKING, nir.I, nir.LI, nir.CubaLI)
Origin = Literal["file", "flag", "dialect", "assumed"]


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """A validated NIR graph in canonical form, with its contract. Graphs are equal if their checksums are.

    Canonical: flat, shapes known everywhere, parameters as full arrays of the node's shape, padding as
    integers, Linear written as Affine, nodes in topological order (recurrent edges apart).
    """

    name: str  # where it came from, for messages
    nodes: dict[str, nir.NIRNode]  # topological order
    edges: tuple[tuple[str, str], ...]
    shapes: dict[str, tuple[int, ...]]  # output shape of every node
    recurrent: frozenset[tuple[str, str]]  # edges that carry the spikes of the step before
    contract: Contract
    metadata: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)  # where each field of the contract comes from
    node_contracts: dict[str, Contract] = field(default_factory=dict)  # of nodes that differ
    repairs: tuple[str, ...] = ()  # what was put right while reading, in sentences
    folded: dict[str, str] = field(default_factory=dict)  # nodes whose factors went into weights

    @property
    def assumed(self) -> tuple[str, ...]:
        """Contract fields that neither the file nor the caller nor a dialect gave."""
        return tuple(key for key, origin in self.origins.items() if origin == "assumed")

    def stated(self, key: str) -> Any:
        """What the JSON text under a key of the metadata says; a stranger may have written it."""
        try:
            return parse_json(str(self.metadata[key]))
        except ValueError as error:
            raise InputError(f"{self.name}: metadata '{key}' is not readable: {error}") from error

    def contract_of(self, node: str) -> Contract:
        """The contract that a node follows."""
        return self.node_contracts.get(node, self.contract)

    def with_contract(self, **changes: Any) -> "Graph":
        """The same under another contract, which nodes with one of their own change alike."""
        own = {name: contract.with_(**changes) for name, contract in self.node_contracts.items()}
        return replace(self, contract=self.contract.with_(**changes), node_contracts=own)

    def __repr__(self) -> str:
        nodes = " -> ".join(type(node).__name__ for node in list(self.nodes.values())[:8])
        more = f" and {len(self.nodes) - 8} more" if len(self.nodes) > 8 else ""
        neurons = sum(int(np.prod(self.shapes[name])) for name in self.neurons)
        return f"Graph('{self.name}': {nodes}{more}; {neurons} neurons, checksum {self.checksum})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.checksum == other.checksum

    def __hash__(self) -> int:
        return hash(self.checksum)

    def _repr_html_(self) -> str:
        """A drawing, for notebooks."""
        from nrf.export.draw import svg

        return svg(self)

    def inputs_of(self, node: str) -> list[str]:
        """Names of the nodes that feed `node`, recurrent ones included."""
        return list(self._wires.predecessors(node))

    def outputs_of(self, node: str) -> list[str]:
        """Names of the nodes that `node` feeds."""
        return list(self._wires.successors(node))

    @cached_property
    def _wires(self) -> "nx.DiGraph":
        return digraph(self.nodes, self.edges)

    @property
    def input(self) -> str:
        """Name of the input node."""
        return next(name for name, node in self.nodes.items() if isinstance(node, nir.Input))

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one frame."""
        return self.shapes[self.input]

    @cached_property
    def reads(self) -> dict[str, str]:
        """Of every output node, by name, what the host reads: the population it ends in, or else itself."""
        read = {}
        for name in sorted(name for name, node in self.nodes.items() if isinstance(node, nir.Output)):
            source, *others = self.inputs_of(name)
            read[name] = name if others or not isinstance(self.nodes[source], NEURONS) else source
        return read

    @property
    def read_populations(self) -> tuple[str, ...]:
        """What the host reads, each once."""
        return tuple(dict.fromkeys(self.reads.values()))

    @property
    def neurons(self) -> list[str]:
        """Names of the nodes with a membrane, in topological order."""
        return [name for name, node in self.nodes.items() if isinstance(node, NEURONS)]

    @property
    def checksum(self) -> str:
        """SHA-256 over contract, edges and every parameter, 16 hex digits."""
        digest = hashlib.sha256(f"{self.contract.to_json()}{self.edges}".encode())
        for name, contract in self.node_contracts.items():
            digest.update(f"{name}{contract.to_json()}".encode())
        for name, node in self.nodes.items():
            digest.update(f"{name}{type(node).__name__}".encode())
            for key, value in sorted(node.to_dict().items()):
                if key not in ("metadata", "type"):
                    array = np.asarray(value)
                    digest.update(f"{key}{array.dtype.str}{array.shape}".encode())
                    digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]
