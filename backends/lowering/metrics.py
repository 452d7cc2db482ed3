"""How far apart two recordings of one node are. All sums run over sparse spikes, not over neurons x steps.

With reference spikes R and candidate spikes C of one population, the declared latency already removed:

    matched(k)    largest number of pairs (r, c), each spike used once, same neuron, |t_r - t_c| <= k steps
    precision     matched / |C|                 recall   matched / |R|
    F1            2 matched / (|R| + |C|)       1 where both are silent
    count error   | |C| - |R| | / max(1, |R|)
    van Rossum    D^2 = 2/tau * integral of (f_R - f_C)^2, f the spikes convolved with exp(-t/tau), t >= 0,
                  so that one spike against none is 1; root of the sum over neurons / max(1, |R|)
"""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from nrf.arrays import Int64s
from nrf.backends.border.recording import Spikes
from nrf.kernels import compiled


def aligned(reference: Spikes, candidate: Spikes, steps: int, latency: int) -> tuple[Spikes, Spikes]:
    """Both on the reference's clock: candidate step t is reference step t - latency.

    Spikes whose counterpart would lie outside the recorded steps are left out, since nobody saw it. But
    candidate spikes that come too early to answer anything get negative steps: they match nothing.
    """
    seen = (reference.t < steps - latency) & (reference.t >= -latency)
    known = candidate.t - latency < steps
    return reference.where(seen), candidate.where(known).later(-latency)


def matched(reference: Spikes, candidate: Spikes, jitter: int = 0) -> int:
    """Largest number of one-to-one pairs of spikes of the same neuron at most `jitter` steps apart.

    >>> one, two = Spikes.from_dense(np.eye(3)), Spikes.from_dense(np.eye(3, k=1))
    >>> matched(one, two), matched(one, two, jitter=1)
    (0, 2)
    """
    return int(_matched(*_by_neuron(reference), *_by_neuron(candidate), jitter))


def f1(matches: float, reference: float, candidate: float) -> float:
    """F1 score from three counts; 1 where both sides are silent."""
    return 2 * matches / (reference + candidate) if reference + candidate else 1.0


def f1_of(pairs: Iterable[tuple[Spikes, Spikes]]) -> float:
    """F1 over many clips, each a reference and a candidate."""
    counts = np.array([(matched(r, c), r.count, c.count) for r, c in pairs]).reshape(-1, 3)
    return f1(*counts.sum(axis=0).tolist())


def van_rossum(reference: Spikes, candidate: Spikes, tau: float) -> float:
    """Squared van Rossum distance, summed over neurons; `tau` in steps, one spike against none is 1."""
    i, t, n = _difference(reference, candidate)
    return float(_van_rossum(i, t, n, tau))


def at_lags(reference: Spikes, candidate: Spikes, steps: int, lags: range) -> list[tuple[int, int, int]]:
    """(matched, |R|, |C|) if the candidate is so many steps late; each counts what was seen at that lag."""
    found = []
    for lag in lags:
        r, c = aligned(reference, candidate, steps, lag)
        found.append((matched(r, c), r.count, c.count))
    return found


def first_difference(reference: Spikes, candidate: Spikes) -> tuple[int, int] | None:
    """(step, neuron) of the earliest spike that only one side has, or None."""
    i, t, _ = _difference(reference, candidate)
    if not len(t):
        return None
    first = np.lexsort((i, t))[0]
    return int(t[first]), int(i[first])


def comparable(reference: Spikes, candidate: Spikes, steps: int, neurons: int) -> NDArray[np.bool_]:
    """(steps, neurons): true until a neuron's spikes first differ.

    From that step on its two membranes are after different resets, and their distance says nothing more about
    the arithmetic: the spike figures count such a neuron instead.
    """
    i, t, _ = _difference(reference, candidate)
    until = np.full(neurons, steps)
    np.minimum.at(until, i, np.maximum(t, 0))
    mask: NDArray[np.bool_] = np.arange(steps)[:, None] < until
    return mask


def _by_neuron(spikes: Spikes) -> tuple[Int64s, Int64s, Int64s]:
    order = np.lexsort((spikes.t, spikes.i))
    return spikes.i[order], spikes.t[order], spikes.n[order]


def _difference(reference: Spikes, candidate: Spikes) -> tuple[Int64s, Int64s, Int64s]:
    """Candidate minus reference where not 0: neuron, step, signed count, sorted by neuron then step."""
    i = np.concatenate([reference.i, candidate.i])
    t = np.concatenate([reference.t, candidate.t])
    n = np.concatenate([-reference.n, candidate.n])
    order = np.lexsort((t, i))
    i, t, n = i[order], t[order], n[order]
    starts = np.flatnonzero(np.r_[True, (i[1:] != i[:-1]) | (t[1:] != t[:-1])][: len(i)])
    if not len(starts):
        return i, t, n
    total = np.add.reduceat(n, starts)
    keep = total != 0
    return i[starts][keep], t[starts][keep], total[keep]


@compiled()
def _matched(i: Int64s, t: Int64s, n: Int64s, j: Int64s, s: Int64s, m: Int64s, jitter: int) -> int:
    """Two pointers: the earliest free spikes of both sides either match, or the earlier one never will."""
    total = 0
    a = b = 0
    left = n[0] if len(n) else 0
    right = m[0] if len(m) else 0
    while a < len(i) and b < len(j):
        if i[a] == j[b] and abs(t[a] - s[b]) <= jitter:
            pairs = min(left, right)
            total += pairs
            left -= pairs
            right -= pairs
        elif i[a] < j[b] or (i[a] == j[b] and t[a] < s[b]):
            left = 0
        else:
            right = 0
        if left == 0:
            a += 1
            left = n[a] if a < len(n) else 0
        if right == 0:
            b += 1
            right = m[b] if b < len(m) else 0
    return total


@compiled()
def _van_rossum(i: Int64s, t: Int64s, n: Int64s, tau: float) -> float:
    """sum_kl n_k n_l exp(-|t_k - t_l| / tau), in one pass (Houghton and Kreuz 2012)."""
    total = trace = 0.0
    for k in range(len(i)):
        same = k > 0 and i[k] == i[k - 1]
        trace = (trace + n[k - 1]) * math.exp(-(t[k] - t[k - 1]) / tau) if same else 0.0
        total += n[k] * (n[k] + 2 * trace)
    return total
