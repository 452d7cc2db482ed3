"""What makes a population's membranes nearest to the reference's: decays, and a gain and a bias per group.

A decay of 12 bits that is off by half a count changes what a slow neuron adds up by some per mille, and sums
that are rounded down take something off in every step. To first order a membrane v moves with its decays, and
with a bias, by

    du_u[t] = (1 - decay_u) du_u[t-1] - u[t-1]
    du_v[t] = (1 - decay_v) du_v[t-1] + du_u[t]              0 after a spike, as is all that is below
    dv_v[t] = (1 - decay_v) dv_v[t-1] - v[t-1]
    c[t]    = (1 - decay_v) c[t-1] + 1

    reference = gain (v + m du_v + n dv_v) + bias c          least squares, m and n -1, 0 or 1 of 4096ths

Only membranes count that may fire, above half the threshold, and that were last reset together with the
reference's. All voltages here are in thresholds, above reset.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nrf.arrays import Floats, Int32s

PRIOR = 1.0  # membranes at the threshold that say: gain 1, no bias
FAR = 0.25  # a membrane that is off by so much is not on its way to the same spike


@dataclass(frozen=True)
class Fit:
    """One value per group."""

    error: Floats  # mean square of the membrane as it is
    shift: Int32s  # (2, groups), to be added to du and dv
    gain: Floats
    bias: Floats  # per step
    left: Floats  # mean square error with these


@dataclass(frozen=True)
class Membranes:
    """A population and the reference of it on one clip, each (steps, neurons), after the step."""

    u: Floats
    v: Floats
    fired: NDArray[np.bool_]
    wanted_v: Floats
    wanted_fired: NDArray[np.bool_]


class Samples(NamedTuple):
    """Membranes that may fire."""

    rows: Floats  # v, du_v, dv_v, c, and by how much the reference is beyond v
    groups: NDArray[np.intp]


def samples(clip: Membranes, keep_u: Floats, keep_v: Floats, groups: int, resets: bool) -> Samples:
    """Of a clip, with what each neuron keeps of u and v in a step."""
    size = clip.v.shape[1]
    u = v = du_u = du_v = dv_v = c = np.zeros(size)
    together, rows, where = np.ones(size, bool), [np.zeros((5, 0))], [np.zeros(0, np.intp)]
    for t, wanted in enumerate(clip.wanted_v):
        du_u = keep_u * du_u - u
        du_v = keep_v * du_v + du_u
        dv_v = keep_v * dv_v - v
        c = keep_v * c + 1
        u, v = clip.u[t], clip.v[t]
        both = clip.fired[t] & clip.wanted_fired[t]
        together = both | (together & (clip.fired[t] == clip.wanted_fired[t]))
        near = np.flatnonzero(together & (wanted > 0.5) & ~both)
        rows.append(np.stack([each[near] for each in (v, du_v, dv_v, c, wanted - v)]))
        where.append(near)
        if resets and both.any():
            du_v, dv_v, c = (np.where(both, 0, each) for each in (du_v, dv_v, c))
    return Samples(np.concatenate(rows, axis=1), np.concatenate(where) // (size // groups))


def fitted(clips: Iterable[Samples], groups: int, inexact: tuple[bool, bool], unity: int) -> Fit:
    """What fits all clips best; decays of `unity` steps move only where they are inexact."""
    products, count, square = np.zeros((5, 5, groups)), np.zeros(groups), np.zeros(groups)
    for rows, group in clips:
        wrong = np.clip(rows[4], -2 * FAR, 2 * FAR)
        count += np.bincount(group, minlength=groups)
        square += np.bincount(group, wrong**2, groups)
        close = np.abs(wrong) < FAR
        for i, j in itertools.combinations_with_replacement(range(5), 2):
            products[i, j] += np.bincount(group[close], rows[i, close] * rows[j, close], groups)
            products[j, i] = products[i, j]
    steps = itertools.product(*((0, -1, 1) if free else (0,) for free in inexact))
    found = np.array([[np.full(groups, m), np.full(groups, n), *_least(products, m / unity, n / unity)]
                      for m, n in steps])  # fmt: skip
    best = np.take_along_axis(found, found[:, -1].argmin(axis=0)[None, None], axis=0)[0]
    shift, (more, bias, left) = best[:2].astype(np.int32), best[2:]
    seen = np.maximum(count, 1)
    return Fit(square / seen, shift, 1 + more, bias, (square - products[4, 4] + left) / seen)


def _least(products: Floats, m: float, n: float) -> Floats:
    """Gain beyond 1, bias and sum of squares left, if decays move by these fractions."""
    moved = np.array([[1, m, n, 0, 0], [0, 0, 0, 1, 0], [0, -m, -n, 0, 1]])  # v, c and what is missing
    (vv, vc, vr), (_, cc, cr), (_, _, rr) = np.einsum("ik,klg,jl->ijg", moved, products, moved)
    vv, cc = vv + PRIOR, cc + PRIOR
    more, bias = np.array([cc * vr - vc * cr, vv * cr - vc * vr]) / (vv * cc - vc**2)
    return np.stack([more, bias, rr - more * vr - bias * cr])
