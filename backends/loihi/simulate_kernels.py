"""The compiled loop of the built-in simulator: all populations of a program, step by step, on flat tables.

Spikes of every source, the input included, are remembered in a ring of as many steps as its longest synapse
takes. Tables of populations and connections say where their part of each flat array begins.
"""

from typing import Any

import numpy as np

from nrf.backends.loihi.neuron import atrlif, lif
from nrf.backends.lowering.scatter_kernels import scatter
from nrf.kernels import compiled
from nrf.vectors import BLOCK, copy, in_order, lowest_bit, not_zero


def table_of(*names: str) -> np.dtype[np.void]:
    """Rows of whole numbers."""
    return np.dtype([(name, np.int64) for name in names])


# neurons; steps remembered; where its ring begins, and the numbers of spikes in it; row of `given`, or -1
SOURCE = table_of("size", "reach", "ring", "held", "given")
# row of `SOURCE`; layout; where states (in whole blocks) and parameters begin, and how far parameters are
# from block to block; its connections; where spikes and, unless -1, recorded states go
POPULATION = table_of(
    "source",
    "channels",
    "blocks",
    "state",
    "parameter",
    "stride",
    "first",
    "last",
    "log",
    "trace",
    "subtracts",
)
CONNECTION = table_of("source", "delay", "exponent", "wraps")  # `wraps`: sums of a convolution do


@compiled(allocates=False)
def play(
    clock: Any, steps: Any, tables: Any, wirings: Any, parameters: Any, widths: Any, states: Any, awake: Any,
    given: Any, ring: Any, scratch: Any, log: Any, fired: Any, trace: Any, overflows: Any,
) -> None:  # fmt: skip
    """Run `steps` from step `clock` on; what lasts (states, awake, ring) is advanced in place.

    `given` are neurons, counts, and by row and step where those from outside begin. `scratch` is room to
    work in: drive and touched blocks of all and of one connection, all 0; spikes and their counts, all 1; a
    kernel, which neurons of a block fire, channels, populations.
    `log` gets the neurons that fired, in order, `fired` (populations, steps) their number, `trace` (2 or 3,
    steps, neurons) u, v and r.
    """
    sources, populations, connections = tables
    (drive, touched), (part, marks), (spikes, ones), (total, fires, channel, logged) = scratch
    neurons, counts, begins = given
    logged[:] = 0
    for step in range(steps):
        now = clock + step
        for source in sources:
            if source.given >= 0:
                begin, end = begins[source.given, step], begins[source.given, step + 1]
                _remember(source, now, neurons[begin:end], counts[begin:end], ring)
        for p in range(len(populations)):
            population = populations[p]
            size = sources[population.source].size
            for k in range(population.first, population.last):
                connection = connections[k]
                source, sent = sources[connection.source], now - 1 - connection.delay
                if sent >= 0:
                    heard, times = _recall(source, sent, ring)
                    scatter(
                        part, marks, heard, times, wirings[0][k], wirings[1], wirings[2], wirings[3], total
                    )
                    overflows[p, 0] += deliver(
                        part, marks[: population.blocks], connection, widths, drive, touched
                    )
            count = scan(
                population, drive, touched, parameters, widths, states, awake, spikes, fires, overflows[p]
            )
            order = log[population.log + logged[p] :]
            channels = population.channels
            in_order(spikes[:count], ones, channels, size // channels, order, ones, channel)
            if sources[population.source].given < 0:
                _remember(sources[population.source], now, spikes[:count], ones[:count], ring)
            fired[p, step] = count
            logged[p] += count
            if population.trace >= 0:
                for row in range(len(states)):
                    state = states[row, population.state : population.state + size]
                    copy(state, trace[row, step, population.trace :])


@compiled(allocates=False)
def _remember(source: Any, now: Any, neurons: Any, counts: Any, ring: Any) -> None:
    """Spikes of a step into the ring."""
    slot = now % source.reach
    begin = source.ring + slot * source.size
    copy(neurons, ring[0][begin:])
    copy(counts, ring[1][begin:])
    ring[2][source.held + slot] = len(neurons)


@compiled(allocates=False)
def _recall(source: Any, sent: Any, ring: Any) -> Any:
    """Neurons and counts of an earlier step."""
    slot = sent % source.reach
    begin = source.ring + slot * source.size
    end = begin + ring[2][source.held + slot]
    return ring[0][begin:end], ring[1][begin:end]


@compiled(allocates=False)
def deliver(part: Any, marks: Any, connection: Any, widths: Any, drive: Any, touched: Any) -> Any:
    """Add sums of a synapse, shifted by its exponent, to the drive; `part` and `marks` are 0 afterwards.

    Up, then convolutions wrap at 24 bit; or down, rounded down. Returns how many lay beyond the state.
    """
    wraps = np.int64(0)
    up, down = np.int32(max(connection.exponent, 0)), np.int32(max(-connection.exponent, 0))
    limit, span = widths.limit, np.int32(2 * widths.limit - 1)
    highest = np.int32(limit >> up)
    for block in range(len(marks)):
        if not marks[block]:
            continue
        marks[block], touched[block] = False, True
        cells, more = drive[block * BLOCK :], part[block * BLOCK :]
        beyond = np.int32(0)
        if connection.wraps:
            for k in range(BLOCK):
                beyond = np.int32(beyond + ((more[k] >= highest) | (more[k] < -highest)))
                x = np.int32(np.int32((np.int32(more[k] << up) + limit) & span) - limit)
                cells[k] += np.int32(x >> down)
                more[k] = 0
        else:
            for k in range(BLOCK):
                cells[k] += np.int32(np.int32(more[k] << up) >> down)
                more[k] = 0
        wraps += beyond
    return wraps


@compiled(allocates=False)
def scan(
    population: Any, drive: Any, touched: Any, parameters: Any, widths: Any, states: Any, awake: Any,
    spikes: Any, fires: Any, overflows: Any,
) -> Any:  # fmt: skip
    """One step of all neurons of a population; `drive` and `touched` are 0 afterwards. The number of spikes.

    Blocks that nothing reaches are passed over while all their states and biases are 0. `spikes` are places
    in memory; `overflows` counts wraps of u and saturation of v, above and below.
    """
    count = 0
    first_block = population.state // BLOCK
    for block in range(population.blocks):
        if not (awake[first_block + block] or touched[block]):
            continue
        begin = population.state + block * BLOCK
        u, v, a = states[0, begin : begin + BLOCK], states[1, begin : begin + BLOCK], drive[block * BLOCK :]
        begin = population.parameter + block * population.stride
        keep_u, keep_v = parameters[0, begin : begin + BLOCK], parameters[1, begin : begin + BLOCK]
        bias, threshold = parameters[2, begin : begin + BLOCK], parameters[3, begin : begin + BLOCK]
        busy = fired = wraps = above = below = np.int32(0)  # as narrow as the states, or fewer go at once
        if population.subtracts:
            r = states[2, population.state + block * BLOCK :]
            for k in range(BLOCK):
                u[k], v[k], r[k], fires[k], wrapped, over, under = atrlif(
                    u[k], v[k], r[k], a[k], keep_u[k], keep_v[k], bias[k], threshold[k], widths
                )
                a[k] = 0
                fired = np.int32(fired + fires[k])
                wraps = np.int32(wraps + wrapped)
                above = np.int32(above + over)
                below = np.int32(below + under)
            busy = np.int32(1)  # it rests below 0, and fires at 0 where its threshold is 0
        else:
            for k in range(BLOCK):
                u[k], v[k], fires[k], wrapped, over, under = lif(
                    u[k], v[k], a[k], keep_u[k], keep_v[k], bias[k], threshold[k], widths
                )
                a[k] = 0
                busy = np.int32(busy | np.int32(np.int32(u[k] | v[k]) | bias[k]))
                fired = np.int32(fired + fires[k])
                wraps = np.int32(wraps + wrapped)
                above = np.int32(above + over)
                below = np.int32(below + under)
        awake[first_block + block], touched[block] = busy != 0, False
        overflows[0] += wraps
        overflows[1] += above
        overflows[2] += below
        mask = not_zero(fires, 0) if fired else np.uint64(0)
        while mask:
            spikes[count] = block * BLOCK + lowest_bit(mask)
            mask &= mask - np.uint64(1)
            count += 1
    return count
