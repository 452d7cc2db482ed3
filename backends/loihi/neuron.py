"""The integer neuron of Loihi 2, as Lava's fixed-point simulation computes it, for every path.

    u[t] = decay(u[t-1], du + 1) + (a[t] << 6)              24 bit, wraps once
    v[t] = clip(decay(v[t-1], dv) + u[t] + bias)            24 bit, saturates at +-(2^23 - 1)
    spike if v[t] > vth << 6, then v[t] = 0; u is kept
    decay(x, d) = trunc(x (4096 - d) / 4096)                towards zero

`a` is the sum over connections of what synapses deliver. du = 4095 makes u the drive of this step alone,
du = -1 and dv = 0 are no decay. In between Lava counts in 32 bits, and so do we, overflow included. Widths
(here 24, 12 and 6) are those of the chip's `Bits`; `Widths` hands them to the compiled loops.

Reset by subtraction is Lava's ATRLIF with a constant threshold (`atrlif`): v is never reset, what was fired
adds up in r, and what counts is v - r.

    r[t] = decay(r[t-1], dv)                                not limited in Lava; stays below 2^25
    spike if v[t] - r[t] >= vth << 6, then r[t] += 2 (vth << 6)
"""

from typing import Any, NamedTuple

import numpy as np

from nrf.kernels import compiled
from nrf.lanes import where


class Widths(NamedTuple):
    """What the arithmetic of a neuron takes from the chip."""

    decay: np.int32  # bits of a decay
    shift: np.int32  # bits from drive and threshold to the state
    limit: np.int32  # states lie between - limit and limit, both excluded


@compiled(inline="always", allocates=False)
def lif(u: Any, v: Any, a: Any, keep_u: Any, keep_v: Any, bias: Any, threshold: Any, widths: Any) -> Any:
    """Lanes of neurons of 32 bits, one step; kept of u and v is 4096 - (du + 1) and 4096 - dv.

    Returns u, v, spike, and whether u wrapped, v saturated above or below.
    """
    limit = widths.limit
    current = decayed(u, keep_u, widths.decay) + (a << widths.shift)
    far = (2**31 - 1 - limit) >> widths.shift  # a drive at which even 32 bits do not hold the sum
    up, down, lost = current > limit, current <= -limit, (a > far) | (a < -far)
    current = where(up, current - 2 * limit, where(down, current + 2 * limit, current))
    voltage = decayed(v, keep_v, widths.decay) + current + bias
    above, below = voltage >= limit, voltage <= -limit
    voltage = where(above, limit - 1, where(below, 1 - limit, voltage))
    spike = voltage > threshold
    return current, where(spike, 0, voltage), spike, up | down | lost, above, below


@compiled(inline="always", allocates=False)
def decayed(x: Any, keep: Any, bits: Any) -> Any:
    """trunc(x keep / 2^bits) from a product of high and low bits, each of which fits 32 bits."""
    size = abs(x)
    high, low = size >> bits, size & ((1 << bits) - 1)
    kept = high * keep + (low * keep >> bits)
    return where(x < 0, 0 - kept, kept)


@compiled(inline="always", allocates=False)
def atrlif(
    u: Any, v: Any, r: Any, a: Any, keep_u: Any, keep_v: Any, bias: Any, theta: Any, widths: Any
) -> Any:
    """Neurons that reset by subtraction, one step. Returns u, v, r, and then as `lif`."""
    never = 2**31 - 1
    current, voltage, _, wrapped, above, below = lif(u, v, a, keep_u, keep_v, bias, never, widths)
    taken = decayed(r, keep_v, widths.decay)
    spike = voltage - taken >= theta
    return current, voltage, where(spike, taken + 2 * theta, taken), spike, wrapped, above, below
