"""The simulator: v[t] = clip(v[t-1] + bias + sum of weight n[t]), fires if v > threshold, then v = 0."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mini_chip.program import MiniProgram, Population
from nrf.backends.border import Provenance, Recording, RunOptions, Spikes
from nrf.errors import InputError

State = dict[str, NDArray[np.int64]]


def run(program: MiniProgram, frames: NDArray[Any], runtime: str, options: RunOptions) -> Recording:
    """Run frames (steps, *input shape); `options.teacher` replaces what populations hear of each other."""
    if runtime != "builtin":
        raise InputError(f"{program.target} has no runtime '{runtime}'; there is builtin")
    return _advance(program, frames, {}, options.teacher)


def session(program: MiniProgram) -> Callable[[NDArray[Any]], Recording]:
    """A function of the next frames; the state stays in it."""
    state: State = {}
    return lambda frames: _advance(program, frames, state, None)


def _advance(
    program: MiniProgram, frames: NDArray[Any], state: State, teacher: Recording | None
) -> Recording:
    steps = len(frames)
    if frames.shape[1:] != program.input_shape or np.any(frames % 1):
        raise InputError(f"frames are {frames.shape}, expected whole numbers (steps, {program.input_shape})")
    heard = {program.input: frames.reshape(steps, -1).astype(np.int64)}
    recorded: dict[str, Spikes] = {}
    membranes: dict[str, NDArray[np.float64]] = {}
    for population in program.populations:
        counts, volts = _population(population, heard, steps, state, 2 ** (program.state_bits - 1) - 1)
        recorded[population.name] = Spikes.from_dense(counts)
        membranes[population.name] = volts.reshape(steps, *population.shape)
        taught = counts if teacher is None else teacher.dense(population.name).reshape(steps, -1)
        heard[population.name] = taught
    return Recording(
        steps=steps,
        shapes={population.name: population.shape for population in program.populations},
        spikes=recorded,
        membranes=membranes,
        latencies=dict(program.latencies),
        provenance=Provenance("builtin", "simulation", program.target, checksum=program.checksum),
    ).read_out(program.outputs, program.contract)


def _population(
    population: Population, heard: State, steps: int, state: State, limit: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Spike counts and membranes (steps, neurons)."""
    drive = np.tile(population.bias, (steps, 1))
    for synapses in population.synapses:
        drive += (synapses.weight.astype(np.int64) @ heard[synapses.source].T).T
    v = state.get(population.name, np.zeros_like(population.bias))
    counts, volts = np.zeros_like(drive), np.zeros(drive.shape)
    for step in range(steps):
        v = np.clip(v + drive[step], -limit - 1, limit)
        counts[step] = v > population.threshold
        v = np.where(counts[step], 0, v)
        volts[step] = v / population.scale
    state[population.name] = v
    return counts, volts
