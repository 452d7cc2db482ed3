"""The integer neuron of Loihi 2, as Lava's fixed-point simulation computes it, for every path.

    u[t] = decay(u[t-1], du + 1) + (a[t] << 6)              24 bit, wraps once
    v[t] = clip(decay(v[t-1], dv) + u[t] + bias)            24 bit, saturates at +-(2^23 - 1)
    spike if v[t] > vth << 6, then v[t] = 0; u is kept
    decay(x, d) = trunc(x (4096 - d) / 4096)                towards zero

`a` is the sum over connections of what synapses deliver. du = 4095 makes u the drive of this step alone,
du = -1 and dv = 0 are no decay. In between Lava counts in 32 bits, and so do we, overflow included.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

UNITY = 4096  # decays are 12 bit fractions
SHIFT = 6  # drive and threshold are aligned to the state by 6 bits
LIMIT = 2**23  # states are 24 bit, signed
NEVER = 2**17  # a threshold that a saturated membrane cannot pass
NO_CURRENT = 4095  # du that forgets the current at once
BLOCK = 64  # neurons that are passed over together

Integers = NDArray[np.int32]


@njit(cache=True)
def lif(u: Any, v: Any, a: Any, du: Any, dv: Any, bias: Any, vth: Any) -> Any:
    """One neuron, one step. Returns u, v, spike, and whether u wrapped or v saturated."""
    product = np.int64(u) * np.int64(UNITY - 1 - du)
    current = np.int32((product + ((product >> 63) & (UNITY - 1))) >> 12)  # towards zero
    current = np.int32(current + np.int32(np.int64(a) << SHIFT))
    wrapped = current > LIMIT or current <= -LIMIT
    if current > LIMIT:
        current = np.int32(current - 2 * LIMIT)
    elif current <= -LIMIT:
        current = np.int32(current + 2 * LIMIT)
    product = np.int64(v) * np.int64(UNITY - dv)
    voltage = np.int32(((product + ((product >> 63) & (UNITY - 1))) >> 12) + current + bias)
    saturated = voltage >= LIMIT or voltage <= -LIMIT
    if saturated:
        voltage = np.int32(LIMIT - 1 if voltage > 0 else 1 - LIMIT)
    spike = voltage > np.int64(vth) << SHIFT
    return current, np.int32(0) if spike else voltage, spike, wrapped, saturated


@njit(cache=True)
def lif_scan(drive: Any, touched: Any, u: Any, v: Any, parameters: Any, trace_u: Any, trace_v: Any) -> Any:
    """All neurons of a population over the steps of `drive` (steps, neurons); u and v are updated in place.

    Rows of `parameters` are du, dv, bias and vth; they repeat from place to place: neuron i has column i
    modulo their number. Blocks of neurons that nothing reaches (`touched`, by step and block) are passed over
    while all their states are 0. Traces are filled if they have rows. Returns step and index of every spike,
    and how often u wrapped and v saturated.
    """
    steps, neurons = drive.shape
    du, dv, bias, vth = parameters[0], parameters[1], parameters[2], parameters[3]
    period = len(du)
    spike_t = np.empty(steps * neurons, np.int64)  # untouched pages cost nothing
    spike_i = np.empty(steps * neurons, np.int64)
    count = wraps = saturations = 0
    awake = np.ones(touched.shape[1], np.bool_)
    for t in range(steps):
        for block in range(touched.shape[1]):
            if not (awake[block] or touched[t, block]):
                continue
            busy = False
            k = (block * BLOCK) % period
            for i in range(block * BLOCK, min(neurons, (block + 1) * BLOCK)):
                if drive[t, i] != 0 or u[i] != 0 or v[i] != 0 or bias[k] != 0:
                    u[i], v[i], spike, wrapped, saturated = lif(
                        u[i], v[i], drive[t, i], du[k], dv[k], bias[k], vth[k]
                    )
                    busy = True
                    wraps += wrapped
                    saturations += saturated
                    if spike:
                        spike_t[count] = t
                        spike_i[count] = i
                        count += 1
                k = 0 if k + 1 == period else k + 1
            awake[block] = busy
        if len(trace_v):
            trace_u[t] = u
            trace_v[t] = v
    return spike_t[:count].copy(), spike_i[:count].copy(), wraps, saturations


def effective_bias(mantissa: Integers, exponent: Integers) -> Integers:
    """bias = mantissa << exponent."""
    return (mantissa.astype(np.int64) << exponent).astype(np.int32)
