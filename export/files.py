"""NIR files: read, validate and bring into canonical form; write with contract and metadata."""

from pathlib import Path
from typing import Any

import h5py
import nir
from nir.serialization import hdf2dict

from nrf.errors import InputError
from nrf.export.canonical import canonical
from nrf.export.contract import Contract
from nrf.export.graph import Graph
from nrf.files import whole_file
from nrf.findings import Finding

KEY = "nrf_contract"  # where the contract is kept in the graph's metadata


def read_graph(path: str | Path, **overrides: Any) -> Graph:
    """Read a NIR file, validate it, and bring it into canonical form.

    The contract comes from the file's metadata; keywords override it, and are needed for files without one.

    >>> read_graph("model.nir", dt=1e-4, reset="zero")
    """
    graph = read_nir(path)
    stored = graph.metadata.get(KEY)
    try:
        contract = Contract.from_json(stored) if stored else Contract()
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    contract = contract.with_(**overrides)
    given = {key for key, value in overrides.items() if value is not None}
    assumed = () if stored else tuple(key for key in ("reset", "fire", "delay") if key not in given)
    return canonical(graph, contract, name=str(path), assumed=assumed)


def write_graph(path: str | Path, graph: Graph) -> None:
    """Write a graph as a NIR file, which plain `nir` reads, with its contract and metadata."""
    for name in graph.nodes:
        if "/" in name or name in ("", "."):
            raise InputError(f"{path}: node '{name}': HDF5 cannot hold this name; rename the node")
    with whole_file(path) as part:
        nir.write(part, to_nir(graph))


def to_nir(graph: Graph) -> nir.NIRGraph:
    """A plain NIR graph with the contract in its metadata."""
    metadata = {**graph.metadata, KEY: graph.contract.to_json()}
    return nir.NIRGraph(dict(graph.nodes), list(graph.edges), metadata=metadata, type_check=False)


def read_nir(path: str | Path) -> nir.NIRGraph:
    """Read a file as `nir.read` does, but naming the nodes that cannot be read, all at once."""
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file")
    try:
        with h5py.File(path, "r") as file:
            content = hdf2dict(file["node"])
    except (OSError, KeyError) as error:
        raise InputError(f"{path}: not a NIR file ({error})") from error
    found: list[Finding] = []
    graph = _graph(content, "", found)
    if found:
        raise InputError("\n       ".join(f"{path}: {finding}" for finding in found))
    return graph


def _graph(content: dict[str, Any], prefix: str, found: list[Finding]) -> nir.NIRGraph:
    nodes = {}
    for key, entry in content.get("nodes", {}).items():
        name = f"{prefix}{key}"
        kind = str(entry.get("type")) if isinstance(entry, dict) else "of none"
        if kind == "NIRGraph":
            nodes[key] = _graph(entry, f"{name}.", found)
            continue
        if kind not in nir.ir.__all__ or kind in ("NIRNode", "str2NIRNode", "dict2NIRNode"):
            found.append(Finding("known_types", "error", name, f"type {kind} is not known"))
            continue
        try:
            nodes[key] = _node(kind, entry)
        except (AssertionError, TypeError, ValueError, LookupError, AttributeError) as error:
            found.append(Finding("readable", "error", name, f"{kind} cannot be read: {error}"))
    edges = [tuple(nir.ir.utils.ensure_str(end) for end in edge) for edge in content.get("edges", [])]
    return nir.NIRGraph(nodes, edges, metadata=content.get("metadata", {}), type_check=False)


def _node(kind: str, entry: dict[str, Any]) -> nir.NIRNode:
    """One node. Stated shapes are set afterwards: nir would compute with them, and fail without a name."""
    if kind in ("Conv1d", "Conv2d"):
        node = nir.dict2NIRNode({**entry, "input_shape": None})
        node.input_shape = entry.get("input_shape")
    elif kind == "Flatten":
        node = nir.dict2NIRNode({**entry, "input_type": None})
        node.input_type = {"input": entry.get("input_type")}
    else:
        node = nir.dict2NIRNode(entry)
    return node
