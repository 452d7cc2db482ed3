"""What changed between two graphs, two programs or two recordings."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border import Program, Recording, Spikes
from nrf.backends.border.program import pack
from nrf.backends.lowering.metrics import f1, first_difference, matched
from nrf.errors import InputError
from nrf.export.graph import Graph

Thing = Graph | Program | Recording
ABSENT = "absent"


@dataclass(frozen=True)
class Difference:
    """One thing that is not the same."""

    where: str  # a node, a population, or "" for the whole
    what: str
    a: str
    b: str
    size: str = ""  # how much: how many of how many, and by how much


def differences(a: Thing, b: Thing) -> list[Difference]:
    """Everything that differs, in the order of the graph; empty where nothing does."""
    kinds = [_kind(each) for each in (a, b)]
    if kinds[0] != kinds[1]:
        raise InputError(f"a {kinds[0]} and a {kinds[1]} cannot be compared; give two of one kind")
    if isinstance(a, Graph) and isinstance(b, Graph):
        return list(_graphs(a, b))
    if isinstance(a, Recording) and isinstance(b, Recording):
        return list(_recordings(a, b))
    return list(_programs(a, b))


def _kind(thing: Thing) -> str:
    return "graph" if isinstance(thing, Graph) else "recording" if isinstance(thing, Recording) else "program"


def _graphs(a: Graph, b: Graph) -> Iterator[Difference]:
    yield from _fields("", "contract", asdict(a.contract), asdict(b.contract))
    for name in dict.fromkeys([*a.nodes, *b.nodes]):
        one, other = a.nodes.get(name), b.nodes.get(name)
        if one is None or other is None or type(one) is not type(other):
            kinds = [ABSENT if node is None else type(node).__name__ for node in (one, other)]
            yield Difference(name, "node", kinds[0], kinds[1])
            continue
        if name in a.node_contracts or name in b.node_contracts:
            yield from _fields(name, "contract", asdict(a.contract_of(name)), asdict(b.contract_of(name)))
        mine, theirs = one.to_dict(), other.to_dict()
        for key in sorted(mine.keys() | theirs.keys()):
            if key not in ("metadata", "type", "input_type", "output_type"):
                yield from _values(name, key, mine.get(key), theirs.get(key))
    for edge in sorted({*a.edges} ^ {*b.edges}):
        sides = ["there" if edge in graph.edges else ABSENT for graph in (a, b)]
        yield Difference(" -> ".join(edge), "edge", sides[0], sides[1])


def _programs(a: object, b: object) -> Iterator[Difference]:
    """Programs of any chip, field by field: all that `pack` writes, but how they came about."""
    sides = []
    for program in (a, b):
        header, arrays = pack(program)
        sides.append({key: value for key, value in _leaves(header, arrays) if not key.startswith("lowered")})
    for key in dict.fromkeys([*sides[0], *sides[1]]):
        where, _, what = key.rpartition(".")
        yield from _values(where, what, sides[0].get(key), sides[1].get(key))


def _leaves(
    value: object, arrays: dict[str, NDArray[np.generic]], key: str = ""
) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, arrays, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple) and any(isinstance(each, dict) for each in value):
        for n, inner in enumerate(value):
            name = next((inner[word] for word in ("node", "name", "target") if word in inner), n)
            yield from _leaves(inner, arrays, f"{key}[{n}: {name}]")
    else:
        yield key, arrays[value] if isinstance(value, str) and value in arrays else value


def _recordings(a: Recording, b: Recording) -> Iterator[Difference]:
    yield from _fields("", "provenance", asdict(a.provenance), asdict(b.provenance))
    yield from _values("", "steps", a.steps, b.steps)
    for name in b.decisions | a.decisions:
        yield from _values(name, "class", a.decisions.get(name), b.decisions.get(name))
    for name in dict.fromkeys([*a.shapes, *b.shapes]):
        yield from _values(name, "shape", a.shapes.get(name), b.shapes.get(name))
        yield from _values(name, "latency", a.latencies.get(name, 0), b.latencies.get(name, 0))
        if name in a.spikes or name in b.spikes:
            late = a.latencies.get(name, 0) - b.latencies.get(name, 0)  # both on a's clock
            yield from _spikes(name, a.spikes.get(name), b.spikes.get(name), late)
        yield from _values(name, "membrane", a.membranes.get(name), b.membranes.get(name))
    for name, answer in (b.answers | a.answers).items():
        kind = "coordinates" if answer.ndim == 3 else "scores"
        yield from _values(name, kind, a.answers.get(name), b.answers.get(name))


def _spikes(name: str, a: Spikes | None, b: Spikes | None, late: int) -> Iterator[Difference]:
    if a is None or b is None:
        yield Difference(name, "spikes", *(ABSENT if x is None else f"{x.count:,}" for x in (a, b)))
        return
    moved = b.later(late)
    first = first_difference(a, moved)
    if first is not None:
        same = matched(a, moved)
        differ = a.count + b.count - 2 * same
        score, place = f1(same, a.count, b.count), f"step {first[0]}, neuron {first[1]}"
        size = f"{differ:,} differ, F1 {score:.5g}, first at {place}"
        yield Difference(name, "spikes", f"{a.count:,}", f"{b.count:,}", size)


def _fields(where: str, what: str, a: dict[str, object], b: dict[str, object]) -> Iterator[Difference]:
    for key in dict.fromkeys([*a, *b]):
        yield from _values(where, f"{what}: {key}", a.get(key), b.get(key))


def _values(where: str, what: str, a: object, b: object) -> Iterator[Difference]:
    """One value or array on both sides, if it differs."""
    pair, size = [x for x in (a, b) if isinstance(x, np.ndarray | np.generic) and x.dtype.kind in "iufb"], ""
    if len(pair) == 2 and pair[0].shape == pair[1].shape:
        one, other = (np.asarray(x, np.float64) for x in pair)
        differ = (one != other) & ~(np.isnan(one) & np.isnan(other))
        if not differ.any():
            return
        most = np.nanmax(np.abs(one - other))
        size = f"{int(differ.sum()):,} of {differ.size:,} differ, by up to {most:.4g}"
    elif _equal(a, b):
        return
    yield Difference(where, what, _text(a), _text(b), size)


def _equal(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.array_equal(a, b)
    return a == b


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, np.ndarray) and value.size > 1:
        return f"{'x'.join(map(str, value.shape))} {value.dtype}"
    text = f"{float(value):.6g}" if isinstance(value, float | np.floating) else str(value)
    return text if len(text) <= 60 else text[:59] + "…"
