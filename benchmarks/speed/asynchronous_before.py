"""The asynchronous simulator of Speck as it was before its rewrite, kept to be measured against.

One neuron after the other, and a dense log of all neurons and steps; jitter, lost events and split layers,
which the benchmark's programs do not have, are left out. What did not change (tables, windows, the way to the
stack) is taken from the package.
"""

from typing import Any

import numpy as np

from nrf.backends.border import Spikes
from nrf.backends.lowering.scatter import Layout
from nrf.backends.speck import asynchronous as now
from nrf.backends.speck.asynchronous_kernels import _send, _window
from nrf.backends.speck.parts import parts_of
from nrf.backends.speck.program import SpeckProgram
from nrf.kernels import compiled


def simulate(
    program: SpeckProgram, spikes: Spikes, steps: int, rng: np.random.Generator
) -> dict[str, Spikes]:
    """Spikes of every core, as `asynchronous.simulate` gives them with the same generator."""
    t, i = now.ordered(spikes, rng)
    parts, choices = parts_of(program), now.Choices()
    cores, weights, biases = now._tables(program, parts, choices)
    readers, maps = now._readers(program, parts, choices), now._maps(program, parts)
    leaks = np.array(sorted(np.flatnonzero(cores["leaks"]), key=lambda index: -parts[index].number), np.int64)
    neurons = [part.neurons for part in parts]
    stack = np.empty((2 * readers.shape[1] * (1 + sum(neurons)), 2), np.int64)
    fired, meter = np.empty(max(neurons), np.int64), np.zeros(1 + len(neurons), np.int64)
    state, pieces = now.new_state(program), {each.node: [] for each in program.populations}  # type: ignore[var-annotated]
    for start in range(0, steps, now.CHUNK):
        stop = min(start + now.CHUNK, steps)
        bounds = np.searchsorted(t, np.arange(start, stop + 1))
        counts = np.zeros((stop - start, sum(neurons)), np.int32)
        play(cores, maps, readers, weights, biases, leaks, i, bounds, state, counts, stack, fired, meter)
        for part, begin in zip(parts, cores["state"], strict=True):
            log = counts[:, begin : begin + part.neurons]
            dense = Layout(part.neurons, part.shape[0]).outside(log)
            pieces[part.population.node].append(Spikes.from_dense(dense).later(start))
    return {node: Spikes.joined(own) for node, own in pieces.items()}


@compiled()
def play(
    cores: Any, maps: Any, readers: Any, weights: Any, biases: Any, leaks: Any, i: Any, bounds: Any,
    states: Any, counts: Any, stack: Any, fired: Any, meter: Any,
) -> None:  # fmt: skip
    """All steps of `counts` (steps, neurons): a tick of the slow clock, then their events."""
    for step in range(len(counts)):
        log, waiting = counts[step], 0
        for index in leaks:
            core = cores[index]
            drive, spikes = biases[core.bias : core.bias + core.features], 0
            for cell in range(core.rows * core.columns):
                spikes = _add(core, cell, drive, states, log, fired, spikes, meter)
            waiting = _send(cores, maps[index + 1], readers[index + 1], fired[:spikes], stack, waiting)
        _drain(cores, maps, readers, weights, states, log, stack, waiting, fired, meter)
        for event in range(bounds[step], bounds[step + 1]):
            waiting = _send(cores, maps[0], readers[0], i[event : event + 1], stack, 0)
            _drain(cores, maps, readers, weights, states, log, stack, waiting, fired, meter)


@compiled()
def _drain(
    cores: Any, maps: Any, readers: Any, weights: Any, states: Any, log: Any, stack: Any, waiting: Any,
    fired: Any, meter: Any,
) -> None:  # fmt: skip
    """Work off the stack, depth first."""
    while waiting:
        waiting -= 1
        index = stack[waiting, 0]
        spikes = _update(index, cores[index], stack[waiting, 1], weights, states, log, fired, meter)
        waiting = _send(cores, maps[index + 1], readers[index + 1], fired[:spikes], stack, waiting)


@compiled()
def _update(
    index: Any, core: Any, pixel: Any, weights: Any, states: Any, log: Any, fired: Any, meter: Any
) -> Any:
    """One event at one core. Its spikes go to `fired`; returns their number."""
    features, columns = core.features, core.columns
    channel, pixel = divmod(pixel, core.height * core.width)
    y, x = divmod(pixel, core.width)
    phase_y, top, first_y, last_y = _window(y, core.pad_y, core.stride_y, core.kernel, core.taps_y, core.rows)
    phase_x, left, first_x, last_x = _window(x, core.pad_x, core.stride_x, core.kernel, core.taps_x, columns)
    length = max(last_x - first_x, 0) * features
    kernel = ((channel * core.stride_y + phase_y) * core.stride_x + phase_x) * core.taps_y
    spikes = 0
    for j in range(first_y, last_y):
        first = core.weight + ((kernel + j) * core.taps_x + first_x) * features
        cell = (top + j) * columns + left + first_x
        spikes = _add(core, cell, weights[first : first + length], states, log, fired, spikes, meter)
    meter[1 + index] += max(last_y - first_y, 0) * length
    return spikes


@compiled(inline="always")
def _add(core: Any, cell: Any, drive: Any, states: Any, log: Any, fired: Any, spikes: Any, meter: Any) -> Any:
    """Update neurons from a cell on, one value of `drive` each. Adds to `fired`; returns the new number."""
    first, features = core.state + cell * core.features, core.features
    threshold, floor, zero_reset = core.threshold, core.floor, core.zero_reset == 1
    lowest, highest = core.lowest, core.highest
    v = states[first : first + len(drive)]
    for k in range(len(drive)):
        wanted = v[k] + drive[k]
        reached = min(max(wanted, lowest), highest)
        meter[0] += reached != wanted
        v[k], spiked = fire(reached, threshold, floor, zero_reset)
        if spiked:
            log[first + k] += 1
            fired[spikes] = k % features * core.rows * core.columns + cell + k // features
            spikes += 1
    return spikes


@compiled(inline="always")
def fire(v: Any, threshold: Any, floor: Any, zero_reset: Any) -> Any:
    """State after the update, and whether it spiked."""
    spikes = 1 if v >= threshold else 0
    v = v - spikes * threshold if spikes == 0 or not zero_reset else v - v
    return max(v, floor), spikes
