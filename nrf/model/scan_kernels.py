"""The scan of `nrf.model.scan` on a CPU: compiled loops over flat arrays, from neuron to neuron.

A band of rows goes through all time steps while it is in a core's own cache. Loops have no branches on the
data, so that the compiler makes vector instructions of them. The way back computes membranes anew instead of
fetching them from memory.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nrf.kernels import compiled
from nrf.model.dynamics import Numbers, integrate, reset, step_back
from nrf.vectors import BLOCK, add_scaled, bit_count, copy, nonzero_bits, set_scaled

Array = NDArray[Any]

_inlined = compiled(error_model="numpy", inline="always")


@_inlined
def _where(condition: Any, yes: Any, no: Any) -> Any:
    return yes if condition else no


_integrate, _reset, _step_back = _inlined(integrate), _inlined(reset), _inlined(step_back)


class Bands(NamedTuple):
    """How maps (B, H, W, C) are cut, and pooled: none with side 0."""

    size: int  # neurons of a band: whole rows, those of a pool together
    clip: int  # neurons of a clip
    width: int  # neurons of a row
    channels: int
    side: int  # of a pool
    factor: Any  # of its sum


_loop = compiled(nogil=True, error_model="numpy", allocates=False)
_scan = compiled(nogil=True, error_model="numpy")


@_scan
def forward(
    x: Array, shift: int, begin: int, end: int, v: Array, output: Array, pooled: Array, fired: Array,
    rate: Array, p: Numbers, bands: Bands,
) -> None:  # fmt: skip
    """Outputs over time (T, neurons), or pooled, of the neurons from `begin` to `end`, whole bands.

    The drive x begins with that of neuron `shift`. `fired` (T, bands) is how many neurons fire; v becomes the
    last membrane potential.
    """
    spare = np.empty(bands.size, x.dtype)  # where nobody keeps the output
    nothing = np.zeros(bands.channels, x.dtype)
    for first in range(begin, end, bands.size):
        part = slice(first, first + bands.size)
        for t in range(len(x)):
            out = output[t, part] if len(output) else spare
            _step(v[part], x[t, first - shift : first - shift + bands.size], rate[part], out, p)
            if p.fires:
                fired[t, first // bands.size] = _count(out)
            if bands.side:
                _pool(out, pooled[t], nothing, first, bands)


@_scan
def backward(
    x: Array, to_x: Array, shift: int, begin: int, end: int, from_output: Array, from_clips: Array,
    from_pooled: Array, carried: Array, start: Array, rate: Array, to_rate: Array, add: bool, p: Numbers,
    bands: Bands,
) -> None:  # fmt: skip
    """Gradients of the drive, set or added to, and of rates, of the neurons from `begin` to `end`.

    They come from those of outputs (T, neurons) or of pools, and of all neurons of a clip alike (T, clips).
    The drive and its gradient begin with neuron `shift`. `carried` is the gradient of the last membrane
    potential, and becomes that of the first.
    """
    membrane, before = np.empty((len(x), bands.size), x.dtype), np.empty(bands.size, x.dtype)
    given, own, same = np.empty_like(before), np.empty_like(before), np.empty(bands.channels, x.dtype)
    for first in range(begin, end, bands.size):
        part, here = slice(first, first + bands.size), slice(first - shift, first - shift + bands.size)
        copy(start[part], before)
        for t in range(len(x)):
            _membrane(before, x[t, here], rate[part], membrane[t], p)
        for t in range(len(x) - 1, -1, -1):
            alike = from_clips[t, first // bands.clip]
            if len(from_pooled):
                same[:] = alike
                _spread(given, from_pooled[t], same, first, bands)
            elif len(from_output):
                _shifted(given, from_output[t, part], alike)
            else:
                given[:] = alike
            _step_of_gradients(own, carried[part], given, membrane[t], rate[part], p)
            if len(to_rate) and t:
                _to_rates(to_rate[part], own, membrane[t], membrane[t - 1], True, p)
            elif len(to_rate):
                _to_rates(to_rate[part], own, membrane[t], start[part], False, p)
            if add:
                _add(to_x[t, here], own)
            else:
                copy(own, to_x[t, here])


# Each loop is a function of its own: the compiler makes vectors of it once it has asked whether few arrays
# overlap, and gives up where there are many.


@_loop
def _step(state: Array, drive: Array, rates: Array, out: Array, p: Numbers) -> None:
    zero = p.one - p.one
    floor = zero if p.rectified else p.one * -np.inf
    for n in range(len(state)):
        m = _integrate(_where, state[n], drive[n], rates[n], p)
        if p.fires:
            out[n] = p.one if m > p.level else zero
        else:
            out[n] = max(m, floor)
        state[n] = _reset(_where, m, p)


@_loop
def _membrane(state: Array, drive: Array, rates: Array, kept: Array, p: Numbers) -> None:
    for n in range(len(state)):
        kept[n] = _integrate(_where, state[n], drive[n], rates[n], p)
        state[n] = _reset(_where, kept[n], p)


@_loop
def _step_of_gradients(own: Array, later: Array, given: Array, kept: Array, rates: Array, p: Numbers) -> None:
    for n in range(len(own)):
        own[n], later[n] = _step_back(_where, given[n], later[n], kept[n], rates[n], p)


@_loop
def _to_rates(sums: Array, own: Array, kept: Array, past: Array, reset: bool, p: Numbers) -> None:
    """own = g rate and m - v = rate (x - v); the membrane before may still have to be reset."""
    if reset:
        for n in range(len(sums)):
            sums[n] += own[n] * (kept[n] - _reset(_where, past[n], p))
    else:
        for n in range(len(sums)):
            sums[n] += own[n] * (kept[n] - past[n])


@_loop
def _add(to: Array, values: Array) -> None:
    for n in range(len(to)):
        to[n] += values[n]


@_loop
def _shifted(to: Array, values: Array, shift: Any) -> None:
    for n in range(len(to)):
        to[n] = values[n] + shift


@_loop
def _count(spikes: Array) -> int:
    count = 0
    for first in range(0, len(spikes), BLOCK):
        count += bit_count(nonzero_bits(spikes, first))
    return count


@_loop
def _pool(full: Array, pooled: Array, nothing: Array, first: int, bands: Bands) -> None:
    """Sums over the pools of a band, times the factor; `nothing` is 0 for every channel."""
    side, channels = bands.side, bands.channels
    small = bands.width // side  # of a pooled row
    for row in range(len(full) // bands.width):
        line = (first // bands.width + row) // side * small
        for column in range(side):  # of each pool, so that what is written is not needed at once
            here = row * bands.width + column * channels
            for place in range(line, line + small, channels):
                if row % side == 0 and column == 0:
                    set_scaled(pooled, place, nothing, 0, full, here, channels, bands.factor)
                else:
                    add_scaled(pooled, place, full, here, channels, bands.factor)
                here += side * channels


@_loop
def _spread(full: Array, pooled: Array, base: Array, first: int, bands: Bands) -> None:
    """The value of its pool, times the factor, for every neuron of a band; and `base`, of every channel."""
    side, channels = bands.side, bands.channels
    small = bands.width // side
    for row in range(len(full) // bands.width):
        line = (first // bands.width + row) // side * small
        for column in range(side):
            here = row * bands.width + column * channels
            for place in range(line, line + small, channels):
                set_scaled(full, here, base, 0, pooled, place, channels, bands.factor)
                here += side * channels
