"""Which node comes before which: components, recurrent edges, topological order.

Nodes on a common cycle form a component and advance step by step; all others see every step at once. In each
component enough edges are marked recurrent, and carry the step before, that the rest has no cycle:

- edges into a Delay of at least one step, whose own delay then covers it;
- on every way from the component's neurons to its first neuron (the one nearest to the input), the first edge
  behind which nothing else lies than that neuron; and again in what remains.

So a way between two neurons has one recurrent edge or none, and forward ways that share nodes with it are not
delayed. The choices depend only on names and edges, never on the order in which a file lists them.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from itertools import islice

from nrf.lazy import networkx as nx

Edge = tuple[str, str]


def digraph(nodes: Iterable[str], edges: Iterable[Edge]) -> "nx.DiGraph":
    """Nodes and edges for networkx, each in the order given."""
    graph = nx.DiGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(edges)
    return graph


def components(nodes: Iterable[str], edges: Iterable[Edge]) -> list[list[str]]:
    """Strongly connected components, each in the order of `nodes`, listed by their first node."""
    rank = {name: k for k, name in enumerate(nodes)}
    graph = digraph(rank, ((a, b) for a, b in edges if a in rank and b in rank))
    parts = (sorted(part, key=rank.__getitem__) for part in nx.strongly_connected_components(graph))
    return sorted(parts, key=lambda part: rank[part[0]])


def cyclic(component: Collection[str], edges: Collection[Edge]) -> bool:
    """Whether a component has a cycle: several nodes, or one that feeds itself."""
    name = next(iter(component))
    return len(component) > 1 or (name, name) in edges


def reached(starts: Iterable[str], edges: Iterable[Edge]) -> set[str]:
    """`starts` and every node that a way leads to from one of them."""
    starts = set(starts)
    return starts.union(*nx.bfs_layers(digraph(starts, edges), starts))


def recurrent_edges(
    nodes: Iterable[str],
    edges: Iterable[Edge],
    is_neuron: Callable[[str], bool],
    is_delay: Callable[[str], bool],
    start: str,
) -> frozenset[Edge]:
    """The edges that carry the step before."""
    graph = digraph(nodes, edges)
    distance = nx.single_source_shortest_path_length(graph, start)
    end = _sole_ends(graph, is_neuron)
    recurrent: set[Edge] = set()
    pending = _cycles(graph.edges)
    while pending:
        inside = pending.pop()
        cuts = {(a, b) for a, b in inside if is_delay(b)}
        if not cuts:
            neurons = {a for a, _ in inside if is_neuron(a)}
            first = min(neurons, key=lambda name: (distance[name], name))
            back = {b for _, b in inside if end.get(b) == first}
            cuts = {(a, b) for a, b in inside if b in back and (is_neuron(a) or a not in back)}
        recurrent |= cuts
        pending += _cycles(inside - cuts)
    return frozenset(recurrent)


def topological(
    nodes: Collection[str], edges: Collection[Edge], recurrent: Collection[Edge], start: str
) -> list[str]:
    """All nodes, sources first, components kept together; ties by distance from `start`, then name."""
    graph = digraph(nodes, edges)
    distance = nx.single_source_shortest_path_length(graph, start)

    def key(name: str) -> tuple[int, str]:
        return distance.get(name, len(nodes)), name

    parts = nx.condensation(graph)
    members = dict(parts.nodes(data="members"))
    graph.remove_edges_from(recurrent)
    return [
        name
        for part in nx.lexicographical_topological_sort(parts, lambda part: min(map(key, members[part])))
        for name in nx.lexicographical_topological_sort(graph.subgraph(members[part]), key)
    ]


def _cycles(edges: Collection[Edge]) -> list[set[Edge]]:
    """The edges inside of each component that has any; all cycles are there."""
    parts = nx.strongly_connected_components(digraph((), edges))
    part_of = {name: k for k, part in enumerate(parts) for name in part}
    inside: defaultdict[int, set[Edge]] = defaultdict(set)
    for a, b in edges:
        if part_of[a] == part_of[b]:
            inside[part_of[a]].add((a, b))
    return list(inside.values())


def _sole_ends(graph: "nx.DiGraph", is_neuron: Callable[[str], bool]) -> dict[str, str]:
    """The neuron or last node that all ways from a node lead to, where there is only one."""
    synaptic = digraph(graph, ((a, b) for a, b in graph.edges if not is_neuron(a)))
    parts = nx.condensation(synaptic)
    ends: dict[int, set[str]] = {}
    for part in reversed(list(nx.topological_sort(parts))):
        last = {name for name in parts.nodes[part]["members"] if not synaptic.out_degree(name)}
        ends[part] = set(islice(last.union(*(ends[after] for after in parts[part])), 2))  # two are too many
    return {name: min(ends[part]) for name, part in parts.graph["mapping"].items() if len(ends[part]) == 1}
