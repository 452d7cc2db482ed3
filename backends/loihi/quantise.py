"""From volts to Loihi's integers, for given exponents and roundings; calibrate.py decides which.

V = S (v - offset)                                       S: integers per volt, one per channel
weight = round(S gain W / 2^(6 + exponent))              8 bit, dt/tau is in S, not in the weights
vth = S threshold / 64                                   17 bit
bias = S bias = mant << exp                              13 bit mantissa
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nrf.backends.loihi.chip import Bits
from nrf.backends.loihi.neuron import Integers
from nrf.backends.loihi.program import Neurons, Synapses
from nrf.backends.lowering.dynamics import Dynamics, Floats
from nrf.backends.lowering.layers import Connection, Conv, Matrix, Operator

Decay = Literal["nearest", "down", "up"]
Threshold = Literal["down", "nearest"]
TOLERANCE = 2e-3  # of a step: float32 keeps 127 steps apart to 1e-5


@dataclass(frozen=True)
class Numbers:
    """Which numbers may be used: those of the chip, or fewer where a file format cannot say them."""

    bits: Bits
    conv: range  # exponents of convolutions
    matrix: range  # exponents of matrices
    bias: range  # exponents of biases
    start: bool = True  # whether u and v may start elsewhere than at 0

    @classmethod
    def of(cls, bits: Bits, format: str = "program") -> "Numbers":
        """All numbers of a chip, or those that lava-dl's `.net` files can say."""
        ends, biases = 2 ** (bits.weight_exponent - 1), 2**bits.bias_exponent
        if format == "net":
            return cls(bits, range(ends), range(2), range(6, 7), start=False)
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
    decay: Decay = "nearest"
    threshold: Threshold = "down"


def neurons(
    shape: tuple[int, ...], dynamics: Dynamics, choice: Choice, ge: bool, latency: int, numbers: Numbers
) -> Neurons:
    """The population in integers; `ge` if the contract fires at the threshold already."""
    scale, bits = choice.scale, numbers.bits
    mantissa, exponent = bias_integers(scale * dynamics.bias, numbers)
    du, dv, vth = rounded(dynamics, choice, ge, bits)
    limit = bits.limit - 1
    u0, v0 = (
        np.clip(np.round(scale * start * numbers.start), -limit, limit).astype(np.int32)
        for start in (dynamics.start_u, dynamics.start_v)
    )
    return Neurons(shape, du, dv, vth, mantissa, exponent, u0, v0, scale, dynamics.offset, latency)


def rounded(dynamics: Dynamics, choice: Choice, ge: bool, bits: Bits) -> tuple[Integers, Integers, Integers]:
    """du, dv and vth: choices in which these are equal write the same program."""
    du = decay_integer(dynamics.decay_u, choice.decay, bits, bits.unity) - 1
    dv = decay_integer(dynamics.decay_v, choice.decay, bits, bits.unity - 1)
    vth = threshold_integer(choice.scale * dynamics.threshold, choice.threshold, ge, bits)
    return du.astype(np.int32), dv, vth


def decay_integer(fraction: Floats, rounding: Decay, bits: Bits, largest: int) -> Integers:
    """Fraction lost per step, in 2^-12."""
    counts = np.round(fraction * bits.unity, 4)
    whole = {"nearest": np.round(counts), "down": np.floor(counts), "up": np.ceil(counts)}[rounding]
    return np.asarray(np.clip(whole, 0, largest), np.int32)


def threshold_integer(threshold: Floats, rounding: Threshold, ge: bool, bits: Bits) -> Integers:
    """vth so that V > vth << 6 where the contract says V > threshold, or V >= threshold.

    Membranes move in multiples of 64 except for what decay leaves, and decay cuts towards zero: so down.
    """
    units = np.where(np.isfinite(threshold), threshold, 0) / 2**bits.shift
    nearest = np.round(units)
    units = np.where(np.abs(units - nearest) < 1e-6 * np.maximum(1, np.abs(units)), nearest, units)
    below = np.ceil(units) - 1 if ge else np.floor(units)
    whole = np.clip(np.round(units) if rounding == "nearest" else below, 0, bits.never - 1)
    return np.where(np.isfinite(threshold), whole, bits.never).astype(np.int32)


def bias_integers(bias: Floats, numbers: Numbers) -> tuple[Integers, Integers]:
    """Mantissa and exponent, with the smallest exponent that fits."""
    largest = numbers.bits.largest_bias
    needed = np.ceil(np.log2(np.maximum(np.abs(bias), 1) / largest))
    exponent = np.clip(needed, numbers.bias[0], numbers.bias[-1]).astype(np.int32)
    mantissa = np.clip(np.round(bias / 2.0**exponent), -largest - 1, largest).astype(np.int32)
    return mantissa, exponent


def drive(connection: Connection, dynamics: Dynamics) -> Operator:
    """The operator of a connection in volts per spike."""
    operator = connection.operator
    if isinstance(operator, Conv) and dynamics.groups == operator.weight.shape[0]:
        return replace(operator, weight=operator.weight * dynamics.gain[:, None, None, None])
    matrix = sparse.csr_array(operator.matrix())
    return Matrix(sparse.csr_array(sparse.diags_array(_per_row(dynamics.gain, matrix.shape[0])) @ matrix))


def strongest(operator: Operator, groups: int) -> Floats:
    """Largest weight of each group."""
    if isinstance(operator, Conv):
        return np.asarray(np.abs(operator.weight).max(axis=(1, 2, 3)))
    rows = abs(operator.matrix()).max(axis=1).toarray().ravel()
    return np.asarray(rows.reshape(groups, -1).max(axis=1))


def weights_by_group(operator: Operator, groups: int) -> list[Floats]:
    """Weights that end in each group."""
    if isinstance(operator, Conv):
        return list(operator.weight.reshape(groups, -1))
    csr = operator.matrix()
    size = csr.shape[0] // groups
    return [csr.data[csr.indptr[g * size] : csr.indptr[(g + 1) * size]] for g in range(groups)]


def strength(drives: tuple[Operator, ...], groups: int) -> Floats:
    """Largest weight of each group in volts; silent groups count as the others' largest."""
    found = np.max([strongest(operator, groups) for operator in drives], axis=0)
    return np.where(found > 0, found, found.max() or 1.0)


def least_rounding(drives: tuple[Operator, ...], full: Floats, largest: int) -> Floats:
    """Volts per integer for each group, up to a third above full scale, that round its weights best."""
    parts = [weights_by_group(operator, len(full)) for operator in drives]
    best = full / largest
    for group in range(len(full)):
        weights = np.unique(np.concatenate([part[group] for part in parts]))
        weights = weights[:: 1 + len(weights) // 2000]  # enough to tell
        unit = full[group] / np.arange(largest, 0.75 * largest, -0.5)
        wrong = np.square(np.round(weights[:, None] / unit) * unit - weights[:, None]).sum(axis=0)
        best[group] = unit[np.argmin(wrong)]
    return best


def grid_steps(drives: tuple[Operator, ...], groups: int, largest: int) -> Floats | None:
    """Volts per integer for each group if all its weights are whole multiples of that, or None.

    Of all such steps the finest is taken, so that the integers are as large as 8 bits allow.
    """
    parts = [weights_by_group(operator, groups) for operator in drives]
    steps = np.zeros(groups)
    whole = np.arange(largest, 0, -1)
    for group in range(groups):
        weights = np.abs(np.concatenate([part[group] for part in parts]))
        weights = np.unique(weights[weights > 0])
        if not len(weights):
            continue
        ratios = weights[None] / weights[-1] * whole[:, None]
        fits = np.all(np.abs(ratios - np.round(ratios)) < TOLERANCE, axis=1)
        if not fits.any():
            return None
        steps[group] = weights[-1] / whole[np.argmax(fits)]
    return np.where(steps > 0, steps, steps.max() or 1.0)


def synapses(
    connection: Connection, operator: Operator, scale: Floats, exponent: int, delay: int, bits: Bits
) -> Synapses:
    """Weights of `operator` (volts per spike) in integers."""
    factor = scale / 2.0 ** (bits.shift + exponent)

    def integers(weight: Floats) -> NDArray[np.int8]:
        return np.clip(np.round(weight), -bits.largest_weight - 1, bits.largest_weight).astype(np.int8)

    if isinstance(operator, Conv):
        whole: Operator = replace(operator, weight=integers(operator.weight * factor[:, None, None, None]))
    else:
        matrix = operator.matrix()
        csr = sparse.csr_array(sparse.diags_array(_per_row(factor, matrix.shape[0])) @ matrix)
        rounded_csr = sparse.csr_array((integers(csr.data), csr.indices, csr.indptr), shape=csr.shape)
        rounded_csr.eliminate_zeros()
        whole = Matrix(rounded_csr)
    return Synapses(connection.source, connection.target, whole, exponent, delay, connection.path)


def _per_row(values: Floats, rows: int) -> Floats:
    return np.repeat(values, rows // len(values))
