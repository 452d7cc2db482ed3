"""The scan of `nrf.model.scan` on a CPU: compiled loops over flat arrays, from neuron to neuron.

A band of rows goes through all time steps while it is in a core's own cache, in whole vectors. The way back
computes membranes anew instead of fetching them from memory.
"""

from typing import Any, NamedTuple

from numpy.typing import NDArray

from nrf.kernels import compiled
from nrf.lanes import LANES, put, take, where
from nrf.model.dynamics import Numbers, integrate, reset, step_back
from nrf.vectors import copy, count

Array = NDArray[Any]

_inlined = compiled(error_model="numpy", inline="always")
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


@_loop
def forward(
    x: Array, shift: int, begin: int, end: int, room: Array, v: Array, output: Array, pooled: Array,
    fired: Array, rate: Array, p: Numbers, bands: Bands,
) -> None:  # fmt: skip
    """Outputs over time (T, neurons), or pooled, of the neurons from `begin` to `end`, whole bands.

    The drive x begins with that of neuron `shift`. `fired` (T, bands) is how many neurons fire; v becomes the
    last membrane potential. `room` is for what nobody keeps.
    """
    for first in range(begin, end, bands.size):
        part = slice(first, first + bands.size)
        for t in range(len(x)):
            out = output[t, part] if len(output) else room[: bands.size]
            _step(v[part], x[t, first - shift : first - shift + bands.size], rate[part], out, False, p)
            if p.fires:
                fired[t, first // bands.size] = count(out)
            if bands.side:
                _pool(out, pooled[t], first, bands)


@_loop
def backward(
    x: Array, to_x: Array, shift: int, begin: int, end: int, room: Array, from_output: Array,
    from_clips: Array, from_pooled: Array, carried: Array, start: Array, rate: Array, to_rate: Array,
    add: bool, p: Numbers, bands: Bands,
) -> None:  # fmt: skip
    """Gradients of the drive, set or added to, and of rates, of the neurons from `begin` to `end`.

    They come from those of outputs (T, neurons) or of pools, and of all neurons of a clip alike (T, clips).
    The drive and its gradient begin with neuron `shift`. `carried` is the gradient of the last membrane
    potential, and becomes that of the first. `room` is for the membranes of a band, and two steps.
    """
    size = bands.size
    before, given, membranes = room[:size], room[size : 2 * size], room[2 * size :]
    for first in range(begin, end, size):
        part, here = slice(first, first + size), slice(first - shift, first - shift + size)
        copy(start[part], before)
        for t in range(len(x)):
            _step(before, x[t, here], rate[part], membranes[t * size : (t + 1) * size], True, p)
        for t in range(len(x) - 1, -1, -1):
            alike = from_clips[t, first // bands.clip]
            if len(from_pooled):
                _spread(given, from_pooled[t], alike, first, bands)
            elif len(from_output):
                _shifted(given, from_output[t, part], alike)
            else:
                given[:] = alike
            past = membranes[(t - 1) * size : t * size] if t else start[part]
            _step_back_all(
                to_x[t, here], carried[part], given, membranes[t * size : (t + 1) * size], past, t > 0,
                rate[part], to_rate[part], add, p,
            )  # fmt: skip


# Each loop takes whole vectors, then one number at a time.


@_loop
def _step(state: Array, drive: Array, rates: Array, out: Array, raw: bool, p: Numbers) -> None:
    """Outputs of one step, or raw: membrane potentials before the reset."""
    whole = len(state) - len(state) % LANES
    for n in range(0, whole, LANES):
        _step_at(n, LANES, state, drive, rates, out, raw, p)
    for n in range(whole, len(state)):
        _step_at(n, 1, state, drive, rates, out, raw, p)


@_inlined
def _step_at(
    n: int, lanes: int, state: Array, drive: Array, rates: Array, out: Array, raw: bool, p: Numbers
) -> None:
    zero = p.one - p.one
    m = _integrate(where, take(state, n, lanes), take(drive, n, lanes), take(rates, n, lanes), p)
    if p.fires and not raw:
        put(out, n, where(m > p.level, p.one, zero))
    elif p.rectified and not raw:
        put(out, n, where(m > zero, m, zero))
    else:
        put(out, n, m)
    put(state, n, _reset(where, m, p))


@_loop
def _step_back_all(
    to_x: Array, later: Array, given: Array, kept: Array, past: Array, was_reset: bool, rates: Array,
    sums: Array, add: bool, p: Numbers,
) -> None:  # fmt: skip
    whole = len(given) - len(given) % LANES
    for n in range(0, whole, LANES):
        _step_back_at(n, LANES, to_x, later, given, kept, past, was_reset, rates, sums, add, p)
    for n in range(whole, len(given)):
        _step_back_at(n, 1, to_x, later, given, kept, past, was_reset, rates, sums, add, p)


@_inlined
def _step_back_at(
    n: int, lanes: int, to_x: Array, later: Array, given: Array, kept: Array, past: Array, was_reset: bool,
    rates: Array, sums: Array, add: bool, p: Numbers,
) -> None:  # fmt: skip
    """g rate and m - v = rate (x - v) give the gradient of rates; v may still have to be reset."""
    m = take(kept, n, lanes)
    own, earlier = _step_back(
        where, take(given, n, lanes), take(later, n, lanes), m, take(rates, n, lanes), p
    )
    put(later, n, earlier)
    if len(sums):
        v = take(past, n, lanes)
        put(sums, n, take(sums, n, lanes) + own * (m - (_reset(where, v, p) if was_reset else v)))
    put(to_x, n, take(to_x, n, lanes) + own if add else own)


@_loop
def _shifted(to: Array, values: Array, shift: Any) -> None:
    for n in range(len(to)):
        to[n] = values[n] + shift


@_loop
def _pool(full: Array, pooled: Array, first: int, bands: Bands) -> None:
    """Sums over the pools of a band, times the factor."""
    if bands.side == 2:  # written out by the compiler
        _at_pools(full, pooled, bands.factor, first, bands, 2, True)
    else:
        _at_pools(full, pooled, bands.factor, first, bands, bands.side, True)


@_loop
def _spread(full: Array, pooled: Array, base: Any, first: int, bands: Bands) -> None:
    """The value of its pool, times the factor, for every neuron of a band; and `base`."""
    if bands.side == 2:
        _at_pools(full, pooled, base, first, bands, 2, False)
    else:
        _at_pools(full, pooled, base, first, bands, bands.side, False)


@_inlined
def _at_pools(full: Array, pooled: Array, base: Any, first: int, bands: Bands, side: int, sums: bool) -> None:
    place = first // side**2
    for row in range(0, len(full), side * bands.width):
        for begin in range(row, row + bands.width, side * bands.channels):
            c = 0
            while c + LANES <= bands.channels:
                _at_pool(LANES, full, begin + c, pooled, place + c, base, bands, side, sums)
                c += LANES
            while c + 4 <= bands.channels:
                _at_pool(4, full, begin + c, pooled, place + c, base, bands, side, sums)
                c += 4
            while c < bands.channels:
                _at_pool(1, full, begin + c, pooled, place + c, base, bands, side, sums)
                c += 1
            place += bands.channels


@_inlined
def _at_pool(
    lanes: int, full: Array, begin: int, pooled: Array, place: int, base: Any, bands: Bands, side: int,
    sums: bool,
) -> None:  # fmt: skip
    each = take(pooled, place, lanes) * bands.factor + base
    total = take(full, begin, lanes) * bands.factor
    for row in range(side):
        for column in range(side):
            here = begin + row * bands.width + column * bands.channels
            if not sums:
                put(full, here, each)
            elif row + column:
                total = total + take(full, here, lanes) * bands.factor
    if sums:
        put(pooled, place, total)
