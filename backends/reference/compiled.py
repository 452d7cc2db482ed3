"""The commonest neurons on a CPU, compiled: the same operations in the same order as `nodes.scan`."""

from collections.abc import Callable
from functools import cache
from math import inf
from typing import Any

import torch
from torch import Tensor

from nrf.backends.border.recording import Spikes
from nrf.backends.reference.coefficients import Neuron
from nrf.backends.reference.events import (
    Convolved,
    Events,
    Signal,
    dense,
    heard,
    in_memory,
    room_for,
    sides_of,
)
from nrf.backends.reference.kernels import (
    BLOCK,
    KEEP,
    SCALED,
    SUBTRACT,
    SUMS,
    TO_VALUE,
    UNIT,
    Neurons,
    scan,
)
from nrf.export.contract import Contract
from nrf.model.threads import in_parallel


def compilable(neuron: Neuron[Any], contract: Contract) -> bool:
    """Whether these loops know the neuron: no synaptic current, at most one spike, reset at the spike."""
    if neuron.synapse is not None or neuron.threshold is None:
        return neuron.synapse is None
    at_once = contract.reset_at == "spike" or contract.reset == "none"
    return neuron.reset is not None and contract.max_spikes == 1 and at_once


def compiled_scan(
    neuron: Neuron[Tensor], contract: Contract, membranes: bool
) -> Callable[[Signal, Any], tuple[Signal, Tensor | None, Any]]:
    """`nodes.scan` of one neuron node; the state is its membrane. Spikes of a single step come as maps."""
    form = SUMS if neuron.rate is None else SCALED if contract.membrane == "scaled" else UNIT
    after = {"zero": TO_VALUE, "subtract": SUBTRACT, "none": KEEP}[contract.reset]
    fires = neuron.threshold is not None
    levels = neuron.threshold if neuron.threshold is not None else torch.full_like(neuron.gain, inf)
    if contract.fire == "ge":  # v >= threshold is v > the next smaller number
        levels = torch.nextafter(levels, torch.tensor(-inf, dtype=levels.dtype))
    rates = neuron.gain if neuron.rate is None else neuron.rate
    resets = neuron.reset if after == TO_VALUE and fires else neuron.threshold
    values = (neuron.gain, rates, neuron.rest, levels, neuron.gain if resets is None else resets)
    floor = -inf if contract.v_min is None or not fires else contract.v_min

    @cache
    def neurons(shape: torch.Size, last: bool) -> Neurons:
        tables = torch.stack([_rows(value.expand(shape), last) for value in values])
        alike = bool((tables == tables[:, :1]).all())
        table = (tables[:, :1] if alike else tables).flatten().numpy()
        wide, lanes = tables.shape[2], shape.numel() // tables.shape[1]
        return Neurons(
            table,
            len(table) // len(values),
            0 if alike else wide,
            wide,
            lanes,
            table.dtype.type(floor),
            form,
            after,
        )

    @cache
    def started(shape: torch.Size, last: bool) -> Tensor:
        return _rows(neuron.start.expand(shape), last)

    def begin(state: Any, shape: torch.Size, last: bool) -> Tensor:
        if state is None:
            return started(shape, last).clone()
        v: Tensor
        v, before = state
        if before == last:
            return v.clone()
        lanes = neurons(shape, before).lanes
        return _rows(_shaped(v[:, :lanes].reshape(1, -1), shape, before)[0], last)

    silence, no_maps = heard(neuron.gain), neuron.gain.new_empty(0, 0)

    def run(x: Signal, state: Any) -> tuple[Signal, Tensor | None, Any]:
        if isinstance(x, Convolved):
            drive, last = x.drive(), True
        else:
            flat, last = in_memory(dense(x))
            drive = silence._replace(x=flat)
        sides, shape = sides_of(x.shape, last), torch.Size(x.shape[1:])
        v, population = begin(state, shape, last), neurons(shape, last)
        lists, maps = fires and sides.steps > 1, (sides.steps, shape.numel())
        membrane = v.new_empty(maps) if membranes or not fires else no_maps
        output = v.new_empty(maps) if fires and not lists else no_maps
        spikes = room_for(sides, silence.events.value, each=0) if lists else silence.events
        arrays = v.view(-1).numpy(), population, membrane.numpy(), output.numpy(), spikes, sides.channels

        def work(part: slice) -> int:
            room = v.new_zeros((part.stop - part.start) * len(drive.start) + 2 * BLOCK)
            return scan(drive, room.numpy(), part.start, part.stop, *arrays)

        count = sum(in_parallel(work, sides.rows)) if sides.steps > 1 else work(slice(0, sides.rows))
        volts = _shaped(membrane, shape, last) if len(membrane) else None
        whole = membrane if not fires else output
        signal = Events(tuple(x.shape), sides, spikes, count) if lists else _shaped(whole, shape, last)
        return signal, volts, (v, last)

    return run


def _shaped(maps: Tensor, shape: torch.Size, last: bool) -> Tensor:
    """(T, *shape) of (T, neurons) in the order of memory."""
    return maps.reshape(-1, *shape[1:], shape[0]).movedim(-1, 1) if last else maps.reshape(-1, *shape)


def _rows(value: Tensor, last: bool) -> Tensor:
    """Of every neuron, (rows, lanes) in the order of memory, each row filled up to whole blocks."""
    rows = value.movedim(0, -1).flatten(1) if last else value.reshape(1, -1)
    filled = rows.new_zeros(len(rows), rows.shape[1] + -rows.shape[1] % BLOCK)
    filled[:, : rows.shape[1]] = rows
    return filled


def spikes_of(signal: Signal) -> Spikes:
    """The spikes of a signal of 0 and 1."""
    return (signal if isinstance(signal, Events) else Events.of(dense(signal).cpu())).spikes()
