"""On the grid: a graph whose own parameters are numbers that Loihi 2 has, so that lowering loses nothing.

    weights      whole multiples of one step per channel, at most 127 of them, fewer where ranges are wide
    tau          dt 4096 / d, with d a whole number
    thresholds   a whole number of steps and a little more: sums of weights never hit them
    biases       whole multiples of 1/64 step, 12 significant bits

Lowering finds the steps again by itself; nothing needs to be remembered beside the numbers.
"""

import copy
from dataclasses import replace

import nir
import numpy as np
from numpy.typing import ArrayLike

from nrf.arrays import Floats
from nrf.backends.border import LowerOptions
from nrf.backends.loihi.calibrate import Calibrator
from nrf.backends.loihi.chip import Bits, Loihi
from nrf.backends.loihi.draft import Draft
from nrf.backends.loihi.quantise import Layer
from nrf.export.graph import Graph

ROOM = 1.1  # how much larger than seen a state may be when ranges are measured again
WEIGHTED = (nir.Conv1d, nir.Conv2d, nir.Affine)


def to_grid(graph: Graph, chip: Loihi) -> Graph:
    """The same graph with its parameters rounded to numbers that the chip has."""
    bits = chip.bits
    draft = Draft(_with_decays(graph, bits), chip)  # steps depend on dt/tau, so time constants come first
    ranges = Calibrator(draft, LowerOptions()).ranges
    nodes = dict(draft.graph.nodes)
    for name, layer in draft.layers.items():
        highest, tried = ranges.ceiling(name)
        ranges.written(name, tried)
        step = _steps(layer, 2**bits.shift / highest)
        exponent = int(np.clip(np.log2(highest * step / 2**bits.shift).min(), 0, draft.numbers.conv[-1]))
        for connection, strongest in zip(layer.connections, layer.strongest, strict=True):
            weighted = [node for node in connection.path if isinstance(nodes[node], WEIGHTED)]
            if len(weighted) == 1:  # a product of two rounded operators would not be on the grid
                nodes[weighted[0]] = _with_weights(nodes[weighted[0]], strongest, step)
        nodes[name] = _with_threshold(nodes[name], layer, step, 2.0 ** -(bits.shift + exponent) / 8)
        before = [source for source in graph.inputs_of(name) if isinstance(nodes[source], WEIGHTED)]
        if before and np.any(layer.dynamics.bias):
            nodes[before[0]] = _with_bias(nodes[before[0]], layer, step)
    on_chip = {name: node for name, node in nodes.items() if name in graph.nodes and name not in graph.reads}
    return replace(graph, nodes=dict(graph.nodes) | on_chip)  # what the host computes stays as it is


def _steps(layer: Layer, smallest: Floats) -> Floats:
    """Volts per integer for each group: those that the weights have already, or those that round them best.

    A group that swings so far that 24 bits cannot hold it in 64ths of a step gets a larger step.
    """
    there, largest = layer.grid_steps, layer.numbers.bits.largest_weight
    if there is not None and np.all(there >= smallest):
        return there
    return layer.least_rounding(np.maximum(layer.strength, largest * ROOM * smallest))


def _copy(node: nir.NIRNode, **changes: ArrayLike) -> nir.NIRNode:
    """A node of the same kind with some parameters changed; dtypes and shapes are kept."""
    changed = copy.copy(node)
    for key, value in changes.items():
        old = np.asarray(getattr(node, key))
        setattr(changed, key, np.asarray(value, dtype=old.dtype).reshape(old.shape))
    return changed


def _with_decays(graph: Graph, bits: Bits) -> Graph:
    """Time constants whose dt/tau is a multiple of 1/4096."""
    dt, nodes, unity = graph.contract.dt or 1.0, dict(graph.nodes), bits.unity
    for name in graph.neurons:
        keys = [key for key in ("tau", "tau_mem", "tau_syn") if hasattr(nodes[name], key)]
        taus = {key: np.asarray(getattr(nodes[name], key), np.float64) for key in keys}
        nodes[name] = _copy(
            nodes[name],
            **{key: dt * unity / np.clip(np.round(unity * dt / tau), 1, unity) for key, tau in taus.items()},
        )
    return replace(graph, nodes=nodes)


def _with_weights(node: nir.NIRNode, driven: Floats, step: Floats) -> nir.NIRNode:
    """Each output channel in whole multiples of its own step.

    `step` is in volts after everything between node and neuron; in the node's own unit it differs by the same
    factor as its largest weight, which is `driven` there.
    """
    weight = np.asarray(node.weight, np.float64)
    rows = weight.reshape(len(weight), -1)
    own = np.abs(rows).max(axis=1)
    if len(own) != len(step):
        return node
    factor = np.where(driven > 0, own / np.where(driven > 0, driven, 1), 1)[:, None]
    rounded = np.round(rows / (step[:, None] * factor)) * step[:, None] * factor
    return _copy(node, weight=rounded)


def _with_threshold(node: nir.NIRNode, layer: Layer, step: Floats, above_step: float) -> nir.NIRNode:
    """Thresholds above a whole number of steps, by an eighth of what the chip counts in, 2^-(6 + exponent).

    So both fire at the same integers. A smaller part would drown in float32; with a larger one, the float
    model misses more of what the chip fires on: of 1/2, 1/4, ... 1/32 this loses least on trained models.
    """
    key = "v_threshold" if hasattr(node, "v_threshold") else "threshold"
    if not hasattr(node, key):
        return node
    above = (np.maximum(np.round(layer.dynamics.threshold / step), 0) + above_step) * step
    shape = layer.population.shape
    volts = np.repeat(above + layer.dynamics.offset, int(np.prod(shape)) // len(above))
    return _copy(node, **{key: volts.reshape(shape)})


def _with_bias(node: nir.NIRNode, layer: Layer, step: Floats) -> nir.NIRNode:
    """The node before a population with its bias moved to where a mantissa and an exponent can say it."""
    bits, dynamics = layer.numbers.bits, layer.dynamics
    size = np.maximum(np.abs(dynamics.bias) * 2**bits.shift / step, 1)
    unit = step / 2**bits.shift * 2.0 ** np.maximum(np.ceil(np.log2(size / bits.largest_bias)), 0)
    full = dynamics.gain / dynamics.decay_u  # what a constant input adds per step in the end
    missing = (np.round(dynamics.bias / unit) * unit - dynamics.bias) / np.where(full == 0, 1, full)
    bias = np.asarray(node.bias, np.float64)
    if bias.size != missing.size:
        return node
    return _copy(node, bias=bias + missing.reshape(bias.shape))
