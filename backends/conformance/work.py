"""What a chip has to do for a clip, counted exactly from the spikes of a run, and what that may cost.

    synaptic operations   spikes that arrive, times the synapses behind each (a kernel counts whole)
    messages              spikes that arrive at a core, once for each core that they reach
    membrane updates      membranes that a step changed, and all in the first step, as NeuroBench counts
    peak                  synaptic operations of the busiest step

Energy is a band, from costs that somebody published: `[energy]` in the chip's TOML. What has no source is
not estimated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border import Chip, FanOut, Frames, Placement, Recording, Spikes
from nrf.backends.border.chip import Band
from nrf.findings import Finding

FEWER = "fewer events (larger thresholds, pooling), a smaller kernel or a stride"
COUNTS = ("spikes", "active", "synaptic_operations", "dense_operations", "messages", "membrane_updates")


@dataclass(frozen=True)
class Load:
    """The work of a population, or of the part of it that is on one core; `a + b` is that of two clips."""

    population: str
    core: int | None  # None for the whole population
    neurons: int
    spikes: int  # that it sends
    active: int  # steps of neurons with at least one spike
    synaptic_operations: int
    dense_operations: int  # if every source fired once at every step
    messages: int
    membrane_updates: int | None  # None where membranes were not recorded
    peak: int
    steps: int

    def __add__(self, other: "Load") -> "Load":
        pairs = {key: (getattr(self, key), getattr(other, key)) for key in (*COUNTS, "steps")}
        sums: dict[str, Any] = {key: None if None in pair else sum(pair) for key, pair in pairs.items()}
        return replace(self, **sums, peak=max(self.peak, other.peak))


def loads(
    recording: Recording, frames: Frames, fan_outs: Sequence[FanOut], placement: Placement
) -> list[Load]:
    """The work of every population and of every core in a run. What is not recorded is the input.

    >>> loads(recording, frames, backend.fan_out(program), placement)[0].peak  # doctest: +SKIP
    412
    """
    steps, found = recording.steps, []
    inputs = {each.source for each in fan_outs} - recording.shapes.keys()
    spikes = dict.fromkeys(inputs, Spikes.from_dense(frames)) | dict(recording.spikes)
    for name, shape in recording.shapes.items():
        parts = placement.of(name)
        if not parts:
            continue
        per_step, others = np.zeros((len(parts), steps), np.int64), np.zeros((len(parts), 2), np.int64)
        for way in (each for each in fan_outs if each.target == name):
            arriving = spikes.get(way.source, Spikes.none())
            for part, synapses in enumerate(way.synapses):
                reached = synapses[arriving.i]
                np.add.at(per_step[part], arriving.t, arriving.n * reached)
                others[part] += (arriving.n[reached > 0].sum(), synapses.sum() * steps)
        whole = [(None, 0, int(np.prod(shape)) - 1, per_step.sum(0), others.sum(0))]
        each = [(part.core, part.first, part.last, per_step[n], others[n]) for n, part in enumerate(parts)]
        own, changed = spikes.get(name, Spikes.none()), _changed(recording, name)
        for core, first, last, work, (messages, dense) in (*whole, *each):
            inside, here = slice(first, last + 1), (own.i >= first) & (own.i <= last)
            found.append(
                Load(
                    name,
                    core,
                    neurons=last - first + 1,
                    spikes=int(own.n[here].sum()),
                    active=int(here.sum()),
                    synaptic_operations=int(work.sum()),
                    dense_operations=int(dense),
                    messages=int(messages),
                    membrane_updates=None if changed is None else int(changed[inside].sum()),
                    peak=int(work.max(initial=0)),
                    steps=steps,
                )
            )
    return found


def _changed(recording: Recording, name: str) -> NDArray[np.int64] | None:
    """Per neuron, how many steps changed its membrane; the first one always counts."""
    membrane = recording.membranes.get(name)
    if membrane is None:
        return None
    flat = membrane.reshape(len(membrane), -1)
    return np.asarray(1 + np.count_nonzero(flat[1:] != flat[:-1], axis=0))


@dataclass(frozen=True)
class Cost:
    """An estimate as a band, and where its figures come from."""

    title: str  # "static", "dynamic", "latency"
    band: Band
    unit: str  # W, J or s
    basis: str  # what it was computed from
    source: str
    status: str


def costs(chip: Chip, work: Sequence[Load]) -> list[Cost]:
    """Static power, energy and latency of all populations together, where the chip's TOML has figures.

    dynamic = synaptic operations, neuron updates (every neuron at every step) and spikes, each times its cost
    latency = populations times the seconds that an event takes through one
    """
    populations = [load for load in work if load.core is None]
    energy, found = chip.energy, list[Cost]()
    if energy is None or not populations:
        return []
    counts = {
        "synaptic_operation": sum(load.synaptic_operations for load in populations),
        "neuron_update": sum(load.neurons * load.steps for load in populations),
        "spike": sum(load.spikes for load in populations),
    }
    each: tuple[tuple[str, str, dict[str, int]], ...] = (
        ("static", "W", {"static_power": 1}),
        ("dynamic", "J", counts),
        ("latency", "s", {"layer_seconds": len(populations)}),
    )
    for title, unit, numbers in each:
        given = {key: band for key in numbers if (band := getattr(energy, key)) is not None}
        if not given:
            continue
        low, high = (sum(numbers[key] * band[side] for key, band in given.items()) for side in (0, 1))
        origins = [chip.origins[f"energy.{key}"] for key in given]
        keys = [f"{len(populations)} layers"] if title == "latency" else list(given)
        basis = ", ".join(key.replace("_", " ") for key in keys)
        sources = "; ".join(dict.fromkeys(origin.source for origin in origins))
        worst = "advisory" if any(origin.status == "advisory" for origin in origins) else origins[0].status
        found.append(Cost(f"{title} {energy.title}".strip(), (low, high), unit, basis, sources, worst))
    return found


def busy(chip: Chip, work: Sequence[Load], dt: float | None) -> list[Finding]:
    """A note on the rate of every core, and a warning where it is more than a core keeps up with."""
    if chip.rate is None or dt is None:
        return []
    limit, found = chip.rate.synaptic_operations, []
    for load in work:
        rate = load.synaptic_operations / (load.steps * dt)
        if load.core is not None:
            message = f"{rate:.3g} synaptic operations per second on this clip, a core does about {limit:.3g}"
            found.append(Finding("synaptic_operations", "note", load.population, message))
            if rate > limit:
                found[-1] = replace(found[-1], severity="warning", remedy=FEWER)
    return found


def busiest(work: Sequence[Load]) -> tuple[Load, Load] | None:
    """The population with the most synaptic operations, and the core with the highest peak."""
    populations, cores = ([load for load in work if (load.core is None) is whole] for whole in (True, False))
    if not populations or not cores:
        return None
    return max(populations, key=lambda load: load.synaptic_operations), max(cores, key=lambda load: load.peak)


def neurobench(work: Sequence[Load], clips: int) -> dict[str, float | dict[str, float] | None]:
    """The same under NeuroBench's names, per clip (which it calls a sample)."""
    populations = [load for load in work if load.core is None]
    places = sum(load.neurons * load.steps for load in populations)
    updates = [load.membrane_updates for load in populations]
    return {
        "SynapticOperations": {
            "Effective_ACs": sum(load.synaptic_operations for load in populations) / clips,
            "Effective_MACs": 0.0,
            "Dense": sum(load.dense_operations for load in populations) / clips,
        },
        "ActivationSparsity": 1 - sum(load.active for load in populations) / max(1, places),
        "MembraneUpdates": None if None in updates else sum(map(int, updates)) / clips,  # type: ignore[arg-type]
    }


def added(some: Sequence[Load], more: Sequence[Load]) -> list[Load]:
    """The work of both."""
    key = lambda load: (load.population, load.core is not None, load.core or 0)  # noqa: E731
    together = groupby(sorted([*some, *more], key=key), key)
    return [sum(rest, first) for _, (first, *rest) in together]
