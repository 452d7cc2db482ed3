"""The integer neuron of Loihi 2, as Lava's fixed-point simulation computes it, for every path.

    u[t] = decay(u[t-1], du + 1) + (a[t] << 6)              24 bit, wraps once
    v[t] = clip(decay(v[t-1], dv) + u[t] + bias)            24 bit, saturates at +-(2^23 - 1)
    spike if v[t] > vth << 6, then v[t] = 0; u is kept
    decay(x, d) = trunc(x (4096 - d) / 4096)                towards zero

`a` is the sum over connections of what synapses deliver. du = 4095 makes u the drive of this step alone,
du = -1 and dv = 0 are no decay. In between Lava counts in 32 bits, and so do we, overflow included. Widths
(here 24, 12 and 6) are those of the chip's `Bits`; `Widths` hands them to the compiled loops.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nrf.backends.lowering.scatter_kernels import BLOCK
from nrf.kernels import compiled

Integers = NDArray[np.int32]


class Widths(NamedTuple):
    """What the arithmetic of a neuron takes from the chip."""

    decay: int  # bits of a decay
    shift: int  # bits from drive and threshold to the state
    limit: int  # states lie between - limit and limit, both excluded


@compiled()
def lif(u: Any, v: Any, a: Any, du: Any, dv: Any, bias: Any, vth: Any, widths: Any) -> Any:
    """One neuron, one step. Returns u, v, spike, and whether u wrapped, v saturated above or below."""
    unity, limit = np.int64(1) << widths.decay, widths.limit
    product = np.int64(u) * (unity - 1 - du)
    current = np.int32((product + ((product >> 63) & (unity - 1))) >> widths.decay)  # towards zero
    current = np.int32(current + np.int32(np.int64(a) << widths.shift))
    wrapped = current > limit or current <= -limit
    if current > limit:
        current = np.int32(current - 2 * limit)
    elif current <= -limit:
        current = np.int32(current + 2 * limit)
    product = np.int64(v) * (unity - dv)
    voltage = np.int32(((product + ((product >> 63) & (unity - 1))) >> widths.decay) + current + bias)
    above, below = voltage >= limit, voltage <= -limit
    if above or below:
        voltage = np.int32(limit - 1 if above else 1 - limit)
    spike = voltage > np.int64(vth) << widths.shift
    return current, np.int32(0) if spike else voltage, spike, wrapped, above, below


@compiled()
def lif_scan(
    drive: Any, touched: Any, u: Any, v: Any, parameters: Any, widths: Any, trace_u: Any, trace_v: Any
) -> Any:
    """All neurons of a population over the steps of `drive` (steps, neurons); u and v are updated in place.

    Rows of `parameters` are du, dv, bias and vth; they repeat from place to place: neuron i has column i
    modulo their number. Blocks of neurons that nothing reaches (`touched`, by step and block) are passed over
    while all their states are 0. Traces are filled if they have rows. Returns step and index of every spike,
    and how often u wrapped, and v saturated above and below.
    """
    steps, neurons = drive.shape
    du, dv, bias, vth = parameters[0], parameters[1], parameters[2], parameters[3]
    period = len(du)
    spike_t = np.empty(steps * neurons, np.int64)  # untouched pages cost nothing
    spike_i = np.empty(steps * neurons, np.int64)
    count = wraps = saturated_above = saturated_below = 0
    awake = np.ones(touched.shape[1], np.bool_)
    for t in range(steps):
        for block in range(touched.shape[1]):
            if not (awake[block] or touched[t, block]):
                continue
            busy = False
            k = (block * BLOCK) % period
            for i in range(block * BLOCK, min(neurons, (block + 1) * BLOCK)):
                if drive[t, i] != 0 or u[i] != 0 or v[i] != 0 or bias[k] != 0:
                    u[i], v[i], spike, wrapped, above, below = lif(
                        u[i], v[i], drive[t, i], du[k], dv[k], bias[k], vth[k], widths
                    )
                    busy = True
                    wraps += wrapped
                    saturated_above += above
                    saturated_below += below
                    if spike:
                        spike_t[count] = t
                        spike_i[count] = i
                        count += 1
                k = 0 if k + 1 == period else k + 1
            awake[block] = busy
        if len(trace_v):
            trace_u[t] = u
            trace_v[t] = v
    return spike_t[:count].copy(), spike_i[:count].copy(), wraps, saturated_above, saturated_below


@compiled()
def shift_and_wrap(drive: Any, touched: Any, exponent: Any, wrap: Any, limit: Any) -> Any:
    """Sums of a synapse shifted by its exponent, in place; how many of a convolution's lay beyond the state.

    Up, then convolutions (`wrap`) wrap at 24 bit; or down, rounded down.
    """
    wraps = 0
    steps, neurons = drive.shape
    for t in range(steps):
        for block in range(touched.shape[1]):
            if not touched[t, block]:
                continue
            for k in range(block * BLOCK, min(neurons, (block + 1) * BLOCK)):
                x = np.int64(drive[t, k]) << max(exponent, 0)
                if wrap and (x >= limit or x < -limit):
                    wraps += 1
                    x = (x + limit) % (2 * limit) - limit
                drive[t, k] = np.int32(x >> max(-exponent, 0))
    return wraps
