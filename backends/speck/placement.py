"""Layers onto cores: an exact assignment, or the reason why there is none.

Cores differ in kernel and neuron memory, so this is a matching between layers and cores. Augmenting paths
find one whenever it exists. If not, the layers reached from the one left over, and the cores that they reach,
are a certificate (Hall's theorem): these k layers fit only these fewer than k cores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from nrf.backends.border import CoreUse, Memory, Placement
from nrf.backends.speck.chip import Speck
from nrf.backends.speck.structure import Layer


@dataclass(frozen=True)
class Assignment:
    """Core of every layer; or, where that is impossible, who competes for what."""

    cores: dict[str, int]  # layer -> core
    competing: tuple[str, ...] = ()  # layers that together fit only ...
    contested: tuple[int, ...] = ()  # ... these cores, one fewer than layers


def assign(fits: Mapping[str, Sequence[int]]) -> Assignment:
    """Give every layer one of the cores that it fits, each core at most once.

    >>> assign({"a": [0, 1], "b": [0]}).cores
    {'a': 1, 'b': 0}
    >>> assign({"a": [0], "b": [0]}).competing
    ('a', 'b')
    """
    owner: dict[int, str] = {}
    for layer in fits:
        seen: dict[int, None] = {}
        if not _augment(layer, fits, owner, seen):
            competing = {layer, *(owner[core] for core in seen)}
            return Assignment({}, tuple(name for name in fits if name in competing), tuple(sorted(seen)))
    core_of = {layer: core for core, layer in owner.items()}
    return Assignment({layer: core_of[layer] for layer in fits})


def _augment(
    layer: str, fits: Mapping[str, Sequence[int]], owner: dict[int, str], seen: dict[int, None]
) -> bool:
    """Find a core for `layer`, moving others where needed; `seen` collects the cores tried."""
    for core in fits[layer]:
        if core in seen:
            continue
        seen[core] = None
        if core not in owner or _augment(owner[core], fits, owner, seen):
            owner[core] = layer
            return True
    return False


def placed(layers: Sequence[Layer], chip: Speck) -> Placement:
    """The core of every layer of a graph that passed the rules, and how full the cores are."""
    cores = assign({layer.node: cores_for(layer, chip) for layer in layers}).cores
    uses = []
    for layer in layers:
        core = cores[layer.node]
        memories = (
            Memory("kernel words", layer.kernel_words, chip.cores.kernel_words[core]),
            Memory("neuron words", layer.neuron_words, chip.cores.neuron_words[core]),
        )
        uses.append(CoreUse(core, layer.node, 0, prod(layer.shape) - 1, memories))
    totals = {
        "kernel words": sum(layer.kernel_words for layer in layers),
        "neuron words": sum(layer.neuron_words for layer in layers),
    }
    return Placement(tuple(uses), chip.cores.count, totals=totals)


def cores_for(layer: Layer, chip: Speck) -> list[int]:
    """Cores with enough memory, the smallest first so that the large ones stay free."""
    kernel, neuron = chip.cores.kernel_words, chip.cores.neuron_words
    cores = [
        core
        for core in range(chip.cores.count)
        if layer.kernel_words <= kernel[core] and layer.neuron_words <= neuron[core]
    ]
    return sorted(cores, key=lambda core: (kernel[core] * neuron[core], core))
