"""From volts to Loihi's integers, for given exponents and roundings; calibrate.py decides which.

V = S (v - offset)                                       S: integers per volt, one per channel
weight = round(S gain W / 2^(6 + exponent))              8 bit, dt/tau is in S, not in the weights
    and on a wide connection a second synapse for what that loses, 8 bits finer
vth = S threshold / 64                                   17 bit
bias = S bias = mant << exp                              13 bit mantissa

Neurons that subtract (ATRLIF) take off 2 (64 vth) = S taken. They fire where v - r reaches 64 vth, so they
rest at 64 vth - S threshold, one less to fire only above the threshold; where they leak, a bias holds them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nrf.arrays import Floats, Int32s
from nrf.backends.loihi.chip import Bits
from nrf.backends.loihi.program import Neurons, Synapses
from nrf.backends.lowering.dynamics import Dynamics, rewound
from nrf.backends.lowering.feedback import rounded
from nrf.backends.lowering.layers import Connection, Population
from nrf.backends.lowering.operators import Conv, Matrix, Operator
from nrf.lazy import sparse

TOLERANCE = 2e-3  # of a step: float32 keeps 127 steps apart to 1e-5
TIE = 1e-6  # of a threshold: nearer than this to a whole number it is one


@dataclass(frozen=True)
class Numbers:
    """Which numbers may be used: those of the chip, or fewer where a file format cannot say them."""

    bits: Bits
    conv: range  # exponents of convolutions
    matrix: range  # exponents of matrices
    bias: range  # exponents of biases
    start: bool = True  # whether u and v may start elsewhere than at 0
    single: bool = False  # whether a weight must be one synapse

    @classmethod
    def of(cls, bits: Bits, format: str = "program") -> "Numbers":
        """All numbers of a chip, or those that lava-dl's `.net` files can say."""
        ends, biases = 2 ** (bits.weight_exponent - 1), 2**bits.bias_exponent
        if format == "net":
            return cls(bits, range(ends), range(2), range(6, 7), start=False, single=True)
        return cls(bits, range(-ends, ends), range(-ends, ends), range(biases))

    def exponents(self, operators: Iterable[Operator]) -> range:
        """Those that all of some operators allow."""
        kinds = [self.conv if isinstance(operator, Conv) else self.matrix for operator in operators]
        return range(max(kind[0] for kind in kinds), min(kind[-1] for kind in kinds) + 1)


@dataclass(frozen=True)
class Choice:
    """How a population is written in integers."""

    scale: Floats  # S, integers per volt and group
    exponents: tuple[int, ...]  # one per connection
    nearest: bool = False  # threshold to the nearest instead of down
    wide: tuple[bool, ...] = ()  # connections whose weights two synapses carry; none where empty
    shift: Int32s | None = None  # (2, groups), on top of the rounded du and dv
    feedback: tuple[Floats | None, ...] = field(default=(), repr=False)  # U of each connection, or nothing
    stretch: Floats | None = None  # of the threshold, per group, and volts per step on top of the bias:
    push: Floats | None = None  # they make up for what is rounded
    finest: int = 0  # exponent of a second synapse; below 0 its sum is rounded down once per step

    def has_weights_of(self, other: "Choice") -> bool:
        """Whether both write the same synapses: they differ in their neurons at most."""
        facts = ((one.exponents, one.wide, one.finest, [*map(id, one.feedback)]) for one in (self, other))
        return np.array_equal(self.scale, other.scale) and next(facts) == next(facts)


@dataclass(frozen=True)
class Layer:
    """A population and what drives it, in volts, and how a choice writes them in integers."""

    population: Population
    dynamics: Dynamics
    connections: tuple[Connection, ...]
    at_threshold: bool  # whether the contract fires at the threshold already
    numbers: Numbers
    subtracts: bool = False  # whether a spike takes off `taken` instead of resetting to 0

    @property
    def fires(self) -> bool:
        """False for a population that is only read as a membrane."""
        return bool(np.isfinite(self.dynamics.threshold).any())

    @cached_property
    def drives(self) -> tuple[Operator, ...]:
        """The operators of the connections in volts per spike."""
        return tuple(connection.operator.scaled(self.dynamics.gain) for connection in self.connections)

    @cached_property
    def strongest(self) -> list[Floats]:
        """Largest weight of each group, in volts, for each connection."""
        return [
            np.array(
                [np.abs(part).max(initial=0.0) for part in weights_by_group(drive, self.dynamics.groups)]
            )
            for drive in self.drives
        ]

    @property
    def weakest(self) -> Floats:
        """Smallest weight of each group other than 0, in volts, of all connections; infinite without any."""
        parts = [weights_by_group(drive, self.dynamics.groups) for drive in self.drives]
        sizes = [
            [np.abs(weights).min(initial=np.inf, where=weights != 0) for weights in part] for part in parts
        ]
        return np.asarray(np.min(sizes, axis=0))

    @cached_property
    def strength(self) -> Floats:
        """Largest weight of each group in volts; silent groups count as the others' largest."""
        largest = np.max(self.strongest, axis=0)
        return np.where(largest > 0, largest, largest.max() or 1.0)

    def weights(self) -> Iterator[Floats]:
        """The different weights into each group in volts, in ascending order, sorted when asked for."""
        parts = [weights_by_group(drive, self.dynamics.groups) for drive in self.drives]
        return (np.unique(np.concatenate(group)) for group in zip(*parts, strict=True))

    def least_rounding(self, full: Floats) -> Floats:
        """Volts per integer for each group, up to a third above full scale, that round its weights best."""
        largest = self.numbers.bits.largest_weight
        best = full / largest
        for group, weights in enumerate(self.weights()):
            some = weights[:: 1 + len(weights) // 2000, None]  # enough to tell
            unit = full[group] / np.arange(largest, 0.75 * largest, -0.5)
            wrong = np.square(np.round(some / unit) * unit - some).sum(axis=0)
            best[group] = unit[np.argmin(wrong)]
        return best

    @cached_property
    def grid_steps(self) -> Floats | None:
        """Volts per integer for each group if all its weights are whole multiples of that, or None.

        Of all such steps the finest is taken, so that the integers are as large as 8 bits allow; or the
        coarsest where spikes subtract: what they take off must be whole too, and adds up.
        """
        steps = np.zeros(self.dynamics.groups)
        whole = np.arange(self.numbers.bits.largest_weight, 0, -1)
        for group, weights in enumerate(self.weights()):
            sizes = np.unique(np.abs(weights[weights != 0]))
            if not len(sizes):
                continue
            if self.subtracts:
                sizes, whole = np.append(sizes, self.dynamics.taken[group]), whole[::-1]
            ratios = sizes[None] / sizes[-1 - self.subtracts] * whole[:, None]
            fits = np.all(np.abs(ratios - np.round(ratios)) < TOLERANCE, axis=1)
            if not fits.any():
                return None
            steps[group] = sizes[-1 - self.subtracts] / whole[np.argmax(fits)]
        return np.where(steps > 0, steps, steps.max() or 1.0)

    def exponents(self, scale: Floats, allowed: range) -> tuple[int, ...]:
        """For each connection the smallest exponent that lets its largest weight fit the chip's bits."""
        bits, exponents = self.numbers.bits, []
        for strongest in self.strongest:
            peak = (strongest * scale).max() / 2**bits.shift / (bits.largest_weight + 0.49)
            needed = int(np.ceil(np.log2(peak))) if peak > 0 else allowed[-1]
            exponents.append(int(np.clip(needed, allowed[0], allowed[-1])))
        return tuple(exponents)

    @cached_property
    def inexact(self) -> tuple[bool, bool]:
        """Whether decays of u, of v are none that the chip has."""
        decays = (self.dynamics.decay_u, self.dynamics.decay_v)
        counts = [decay * self.numbers.bits.unity for decay in decays]
        of_u, of_v = (bool(np.any(np.abs(count - np.round(count)) > 1e-4)) for count in counts)
        return of_u, of_v

    @cached_property
    def bias(self) -> Floats:
        """Volts per step, with those that hold a neuron which subtracts at its resting level."""
        dynamics = self.dynamics
        if not self.subtracts:
            return dynamics.bias
        return dynamics.bias + dynamics.decay_v * (dynamics.taken / 2 - dynamics.threshold)

    def snapped(self, scale: Floats) -> Floats:
        """A little less than `scale`, so that what a spike takes off, and the bias, are whole numbers.

        On the grid it must stay as it is.
        """
        if not self.subtracts or self.grid_steps is not None:
            return scale
        half = 2 ** (self.numbers.bits.shift + 1) / self.dynamics.taken  # scale of vth = 1
        return self._at_bias(_nearby(np.floor(scale / half)) * half)

    def _at_bias(self, scales: Floats, push: Floats | float = 0.0) -> Floats:
        """Of some scales (candidates, groups), the first that rounds the bias of each group least."""
        bias = scales * (self.bias + push)
        mantissa, exponent = bias_integers(bias, self.numbers)
        lost = np.round(np.abs(bias - mantissa * 2.0**exponent) / scales, 12)  # volts
        return np.asarray(np.take_along_axis(scales, lost.argmin(axis=0)[None], axis=0)[0])

    def at_thresholds(
        self, scale: Floats, stretch: Floats | float = 1.0, push: Floats | float = 0.0
    ) -> Floats:
        """A little less than `scale`, so that the threshold is one of those that the chip has: n 64 < V.

        Without decays membranes are whole multiples of 64, the nearest to what they should be: so half way
        between two. With decays they are any whole number, and the threshold itself is hit. Of such scales
        nearby, the one that rounds the bias least: it has 13 bits, and what they lose adds up.
        """
        dynamics, step = self.dynamics, 2.0**self.numbers.bits.shift
        whole = (dynamics.decay_v == 0) & np.isin(dynamics.decay_u, (0, 1))
        threshold = np.where(self.fires, dynamics.threshold * stretch, 1.0)
        units = scale * threshold / step
        tie = np.maximum(0.5 / step, 2 * TIE * units * self.at_threshold)  # not to be taken for a tie
        above = np.where(whole, 0.5, tie)
        count = np.floor(units - above + 1e-6)
        if not self.fires or self.subtracts:
            return scale
        return np.where(count >= 1, self._at_bias((_nearby(count) + above) * step / threshold, push), scale)

    def rounded(self, choice: Choice) -> tuple[Int32s, Int32s, Int32s]:
        """du, dv and vth: choices in which these are equal write the same program."""
        bits, dynamics = self.numbers.bits, self.dynamics
        du = decay_integer(dynamics.decay_u, bits, bits.unity) - 1
        dv = decay_integer(dynamics.decay_v, bits, bits.unity - 1)
        if choice.shift is not None:
            du = np.clip(du + choice.shift[0], -1, bits.unity - 1)
            dv = np.clip(dv + choice.shift[1], 0, bits.unity - 1)
        threshold = choice.scale * dynamics.threshold * (1 if choice.stretch is None else choice.stretch)
        vth = threshold_integer(threshold, choice.nearest, self.at_threshold, bits)
        if self.subtracts:
            half = np.round(choice.scale * dynamics.taken / 2 ** (bits.shift + 1))
            vth = np.clip(half, 1, bits.never - 1).astype(np.int32)
        return du.astype(np.int32), dv.astype(np.int32), vth

    def neurons(self, choice: Choice, late: int, latency: int) -> Neurons:
        """The population in integers, started so that it may run `late` by some steps."""
        scale, bits = choice.scale, self.numbers.bits
        du, dv, vth = self.rounded(choice)
        volts = self.dynamics.bias + (0 if choice.push is None else choice.push)
        written = replace(self.dynamics, decay_u=(du + 1) / bits.unity, decay_v=dv / bits.unity, bias=volts)
        start, limit = rewound(written, late), bits.limit - 1
        rest = np.zeros(len(scale))
        if self.subtracts:
            above = 0 if self.at_threshold else 1
            rest = vth * 2.0**self.numbers.bits.shift - np.round(scale * self.dynamics.threshold) - above
        u0, v0 = (
            np.clip(np.round(scale * volts * self.numbers.start + level), -limit, limit).astype(np.int32)
            for volts, level in ((start.start_u, 0), (start.start_v, rest))
        )
        bias = bias_integers(scale * volts + rest * dv / self.numbers.bits.unity, self.numbers)
        offset = self.dynamics.offset - rest / scale
        shape, subtracts = self.population.shape, self.subtracts
        return Neurons(shape, du, dv, vth, *bias, u0, v0, scale, offset, latency, subtracts)

    def synapses(self, choice: Choice, delays: Sequence[int]) -> list[Synapses]:
        """The connections in integers."""
        bits, results = self.numbers.bits, []
        for number, (connection, drive) in enumerate(zip(self.connections, self.drives, strict=True)):
            exponent, wide = choice.exponents[number], bool(choice.wide) and choice.wide[number]
            fine = max(choice.finest, exponent - bits.weight) if wide else exponent
            scaled = drive.scaled(choice.scale / 2.0 ** (bits.shift + fine))
            upper = choice.feedback[number] if choice.feedback else None
            coarse, rest = as_integers(scaled, upper, bits.largest_weight, exponent - fine)
            ends = connection.source, connection.target
            results.append(Synapses(*ends, coarse, exponent, delays[number]))
            if wide:
                results.append(Synapses(*ends, rest, fine, delays[number]))
        return results


def _nearby(count: Floats) -> Floats:
    """Whole numbers (64, groups) from each down, by a tenth of it at most."""
    return np.asarray(np.maximum(count - np.arange(64)[:, None], np.maximum(np.ceil(0.9 * count), 1)))


def weights_by_group(operator: Operator, groups: int) -> list[Floats]:
    """Weights that end in each group."""
    if isinstance(operator, Conv):
        return list(operator.weight.reshape(groups, -1))
    csr = operator.matrix()
    size = csr.shape[0] // groups
    return [csr.data[csr.indptr[g * size] : csr.indptr[(g + 1) * size]] for g in range(groups)]


def as_integers(
    operator: Operator, upper: Floats | None, largest: int, bits: int
) -> tuple[Operator, Operator]:
    """Weights rounded to whole numbers in two parts, with error feedback if U is given (`lowering.feedback`).

    weight = (coarse << bits) + rest                     coarse from - largest - 1 to largest
    """
    half = 1 << bits >> 1

    def parts(weight: Floats) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
        ends = (-largest - 1 << bits) - half, (largest << bits) + max(half - 1, 0)
        whole = rounded(weight, upper, *ends).astype(np.int32)
        if bits == 0:  # one synapse says it all
            return whole.astype(np.int8), np.zeros_like(whole, np.int8)
        coarse = whole + half >> bits
        return coarse.astype(np.int8), (whole - (coarse << bits)).astype(np.int8)

    if isinstance(operator, Conv):
        coarse, rest = parts(operator.weight)
        return replace(operator, weight=coarse), replace(operator, weight=rest)
    csr = operator.matrix()
    if upper is not None:
        coarse, rest = map(sparse.csr_array, parts(csr.toarray()))
    else:
        coo = csr.tocoo()
        both = parts(coo.data)
        coarse, rest = (sparse.csr_array((part, (coo.row, coo.col)), shape=csr.shape) for part in both)
    coarse.eliminate_zeros()
    rest.eliminate_zeros()
    return Matrix(coarse), Matrix(rest)


def decay_integer(fraction: Floats, bits: Bits, largest: int) -> Int32s:
    """Fraction lost per step, in 2^-12."""
    return np.asarray(np.clip(np.round(fraction * bits.unity), 0, largest), np.int32)


def threshold_integer(threshold: Floats, to_nearest: bool, ge: bool, bits: Bits) -> Int32s:
    """vth so that V > vth << 6 where the contract says V > threshold, or V >= threshold.

    Membranes move in multiples of 64 except for what decay leaves, and decay cuts towards zero: so down.
    """
    units = np.where(np.isfinite(threshold), threshold, 0) / 2**bits.shift
    nearest = np.round(units)
    units = np.where(np.abs(units - nearest) < TIE * np.maximum(1, np.abs(units)), nearest, units)
    below = np.ceil(units) - 1 if ge else np.floor(units)
    whole = np.clip(np.round(units) if to_nearest else below, 0, bits.never - 1)
    return np.where(np.isfinite(threshold), whole, bits.never).astype(np.int32)


def bias_integers(bias: Floats, numbers: Numbers) -> tuple[Int32s, Int32s]:
    """Mantissa and exponent, with the smallest exponent that fits."""
    largest = numbers.bits.largest_bias
    needed = np.ceil(np.log2(np.maximum(np.abs(bias), 1) / largest))
    exponent = np.clip(needed, numbers.bias[0], numbers.bias[-1]).astype(np.int32)
    mantissa = np.clip(np.round(bias / 2.0**exponent), -largest - 1, largest).astype(np.int32)
    return mantissa, exponent
