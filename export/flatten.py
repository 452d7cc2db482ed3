"""Sub-graphs dissolved into one flat graph."""

from itertools import chain, product

import nir

from nrf.errors import InputError
from nrf.lazy import networkx as nx

Nodes = dict[str, nir.NIRNode]
Edges = list[tuple[str, str]]


def flatten(graph: nir.NIRGraph, prefix: str = "") -> tuple[Nodes, Edges]:
    """Nodes and edges of a graph with every sub-graph spliced in; node `b` of sub-graph `a` becomes `a.b`.

    An edge to a sub-graph goes to whatever its Input feeds, an edge from it starts where its Output is fed.
    Broken edges are kept, so that validation can name them. Where it cannot be done, InputError says why.
    """
    named = {f"{prefix}{key}": node for key, node in graph.nodes.items()}
    nodes = {name: node for name, node in named.items() if not isinstance(node, nir.NIRGraph)}
    edges = [(f"{prefix}{a}", f"{prefix}{b}") for a, b in graph.edges]
    ports: dict[str, tuple[str, str]] = {}  # Input and Output of each sub-graph
    for name in [name for name in named if name not in nodes]:
        inner, inside = flatten(named[name], f"{name}.")
        entries = [key for key, node in inner.items() if isinstance(node, nir.Input)]
        exits = [key for key, node in inner.items() if isinstance(node, nir.Output)]
        if (len(entries), len(exits)) != (1, 1):
            count = f"{len(entries)} Input and {len(exits)} Output nodes"
            raise InputError(f"sub-graph '{name}' has {count}, expected one of each")
        if twice := inner.keys() & (nodes.keys() | named.keys()):
            raise InputError(f"node '{min(twice)}' is there twice once sub-graphs are dissolved; rename one")
        nodes |= inner
        edges += inside
        ports[name] = entries[0], exits[0]
    wires = nx.MultiDiGraph()
    wires.add_nodes_from(nodes)
    wires.add_edges_from((ports.get(a, (a, a))[1], ports.get(b, (b, b))[0]) for a, b in edges)
    for port in chain.from_iterable(ports.values()):
        del nodes[port]
        if not wires.has_edge(port, port):  # which would be a cycle of nothing: the edge stays, to be refused
            bypass(port, wires)
    return nodes, list(wires.edges())


def bypass(name: str, wires: "nx.MultiDiGraph") -> None:
    """Take a node out: what feeds it is connected to what it feeds."""
    for a, b in list(product(wires.predecessors(name), wires.successors(name))):
        times = wires.number_of_edges(a, name) * wires.number_of_edges(name, b)
        wires.add_edges_from([(a, b)] * min(times, 2))  # two are enough to refuse them
    wires.remove_node(name)
