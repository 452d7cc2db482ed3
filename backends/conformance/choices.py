"""What nobody documents about a chip: how far its answer depends on it, for this program and these clips.

An asynchronous simulator has choices (`Runtime.choices`), each with a stated default. Everything else being
equal, another value of one choice is compared with the default as if that were the reference; so is another
order of events, since a choice that does less than that does not matter. The figures are on rungs of their
own, "choice tick_at=end" or "choice order", and are reported, not judged.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from nrf.backends.border import Recording, Runtime
from nrf.backends.conformance.compare import Pixels, Tally, distances, tally
from nrf.backends.conformance.report import Measured
from nrf.export.graph import Graph

CHOICE = "choice "
ORDER = f"{CHOICE}order"
TITLES = ("not documented", "population", "spikes", "with default", "counts differ", "moved, px median")


def alternatives(runtime: Runtime) -> Iterator[tuple[str, str]]:
    """Every choice with every value that is not its default."""
    for key, values in runtime.choices.items():
        for value in values[1:]:
            yield key, value


def compared(
    graph: Graph, orders: Sequence[Recording], others: Mapping[str, Recording], clip: str
) -> Iterator[tuple[str, str, list[Tally] | list[Pixels]]]:
    """Rung, node and sums of another order of events, and of every other choice (`others`, "key=value")."""
    default = orders[0]
    runs = {ORDER: orders[1]} if len(orders) > 1 else {}
    runs |= {f"{CHOICE}{title}": other for title, other in others.items()}
    for rung, other in runs.items():
        for node in graph.neurons:
            if node in default.spikes:
                yield rung, node, [tally(default, other, node, None, clip)]
        pairs = [
            (answer, other.answers[name]) for name, answer in default.answers.items() if answer.ndim == 3
        ]
        if pairs:
            moved = np.concatenate([distances(*pair, 0) for pair in pairs])
            yield rung, "coordinates", [Pixels(moved, np.zeros(0))]


def dependence(measured: Sequence[Measured], populations: Sequence[str]) -> list[tuple[str, ...]]:
    """The table under `TITLES`, of the populations that the host reads, or the last one if it reads others.

    "counts differ" is the sum over neurons of how far their counts in a clip differ, over all spikes.
    """
    entries = {(entry.rung, entry.node): entry.figures for entry in measured if entry.rung.startswith(CHOICE)}
    spiking = dict.fromkeys(node for _, node in entries if node != "coordinates")
    shown = [node for node in spiking if node in populations] or [*spiking][-1:]
    rows = []
    for (rung, node), figures in entries.items():
        if node in shown:
            px = entries.get((rung, "coordinates"), {}).get("px_median")
            spikes = (f"{figures[f'{side}_spikes']:.0f}" for side in ("candidate", "reference"))
            share = f"{100 * figures['neuron_count_error']:.1f} %"
            title = rung.removeprefix(CHOICE) if rung != ORDER else "another order of events"
            rows.append((title, node, *spikes, share, "" if px is None else f"{px:.2f}"))
    return rows
