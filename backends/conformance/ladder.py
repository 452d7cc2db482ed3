"""The conformance ladder: a graph, a chip and some clips in, a report out.

    L0  each exact runtime against `builtin`: spikes and membranes identical
    L1  `builtin` against the reference, every node fed the reference's spikes, so that its own error shows
    L2  each runtime against the reference, running freely
    L3  coordinates of each runtime against the reference's, and against the truth where it is known

Runtimes that are not exact (asynchronous chips) run several times; their spikes are compared by count.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from joblib import Parallel, delayed

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
from nrf.backends.conformance.clips import Clip
from nrf.backends.conformance.compare import Pixels, Tally, distances, tally, thresholds
from nrf.backends.conformance.judge import BUILTIN, judged, tolerances_for
from nrf.backends.conformance.page import build_view
from nrf.backends.conformance.report import Check, Measured, Report, Run
from nrf.backends.lowering.calibration import lower_options
from nrf.errors import InputError, did_you_mean
from nrf.export.graph import Graph
from nrf.findings import errors

MADE_UP = "the input was made up here, as the graph does not say what data it is for; give --input"
NOWHERE = np.zeros(0)
Key = tuple[str, str, str]  # runtime, rung, node


@dataclass
class Sums:
    """What the clips gave so far, added up; one clip starts from nothing."""

    repeats: dict[Key, list[Any]] = field(default_factory=dict)  # a Tally, or Pixels on L3, per repeat
    provenances: dict[str, Provenance] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)  # runtimes that gave up, and what they said
    recordings: dict[str, Recording] = field(default_factory=dict)  # of the first clip

    def add(self, clip: "Sums") -> None:
        """Add those of another clip."""
        for key, new in clip.repeats.items():
            ours = self.repeats.get(key)
            self.repeats[key] = [a + b for a, b in zip(ours, new, strict=True)] if ours else new
        for name, provenance in clip.provenances.items():
            first = self.provenances.get(name, replace(provenance, counters={}))
            counters = Counter(first.counters)
            counters.update(provenance.counters)  # adds
            self.provenances[name] = replace(first, counters=dict(counters))
        self.broken |= clip.broken
        self.recordings = self.recordings or clip.recordings

    def measured(self) -> list[Measured]:
        """Figures of the sums over clips and repeats, of the runtimes that got through all clips."""
        entries = []
        for key, parts in self.repeats.items():
            total = reduce(add, parts)
            figures = total.figures()
            if not figures or key[0] in self.broken:  # the reference has none where no truth is known
                continue
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
    runs = select(backend, chip, runtimes)
    absent = [run for run in runs if run.reason]
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
    names = [run.runtime for run in runs if not run.reason]
    work = (
        delayed(compare_clip)(graph, program, chip, names, clip, repeats, keep=n == 0)
        for n, clip in enumerate(clips)
    )
    total = Sums()
    for result in Parallel(n_jobs=jobs)(work):
        total.add(result)
    runs = [
        replace(
            run,
            reason=total.broken.get(run.runtime, run.reason),
            provenance=None if run.runtime in total.broken else total.provenances.get(run.runtime),
        )
        for run in runs
    ]
    ran = [run for run in runs if run.provenance]
    measured = total.measured()
    on_grid = graph.metadata.get("grid") == chip.name  # `nrf export --grid` says so
    limits = tolerances_for(chip, on_grid, tolerances)
    checks = [Check(name, "L0-L3", "", "fail", said, "run") for name, said in total.broken.items()]
    checks += judged(measured, graph, ran, limits)
    checks += [Check(run.runtime, "L0-L3", "", "not applicable", run.reason) for run in absent]
    if any(clip.made_up for clip in clips):
        checks.append(Check("", "input", "", "no verdict", MADE_UP))
    return Report(
        graph,
        chip,
        checks=checks,
        measured=measured,
        runs=sorted(runs, key=lambda run: run.provenance is None),
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


def select(backend: Backend[Chip, Program], chip: Chip, names: Sequence[str] | None) -> list[Run]:
    """Runtimes to use, and those that are absent; naming one that is absent or unknown is an error."""
    runtimes = [present(backend, chip, name) for name in names] if names else backend.runtimes.values()
    return [Run(each.name, each.device, each.exact, str(each.absent() or "")) for each in runtimes]


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
) -> Sums:
    """One clip through the reference and all runtimes; `keep` hands the recordings back as well.

    A runtime that is not exact runs several times; its simulator takes a seed for the order of events.
    """
    backend = backend_of(chip)
    wanted = reference.run(graph, clip.frames)
    result = Sums(recordings={"reference": wanted})

    def run(runtime: str, **options: Any) -> Recording:
        return backend.run(program, clip.frames, runtime, RunOptions(**options))

    def compare(name: str, rung: str, expected: Recording, runs: Sequence[Recording]) -> None:
        for node in graph.neurons:
            if node in runs[0].spikes or node in runs[0].membranes:
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
            known = truth is not None and truth.shape == places.shape
            to_reference = NOWHERE if run is wanted else distances(places, run.coordinates, late)
            to_truth = distances(truth, run.coordinates, late) if known else NOWHERE
            pixels.append(Pixels(to_reference, to_truth))
        result.repeats[name, "L3", "coordinates"] = pixels

    task("reference", [wanted])
    plain = run(BUILTIN)
    for name in runtimes:
        runtime = backend.runtimes[name]
        seeded = not runtime.exact and runtime.device == "simulation"
        count = 1 if runtime.exact else repeats
        try:
            runs = [plain] if name == BUILTIN else [run(name, seed=n if seeded else 0) for n in range(count)]
        except InputError as error:  # a vendor's simulator that crashed or hung; the others go on
            result.broken[name] = str(error)
            continue
        if name == BUILTIN:
            compare(name, "L1", wanted, [run(BUILTIN, teacher=wanted)])
        elif runtime.exact:
            compare(name, "L0", plain, runs)
        compare(name, "L2", wanted, runs)
        task(name, runs)
        result.provenances[name] = runs[0].provenance
        result.recordings[name] = runs[0]
    return result if keep else replace(result, recordings={})
