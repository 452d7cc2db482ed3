"""From a graph that a chip cannot follow to one that gives the same answers there; see `nrf tune`.

1. The teacher is the float reference under the graph's contract, or recordings of the user's own framework.
2. Clips are split into those to train on, those held back to decide on, and those to test with.
3. Settings without training, then training layer by layer, then end to end. A step is kept only if it lowers
   the loss on the held-back clips, against what `lower` gives by more than its standard error.
4. The test clips are looked at last, once.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.backends import reference
from nrf.backends.border import Chip, Recording, backend_of
from nrf.backends.tuning.figures import Figures, TaughtClip, counts, margin
from nrf.backends.tuning.neuron import on_chip_neuron
from nrf.backends.tuning.stages import WHOLE, Options, Tuner, identity, said, split
from nrf.backends.tuning.state import SavedStages
from nrf.errors import InputError
from nrf.events import Sample
from nrf.export.graph import Graph

LEAST = 8  # clips in all


@dataclass(frozen=True)
class TestedStage:
    """One line of the table: a stage on a runtime, on test clips."""

    stage: str  # before, untrained, tuned
    runtime: str
    figures: Figures


@dataclass(frozen=True)
class Tuned:
    """What came out."""

    graph: Graph  # the original where nothing was gained
    gained: bool
    rows: list[TestedStage]
    did: dict[str, Any]  # also in the graph's metadata
    seconds: float  # of CPU time

    @property
    def kept(self) -> str:
        """The last stage that held-back clips let stand, with its parts."""
        kept: str = self.did["kept"]
        return f"{kept}, {WHOLE}" if kept == "tuned" and self.did["end_to_end"] else kept

    @property
    def summary(self) -> list[str]:
        """What was done, in sentences."""
        clips, kept = self.did["clips"], self.did["kept"]
        lines = [
            f"clips: {clips['train']} to train on, {clips['held']} held back, {clips['test']} in the table",
            f"before: nrf {self.did['before']}",
        ]
        if self.rows[0].figures.pixels is None:
            lead, close = self.did["teacher_margin"], self.did["teacher_close"]
            lines.append(
                f"teacher: its first class leads by {lead:.0%} of its count on average, "
                f"and by at most one spike in {close:.0%} of the clips"
            )
        if kept == "before":
            return [*lines, "no gain on held-back clips: the graph is left as it was"]
        return [*lines, f"kept: {self.kept}, {self.did['setting']}; {self.seconds:.0f} s of CPU time"]


def tune(
    graph: Graph,
    chip: Chip,
    clips: Sequence[Sample],
    options: Options | None = None,
    *,
    golden: Sequence[Recording] = (),
    state: Path | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> Tuned:
    """The graph tuned for a chip, and the table; `golden` recordings replace the reference, clip by clip."""
    options, backend, began = options or Options(), backend_of(chip), time.process_time()
    if backend.student is None:
        raise InputError(f"{chip.name}: its package does not say what neuron it has; it cannot be tuned for")
    if options.seed < 0:
        raise InputError(f"seed is {options.seed}, expected at least 0")
    student = backend.student(chip)
    on_chip_neuron(graph, student, student.settings[0])  # refuses what cannot be tuned, before any work
    if len(clips) < LEAST:
        raise InputError(f"{graph.name}: tune needs at least {LEAST} clips to split, here are {len(clips)}")
    progress(f"teacher: {len(clips)} clips")
    teachers = [_taught(graph, clip.frames, golden[n] if golden else None) for n, clip in enumerate(clips)]
    pairs = zip(clips, teachers, strict=True)
    taught = [TaughtClip(_small(clip.frames), teacher, clip.label) for clip, teacher in pairs]
    if not any(np.any(output) for clip in taught for output in counts(clip.teacher, graph)):
        raise InputError(
            f"{graph.name}: its output is silent in all clips, nothing can be learnt; give others"
        )
    parts = split(taught, options.seed)
    done = SavedStages(state, identity(graph, chip, parts, options))
    tuner = Tuner(graph, chip, backend, student, parts, options, done, progress)

    kept, result = "before", graph
    before, how = tuner.before()
    best = None if before is None else tuner.held(before)
    progress(f"before ({how}): {said(best)}")
    untrained, setting = tuner.set_up()
    figures = tuner.held(tuner.lower(untrained))
    if best is None or figures.better_than(best):
        kept, result, best = "untrained", untrained, figures
    tuned, report = tuner.train(untrained)
    figures = tuner.held(tuner.lower(tuned))
    progress(f"trained layer by layer: {said(figures)}")
    joint, whole = False, tuner.end_to_end(tuned, report)
    if whole is not None:
        together = tuner.held(tuner.lower(whole))
        progress(f"trained end to end: {said(together)}")
        if joint := together.loss < figures.loss:
            tuned, figures = whole, together
    if figures.loss < best.loss if kept == "untrained" else figures.better_than(best):
        kept, result = "tuned", tuned
    last = "tuned" if kept == "tuned" else "not kept"
    programs = {"before": before, "untrained": tuner.lower(untrained), last: tuner.lower(tuned)}
    rows = [
        TestedStage(name, runtime, tuner.figures(program, parts.test, runtime))
        for name, program in programs.items()
        if program is not None
        for runtime in dict.fromkeys((student.runtime, "builtin"))
    ]
    lead, close = margin(parts.test, graph)
    did: dict[str, Any] = {
        "target": chip.name,
        "kept": kept,
        "setting": str(setting),
        "before": how,
        "layers": report,
        "end_to_end": joint,
        "options": asdict(options),
        "clips": {"train": len(parts.train), "held": len(parts.held), "test": len(parts.test)},
        "teacher": "golden" if golden else "reference",
        "teacher_margin": lead,
        "teacher_close": close,
        "original": {"name": Path(graph.name).name, "checksum": graph.checksum},
    }
    if kept != "before":
        facts = {"grid": chip.name, "checksum": result.checksum, "tuned": json.dumps(did)}
        result = replace(result, metadata=graph.metadata | facts)
    return Tuned(result, kept != "before", rows, did, time.process_time() - began)


def _small(frames: NDArray[Any]) -> NDArray[Any]:
    """The same counts in one byte each where that is enough: hundreds of clips are in memory at once."""
    small = np.asarray(frames).astype(np.uint8)
    return small if np.array_equal(small, frames) else frames


def _taught(graph: Graph, frames: NDArray[Any], golden: Recording | None) -> Recording:
    """The teacher's recording: the float reference's, with what a golden recording has in its place."""
    run = reference.run(graph, frames, membranes=False)
    if golden is None:
        return run
    return replace(run, spikes=run.spikes | golden.spikes).read_out(graph.read_populations, graph.contract)
