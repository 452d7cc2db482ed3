"""Layers onto cores: an exact assignment, or the reason why there is none.

Cores differ in kernel and neuron memory, so this is a matching between layers and cores. Augmenting paths
find one whenever it exists. If not, the layers reached from the one left over, and the cores that they reach,
are a certificate (Hall's theorem): these k layers fit only these fewer than k cores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from nrf.backends.border import CoreUse, Memory, Placement
from nrf.backends.speck.chip import Speck
from nrf.backends.speck.structure import Layer, neuron_words
from nrf.export.graph import Graph
from nrf.findings import Found, Rules

MEMORY = Rules[[Layer, Speck]]()
PLACES = Rules[[Sequence[Layer], Graph, Speck]]()


@dataclass(frozen=True)
class Assignment:
    """Core of every layer; or, where that is impossible, who competes for what."""

    cores: dict[str, int]  # layer -> core
    competing: tuple[str, ...] = ()  # layers that together fit only ...
    contested: tuple[int, ...] = ()  # ... these cores, one fewer than layers

    @property
    def complete(self) -> bool:
        """True if every layer has a core."""
        return not self.competing


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


@MEMORY.rule("error")
def core_memory(layer: Layer, chip: Speck) -> Found:
    """Some core must have room for kernel, neurons and biases together."""
    if _fits(layer, chip):
        return
    kernel, neurons = layer.kernel_words, layer.neuron_words
    sizes = zip(chip.cores.kernel_words, chip.cores.neuron_words, strict=True)
    room = ", ".join(f"{_ki(k)}/{_ki(n)}" for k, n in dict.fromkeys(sizes))
    remedies = []
    if neurons > min(chip.cores.neuron_words):
        stride, sides = layer.halved
        words = neuron_words(layer.shape[0], *sides)
        remedies.append(
            f"stride {stride} on '{layer.synapse}' would bring {_ki(neurons)} to {_ki(words)} neuron words"
        )
    if kernel > min(chip.cores.kernel_words):
        features = layer.shape[0]
        fewer = 1 << (features - 1).bit_length() - 1 if features > 1 else 1
        remedies.append(
            f"{fewer} instead of {features} channels would halve {_ki(kernel)} kernel words"
            if fewer < features
            else "a smaller kernel or fewer input channels would save kernel words"
        )
    message = f"needs {_ki(kernel)} kernel and {_ki(neurons)} neuron words; cores have {room}"
    yield layer.node, message, "; ".join(remedies)


@PLACES.rule("error")
def destinations_fit(layers: Sequence[Layer], graph: Graph, chip: Speck) -> Found:
    """A core, and the sensor, send to a few cores only."""
    limit = chip.cores.destinations
    for name in [graph.input, *(layer.node for layer in layers)]:
        readers = [layer.node for layer in layers for source in layer.sources if source.name == name]
        if len(readers) > limit:
            message = f"feeds {', '.join(readers)}; a core feeds at most {limit}"
            yield name, message, "copy this population, or chain the readers"


@PLACES.rule("error")
def one_sensor_pooling(layers: Sequence[Layer], graph: Graph, chip: Speck) -> Found:
    """The sensor stage pools once for all its destinations."""
    pools = {source.pool for layer in layers for source in layer.sources if source.name == graph.input}
    if len(pools) > 1:
        message = f"is pooled by {sorted(pools)}; the sensor stage pools once"
        yield graph.input, message, "use the same pooling for all readers of the input"


@PLACES.rule("error")
def layers_find_cores(layers: Sequence[Layer], graph: Graph, chip: Speck) -> Found:
    """Cores are of several kinds: every layer needs one of its own."""
    fits = {layer.node: _fits(layer, chip) for layer in layers}
    assignment = assign({name: cores for name, cores in fits.items() if cores})
    if not assignment.complete:
        names, cores = assignment.competing, assignment.contested
        yield (
            "",
            f"{len(names)} layers ({', '.join(names)}) fit only the {len(cores)} cores "
            f"{', '.join(map(str, cores))}",
            "make one of them small enough for another core, or merge layers",
        )


def placed(layers: Sequence[Layer], chip: Speck) -> Placement:
    """The core of every layer of a graph that passed the rules, and how full the cores are."""
    cores = assign({layer.node: _fits(layer, chip) for layer in layers}).cores
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


def _fits(layer: Layer, chip: Speck) -> list[int]:
    """Cores with enough memory, the smallest first so that the large ones stay free."""
    kernel, neuron = chip.cores.kernel_words, chip.cores.neuron_words
    if np.any(layer.bias) and layer.shape[0] > chip.cores.biases:
        return []
    cores = [
        core
        for core in range(chip.cores.count)
        if layer.kernel_words <= kernel[core] and layer.neuron_words <= neuron[core]
    ]
    return sorted(cores, key=lambda core: (kernel[core] * neuron[core], core))


def _ki(words: int) -> str:
    return f"{words / 1024:g} Ki"
