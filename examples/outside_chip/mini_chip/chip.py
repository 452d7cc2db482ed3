"""The chip's figures as types, and its rules: what it cannot do, one small function each."""

from typing import Annotated

import msgspec
import nir
import numpy as np

from nrf.backends.border import Chip
from nrf.config import Section
from nrf.export import Graph
from nrf.findings import Finding, Found, Rules

Count = Annotated[int, msgspec.Meta(ge=1)]
Bits = Annotated[int, msgspec.Meta(ge=2, le=31)]


class Cores(Section, frozen=True):
    """One population per core."""

    count: Count
    neurons: Count


class Widths(Section, frozen=True):
    """Of signed integers, in bits."""

    weight: Bits
    state: Bits


class MiniChip(Chip, frozen=True, kw_only=True):
    """What minichip.toml says; a key that is not here is refused there."""

    cores: Cores
    bits: Widths


RULES = Rules[[Graph, MiniChip]]()


def check(graph: Graph, chip: MiniChip) -> list[Finding]:
    """All findings of all rules."""
    return RULES.findings(graph, chip)


@RULES.rule("error")
def neurons_integrate_and_fire(graph: Graph, chip: MiniChip) -> Found:
    """There are IF neurons only, of one resistance per population, that reset to 0."""
    for name in graph.neurons:
        node = graph.nodes[name]
        if not isinstance(node, nir.IF):
            yield name, f"{type(node).__name__} neurons are not supported on {chip.title}", "use IF neurons"
        elif np.ptp(node.r) or np.any(node.v_reset):
            yield name, "one resistance per population and v_reset 0 are supported", "make r uniform"


@RULES.rule("error")
def contract_is_the_chips(graph: Graph, chip: MiniChip) -> Found:
    """v > threshold fires, resets to zero, and arrives in the same step."""
    for key, value in (("reset", "zero"), ("fire", "gt"), ("delay", 0), ("v_min", None)):
        if (given := getattr(graph.contract, key)) != value:
            yield "", f"contract: {key} is {given!r}, {value!r} is supported", f"train with {key} {value!r}"


@RULES.rule("error")
def spikes_flow_forward(graph: Graph, chip: MiniChip) -> Found:
    """There are no loops and no delays."""
    for source, target in graph.recurrent:
        yield f"{source} -> {target}", "recurrent edges are not supported", "unroll the loop"
    for name, node in graph.nodes.items():
        if isinstance(node, nir.Delay):
            yield name, "delays are not supported", "leave it out"


@RULES.rule("error")
def populations_fit(graph: Graph, chip: MiniChip) -> Found:
    """One population per core."""
    if len(graph.neurons) > chip.cores.count:
        yield (
            "",
            f"{len(graph.neurons)} populations, the chip has {chip.cores.count} cores",
            "use fewer layers",
        )
    for name in graph.neurons:
        size = int(np.prod(graph.shapes[name]))
        if size > chip.cores.neurons:
            yield name, f"{size} neurons, a core holds {chip.cores.neurons}", "use a stride or fewer channels"
