"""What one core would hold: pooled sources, one convolution, one population of neurons, still in volts.

    spikes of each source --> sum pooling --> one convolution --> neurons

Sum pooling belongs to the way from one core to the next (`ways`) and stays apart from the convolution;
everything after it is composed into one kernel. `draft` finds the layers of a graph.
"""

from dataclasses import dataclass
from functools import cached_property
from math import prod

import nir
import numpy as np

from nrf.arrays import Floats
from nrf.backends.speck.program import Kernel, Shape
from nrf.backends.speck.ways import Upstream
from nrf.export.contract import Contract

FLOOR = -1.0  # thresholds, of a LIF; at 0 it would lose inhibition that comes before excitation in a step


@dataclass(frozen=True)
class Normal:
    """A layer in units of its channels' thresholds: `v >= 1` fires. Scaling a channel changes no spike."""

    weight: Floats  # (out, in, kernel, kernel) thresholds per spike
    bias: Floats  # (out,) thresholds per step
    floor: float  # thresholds; -inf for none. One for all channels: the rule `one_floor_per_core` sees to it
    volts: Floats  # (out,) volts per threshold


@dataclass(frozen=True)
class Layer:
    """What one core would hold, still in volts."""

    node: str  # the neurons
    path: tuple[str, ...]  # nodes of the convolution, in order
    synapse: str  # the one to name where the kernel is the matter
    neuron: nir.NIRNode
    contract: Contract  # that the neurons follow
    sources: tuple[Upstream, ...]
    conv: Kernel  # volts per spike
    bias: Floats  # `shape`, volts per step

    @property
    def shape(self) -> Shape:
        """(channels, height, width) of its neurons."""
        return self.conv.output_shape

    def words(self, channels: int) -> tuple[int, int]:
        """Kernel and neuron memory of so many of its channels.

        c * 2^(ceil(log2(kx ky)) + ceil(log2 f)) and f * 2^(ceil(log2 fy) + ceil(log2 fx)) words
        """
        side = self.conv.weight.shape[2:]
        kernel = self.conv.input_shape[0] << (_ceil_log2(prod(side)) + _ceil_log2(channels))
        return kernel, neuron_words(channels, *self.shape[1:])

    @property
    def halved(self) -> tuple[int, tuple[int, int]]:
        """The next larger stride, and the output map that it would give."""
        return 2 * self.conv.stride[0], ((self.shape[1] + 1) // 2, (self.shape[2] + 1) // 2)

    @property
    def gain(self) -> Floats:
        """Volts that a unit of input adds to the membranes of every channel in a step.

        IF   v <- v + dt r (W s + b)        LIF   v <- a v + (1 - a) r (W s + b)        "unit": 1 for both
        """
        if self.contract.membrane == "unit":
            return np.ones(self.shape[0])
        share = (self.contract.dt or 1.0) / self.per_channel("tau")
        if isinstance(self.neuron, nir.LIF) and self.contract.integration == "exponential":
            share = -np.expm1(-share)
        return share * self.per_channel("r")

    @cached_property
    def unit(self) -> Normal:
        """In units of its thresholds. A LIF layer is taken as if it did not leak, with its floor at -1."""
        threshold, v_min = self.per_channel("v_threshold"), self.contract.v_min
        gain = self.gain / threshold
        floor = -np.inf if v_min is None else float(np.min(v_min / threshold))
        weight, bias = self.conv.weight * gain[:, None, None, None], self.bias[:, 0, 0] * gain
        return Normal(weight, bias, FLOOR if isinstance(self.neuron, nir.LIF) else floor, threshold)

    def per_channel(self, key: str) -> Floats:
        """A neuron parameter as one value per channel; 1 where the neuron has none."""
        value = np.asarray(getattr(self.neuron, key, 1.0), np.float64)
        if value.size == prod(self.shape):
            return np.asarray(value.reshape(self.shape[0], -1)[:, 0])
        return np.broadcast_to(value.ravel(), self.shape[0])


def neuron_words(features: int, height: int, width: int) -> int:
    """Words of memory for the neurons of a map, whose sides count as powers of two."""
    return features << (_ceil_log2(height) + _ceil_log2(width))


def _ceil_log2(value: int) -> int:
    return max(value - 1, 0).bit_length()
