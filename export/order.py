"""Which node comes before which: components, recurrent edges, topological order.

Nodes on a common cycle form a component and advance step by step; all others see every step at once. In each
component enough edges are marked recurrent, and carry the step before, that the rest has no cycle:

- edges into a Delay of at least one step, whose own delay then covers it;
- on every way from the component's neurons to its first neuron (the one nearest to the input), the first edge
  behind which nothing else lies than that neuron; and again in what remains.

So a way between two neurons has one recurrent edge or none, and forward ways that share nodes with it are not
delayed. The choices depend only on names and edges, never on the order in which a file lists them.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

Edge = tuple[str, str]


def components(nodes: Iterable[str], edges: Collection[Edge]) -> list[list[str]]:
    """Strongly connected components, each in the order of `nodes`, listed by their first node."""
    names = list(nodes)
    index = {name: k for k, name in enumerate(names)}
    inside = [(index[a], index[b]) for a, b in edges if a in index and b in index]
    rows, columns = np.array(inside, dtype=int).reshape(-1, 2).T
    matrix = coo_array((np.ones(len(rows)), (rows, columns)), shape=(len(names), len(names)))
    labels = connected_components(matrix, directed=True, connection="strong")[1] if names else []
    groups: dict[int, list[str]] = {}
    for name, label in zip(names, labels, strict=True):
        groups.setdefault(int(label), []).append(name)
    return list(groups.values())


def cyclic(component: list[str], edges: Collection[Edge]) -> bool:
    """Whether a component has a cycle: several nodes, or one that feeds itself."""
    return len(component) > 1 or (component[0], component[0]) in edges


def recurrent_edges(
    nodes: Collection[str],
    edges: Collection[Edge],
    is_neuron: Callable[[str], bool],
    is_delay: Callable[[str], bool],
    start: str,
) -> frozenset[Edge]:
    """The edges that carry the step before."""
    distance = distances(start, edges)
    passable = [(a, b) for a, b in edges if not is_neuron(a)]

    def leads_only_to(goal: str, name: str) -> bool:
        reached = distances(name, [] if is_neuron(name) else passable)
        targets = {a for a, _ in passable}
        return {end for end in reached if is_neuron(end) or end not in targets} == {goal}

    cut: set[Edge] = set()
    pending = [component for component in components(nodes, edges) if cyclic(component, edges)]
    while pending:
        component = set(pending.pop())
        inside = {(a, b) for a, b in edges if a in component and b in component} - cut
        cuts = {(a, b) for a, b in inside if is_delay(b)}
        if not cuts:
            first = min(filter(is_neuron, component), key=lambda name: (distance[name], name))
            back = {name for name in component if leads_only_to(first, name)}
            cuts = {(a, b) for a, b in inside if b in back and (is_neuron(a) or a not in back)}
        cut |= cuts
        rest = inside - cut
        pending += [part for part in components(sorted(component), rest) if cyclic(part, rest)]
    return frozenset(cut)


def topological(
    nodes: Collection[str], edges: Collection[Edge], recurrent: Collection[Edge], start: str
) -> list[str]:
    """All nodes, sources first, components kept together; ties by distance from `start`, then name."""
    distance = distances(start, edges)

    def key(name: str) -> tuple[int, str]:
        return distance.get(name, len(nodes)), name

    parts = components(sorted(nodes, key=key), edges)
    part_of = {name: str(k) for k, part in enumerate(parts) for name in part}
    between = {(part_of[a], part_of[b]) for a, b in edges if part_of[a] != part_of[b]}
    forward = [edge for edge in edges if edge not in recurrent]
    return [
        name
        for k in _sorted(list(part_of.values()), between, lambda k: key(parts[int(k)][0]))
        for name in _sorted(parts[int(k)], forward, key)
    ]


def distances(start: str, edges: Collection[Edge]) -> dict[str, int]:
    """Fewest edges from `start` to every node that it reaches."""
    targets: dict[str, list[str]] = {}
    for source, target in edges:
        targets.setdefault(source, []).append(target)
    found = {start: 0}
    queue = deque([start])
    while queue:
        source = queue.popleft()
        for target in targets.get(source, []):
            if target not in found:
                found[target] = found[source] + 1
                queue.append(target)
    return found


def _sorted(names: list[str], edges: Collection[Edge], key: Callable[[str], tuple[int, str]]) -> list[str]:
    left = sorted(set(names), key=key)
    waits = {name: {a for a, b in edges if b == name and a in set(left)} for name in left}
    done: list[str] = []
    while left:
        name = next(name for name in left if not waits[name] - set(done))
        left.remove(name)
        done.append(name)
    return done
