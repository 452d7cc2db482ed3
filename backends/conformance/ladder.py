"""The conformance ladder: a graph, a chip and some clips in, a report out.

    L0  each exact runtime against `builtin`: spikes and membranes identical
    L1  `builtin` against the reference, every node fed the reference's spikes, so that its own error shows
    L2  each runtime against the reference, running freely
    L3  coordinates of each runtime against the reference's, and against the truth where it is known
    golden  reference and runtimes against what somebody else's software gave, for clips that have it

Runtimes that are not exact (asynchronous chips) run several times; their spikes are compared by count.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed

from nrf.backends import reference
from nrf.backends.border import (
    Backend,
    Chip,
    LowerOptions,
    Program,
    Recording,
    RunOptions,
    Runtime,
    Tolerances,
    backend_of,
)
from nrf.backends.border.chip import check_tolerances
from nrf.backends.conformance.clips import Clip
from nrf.backends.conformance.compare import Pixels, Tally, distances, tally, thresholds
from nrf.backends.conformance.judge import BUILTIN, GOLDEN, judged, tolerances_for
from nrf.backends.conformance.page import build_view
from nrf.backends.conformance.report import Check, Measured, Report, Run
from nrf.backends.lowering.calibration import lower_options
from nrf.errors import InputError, did_you_mean
from nrf.export.graph import Graph
from nrf.findings import errors

MADE_UP = "the input was made up here, as the graph does not say what data it is for; give --input"
Key = tuple[str, str, str]  # runtime, rung, node


@dataclass
class Sums:
    """What the clips gave so far, added up; one clip starts from nothing."""

    repeats: dict[Key, list[Any]] = field(default_factory=dict)  # a Tally, or Pixels on L3, per repeat
    runs: dict[str, Run] = field(default_factory=dict)  # per runtime; with a reason if it gave up on a clip
    recordings: dict[str, Recording] = field(default_factory=dict)  # of the first clip

    def add(self, clip: "Sums") -> None:
        """Add those of another clip."""
        for key, new in clip.repeats.items():
            ours = self.repeats.get(key)
            self.repeats[key] = [a + b for a, b in zip(ours, new, strict=True)] if ours else new
        for name, run in clip.runs.items():
            first = self.runs.get(name, run)
            if first is not run and first.provenance and run.provenance:
                counters = Counter(first.provenance.counters)
                counters.update(run.provenance.counters)  # adds
                run = replace(run, provenance=replace(first.provenance, counters=dict(counters)))
            self.runs[name] = first if first.reason else run
        self.recordings = self.recordings or clip.recordings

    def measured(self) -> list[Measured]:
        """Figures of the sums over clips and repeats."""
        entries = []
        for key, parts in self.repeats.items():
            total = sum(parts[1:], parts[0])
            figures = total.figures()
            if len(parts) > 1 and isinstance(total, Tally):
                counts = [part.candidate for part in parts]
                figures["spread"] = (max(counts) - min(counts)) / max(1.0, float(np.mean(counts)))
            entries.append(Measured(*key, figures, total.divergence))
        return entries


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
    names, absent = select(backend, chip, runtimes)
    if refused := errors(findings) if program is None else []:
        checks = [Check("", "rules", f.node, "fail", str(f), f.rule) for f in refused]
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
    work = (
        delayed(compare_clip)(graph, program, chip, names, clip, repeats, keep=n == 0)
        for n, clip in enumerate(clips)
    )
    total = Sums()
    for result in Parallel(n_jobs=jobs)(work):
        total.add(result)
    ran = [run for run in total.runs.values() if not run.reason]
    gone = [run for run in total.runs.values() if run.reason]
    through = {"reference", *(run.runtime for run in ran)}
    measured = [entry for entry in total.measured() if entry.figures and entry.runtime in through]
    on_grid = graph.metadata.get("grid") == chip.name  # `nrf export --grid` says so
    limits = tolerances_for(chip, on_grid, tolerances)
    checks = [Check(run.runtime, "L0-L3", "", "fail", run.reason, "run") for run in gone]
    checks += judged(measured, graph, ran, limits)
    checks += [Check(run.runtime, "L0-L3", "", "not applicable", run.reason) for run in absent]
    if any(clip.made_up for clip in clips):
        checks.append(Check("", "input", "", "no verdict", MADE_UP))
    return Report(
        graph,
        chip,
        checks=checks,
        measured=measured,
        runs=ran + gone + absent,
        clips=[
            {
                "name": clip.name,
                "steps": len(clip.frames),
                "events": int(np.count_nonzero(clip.frames)),
                "truth": clip.truth is not None,
                "made_up": clip.made_up,
            }
            for clip in clips
        ],
        findings=findings,
        tolerances=limits,
        on_grid=on_grid,
        view=build_view(graph, clips[0], total.recordings, program),
    )


def select(
    backend: Backend[Chip, Program], chip: Chip, names: Sequence[str] | None
) -> tuple[list[str], list[Run]]:
    """Runtimes to use, and those that are absent; naming one that is absent or unknown is an error."""
    if names:
        return [present(backend, chip, name).name for name in names], []
    runs = [
        Run(each.name, each.device, each.exact, str(each.absent() or ""))
        for each in backend.runtimes.values()
    ]
    return [run.runtime for run in runs if not run.reason], [run for run in runs if run.reason]


def present(backend: Backend[Chip, Program], chip: Chip, name: str) -> Runtime:
    """A runtime by name; refuses one that the chip does not have or that cannot run here."""
    if name not in backend.runtimes:
        raise InputError(f"{chip.name}: unknown runtime '{name}'; {did_you_mean(name, backend.runtimes)}")
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
) -> Sums:
    """One clip through the reference and all runtimes; `keep` hands the recordings back as well.

    A runtime that is not exact runs several times; its simulator takes a seed for the order of events.
    """
    backend = backend_of(chip)
    wanted = reference.run(graph, clip.frames)
    result = Sums(recordings={"reference": wanted} if keep else {})

    def run(runtime: str, **options: Any) -> Recording:
        return backend.run(program, clip.frames, runtime, RunOptions(**options))

    def compare(name: str, rung: str, expected: Recording, runs: Sequence[Recording]) -> None:
        for node in graph.neurons:
            if node in expected.shapes and (node in runs[0].spikes or node in runs[0].membranes):
                unit = thresholds(graph, node, expected)
                tallies = [tally(expected, run, node, unit, clip.name) for run in runs]
                result.repeats[name, rung, node] = tallies

    def task(name: str, runs: Sequence[Recording]) -> None:
        """Distances of the coordinates, the latency of the output population removed."""
        places, truth, pixels = wanted.coordinates, clip.truth, []
        for run in runs:
            if places is None or run.coordinates is None:
                return
            late = run.latencies.get(program.output, 0)
            to_reference = to_truth = np.zeros(0)
            if run is not wanted:
                to_reference = distances(places, run.coordinates, late)
            if truth is not None and truth.shape == places.shape:
                to_truth = distances(truth, run.coordinates, late)
            pixels.append(Pixels(to_reference, to_truth))
        result.repeats[name, "L3", "coordinates"] = pixels

    task("reference", [wanted])
    if clip.golden is not None:
        exact = reference.run(graph, clip.frames, dtype=torch.float64, membranes=False)
        compare("reference", GOLDEN, clip.golden, [exact])
    plain = run(BUILTIN)
    for name in runtimes:
        runtime = backend.runtimes[name]
        seeded = not runtime.exact and runtime.device == "simulation"
        count = 1 if runtime.exact else repeats
        try:
            runs = [plain] if name == BUILTIN else [run(name, seed=n if seeded else 0) for n in range(count)]
        except InputError as error:  # a vendor's simulator that crashed or hung; the others go on
            result.runs[name] = Run(name, runtime.device, runtime.exact, str(error))
            continue
        if name == BUILTIN:
            compare(name, "L1", wanted, [run(BUILTIN, teacher=wanted)])
        elif runtime.exact:
            compare(name, "L0", plain, runs)
        compare(name, "L2", wanted, runs)
        if clip.golden is not None:
            compare(name, GOLDEN, clip.golden, runs)
        task(name, runs)
        result.runs[name] = Run(name, runtime.device, runtime.exact, provenance=runs[0].provenance)
        if keep:
            result.recordings[name] = runs[0]
    return result
