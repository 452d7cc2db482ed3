"""A recording as a picture: spikes of every population over time, plain SVG without a dependency."""

from html import escape
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from nrf.backends.border.recording import Recording

WIDTH, ROW, LABEL, GAP = 640, 72, 150, 14  # pixels
NEURONS = 400  # of a population; of larger ones every n-th is drawn


def raster_svg(recording: "Recording") -> str:
    """Steps to the right, neurons down, one band per population; for notebooks and reports.

    >>> raster_svg(recording)[:4]  # doctest: +SKIP
    '<svg'
    """
    parts, top = [], 0
    for node, spikes in recording.spikes.items():
        size = max(1, int(np.prod(recording.shapes[node])))
        every = -(-size // NEURONS)
        drawn = spikes.where(spikes.i % every == 0)
        x = LABEL + drawn.t / max(1, recording.steps) * (WIDTH - LABEL)
        y = top + drawn.i / size * ROW
        marks = "".join(f"M{a:.1f} {b:.1f}h1.5" for a, b in zip(x, y, strict=True))
        label = f"{node}: {spikes.count} spikes" + (f", every {every}th neuron" if every > 1 else "")
        parts.append(
            f'<rect x="{LABEL}" y="{top}" width="{WIDTH - LABEL}" height="{ROW}" fill="#8881"/>'
            f'<path d="{marks}" stroke="currentColor" stroke-width="1.5" fill="none"/>'
            f'<text x="0" y="{top + ROW / 2}" font-size="11" fill="currentColor">{escape(label[:60])}</text>'
        )
        top += ROW + GAP
    axis = (
        f'<text x="{LABEL}" y="{top + 4}" font-size="11" fill="currentColor">{recording.steps} steps</text>'
    )
    view = f'viewBox="0 0 {WIDTH} {top + 12}" width="{WIDTH}" height="{top + 12}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {view} font-family="system-ui">{"".join(parts)}{axis}</svg>'
    )
