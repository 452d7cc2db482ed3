"""The compiled loop of the built-in simulator: all populations of a program, step by step, on flat tables.

Spikes of every source, the input included, are remembered in a ring of as many steps as its longest synapse
takes. Tables of populations and connections say where their part of each flat array begins.
"""

from typing import Any

import numpy as np

from nrf.backends.loihi.neuron import atrlif, lif
from nrf.backends.lowering.scatter_kernels import scatter
from nrf.kernels import compiled
from nrf.lanes import LANES, bits_of, put, take
from nrf.vectors import BLOCK, bit_count, copy, in_order, lowest_bit


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
    kernel, channels, populations.
    `log` gets the neurons that fired, in order, `fired` (populations, steps) their number, `trace` (2 or 3,
    steps, neurons) u, v and r.
    """
    sources, populations, connections = tables
    (drive, touched), (part, marks), (spikes, ones), (total, channel, logged) = scratch
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
            count = scan(population, drive, touched, parameters, widths, states, awake, spikes, overflows[p])
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
    wraps = 0
    up, down = max(connection.exponent, 0), max(-connection.exponent, 0)
    limit, span = widths.limit, 2 * widths.limit - 1
    highest = limit >> up
    for block in range(len(marks)):
        if not marks[block]:
            continue
        marks[block], touched[block] = False, True
        for cell in range(block * BLOCK, (block + 1) * BLOCK, LANES):
            given = take(part, cell, LANES)
            x = given << up
            if connection.wraps:
                wraps += bit_count(bits_of((given >= highest) | (given < -highest)))
                x = (x + limit & span) - limit
            put(drive, cell, take(drive, cell, LANES) + (x >> down))
        part[block * BLOCK : (block + 1) * BLOCK] = 0
    return wraps


@compiled(allocates=False)
def scan(
    population: Any, drive: Any, touched: Any, parameters: Any, widths: Any, states: Any, awake: Any,
    spikes: Any, overflows: Any,
) -> Any:  # fmt: skip
    """One step of all neurons of a population; `drive` and `touched` are 0 afterwards. The number of spikes.

    Blocks that nothing reaches are passed over while all their states and biases are 0. `spikes` are places
    in memory; `overflows` counts wraps of u and saturation of v, above and below.
    """
    count = 0
    first_block = population.state // BLOCK
    us, vs, rs = states[0], states[1], states[len(states) - 1]
    keeps_u, keeps_v, biases, thresholds = parameters[0], parameters[1], parameters[2], parameters[3]
    for block in range(population.blocks):
        if not (awake[first_block + block] or touched[block]):
            continue
        mask = busy = np.uint64(0)
        for cell in range(block * BLOCK, (block + 1) * BLOCK, LANES):
            n, k = population.state + cell, population.parameter + block * population.stride + cell % BLOCK
            a, u, v = take(drive, cell, LANES), take(us, n, LANES), take(vs, n, LANES)
            keep_u, keep_v = take(keeps_u, k, LANES), take(keeps_v, k, LANES)
            bias, threshold = take(biases, k, LANES), take(thresholds, k, LANES)
            if population.subtracts:
                u, v, r, fired, wrapped, above, below = atrlif(
                    u, v, take(rs, n, LANES), a, keep_u, keep_v, bias, threshold, widths
                )
                put(rs, n, r)
                busy = np.uint64(1)  # it rests below 0, and fires at 0 where its threshold is 0
            else:
                u, v, fired, wrapped, above, below = lif(u, v, a, keep_u, keep_v, bias, threshold, widths)
                busy |= bits_of((u | v | bias) != 0)
            put(us, n, u)
            put(vs, n, v)
            mask |= bits_of(fired) << np.uint64(cell % BLOCK)
            overflows[0] += bit_count(bits_of(wrapped))
            overflows[1] += bit_count(bits_of(above))
            overflows[2] += bit_count(bits_of(below))
        drive[block * BLOCK : (block + 1) * BLOCK] = 0
        awake[first_block + block], touched[block] = busy != 0, False
        while mask:
            spikes[count] = block * BLOCK + lowest_bit(mask)
            mask &= mask - np.uint64(1)
            count += 1
    return count
