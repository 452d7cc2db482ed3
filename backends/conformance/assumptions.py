"""Whether what was assumed in the contract decides anything: the reference under the other assumption."""

from collections import Counter
from dataclasses import replace

from nrf.backends import reference
from nrf.backends.border import Frames, Recording
from nrf.backends.lowering.metrics import matched
from nrf.export.graph import Graph

OTHERS: dict[str, dict[object, object]] = {  # assumed field -> value -> the other one
    "reset": {"zero": "subtract", "subtract": "zero", "none": "zero"},
    "fire": {"gt": "ge", "ge": "gt"},
    "delay": {0: 1, 1: 0},
}


def hang_on_assumptions(graph: Graph, frames: Frames, wanted: Recording) -> Counter[str]:
    """Assumed fields of the contract on which spikes of the reference hang in a clip, and how many do.

    Where no cycle is closed, a delay on every connection only moves the spikes, and decides nothing.
    """
    spikes: Counter[str] = Counter()
    for key in graph.assumed:
        if key not in OTHERS or (key == "delay" and not graph.recurrent):
            continue
        contract = graph.contract.with_(**{key: OTHERS[key][getattr(graph.contract, key)]})
        other = reference.run(replace(graph, contract=contract), frames, membranes=False)
        differ = 0
        for node, ours in wanted.spikes.items():
            differ += ours.count + other.spikes[node].count - 2 * matched(ours, other.spikes[node])
        spikes[key] = differ
    return +spikes


def why_assumptions_matter(graph: Graph, spikes: Counter[str]) -> list[str]:
    """What to say about them."""
    return [
        f"{key} {getattr(graph.contract, key)} is assumed, and with "
        f"{OTHERS[key][getattr(graph.contract, key)]} {count:,} spikes of the reference differ; "
        f"name the framework with --dialect, or give --{key}"
        for key, count in spikes.items()
    ]
