"""NIR files: read, validate and bring into canonical form; write with contract and metadata."""

import json
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import nir
import numpy as np
from nir.ir.utils import ensure_str

from nrf.containers import parse_json, read_hdf5
from nrf.errors import InputError, did_you_mean
from nrf.export.canonical import CONTRACT_KEYS, canonical_of
from nrf.export.contract import Contract, is_number
from nrf.export.dialects import Dialect, dialect_named
from nrf.export.flatten import Nodes, flatten
from nrf.export.graph import Graph, Origin
from nrf.export.order import components, cyclic
from nrf.export.repair import FORM, apply
from nrf.export.validate import KNOWN, can_be_repaired
from nrf.files import atomic_write
from nrf.findings import Finding, refuse_errors

KINDS = {kind.__name__ for kind in KNOWN}
WHOLE = {"groups": 1, "start_dim": 1, "end_dim": 1, "stride": 2, "dilation": 2, "padding": 2}
WHOLE |= {"kernel_size": 2, "input_shape": 2}  # and how many of them there may be
KEY, NODES_KEY = CONTRACT_KEYS
FIELDS = tuple(field.name for field in fields(Contract))
# before the input and behind the output: no matter of the framework
HOST = ("output", "readout", "classes", "sensor")
ASSUMED = ("reset", "fire", "delay")  # what a graph without contract or dialect is told to have


def read_graph(
    source: str | Path | nir.NIRGraph,
    dialect: str | None = None,
    *,
    v_reset: float | None = None,
    **overrides: Any,
) -> Graph:
    """Read a NIR file, put right what has one remedy, validate it, and bring it into canonical form.

    A `nir.NIRGraph` that an exporter has just given is read as its file would be, and stays as it is. The
    contract comes from the metadata, or else from a dialect (`nrf.export.dialects`); keywords are fields of
    `Contract` and override both. `v_reset` (volts) is for graphs whose exporter lost it.

    >>> read_graph("model.nir", dialect="snntorch", reset="zero")  # doctest: +SKIP
    """
    name = "graph" if isinstance(source, nir.NIRGraph) else str(source)
    for key in overrides:
        if key not in FIELDS:
            raise InputError(f"unknown option '{key}'; {did_you_mean(key, (*FIELDS, 'v_reset'))}")
    graph = read_nir(source)
    stored = str(graph.metadata.get(KEY, ""))
    if stored and dialect:
        raise InputError(f"{name}: states its own contract; leave out the dialect")
    try:
        nodes, edges = flatten(graph)
        spoken = dialect_named(dialect) if dialect else None
        if spoken:
            contract = spoken.contract_for(nodes, **overrides)
        else:
            contract = (Contract.from_json(stored) if stored else Contract()).with_(**overrides)
        repairs = FORM + (spoken.repairs if spoken else ())
        repaired = apply(repairs, nodes, edges, contract.dt) if can_be_repaired(nodes, edges) else []
        if v_reset is not None:
            repaired += _reset_to(v_reset, nodes)
        result = canonical_of(nodes, edges, contract, name, graph.metadata)
    except InputError as error:
        text = str(error)
        text = text if text.startswith(name) else f"{name}: {text}"
        raise InputError(text, error.rules) from error
    given = {key for key, value in overrides.items() if value is not None}
    origins: dict[str, Origin] = {
        key: "flag" if key in given else "file" if stored else "dialect" if spoken else "assumed"
        for key in FIELDS
        if key in given or (key not in HOST and (stored or spoken or key in ASSUMED))
    }
    contracts = _node_contracts(result, spoken, str(graph.metadata.get(NODES_KEY, "")))
    if contracts:  # what most neurons follow is the contract of the graph
        contract = Counter(contracts.values()).most_common(1)[0][0]
    special = {name: own for name, own in contracts.items() if own != contract}
    return replace(
        result, contract=contract, origins=origins, node_contracts=special, repairs=tuple(repaired)
    )


def _reset_to(volts: float, nodes: Nodes) -> Iterator[str]:
    """Give all spiking neurons a reset voltage."""
    if not is_number(volts):
        raise InputError(f"v_reset is {volts!r:.60}, expected volts")
    for name, node in nodes.items():
        if isinstance(node, nir.IF | nir.LIF | nir.CubaLIF):
            node.v_reset = np.full_like(np.asarray(node.v_threshold, np.float64), volts)
            yield f"node '{name}': v_reset is {volts:g} V, as stated"


def _node_contracts(graph: Graph, dialect: Dialect | None, stored: str) -> dict[str, Contract]:
    """The contract of every neuron where they may differ: as the file says, or by their kind of neuron."""
    if stored:
        try:
            texts = parse_json(stored)
            if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
                raise ValueError("expected a table of contracts")
            own = {name: Contract.from_json(text) for name, text in texts.items()}
        except (ValueError, InputError) as error:
            raise InputError(f"{graph.name}: metadata '{NODES_KEY}' is not readable: {error}") from error
        return {name: own.get(name, graph.contract) for name in graph.neurons}
    if dialect is None:
        return {}
    parts, edges = components(graph.nodes, graph.edges), set(graph.edges)
    looped = {name for part in parts if cyclic(part, edges) for name in part}
    return {
        name: dialect.by_kind(graph.contract, graph.nodes[name], name in looped) for name in graph.neurons
    }


def write_graph(path: str | Path, graph: Graph) -> None:
    """Write a graph as a NIR file, which plain `nir` reads, with its contract and metadata."""
    for name in graph.nodes:
        if "/" in name or name in ("", "."):
            raise InputError(f"{path}: node '{name}': HDF5 cannot hold this name; rename the node")
    with atomic_write(path) as part:
        nir.write(part, to_nir(graph))


def to_nir(graph: Graph) -> nir.NIRGraph:
    """A plain NIR graph with the contract in its metadata."""
    metadata = {**graph.metadata, KEY: graph.contract.to_json()}
    if graph.node_contracts:
        nodes = {name: contract.to_json() for name, contract in graph.node_contracts.items()}
        metadata[NODES_KEY] = json.dumps(nodes)
    return nir.NIRGraph(dict(graph.nodes), list(graph.edges), metadata=metadata, type_check=False)


def read_nir(source: str | Path | nir.NIRGraph) -> nir.NIRGraph:
    """Read a file as `nir.read` does, but naming the nodes that cannot be read, all at once."""
    findings: list[Finding] = []
    if isinstance(source, nir.NIRGraph):
        graph = _graph(_as_in_a_file(source), "", findings)
        refuse_errors(findings, "graph")
        return graph
    content = read_hdf5(source, "NIR file")[0].get("node")
    if not isinstance(content, dict):
        raise InputError(f"{source}: not a NIR file, it has no group 'node'")
    graph = _graph(content, "", findings)
    refuse_errors(findings, str(source))
    return graph


def _as_in_a_file(graph: nir.NIRGraph) -> dict[str, Any]:
    """The groups and datasets that a file of this graph would hold, copied."""

    def stored(content: dict[str, Any]) -> dict[str, Any]:
        return {
            key: stored(value) if isinstance(value, dict) else value
            for key, value in content.items()
            if value is not None
        }

    return stored(deepcopy(graph.to_dict()))


def _graph(content: Any, prefix: str, findings: list[Finding]) -> nir.NIRGraph:
    """A graph from what the file holds; what cannot be read is added to `findings`."""
    nodes, metadata, edges = (content.get(key, {}) for key in ("nodes", "metadata", "edges"))
    where = prefix.removesuffix(".")
    if not isinstance(nodes, dict) or not isinstance(metadata, dict):
        findings.append(Finding("readable", "error", where, "nodes and metadata must be groups in the file"))
        nodes, metadata = {}, {}
    if np.ndim(edges) != 2 or np.shape(edges)[1] != 2 or np.asarray(edges).dtype.kind not in "OSU":
        findings.append(Finding("readable", "error", where, "the edges are not pairs of names"))
        edges = []
    read: dict[str, nir.NIRNode] = {}
    for key, entry in nodes.items():
        name = f"{prefix}{key}"
        kind = str(entry.get("type")) if isinstance(entry, dict) else "of none"
        if kind == "NIRGraph":
            read[key] = _graph(entry, f"{name}.", findings)
        elif kind not in KINDS:
            findings.append(Finding("known_types", "error", name, f"type {kind} is not known"))
        else:
            try:
                read[key] = _node(kind, entry)
            except (AssertionError, TypeError, ValueError, LookupError, AttributeError) as error:
                findings.append(Finding("readable", "error", name, f"{kind} cannot be read: {error}"))
    pairs = [(ensure_str(source), ensure_str(target)) for source, target in edges]
    return nir.NIRGraph(read, pairs, metadata=metadata, type_check=False)


def _node(kind: str, entry: dict[str, Any]) -> nir.NIRNode:
    """One node. Stated shapes are set afterwards: nir would compute with them, and fail without a name."""
    convolves = kind in ("Conv1d", "Conv2d")
    for key, value in entry.items():
        if key in ("type", "metadata") or (convolves and key == "padding" and isinstance(value, str)):
            continue
        array = np.asarray(value)
        if array.dtype.kind not in "fiub" or not array.size:
            raise ValueError(f"{key} is {value!r:.40}, expected numbers")
        if key in WHOLE and (array.ndim > 1 or array.size > WHOLE[key] or (array % 1 != 0).any()):
            raise ValueError(f"{key} is {value!r:.40}, expected at most {WHOLE[key]} whole numbers")
    if convolves:
        node = nir.dict2NIRNode({**entry, "input_shape": None})
        node.input_shape = entry.get("input_shape")
    elif kind == "Flatten":
        node = nir.dict2NIRNode({**entry, "input_type": None})
        node.input_type = {"input": entry.get("input_type")}
    else:
        node = nir.dict2NIRNode(entry)
    return node
