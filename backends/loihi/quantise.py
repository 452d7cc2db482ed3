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

from nrf.backends.loihi.neuron import LIMIT, NEVER, SHIFT, UNITY, Integers
from nrf.backends.loihi.program import Neurons, Synapses
from nrf.backends.lowering.dynamics import Dynamics, Floats
from nrf.backends.lowering.layers import Connection, Conv, Matrix, Operator

Decay = Literal["nearest", "down", "up"]
Threshold = Literal["down", "nearest"]
WEIGHT_MAX = 127
WEIGHT_MIN = -128
BIAS_MAX = 4095  # mantissa
TOLERANCE = 2e-3  # of a step: float32 keeps 127 steps apart to 1e-5


@dataclass(frozen=True)
class Numbers:
    """Which numbers may be used."""

    conv: range = range(-8, 8)
    matrix: range = range(-8, 8)
    bias: range = range(8)
    start: bool = True  # whether u and v may start elsewhere than at 0

    def exponents(self, operators: Iterable[Operator]) -> range:
        """Those that all of some operators allow."""
        kinds = [self.conv if isinstance(operator, Conv) else self.matrix for operator in operators]
        return range(max(kind[0] for kind in kinds), min(kind[-1] for kind in kinds) + 1)


LOIHI = Numbers()
NETX = Numbers(conv=range(8), matrix=range(2), bias=range(6, 7), start=False)  # what lava-dl's files can say


@dataclass(frozen=True)
class Choice:
    """How a population is written in integers."""

    scale: Floats  # S, integers per volt and group
    exponents: tuple[int, ...]  # one per connection
    decay: Decay = "nearest"
    threshold: Threshold = "down"


def neurons(
    name: str,
    shape: tuple[int, ...],
    dynamics: Dynamics,
    choice: Choice,
    ge: bool,
    latency: int,
    numbers: Numbers = LOIHI,
) -> Neurons:
    """The population in integers."""
    scale = choice.scale
    mantissa, exponent = bias_integers(scale * dynamics.bias, numbers.bias)
    return Neurons(
        name=name,
        shape=shape,
        du=(decay_integer(dynamics.decay_u, choice.decay, UNITY) - 1).astype(np.int32),
        dv=decay_integer(dynamics.decay_v, choice.decay, UNITY - 1),
        vth=threshold_integer(scale * dynamics.threshold, choice.threshold, ge),
        bias_mant=mantissa,
        bias_exp=exponent,
        u0=_clipped(scale * dynamics.start_u * numbers.start),
        v0=_clipped(scale * dynamics.start_v * numbers.start),
        scale=scale,
        offset=dynamics.offset,
        latency=latency,
    )


def rounded(dynamics: Dynamics, choice: Choice, ge: bool) -> bytes:
    """Decays and thresholds in integers: choices in which these are equal write the same program."""
    decays = [decay_integer(x, choice.decay, UNITY) for x in (dynamics.decay_u, dynamics.decay_v)]
    vth = threshold_integer(choice.scale * dynamics.threshold, choice.threshold, ge)
    return np.concatenate([*decays, vth]).tobytes()


def decay_integer(fraction: Floats, rounding: str, largest: int) -> Integers:
    """12-bit fraction lost per step."""
    counts = np.round(fraction * UNITY, 4)
    rounded = {"nearest": np.round(counts), "down": np.floor(counts), "up": np.ceil(counts)}[rounding]
    return np.asarray(np.clip(rounded, 0, largest), np.int32)


def threshold_integer(threshold: Floats, rounding: str, ge: bool) -> Integers:
    """vth so that V > vth << 6 where the contract says V > threshold, or V >= threshold.

    Membranes move in multiples of 64 except for what decay leaves, and decay cuts towards zero: so down.
    """
    units = np.where(np.isfinite(threshold), threshold, 0) / 2**SHIFT
    units = np.where(
        np.abs(units - np.round(units)) < 1e-6 * np.maximum(1, np.abs(units)), np.round(units), units
    )
    below = np.ceil(units) - 1 if ge else np.floor(units)
    whole = np.clip(np.round(units) if rounding == "nearest" else below, 0, NEVER - 1)
    return np.where(np.isfinite(threshold), whole, NEVER).astype(np.int32)


def bias_integers(bias: Floats, exponents: range) -> tuple[Integers, Integers]:
    """Mantissa of 13 bit and exponent, with the smallest exponent that fits."""
    needed = np.ceil(np.log2(np.maximum(np.abs(bias), 1) / BIAS_MAX))
    exponent = np.clip(needed, exponents[0], exponents[-1]).astype(np.int32)
    mantissa = np.clip(np.round(bias / 2.0**exponent), -BIAS_MAX - 1, BIAS_MAX).astype(np.int32)
    return mantissa, exponent


def _clipped(start: Floats) -> Integers:
    return np.clip(np.round(start), 1 - LIMIT, LIMIT - 1).astype(np.int32)


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
    rows = abs(operator.weight).max(axis=1).toarray().ravel()
    return np.asarray(rows.reshape(groups, -1).max(axis=1))


def weights_by_group(operator: Operator, groups: int) -> list[Floats]:
    """Weights that end in each group."""
    if isinstance(operator, Conv):
        return list(operator.weight.reshape(groups, -1))
    csr, size = operator.weight, operator.weight.shape[0] // groups
    return [csr.data[csr.indptr[g * size] : csr.indptr[(g + 1) * size]] for g in range(groups)]


def strength(drives: tuple[Operator, ...], groups: int) -> Floats:
    """Largest weight of each group in volts; silent groups count as the others' largest."""
    found = np.max([strongest(operator, groups) for operator in drives], axis=0)
    return np.where(found > 0, found, found.max() or 1.0)


def least_rounding(drives: tuple[Operator, ...], full: Floats) -> Floats:
    """Volts per integer for each group, up to a third above full scale, that round its weights best."""
    parts = [weights_by_group(operator, len(full)) for operator in drives]
    best = full / WEIGHT_MAX
    for group in range(len(full)):
        weights = np.unique(np.concatenate([part[group] for part in parts]))
        weights = weights[:: 1 + len(weights) // 2000]  # enough to tell
        unit = full[group] / np.arange(WEIGHT_MAX, 0.75 * WEIGHT_MAX, -0.5)
        wrong = np.square(np.round(weights[:, None] / unit) * unit - weights[:, None]).sum(axis=0)
        best[group] = unit[np.argmin(wrong)]
    return best


def grid_steps(drives: tuple[Operator, ...], groups: int) -> Floats | None:
    """Volts per integer for each group if all its weights are whole multiples of that, or None.

    Of all such steps the finest is taken, so that the integers are as large as 8 bits allow.
    """
    parts = [weights_by_group(operator, groups) for operator in drives]
    steps = np.zeros(groups)
    whole = np.arange(WEIGHT_MAX, 0, -1)
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
    connection: Connection, operator: Operator, scale: Floats, exponent: int, delay: int
) -> Synapses:
    """Weights of `operator` (volts per spike) in integers."""
    factor = scale / 2.0 ** (SHIFT + exponent)
    rounded: Operator
    if isinstance(operator, Conv):
        rounded = replace(operator, weight=_round(operator.weight * factor[:, None, None, None]))
    else:
        size = operator.weight.shape[0]
        csr = sparse.csr_array(sparse.diags_array(_per_row(factor, size)) @ operator.weight)
        whole = sparse.csr_array((_round(csr.data), csr.indices, csr.indptr), shape=csr.shape)
        whole.eliminate_zeros()
        rounded = Matrix(whole)
    return Synapses(connection.source, connection.target, rounded, exponent, delay, connection.path)


def _round(weight: NDArray[np.float64]) -> NDArray[np.int8]:
    return np.clip(np.round(weight), WEIGHT_MIN, WEIGHT_MAX).astype(np.int8)


def _per_row(values: Floats, rows: int) -> Floats:
    return np.repeat(values, rows // len(values))
