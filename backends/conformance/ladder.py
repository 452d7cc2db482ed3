"""The conformance ladder: a graph, a chip and some clips in, a report out.

    L0  each exact runtime against `builtin`: spikes and membranes identical
    L1  `builtin` against the reference, every node fed the reference's spikes, so that its own error shows
    L2  each runtime against the reference, running freely
    L3  what the host makes of every output: coordinates or classes of each runtime against the
        reference's, and against the truth where it is known
    golden  reference and runtimes against what somebody else's software gave, for clips that have it

Runtimes that are not exact (asynchronous chips) run several times; their spikes are compared by count. How
far they depend on what nobody documents is measured on the first clips, see `choices`.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
from joblib import delayed

from nrf.backends import reference
from nrf.backends.border import (
    Backend,
    Chip,
    LowerOptions,
    Program,
    Recording,
    RunOptions,
    Tolerances,
    backend_of,
    runtime_of,
)
from nrf.backends.border.chip import check_tolerances
from nrf.backends.border.program import with_trailing_silence
from nrf.backends.conformance.assumptions import hang_on_assumptions, why_assumptions_matter
from nrf.backends.conformance.choices import alternatives, compared
from nrf.backends.conformance.classes import Decisions, decide
from nrf.backends.conformance.clips import Clip
from nrf.backends.conformance.compare import Tally, pixels, tally, thresholds
from nrf.backends.conformance.judge import BUILTIN, GOLDEN, judged, tolerances_for
from nrf.backends.conformance.page import build_view
from nrf.backends.conformance.report import Check, Measured, Report, Run
from nrf.backends.conformance.work import Load, added, loads
from nrf.backends.lowering.calibration import lower_options
from nrf.errors import InputError
from nrf.events.clips import label_for
from nrf.export.graph import Graph
from nrf.findings import errors
from nrf.parallel import parallel

VIEWS, VIEWED = 50, 8_000_000  # clips that the page can show, and how many bytes all of them may take
CHOSEN = 4  # clips on which undocumented choices of a chip are tried
MADE_UP = "the input was made up here, as the graph does not say what data it is for; give --input"
Key = tuple[str, str, str]  # runtime, rung, node


@dataclass
class Sums:
    """What the clips gave so far, added up; one clip starts from nothing."""

    repeats: dict[Key, list[Any]] = field(default_factory=dict)  # a Tally, Pixels or Decisions, per repeat
    runs: dict[str, Run] = field(default_factory=dict)  # per runtime; with a reason if it gave up on a clip
    clips: list[dict[str, Any]] = field(default_factory=list)  # what the report says about each
    views: list[str] = field(default_factory=list)  # what the page draws of the first clips, as JSON
    work: dict[str, list[Load]] = field(default_factory=dict)  # per runtime, where it can be counted
    doubts: Counter[str] = field(default_factory=Counter)  # assumed field -> spikes that hang on it

    def add(self, clip: "Sums") -> None:
        """Add those of another clip."""
        for key, new in clip.repeats.items():
            ours = self.repeats.get(key)
            self.repeats[key] = [a + b for a, b in zip(ours, new, strict=True)] if ours else new
        for name, run in clip.runs.items():
            first = self.runs.get(name, run)
            if first is not run and first.provenance and run.provenance:
                run = replace(run, provenance=first.provenance + run.provenance)
            self.runs[name] = first if first.reason else run
        self.clips += clip.clips
        room = VIEWED - sum(map(len, self.views))
        self.views += [view for view in clip.views if not self.views or len(view) <= room]
        self.doubts.update(clip.doubts)
        for name, new in clip.work.items():
            self.work[name] = added(self.work.get(name, []), new)

    def measured(self) -> list[Measured]:
        """Figures of the sums over clips and repeats."""
        entries = []
        for key, parts in self.repeats.items():
            total = sum(parts[1:], parts[0])
            figures = total.figures()
            if len(parts) > 1 and isinstance(total, Tally):
                counts = [part.candidate for part in parts]
                figures["spread"] = (max(counts) - min(counts)) / max(1.0, float(np.mean(counts)))
            confusion = total.confusion() if isinstance(total, Decisions) else {}
            entries.append(Measured(*key, figures, total.divergence, confusion))
        return entries


def conform(
    graph: Graph,
    chip: Chip,
    clips: Iterable[Clip],
    *,
    runtimes: Sequence[str] | None = None,
    program: Program | None = None,
    options: LowerOptions | None = None,
    tolerances: Tolerances | None = None,
    repeats: int = 3,
    jobs: int = 1,
    progress: Callable[[int], None] = lambda done: None,
) -> Report:
    """Take every clip up the ladder and judge the sums. Clips are read as their turn comes, none is kept.

    All runtimes of the chip that are present are used unless `runtimes` names some. `program` is lowered from
    the graph unless given. `tolerances` replace those of the chip, rung by rung. `jobs` processes share the
    clips through joblib, so that `joblib.parallel_config("dask")` moves them to a cluster. `progress` hears
    how many are done.

    >>> conform(read_graph("model.nir"), load_chip("loihi2"), clips).verdict  # doctest: +SKIP
    'pass'
    """
    if repeats < 1:
        raise InputError(f"repeats is {repeats}, expected at least 1")
    backend = backend_of(chip)
    check_tolerances(tolerances or {}, f"{chip.name}: tolerances")
    findings = backend.check(graph, chip)
    names, absent = select(backend, chip, runtimes)
    if refused := errors(findings) if program is None else []:
        checks = [Check("", "rules", f.node, "fail", str(f), f.rule) for f in refused]
        return Report(graph, chip, checks, runs=absent, findings=findings)
    if program is None:
        program = backend.lower(graph, chip, options or lower_options(graph))
    _refuse_another(program, graph, chip)
    work = (
        delayed(compare_clip)(graph, program, chip, names, clip, repeats, n < CHOSEN, n < VIEWS)
        for n, clip in enumerate(clips)
    )
    total = Sums()
    for done, result in enumerate(parallel(jobs, return_as="generator")(work), 1):
        total.add(result)
        progress(done)
    if not total.clips:
        raise InputError("no clips to compare with; give at least one")
    ran = [run for run in total.runs.values() if not run.reason]
    gone = [run for run in total.runs.values() if run.reason]
    through = {"reference", *(run.runtime for run in ran)}
    measured = [entry for entry in total.measured() if entry.figures and entry.runtime in through]
    on_grid = graph.metadata.get("grid") == chip.name  # `nrf export --grid` says so
    limits = tolerances_for(chip, on_grid, tolerances)
    checks = [Check(run.runtime, "L0-L3", "", "fail", run.reason, "run") for run in gone]
    checks += judged(measured, graph, ran, limits)
    checks += [Check(run.runtime, "L0-L3", "", "not applicable", run.reason) for run in absent]
    if any(clip["made_up"] for clip in total.clips):
        checks.append(Check("", "input", "", "no verdict", MADE_UP))
    checks += [
        Check("", "contract", "", "no verdict", reason)
        for reason in why_assumptions_matter(graph, total.doubts)
    ]
    return Report(
        graph,
        chip,
        checks=checks,
        measured=measured,
        runs=ran + gone + absent,
        clips=total.clips,
        findings=findings,
        tolerances=limits,
        on_grid=on_grid,
        views=total.views,
        work=total.work,
        lowered=program.lowered,
    )


def select(
    backend: Backend[Chip, Program], chip: Chip, names: Sequence[str] | None
) -> tuple[list[str], list[Run]]:
    """Runtimes to use, and those that are absent; naming one that is absent or unknown is an error."""
    if names:
        return [runtime_of(backend, chip, name).name for name in names], []
    runs = [
        Run(each.name, each.device, each.exact, str(each.absent() or ""))
        for each in backend.runtimes.values()
    ]
    return [run.runtime for run in runs if not run.reason], [run for run in runs if run.reason]


def _refuse_another(program: Program, graph: Graph, chip: Chip) -> None:
    """Refuse a program that was not lowered from this graph for this chip."""
    if program.target != chip.name:
        raise InputError(f"the program is for {program.target}, not for {chip.name}; lower it again")
    strange = [name for name in (*program.latencies, *program.outputs) if name not in graph.nodes]
    missing = [name for name in graph.read_populations if name not in program.outputs]
    if strange or missing:
        where = "the graph" if strange else "the program's outputs"
        what = f"'{(strange or missing)[0]}' is not in {where}"
    elif prod(program.input_shape) != prod(graph.input_shape):
        what = f"its input has shape {program.input_shape}, the graph's {graph.input_shape}"
    else:
        return
    raise InputError(f"the program was lowered from another graph: {what}; lower {graph.name} again")


def compare_clip(
    graph: Graph,
    program: Program,
    chip: Chip,
    runtimes: Sequence[str],
    clip: Clip,
    repeats: int = 1,
    choose: bool = False,
    view: bool = False,
) -> Sums:
    """One clip through the reference and all runtimes; `view` hands back what the page draws as well.

    A runtime that is not exact runs several times; its simulator takes a seed for the order of events. A clip
    that is read as a class is followed by silence, until the chip has answered all of it.
    """
    backend, contract = backend_of(chip), graph.contract
    steps, late = len(clip.frames), max(program.latencies.values(), default=0)
    if steps <= late:
        about = f"{steps} steps, {program.target} answers {late} steps late"
        raise InputError(f"clip '{clip.name}' has {about}; give a longer one")
    frames = with_trailing_silence(clip.frames, program)
    outputs = {name: f" of {name}" * (len(program.outputs) > 1) for name in program.outputs}
    wanted = reference.run(graph, frames)
    result = Sums(doubts=hang_on_assumptions(graph, frames, wanted))
    shown = {"reference": wanted}
    floors = {} if backend.floors is None else backend.floors(program)

    def run(runtime: str, **options: Any) -> Recording:
        return backend.run(program, frames, runtime, RunOptions(membranes=True, **options))

    def compare(name: str, rung: str, expected: Recording, runs: Sequence[Recording]) -> None:
        for node in graph.neurons:
            if node in expected.shapes and (node in runs[0].spikes or node in runs[0].membranes):
                if runs[0].shapes.get(node, expected.shapes[node]) != expected.shapes[node]:
                    shapes = f"{runs[0].shapes[node]} on {name}, {expected.shapes[node]} in the graph"
                    raise InputError(f"node '{node}' has shape {shapes}; lower {graph.name} again")
                unit = thresholds(graph, node, expected)
                late = graph.contract_of(node).reset_at == "next"
                floor = floors.get(node)
                tallies = [tally(expected, run, node, unit, clip.name, late, floor) for run in runs]
                result.repeats[name, rung, node] = tallies

    def task(name: str, runs: Sequence[Recording]) -> None:
        """What the host makes of every output, against the reference, the truth, and a golden recording."""
        for n, (node, which) in enumerate(outputs.items()):
            if contract.readout is not None:
                key, places = f"coordinates{which}", None if runs[0] is wanted else wanted.answers[node]
                result.repeats[name, "L3", key] = [pixels(run, node, places, clip.truth) for run in runs]
                if clip.golden is not None and node in clip.golden.answers:
                    theirs = clip.golden.answers[node]
                    result.repeats[name, GOLDEN, key] = [pixels(run, node, theirs) for run in runs]
            elif contract.classes is not None:
                key, label = f"classes{which}", label_for(clip.label, n)
                ours = wanted.scores_of(node, contract, steps)
                scores = [run.scores_of(node, contract, steps) for run in runs]
                result.repeats[name, "L3", key] = [decide(ours, each, label) for each in scores]
                if clip.golden is not None and contract.output != "membrane" and node in clip.golden.spikes:
                    wanted_there = clip.golden.scores_of(node, contract)
                    result.repeats[name, GOLDEN, key] = [decide(wanted_there, each, label) for each in scores]

    task("reference", [wanted])
    if clip.golden is not None:
        exact = reference.run(graph, clip.frames, dtype=reference.dtype_of("float64"), membranes=False)
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
            compare(name, GOLDEN, clip.golden, [run.cut(steps) for run in runs])
        task(name, runs)
        if choose and runtime.choices:
            others = {
                f"{key}={value}": run(name, choices={key: value}) for key, value in alternatives(runtime)
            }
            for rung, node, parts in compared(graph, runs, others, clip.name):
                result.repeats[name, rung, node] = parts
        result.runs[name] = Run(name, runtime.device, runtime.exact, provenance=runs[0].provenance)
        shown[name] = runs[0]
        if backend.fan_out is not None:
            result.work[name] = loads(runs[0], frames, backend.fan_out(program), program.lowered.placement)
    result.clips.append(_about(clip, result))
    if view:
        result.views.append(json.dumps(build_view(graph, clip, shown, program)))
    return result


def _about(clip: Clip, result: Sums) -> dict[str, Any]:
    """What the report says about a clip: its size, what is known about it, and the class that each gave."""
    classes: dict[str, dict[str, int]] = {}  # task -> runtime -> class
    for (runtime, rung, task), parts in result.repeats.items():
        if rung == "L3" and isinstance(parts[0], Decisions):
            classes.setdefault(task, {})[runtime] = int(parts[0].found[0])
    return {
        "name": clip.name,
        "steps": len(clip.frames),
        "events": int(np.count_nonzero(clip.frames)),
        "truth": clip.truth is not None,
        "made_up": clip.made_up,
        "held_out": clip.held_out,
        "label": clip.label,
        "classes": classes,
    }
