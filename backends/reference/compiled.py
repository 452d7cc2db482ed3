"""The commonest neurons on a CPU, in compiled loops: the same operations in the same order as `nodes.scan`.

One pass over memory instead of a dozen: a block of neurons goes through all steps while it is in a core's own
cache. No operation is fused with another or moved, so that every membrane has the bits that torch gives it.
"""

from collections.abc import Callable
from functools import cache
from math import inf
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nrf.backends.border.recording import Spikes
from nrf.backends.reference.coefficients import Neuron
from nrf.export.contract import Contract
from nrf.kernels import compiled
from nrf.vectors import find, in_order

Array = NDArray[Any]
BLOCK = 2048  # neurons
SUMS, SCALED, UNIT = range(3)  # how the drive enters the membrane, see `Contract`
TO_VALUE, SUBTRACT, KEEP = range(3)  # what a spike does to it


def compilable(neuron: Neuron[Any], contract: Contract) -> bool:
    """Whether these loops know the neuron: no synaptic current, at most one spike, reset at the spike."""
    if neuron.synapse is not None or neuron.threshold is None:
        return neuron.synapse is None
    at_once = contract.reset_at == "spike" or contract.reset == "none"
    return neuron.reset is not None and contract.max_spikes == 1 and at_once


def compiled_scan(
    neuron: Neuron[Tensor], contract: Contract, membranes: bool
) -> Callable[[Tensor, Any], tuple[Tensor, Tensor | None, Any]]:
    """`nodes.scan` of one neuron node; the state is its membrane, in the order of memory."""
    form = SUMS if neuron.rate is None else SCALED if contract.membrane == "scaled" else UNIT
    after = {"zero": TO_VALUE, "subtract": SUBTRACT, "none": KEEP}[contract.reset]
    fires = neuron.threshold is not None
    levels = neuron.threshold if neuron.threshold is not None else neuron.gain
    if contract.fire == "ge":  # v >= threshold is v > the next smaller number
        levels = torch.nextafter(levels, torch.tensor(-inf, dtype=levels.dtype))
    rates = neuron.gain if neuron.rate is None else neuron.rate
    resets = neuron.reset if after == TO_VALUE and fires else neuron.threshold
    values = (neuron.gain, rates, neuron.rest, levels, neuron.gain if resets is None else resets)

    @cache
    def tables(shape: torch.Size, last: bool) -> list[Array]:
        return [_flat(value.expand(shape)[None], last)[0] for value in values]

    def run(x: Tensor, state: Any) -> tuple[Tensor, Tensor | None, Any]:
        last = x.ndim == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)
        x = x if last else x.contiguous()
        v = neuron.start.expand(x.shape[1:]) if state is None else state
        end = _flat(v[None], last)[0].copy()
        output = torch.empty_like(x)
        membrane = output if not fires else torch.empty_like(x) if membranes else output[:0]
        floor = end.dtype.type(-inf if contract.v_min is None or not fires else contract.v_min)
        maps = (_flat(part, last) for part in (x, membrane, output))
        arguments: Any = (*maps, end, *tables(x.shape[1:], last), floor, fires, form, after)
        _scan(*arguments)
        after_last = torch.as_tensor(end.reshape(x.movedim(1, -1)[0].shape if last else x.shape[1:]))
        return output, membrane if len(membrane) else None, after_last.movedim(-1, 0) if last else after_last

    return run


def _flat(x: Tensor, last: bool) -> Any:
    """(T, neurons) in the order of memory."""
    return (x.movedim(1, -1) if last else x).flatten(1).numpy()


@compiled(nogil=True, error_model="numpy", allocates=False)
def _scan(
    x: Array, membrane: Array, output: Array, v: Array, gain: Array, rate: Array, rest: Array, level: Array,
    reset: Array, floor: Any, fires: bool, form: int, after: int,
) -> None:  # fmt: skip
    for first in range(0, len(v), BLOCK):
        part = slice(first, first + BLOCK)
        state, gains, rates, rests = v[part], gain[part], rate[part], rest[part]
        levels, resets = level[part], reset[part]
        for t in range(len(x)):
            drive, out = x[t, part], output[t, part]
            if form == SUMS:
                for n in range(len(state)):
                    state[n] = state[n] + drive[n] * gains[n]
            elif form == SCALED:
                for n in range(len(state)):
                    state[n] = state[n] + rates[n] * ((rests[n] - state[n]) + drive[n] * gains[n])
            else:
                for n in range(len(state)):
                    state[n] = state[n] + rates[n] * (rests[n] - state[n]) + drive[n] * gains[n]
            if fires:
                for n in range(len(state)):
                    m = max(state[n], floor)
                    fired = m > levels[n]
                    out[n] = fired
                    if after == TO_VALUE:
                        state[n] = resets[n] if fired else m
                    elif after == SUBTRACT:
                        state[n] = m - resets[n] if fired else m
                    else:
                        state[n] = m
            if len(membrane):
                kept = membrane[t, part]
                for n in range(len(state)):
                    kept[n] = state[n]


def spikes_of(signal: Tensor) -> Spikes:
    """The spikes of a signal (T, *shape) of 0 and 1."""
    last = signal.ndim == 4 and not signal.is_contiguous()
    maps, channels = _flat(signal, last), signal.shape[1] if last else 1
    counts, neurons = np.zeros(len(maps), np.int64), np.empty(maps.size, np.int32)  # untouched pages are free
    room = (
        np.empty(maps.shape[1], np.int32),
        np.empty(maps.shape[1], np.int32),
        np.empty(channels + 1, np.int64),
    )
    _fired(maps, channels, counts, neurons, *room)
    return Spikes.of_steps(counts, neurons[: counts.sum()])


@compiled(nogil=True, allocates=False)
def _fired(
    maps: Array, channels: int, counts: Array, neurons: Array, place: Array, ones: Array, first: Array
) -> None:
    """How many fire in every step of maps (T, neurons in memory), and which, in order of their numbers."""
    total = 0
    for t in range(len(maps)):
        counts[t] = find(maps[t], place, ones)[0]
        inside, found = place[: counts[t]], neurons[total:]
        in_order(inside, ones, channels, maps.shape[1] // channels, found, ones, first)
        total += counts[t]
