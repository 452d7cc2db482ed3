"""The conformance ladder: a graph, a chip and some clips in, a report out.

    L0  each exact runtime against `builtin`: spikes and membranes identical
    L1  `builtin` against the reference, every node fed the reference's spikes, so that its own error shows
    L2  each runtime against the reference, running freely
    L3  coordinates of each runtime against the reference's, and against the truth where it is known

Runtimes that are not exact (asynchronous chips) run several times; their spikes are compared by count.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from nrf.backends import reference
from nrf.backends.border import (
    Backend,
    Chip,
    LowerOptions,
    Program,
    Provenance,
    Recording,
    RunOptions,
    Runtime,
    Tolerances,
    backend_of,
)
from nrf.backends.border.chip import check_tolerances
from nrf.backends.conformance import view
from nrf.backends.conformance.clips import Clip
from nrf.backends.conformance.compare import Tally, distances, output_population, tally, thresholds
from nrf.backends.conformance.judge import BUILTIN, is_on_grid, judged, tolerances_for
from nrf.backends.conformance.report import Check, Measured, Report, Run
from nrf.backends.lowering import metrics
from nrf.backends.lowering.calibration import lower_options
from nrf.errors import InputError, did_you_mean
from nrf.export.graph import Graph
from nrf.findings import errors


@dataclass
class Comparison:
    """What one clip gave; several are added up."""

    tallies: dict[tuple[str, str, str], Tally] = field(default_factory=dict)  # (runtime, rung, node)
    pixels: dict[tuple[str, str], list[NDArray[np.float64]]] = field(default_factory=dict)  # (runtime, from)
    counts: dict[tuple[str, str], list[int]] = field(default_factory=dict)  # (runtime, node), per repeat
    provenances: dict[str, Provenance] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)  # runtimes that gave up, and what they said
    recordings: dict[str, Recording] = field(default_factory=dict)

    def add(self, other: "Comparison") -> None:
        """Add another clip's sums to ours."""
        for key, value in other.tallies.items():
            self.tallies[key] = self.tallies[key] + value if key in self.tallies else value
        for pair, values in other.pixels.items():
            self.pixels.setdefault(pair, []).extend(values)
        for node, numbers in other.counts.items():
            ours = self.counts.get(node, [0] * len(numbers))
            self.counts[node] = [a + b for a, b in zip(ours, numbers, strict=True)]
        for name, provenance in other.provenances.items():
            self.provenances[name] = _merged(self.provenances.get(name), provenance)
        self.broken |= other.broken


def conform(
    graph: Graph,
    chip: Chip,
    clips: Sequence[Clip],
    *,
    runtimes: Sequence[str] | None = None,
    program: Program | None = None,
    options: LowerOptions | None = None,
    tolerances: Tolerances | None = None,
    repeats: int = 3,
    jobs: int = 1,
) -> Report:
    """Take every clip up the ladder and judge the sums.

    All runtimes of the chip that are present are used unless `runtimes` names some. `program` is lowered from
    the graph unless given. `tolerances` replace those of the chip, rung by rung. `jobs` processes share the
    clips through joblib, so that `joblib.parallel_config("dask")` moves them to a cluster.

    >>> conform(read_graph("model.nir"), load_chip("loihi2"), clips).verdict  # doctest: +SKIP
    'pass'
    """
    backend = backend_of(chip)
    check_tolerances(tolerances or {}, f"{chip.name}: tolerances")
    findings = backend.check(graph, chip)
    chosen, absent = select(backend, chip, runtimes)
    if refused := errors(findings) if program is None else []:
        checks = [Check("", "rules", f.node, f.rule, None, "", "fail", str(f)) for f in refused]
        return Report(graph, chip, checks, runs=absent, findings=findings)
    if not clips:
        raise InputError("no clips to compare with; give at least one")
    if program is None:
        program = backend.lower(graph, chip, options or lower_options(graph))
    if program.target != chip.name:
        raise InputError(f"the program is for {program.target}, not for {chip.name}; lower it again")
    late = max(program.latencies.values(), default=0)
    for clip in clips:
        if len(clip.frames) <= late:
            raise InputError(
                f"clip '{clip.name}' has {len(clip.frames)} steps, {chip.name} answers {late} steps late; "
                "give a longer one"
            )
    names = [runtime.name for runtime in chosen]
    work = (
        delayed(compare_clip)(graph, program, chip, names, clip, repeats, keep=n == 0)
        for n, clip in enumerate(clips)
    )
    total = Comparison()
    for clip, result in zip(clips, Parallel(n_jobs=jobs)(work), strict=True):
        _name_clip(result, clip.name)
        total.add(result)
        total.recordings = total.recordings or result.recordings
    on_grid = is_on_grid(graph, chip)
    limits = tolerances_for(chip, on_grid, tolerances)
    chosen, gone = _without_broken(chosen, total.broken)
    measured = _measured(total, graph, chosen)
    ran = [_as_run(runtime, provenance=total.provenances[runtime.name]) for runtime in chosen]
    return Report(
        graph,
        chip,
        checks=[Check(run.runtime, "L0-L3", "", "run", None, "", "fail", run.reason) for run in gone]
        + judged(measured, graph, chosen, limits)
        + [Check.not_applicable(run.runtime, "L0-L3", "", run.reason) for run in absent],
        measured=measured,
        runs=ran + gone + absent,
        clips=[
            {
                "name": clip.name,
                "steps": len(clip.frames),
                "events": int(np.count_nonzero(clip.frames)),
                "truth": clip.truth is not None,
            }
            for clip in clips
        ],
        findings=findings,
        tolerances=limits,
        on_grid=on_grid,
        view=view.build(graph, clips[0].frames, clips[0].truth, total.recordings, program.lowered.placement),
    )


def select(
    backend: Backend[Chip, Program], chip: Chip, names: Sequence[str] | None
) -> tuple[list[Runtime], list[Run]]:
    """Runtimes to use, and those that are absent; naming one that is absent or unknown is an error."""
    if names:
        return [present(backend, chip, name) for name in names], []
    reasons = [(runtime, runtime.absent()) for runtime in backend.runtimes.values()]
    here = [runtime for runtime, reason in reasons if reason is None]
    return here, [_as_run(runtime, str(reason)) for runtime, reason in reasons if reason is not None]


def present(backend: Backend[Chip, Program], chip: Chip, name: str) -> Runtime:
    """A runtime by name; refuses one that the chip does not have or that cannot run here."""
    if name not in backend.runtimes:
        hint = did_you_mean(name, backend.runtimes)
        raise InputError(f"{chip.name}: unknown runtime '{name}'; {hint}")
    if reason := backend.runtimes[name].absent():
        raise InputError(f"runtime '{name}' cannot run here: {reason}")
    return backend.runtimes[name]


def compare_clip(
    graph: Graph,
    program: Program,
    chip: Chip,
    runtimes: Sequence[str],
    clip: Clip,
    repeats: int = 1,
    keep: bool = False,
) -> Comparison:
    """One clip through the reference and all runtimes; `keep` hands the recordings back as well."""
    backend = backend_of(chip)
    wanted = reference.run(graph, clip.frames)
    result = Comparison()
    plain = backend.run(program, clip.frames, BUILTIN, RunOptions())
    for name in runtimes:
        runtime = backend.runtimes[name]
        try:
            runs = [plain] if name == BUILTIN else _runs(backend, program, clip, runtime, repeats)
        except InputError as error:  # a vendor's simulator that crashed or hung; the others go on
            result.broken[name] = str(error)
            continue
        for run in runs:
            result.add(_compared(graph, wanted, run, name, "L2"))
            result.add(_pixels(graph, wanted, run, name, clip.truth))
        if name == BUILTIN:
            taught = backend.run(program, clip.frames, BUILTIN, RunOptions(teacher=wanted))
            result.add(_compared(graph, wanted, taught, name, "L1"))
        elif runtime.exact:
            result.add(_compared(graph, plain, runs[0], name, "L0"))
        for node in graph.neurons:
            if node in runs[0].spikes:
                result.counts[name, node] = [run.events(node).count for run in runs]
        result.provenances[name] = runs[0].provenance
        if keep:
            result.recordings[name] = runs[0]
    if keep:
        result.recordings = {"reference": wanted, **result.recordings}
    return result


def _runs(
    backend: Backend[Chip, Program], program: Program, clip: Clip, runtime: Runtime, repeats: int
) -> list[Recording]:
    """One run, or several of an asynchronous chip, whose simulator takes a seed for its event order."""
    seeded = not runtime.exact and runtime.device == "simulation"
    return [
        backend.run(program, clip.frames, runtime.name, RunOptions(seed=n if seeded else 0))
        for n in range(1 if runtime.exact else repeats)
    ]


def _compared(graph: Graph, wanted: Recording, run: Recording, name: str, rung: str) -> Comparison:
    nodes = [node for node in graph.neurons if node in run.spikes or node in run.membranes]
    return Comparison(
        {(name, rung, node): tally(wanted, run, node, thresholds(graph, node, wanted)) for node in nodes}
    )


def _pixels(
    graph: Graph, wanted: Recording, run: Recording, name: str, truth: NDArray[Any] | None
) -> Comparison:
    """Distances of the coordinates, the latency of the output population removed."""
    if wanted.coordinates is None or run.coordinates is None:
        return Comparison()
    late = run.latency(output_population(graph, run))
    pixels = {(name, "reference"): [distances(wanted.coordinates, run.coordinates, late)]}
    if truth is not None and truth.shape == wanted.coordinates.shape:
        pixels[name, "truth"] = [distances(np.asarray(truth, np.float64), run.coordinates, late)]
        pixels["reference", "truth"] = [distances(np.asarray(truth, np.float64), wanted.coordinates, 0)]
    return Comparison(pixels=pixels)


def _measured(total: Comparison, graph: Graph, runtimes: Sequence[Runtime]) -> list[Measured]:
    """Figures from sums, in the order of runtimes, rungs and nodes."""
    measured = []
    for runtime in runtimes:
        for rung in ("L0", "L1", "L2"):
            for node in graph.neurons:
                if (runtime.name, rung, node) not in total.tallies:
                    continue
                entry = total.tallies[runtime.name, rung, node]
                figures = entry.figures()
                numbers = total.counts.get((runtime.name, node), [])
                if len(numbers) > 1:
                    figures["spread"] = (max(numbers) - min(numbers)) / max(1.0, float(np.mean(numbers)))
                measured.append(Measured(runtime.name, rung, node, figures, entry.divergence))
    names = ["reference", *(runtime.name for runtime in runtimes)]
    for name in names:
        figures = {}
        for origin, prefix in (("reference", "px"), ("truth", "truth")):
            if values := total.pixels.get((name, origin)):
                distance = np.concatenate([np.ravel(value) for value in values])
                figures[f"{prefix}_median"] = metrics.percentile(distance, 50)
                figures[f"{prefix}_p95"] = metrics.percentile(distance, 95)
        if figures:
            measured.append(Measured(name, "L3", "coordinates", figures))
    return measured


def _without_broken(chosen: list[Runtime], broken: dict[str, str]) -> tuple[list[Runtime], list[Run]]:
    """Runtimes that got through all clips, and the others with what they said."""
    gone = [_as_run(runtime, broken[runtime.name]) for runtime in chosen if runtime.name in broken]
    return [runtime for runtime in chosen if runtime.name not in broken], gone


def _as_run(runtime: Runtime, reason: str = "", provenance: Provenance | None = None) -> Run:
    return Run(runtime.name, runtime.device, runtime.exact, reason, provenance)


def _merged(ours: Provenance | None, new: Provenance) -> Provenance:
    """The same runtime on another clip: counters add up."""
    if ours is None:
        return new
    names = {**ours.counters, **new.counters}
    return replace(ours, counters={k: ours.counters.get(k, 0) + new.counters.get(k, 0) for k in names})


def _name_clip(result: Comparison, name: str) -> None:
    for key, entry in result.tallies.items():
        if entry.divergence:
            result.tallies[key] = replace(entry, divergence=replace(entry.divergence, clip=name))
