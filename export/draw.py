"""A graph as a picture: layers from left to right, recurrent edges dashed below. Plain SVG, no dependency."""

from html import escape
from pathlib import Path

from nrf.export.graph import NEURONS, Graph
from nrf.export.order import digraph
from nrf.files import atomic_write
from nrf.lazy import networkx as nx

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 150, 58, 56, 26, 20
Point = tuple[float, float]
STYLE = """
text { font: 12px system-ui, sans-serif; text-anchor: middle; fill: #1b1b1b }
.kind { fill: #5a5a5a }
rect { fill: #f4f4f4; stroke: #8a8a8a; rx: 6px }
rect.neuron { fill: #fdf0dc; stroke: #b9770e }
path { fill: none; stroke: #4a4a4a; marker-end: url(#tip) }
path.recurrent { stroke: #b03a2e; stroke-dasharray: 5 4 }
"""


def draw(graph: Graph, path: str | Path) -> None:
    """Write the picture of a graph to an .svg file."""
    with atomic_write(path) as part:
        part.write_text(svg(graph))


def svg(graph: Graph) -> str:
    """The picture of a graph as SVG text."""
    column = columns(graph)
    rows: dict[int, list[str]] = {}
    for name in graph.nodes:
        rows.setdefault(column[name], []).append(name)
    tallest = max(map(len, rows.values()))
    place: dict[str, Point] = {
        name: (
            MARGIN + k * (WIDTH + GAP_X),
            MARGIN + (row + (tallest - len(names)) / 2) * (HEIGHT + GAP_Y),
        )
        for k, names in rows.items()
        for row, name in enumerate(names)
    }
    floor = MARGIN + tallest * (HEIGHT + GAP_Y)
    size = (2 * MARGIN + len(rows) * (WIDTH + GAP_X) - GAP_X, floor + 30 * bool(graph.recurrent) + MARGIN)
    parts = [_edge(place, edge, edge in graph.recurrent, floor) for edge in graph.edges]
    parts += [_box(graph, name, *place[name]) for name in graph.nodes]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]:g} {size[1]:g}" '
        f'width="{size[0]:g}" height="{size[1]:g}">\n<style>{STYLE}</style>\n'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0 8 4 0 8z" style="fill:#4a4a4a;stroke:none"/></marker></defs>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def columns(graph: Graph) -> dict[str, int]:
    """Column of every node: right of its sources, or left of its targets if only recurrent edges feed it."""
    forward = digraph(graph.nodes, (edge for edge in graph.edges if edge not in graph.recurrent))
    column = {name: k for k, names in enumerate(nx.topological_generations(forward)) for name in names}
    for name in reversed(graph.nodes):
        if name != graph.input and not forward.in_degree(name):
            column[name] = min((column[b] for b in forward.successors(name)), default=1) - 1
    return column


def _box(graph: Graph, name: str, x: float, y: float) -> str:
    node = graph.nodes[name]
    kind = "neuron" if isinstance(node, NEURONS) else "linear"
    shape = "×".join(map(str, graph.shapes[name]))
    short = name if len(name) <= 20 else f"{name[:9]}…{name[-9:]}"
    lines = [("", short), ("kind", type(node).__name__), ("kind", shape)]
    text = "".join(
        f'<text class="{style}" x="{x + WIDTH / 2:g}" y="{y + 18 + 16 * k:g}">{escape(line)}</text>'
        for k, (style, line) in enumerate(lines)
    )
    box = f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}"/>'
    return f"<g><title>{escape(name)}</title>{box}{text}</g>"


def _edge(place: dict[str, Point], edge: tuple[str, str], recurrent: bool, floor: float) -> str:
    (x0, y0), (x1, y1) = place[edge[0]], place[edge[1]]
    if recurrent:
        x0, y0, x1, y1 = x0 + 0.7 * WIDTH, y0 + HEIGHT, x1 + 0.3 * WIDTH, y1 + HEIGHT
        low = floor + 30
        return f'<path class="recurrent" d="M{x0:g} {y0:g}C{x0:g} {low:g} {x1:g} {low:g} {x1:g} {y1:g}"/>'
    x0, y0, y1 = x0 + WIDTH, y0 + HEIGHT / 2, y1 + HEIGHT / 2
    bend = min(60.0, (x1 - x0) / 2)
    return f'<path d="M{x0:g} {y0:g}C{x0 + bend:g} {y0:g} {x1 - bend:g} {y1:g} {x1:g} {y1:g}"/>'
