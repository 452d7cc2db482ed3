"""Rules about memory, cores and the ways between them; and the core of every layer."""

from collections.abc import Sequence
from math import prod

import numpy as np

from nrf.backends.border.chip import Target
from nrf.backends.lowering.rules import Found
from nrf.backends.speck.mapping import assign
from nrf.backends.speck.rule import LAYER, WHOLE, halved
from nrf.backends.speck.structure import Layer
from nrf.export.graph import Graph


@LAYER.rule("error")
def core_memory(layer: Layer, graph: Graph, target: Target) -> Found:
    """Some core must have room for kernel, neurons and biases together."""
    if _fits(layer, target):
        return
    kernel, neurons = layer.kernel_words, layer.neuron_words
    rooms = zip(target["cores.kernel_words"], target["cores.neuron_words"], strict=True)
    room = ", ".join(f"{_ki(k)}/{_ki(n)}" for k, n in dict.fromkeys(rooms))
    remedies = []
    if neurons > min(target["cores.neuron_words"]):
        stride, sides = halved(layer)
        words = layer.shape[0] * prod(1 << (side - 1).bit_length() for side in sides)
        remedies.append(
            f"stride {stride} on '{layer.synapse}' would bring {_ki(neurons)} to {_ki(words)} neuron words"
        )
    if kernel > min(target["cores.kernel_words"]):
        features = layer.shape[0]
        fewer = 1 << (features - 1).bit_length() - 1 if features > 1 else 1
        remedies.append(
            f"{fewer} instead of {features} channels would halve {_ki(kernel)} kernel words"
            if fewer < features
            else "a smaller kernel or fewer input channels would save kernel words"
        )
    yield (
        layer.node,
        f"needs {_ki(kernel)} kernel and {_ki(neurons)} neuron words; cores have {room}",
        "; ".join(remedies),
    )


@WHOLE.rule("error")
def two_destinations(layers: Sequence[Layer], graph: Graph, target: Target) -> Found:
    """A core, and the sensor, send to at most two cores."""
    limit = target["cores.destinations"]
    for name in [graph.input, *(layer.node for layer in layers)]:
        readers = [layer.node for layer in layers for source in layer.sources if source.name == name]
        if len(readers) > limit:
            yield (
                name,
                f"feeds {', '.join(readers)}; a core feeds at most {limit}",
                "copy this population, or chain the readers",
            )


@WHOLE.rule("error")
def one_sensor_pooling(layers: Sequence[Layer], graph: Graph, target: Target) -> Found:
    """The sensor stage pools once for all its destinations."""
    pools = {source.pool for layer in layers for source in layer.sources if source.name == graph.input}
    if len(pools) > 1:
        yield (
            graph.input,
            f"is pooled by {sorted(pools)}; the sensor stage pools once",
            "use the same pooling for all readers of the input",
        )


@WHOLE.rule("error")
def layers_find_cores(layers: Sequence[Layer], graph: Graph, target: Target) -> Found:
    """Nine cores of four kinds: every layer needs one of its own."""
    fits = {layer.node: _fits(layer, target) for layer in layers}
    assignment = assign({name: cores for name, cores in fits.items() if cores})
    if not assignment.complete:
        names, cores = assignment.competing, assignment.contested
        yield (
            "",
            f"{len(names)} layers ({', '.join(names)}) fit only the {len(cores)} cores "
            f"{', '.join(map(str, cores))}",
            "make one of them small enough for another core, or merge layers",
        )


def cores_for(layers: Sequence[Layer], target: Target) -> dict[str, int]:
    """The core of every layer of a graph that passed the rules."""
    return assign({layer.node: _fits(layer, target) for layer in layers}).cores


def _fits(layer: Layer, target: Target) -> list[int]:
    """Cores with enough memory, the smallest first so that the large ones stay free."""
    kernel, neuron = target["cores.kernel_words"], target["cores.neuron_words"]
    cores = [
        core
        for core in range(target["cores.count"])
        if layer.kernel_words <= kernel[core]
        and layer.neuron_words <= neuron[core]
        and (not np.any(layer.bias) or layer.shape[0] <= target["cores.biases"])
    ]
    return sorted(cores, key=lambda core: (kernel[core] * neuron[core], core))


def _ki(words: int) -> str:
    return f"{words / 1024:g} Ki"
