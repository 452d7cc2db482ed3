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

from nrf.backends import Backend, Runtime, backend_of, reference
from nrf.backends.border.chip import Target
from nrf.backends.border.recording import Provenance, Recording
from nrf.backends.conformance import view
from nrf.backends.conformance.compare import Tally, distances, output_population, tally, thresholds
from nrf.backends.conformance.judge import BUILTIN, Tolerances, is_on_grid, judged, tolerances_for
from nrf.backends.conformance.report import Check, Measured, Report, Run
from nrf.backends.lowering import metrics
from nrf.errors import InputError
from nrf.export.graph import Graph
from nrf.findings import errors


@dataclass(frozen=True)
class Clip:
    """Input frames (T, *input shape), and the true coordinates (T, shapes, 2) in pixels where known."""

    name: str
    frames: NDArray[Any]
    truth: NDArray[Any] | None = None


@dataclass
class Climb:
    """What one clip gave; several are added up."""

    tallies: dict[tuple[str, str, str], Tally] = field(default_factory=dict)  # (runtime, rung, node)
    pixels: dict[tuple[str, str], list[NDArray[np.float64]]] = field(default_factory=dict)  # (runtime, what)
    counts: dict[tuple[str, str], list[int]] = field(default_factory=dict)  # (runtime, node), per repeat
    provenances: dict[str, Provenance] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)  # runtimes that gave up, and what they said
    recordings: dict[str, Recording] = field(default_factory=dict)

    def add(self, other: "Climb") -> None:
        """Add another clip's sums to ours."""
        for key, value in other.tallies.items():
            self.tallies[key] = self.tallies[key] + value if key in self.tallies else value
        for what, values in other.pixels.items():
            self.pixels.setdefault(what, []).extend(values)
        for who, numbers in other.counts.items():
            ours = self.counts.get(who, [0] * len(numbers))
            self.counts[who] = [a + b for a, b in zip(ours, numbers, strict=True)]
        for name, provenance in other.provenances.items():
            self.provenances[name] = _merged(self.provenances.get(name), provenance)
        self.broken |= other.broken


def conform(
    graph: Graph,
    target: Target,
    clips: Sequence[Clip],
    *,
    runtimes: Sequence[str] | None = None,
    program: Any = None,
    calibration: Sequence[NDArray[Any]] | None = None,
    tolerances: Tolerances | None = None,
    repeats: int = 3,
    jobs: int = 1,
) -> Report:
    """Climb the ladder with every clip and judge the sums.

    All runtimes of the chip that are present are used unless `runtimes` names some. `program` is lowered from
    the graph unless given. `tolerances` replace those of the target, rung by rung. `jobs` processes share the
    clips through joblib, so that `joblib.parallel_config("dask")` moves them to a cluster.

    >>> conform(read_graph("model.nir"), load_target("loihi2"), clips).verdict
    'pass'
    """
    backend = backend_of(target)
    findings = backend.check(graph, target)
    chosen, absent = select(backend, target, runtimes)
    if refused := errors(findings) if program is None else []:
        checks = [Check("", "rules", f.node, f.rule, None, "", "fail", str(f)) for f in refused]
        return Report(graph, target, checks, runs=absent, findings=findings)
    if not clips:
        raise InputError("no clips to compare with; give at least one")
    if getattr(program, "target", target.name) != target.name:
        raise InputError(f"the program is for {program.target}, not for {target.name}; lower it again")
    if program is None:
        program = backend.lower(graph, target, calibration=calibration)
    late = getattr(program, "latency", 0)
    for clip in clips:
        if len(clip.frames) <= late:
            raise InputError(
                f"clip '{clip.name}' has {len(clip.frames)} steps, {target.name} answers {late} steps late; "
                "give a longer one"
            )
    work = (
        delayed(climb)(
            graph, program, target, [runtime.name for runtime in chosen], clip, repeats, keep=n == 0
        )
        for n, clip in enumerate(clips)
    )
    total = Climb()
    for n, one in enumerate(Parallel(n_jobs=jobs)(work)):
        _name_clip(one, clips[n].name)
        total.add(one)
        total.recordings = total.recordings or one.recordings
    on_grid = is_on_grid(graph, target)
    limits = tolerances_for(target, on_grid, tolerances)
    chosen, gone = _without_broken(chosen, total.broken)
    measured = _measured(total, graph, chosen)
    return Report(
        graph,
        target,
        checks=[Check(run.runtime, "L0-L3", "", "run", None, "", "fail", run.reason) for run in gone]
        + judged(measured, graph, chosen, limits, target.name)
        + [Check.not_applicable(run.runtime, "L0-L3", "", run.reason) for run in absent],
        measured=measured,
        runs=[
            Run(runtime.name, runtime.device, runtime.exact, "", total.provenances[runtime.name])
            for runtime in chosen
        ]
        + gone
        + absent,
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
        view=view.build(graph, clips[0].frames, clips[0].truth, total.recordings, program, target),
    )


def select(backend: Backend, target: Target, names: Sequence[str] | None) -> tuple[list[Runtime], list[Run]]:
    """Runtimes to use, and those that are absent; naming one that is absent or unknown is an error."""
    present, absent = [], []
    for name in names or backend.RUNTIMES:
        if name not in backend.RUNTIMES:
            known = ", ".join(backend.RUNTIMES)
            raise InputError(f"target '{target.name}': unknown runtime '{name}'; known: {known}")
        runtime = backend.RUNTIMES[name]
        reason = runtime.missing()
        if reason is None:
            present.append(runtime)
        elif names:
            raise InputError(f"runtime '{name}' cannot run here: {reason}")
        else:
            absent.append(Run(name, runtime.device, runtime.exact, reason))
    return present, absent


def climb(
    graph: Graph,
    program: Any,
    target: Target,
    runtimes: Sequence[str],
    clip: Clip,
    repeats: int = 1,
    keep: bool = False,
) -> Climb:
    """One clip through the reference and all runtimes; `keep` hands the recordings back as well."""
    backend = backend_of(target)
    wanted = reference.run(graph, clip.frames)
    result = Climb()
    plain = backend.run(program, clip.frames, BUILTIN)
    for name in runtimes:
        exact = backend.RUNTIMES[name].exact
        try:
            runs = [plain] if name == BUILTIN else _runs(backend, program, clip, name, repeats)
        except InputError as error:  # a vendor's simulator that crashed or hung; the others go on
            result.broken[name] = str(error)
            continue
        for run in runs:
            result.add(_compared(graph, wanted, run, name, "L2"))
            result.add(_pixels(graph, wanted, run, name, clip.truth))
        if name == BUILTIN:
            taught = backend.run(program, clip.frames, BUILTIN, teacher=wanted)
            result.add(_compared(graph, wanted, taught, name, "L1"))
        elif exact:
            result.add(_compared(graph, plain, runs[0], name, "L0"))
        for node in graph.neurons:
            if node in runs[0].spikes:
                result.counts[name, node] = [metrics.count(run.events(node)) for run in runs]
        result.provenances[name] = runs[0].provenance
        if keep:
            result.recordings[name] = runs[0]
    if keep:
        result.recordings = {"reference": wanted, **result.recordings}
    return result


def _runs(backend: Backend, program: Any, clip: Clip, name: str, repeats: int) -> list[Recording]:
    """One run, or several of an asynchronous chip, whose simulator takes a seed for its event order."""
    runtime = backend.RUNTIMES[name]
    if runtime.exact:
        return [backend.run(program, clip.frames, name)]
    options = [{"seed": n} if runtime.device == "simulation" else {} for n in range(repeats)]
    return [backend.run(program, clip.frames, name, **option) for option in options]


def _compared(graph: Graph, wanted: Recording, run: Recording, name: str, rung: str) -> Climb:
    nodes = [node for node in graph.neurons if node in run.spikes or node in run.membranes]
    return Climb(
        {(name, rung, node): tally(wanted, run, node, thresholds(graph, node, wanted)) for node in nodes}
    )


def _pixels(graph: Graph, wanted: Recording, run: Recording, name: str, truth: NDArray[Any] | None) -> Climb:
    """Distances of the coordinates, the latency of the output population removed."""
    if wanted.coordinates is None or run.coordinates is None:
        return Climb()
    late = run.latency(output_population(graph, run))
    found = {(name, "reference"): [distances(wanted.coordinates, run.coordinates, late)]}
    if truth is not None and truth.shape == wanted.coordinates.shape:
        found[name, "truth"] = [distances(np.asarray(truth, np.float64), run.coordinates, late)]
        found["reference", "truth"] = [distances(np.asarray(truth, np.float64), wanted.coordinates, 0)]
    return Climb(pixels=found)


def _measured(total: Climb, graph: Graph, runtimes: Sequence[Runtime]) -> list[Measured]:
    """Figures from sums, in the order of runtimes, rungs and nodes."""
    found = []
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
                found.append(Measured(runtime.name, rung, node, figures, entry.divergence))
    names = ["reference", *(runtime.name for runtime in runtimes)]
    for name in names:
        figures = {}
        for what, prefix in (("reference", "px"), ("truth", "truth")):
            if values := total.pixels.get((name, what)):
                distance = np.concatenate([np.ravel(value) for value in values])
                figures[f"{prefix}_median"] = metrics.percentile(distance, 50)
                figures[f"{prefix}_p95"] = metrics.percentile(distance, 95)
        if figures:
            found.append(Measured(name, "L3", "coordinates", figures))
    return found


def _without_broken(chosen: list[Runtime], broken: dict[str, str]) -> tuple[list[Runtime], list[Run]]:
    """Runtimes that got through all clips, and the others with what they said."""
    gone = [Run(r.name, r.device, r.exact, broken[r.name]) for r in chosen if r.name in broken]
    return [runtime for runtime in chosen if runtime.name not in broken], gone


def _merged(ours: Provenance | None, new: Provenance) -> Provenance:
    """The same runtime on another clip: counters add up."""
    if ours is None:
        return new
    names = {**ours.counters, **new.counters}
    return replace(ours, counters={k: ours.counters.get(k, 0) + new.counters.get(k, 0) for k in names})


def _name_clip(one: Climb, name: str) -> None:
    for key, entry in one.tallies.items():
        if entry.divergence:
            one.tallies[key] = replace(entry, divergence=replace(entry.divergence, clip=name))
