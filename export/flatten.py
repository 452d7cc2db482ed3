"""Sub-graphs dissolved into one flat graph."""

import nir

from nrf.errors import InputError

Nodes = dict[str, nir.NIRNode]
Edges = list[tuple[str, str]]


def flatten(graph: nir.NIRGraph, prefix: str = "") -> tuple[Nodes, Edges]:
    """Nodes and edges of a graph with every sub-graph spliced in; node `b` of sub-graph `a` becomes `a.b`.

    An edge to a sub-graph goes to whatever its Input feeds, an edge from it starts where its Output is fed.
    Broken edges are kept, so that validation can name them. Where it cannot be done, InputError says why.
    """
    nodes: Nodes = {}
    edges: Edges = [(f"{prefix}{a}", f"{prefix}{b}") for a, b in graph.edges]
    for key, node in graph.nodes.items():
        name = f"{prefix}{key}"
        if not isinstance(node, nir.NIRGraph):
            nodes[name] = node
            continue
        inner, inside = flatten(node, f"{name}.")
        entries = [key for key, node in inner.items() if isinstance(node, nir.Input)]
        exits = [key for key, node in inner.items() if isinstance(node, nir.Output)]
        if (len(entries), len(exits)) != (1, 1):
            count = f"{len(entries)} Input and {len(exits)} Output nodes"
            raise InputError(f"sub-graph '{name}' has {count}, expected one of each")
        edges = [
            (a, b)
            for source, target in edges
            for a in (exits if source == name else [source])
            for b in (entries if target == name else [target])
        ] + inside
        for port in (*entries, *exits):
            edges = _without(port, edges)
        kept = {key: node for key, node in inner.items() if key not in (*entries, *exits)}
        if twice := kept.keys() & (nodes.keys() | {f"{prefix}{key}" for key in graph.nodes}):
            raise InputError(f"node '{min(twice)}' is there twice once sub-graphs are dissolved; rename one")
        nodes |= kept
    return nodes, edges


def _without(port: str, edges: Edges) -> Edges:
    """Connect what feeds `port` to what it feeds."""
    sources = [a for a, b in edges if b == port]
    targets = [b for a, b in edges if a == port]
    return [edge for edge in edges if port not in edge] + [(a, b) for a in sources for b in targets]
