"""From a graph that a chip cannot follow to one that gives the same answers there; see `nrf tune`.

1. The teacher is the float reference under the graph's contract, or recordings of the user's own framework.
2. Clips are split into those to train on, those held back to decide on, and those to test with.
3. Settings without training, then training layer by layer, then end to end. A step is kept only if it lowers
   the loss on the held-back clips, against what `lower` gives by more than its standard error.
4. The test clips are looked at last, once.
"""

import copy
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import nir
import numpy as np
from numpy.typing import NDArray

from nrf.backends import reference
from nrf.backends.border import Backend, Chip, LowerOptions, Program, Recording, Spikes, backend_of
from nrf.backends.border.student import Setting, Student
from nrf.backends.tuning.figures import Clip, Figures, compare, counts, margin, play
from nrf.backends.tuning.settings import matched_gain
from nrf.backends.tuning.state import Stage, State
from nrf.backends.tuning.student import Layer, Whole, layers, on_chip_neuron
from nrf.backends.tuning.training import Lesson, Plan, lessons, micro_steps, trained
from nrf.errors import InputError
from nrf.events import Sample
from nrf.export.graph import Graph

TRAIN, HELD, LEAST = 512, 128, 8  # clips at most to train on and to hold back; clips at least in all
ORDERS = 4  # of events in which held-back clips are played where a runtime does not fix it
CALIBRATION, MATCHED = 8, 16  # clips to choose scales on, and to match gains on before training
TOGETHER, SLOWER = 2, 4  # times as many iterations end to end, at a fraction of the rate
WHOLE = "end to end"
FACTS = "facts"  # of a stage: loss on held-back clips before and after, micro-steps
OUTPUT = 4  # times as many iterations for the output layer, which is small and decides


@dataclass(frozen=True)
class Options:
    """How to tune; equal options, graph and clips give the same result."""

    iterations: int = 400  # per layer, four times as many for the output
    rate: float = 0.02  # of the weights' RMS, per update
    seed: int = 0
    device: str = "cpu"


@dataclass(frozen=True)
class Row:
    """One line of the table: a stage on a runtime, on test clips."""

    stage: str  # before, untrained, tuned
    runtime: str
    figures: Figures


@dataclass(frozen=True)
class Tuned:
    """What came out."""

    graph: Graph  # the original where nothing was gained
    gained: bool
    rows: list[Row]
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


@dataclass(frozen=True)
class Split:
    """Clips by what they are for."""

    train: list[Clip]
    held: list[Clip]
    test: list[Clip]


def split(clips: Sequence[Clip], seed: int) -> Split:
    """At random, the same for the same seed: up to 512 to train on, up to 128 held back, the rest to test."""
    order = [clips[n] for n in np.random.default_rng(seed).permutation(len(clips))]
    train, held = min(TRAIN, len(clips) // 2), min(HELD, len(clips) // 4)
    return Split(order[:train], order[train : train + held], order[train + held :])


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
    student = backend.student(chip)
    on_chip_neuron(graph, student, student.settings[0])  # refuses what cannot be tuned, before any work
    if len(clips) < LEAST:
        raise InputError(f"{graph.name}: tune needs at least {LEAST} clips to split, here are {len(clips)}")
    progress(f"teacher: {len(clips)} clips")
    taught = [_taught(graph, clip.frames, golden[n] if golden else None) for n, clip in enumerate(clips)]
    pairs = zip(clips, taught, strict=True)
    kept = [Clip(_small(clip.frames), run, clip.label) for clip, run in pairs]
    if not any(np.any(output) for clip in kept for output in counts(clip.teacher, graph)):
        raise InputError(
            f"{graph.name}: its output is silent in all clips, nothing can be learnt; give others"
        )
    parts = split(kept, options.seed)
    tuner = _Tuner(graph, chip, backend, student, parts, options, progress)
    stages = State(state, tuner.identity)
    before, how = tuner.before()
    stage, untrained, tuned = "before", None, None
    best = tuner.held(before) if before is not None else None
    progress(f"before ({how}): {_short(best)}")
    candidate, setting = tuner.set_up(stages)
    figures = tuner.held(tuner.lower(candidate))
    untrained = candidate
    result = graph
    if best is None or figures.better_than(best):
        stage, best, result = "untrained", figures, candidate
    candidate, report = tuner.train(candidate, stages)
    figures = tuner.held(tuner.lower(candidate))
    progress(f"trained layer by layer: {_short(figures)}")
    joint, whole = False, tuner.end_to_end(candidate, report, stages)
    if whole is not None:
        together = tuner.held(tuner.lower(whole))
        progress(f"trained end to end: {_short(together)}")
        if joint := together.loss < figures.loss:
            candidate, figures = whole, together
    if figures.loss < best.loss if stage == "untrained" else figures.better_than(best):
        stage, best, result = "tuned", figures, candidate
    tuned = candidate
    programs = {"before": before, "untrained": tuner.lower(untrained), "tuned": tuner.lower(tuned)}
    if stage != "tuned":
        programs["not kept"] = programs.pop("tuned")
    rows = [
        Row(name, runtime, tuner.figures(program, parts.test, runtime))
        for name, program in programs.items()
        if program is not None
        for runtime in dict.fromkeys((student.runtime, "builtin"))
    ]
    lead, close = margin(parts.test, graph)
    did: dict[str, Any] = {
        "target": chip.name,
        "kept": stage,
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
    if stage != "before":
        facts = {"grid": chip.name, "checksum": result.checksum, "tuned": json.dumps(did)}
        result = replace(result, metadata=graph.metadata | facts)
    return Tuned(result, stage != "before", rows, did, time.process_time() - began)


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


def _short(figures: Figures | None) -> str:
    if figures is None:
        return "nothing to compare with"
    task = f"{figures.pixels:.3g} px" if figures.pixels is not None else f"agreement {figures.agreement:.3f}"
    return f"held-back {task}, output x{figures.ratio:.2f}, error {figures.error:.2f}"


@dataclass(frozen=True)
class _Tuner:
    """What all stages need."""

    graph: Graph
    chip: Chip
    backend: Backend[Chip, Program]
    student: Student
    clips: Split
    options: Options
    progress: Callable[[str], None]

    @property
    def identity(self) -> str:
        """Of everything that the result depends on."""
        digest = hashlib.sha256(f"{self.graph.checksum}{self.options}".encode())
        digest.update(msgspec.json.encode(self.chip))
        for clip in (*self.clips.train, *self.clips.held):
            digest.update(np.ascontiguousarray(clip.frames).tobytes())
            for name, spikes in clip.teacher.spikes.items():
                digest.update(name.encode() + spikes.t.tobytes() + spikes.i.tobytes() + spikes.n.tobytes())
        return digest.hexdigest()[:16]

    def lower(self, graph: Graph, approximate: bool = False) -> Program:
        """The chip's program."""
        clips = [clip.frames for clip in self.clips.train[:CALIBRATION]]
        return self.backend.lower(graph, self.chip, LowerOptions(clips, "given", approximate))

    def before(self) -> tuple[Program | None, str]:
        """What there is without tuning: as it is, approximated, or with the chip's own reset and spikes."""
        contract = self.student.adopted(self.graph.contract)
        own = {name: self.student.adopted(c) for name, c in self.graph.node_contracts.items()}
        ways: list[tuple[str, Graph, bool]] = [("lower", self.graph, False)]
        if self.backend.approximates:
            ways.append(("lower --approximate", self.graph, True))
        flags = ((key.replace("_", "-"), getattr(contract, key)) for key in self.student.contract)
        words = " ".join(f"--{key} {value}" for key, value in flags)
        ways.append((f"lower {words}", replace(self.graph, contract=contract, node_contracts=own), False))
        for how, graph, approximate in ways:
            try:
                return self.lower(graph, approximate), how
            except InputError:
                continue
        return None, "nothing that the chip takes"

    def figures(self, program: Program, clips: Sequence[Clip], runtime: str) -> Figures:
        """The chip against the teacher."""
        runs = [play(self.backend, program, clip.frames, runtime, n) for n, clip in enumerate(clips)]
        return compare(runs, clips, self.graph)

    def held(self, program: Program) -> Figures:
        """On the held-back clips, where it works as the chip does; losses are means over orders of events."""
        runtime = self.student.runtime
        orders = 1 if self.backend.runtimes[runtime].exact else ORDERS
        figures = self.figures(program, self.clips.held * orders, runtime)
        return replace(figures, losses=figures.losses.reshape(orders, -1).mean(axis=0))

    def set_up(self, state: State) -> tuple[Graph, Setting]:
        """The best setting without training on the held-back clips, its gains matched."""
        found: list[tuple[float, Graph, Setting]] = []
        leaky = any(isinstance(self.graph.nodes[name], nir.LIF | nir.CubaLIF) for name in self.graph.neurons)
        useless = leaky == (self.student.leak == "exponential")  # LIF has its own decay, IF no leak to fit
        settings = dict.fromkeys(replace(s, leak=0.0) if useless else s for s in self.student.settings)
        for setting in settings:
            graph = on_chip_neuron(self.graph, self.student, setting)
            if str(setting) in state.stages:
                graph = restored(graph, state.stages[str(setting)])
            else:
                for layer in layers(graph, self.student):
                    now = Layer(graph, layer.name, self.student)
                    plan, heard, _ = self.lessons(now, self.clips.train[:MATCHED], [])
                    parameters = matched_gain(now, heard, plan)
                    graph = now.written(parameters, now.grid(parameters))
                state.put(str(setting), parameters_of(graph, self.student))
            figures = self.held(self.lower(graph))
            self.progress(f"untrained, {setting}: {_short(figures)}")
            found.append((figures.loss, graph, setting))
        _, graph, setting = min(found, key=lambda entry: entry[0])
        return graph, setting

    def lessons(
        self, layer: Layer, train: Sequence[Clip], held: Sequence[Clip]
    ) -> tuple[Plan, list[Lesson], list[Lesson]]:
        """What a layer hears on the chip in clips to train on and held back, and how to train it."""
        program = self.lower(layer.graph)
        is_output = layer.name in self.outputs(layer.graph)
        parts: list[list[Lesson]] = []
        for clips in (train, held):
            first = layer.sources == [layer.graph.input]
            runs = [clip.teacher if first else self.play(program, clip, n) for n, clip in enumerate(clips)]
            inputs = [Spikes.from_dense(clip.frames) for clip in clips]
            parts.append(lessons(layer, runs, [clip.teacher for clip in clips], inputs))
        spread = not self.backend.runtimes[self.student.runtime].exact
        if not spread and not is_output:  # a hidden layer that cannot fire twice per step need not try
            parts = [[lesson.at_most_one() for lesson in some] for some in parts]
        plan = Plan(
            iterations=self.options.iterations * (OUTPUT if is_output else 1),
            rate=self.options.rate,
            is_output=is_output,
            micro=micro_steps(layer, parts[0]) if spread else 1,
            device=self.options.device,
            seed=self.options.seed,
        )
        return plan, parts[0], parts[1]

    def play(self, program: Program, clip: Clip, number: int) -> Recording:
        """A clip to learn from, in another order of events than those that decide."""
        return play(self.backend, program, clip.frames, self.student.runtime, 1000 + number)

    def tell(self, what: str, began: float, share: float) -> None:
        """How far training is, and how long it will take."""
        left = (time.monotonic() - began) * (1 - share) / share
        self.progress(f"{what}: {share:.0%}, {left:.0f} s left")

    def train(self, graph: Graph, state: State) -> tuple[Graph, dict[str, dict[str, Any]]]:
        """Layer by layer; a layer that does no better on held-back clips keeps its start."""
        report: dict[str, dict[str, Any]] = {}
        names = [layer.name for layer in layers(graph, self.student)]
        for number, name in enumerate(names, 1):
            layer, stage = Layer(graph, name, self.student), f"layer {name}"
            if stage not in state.stages:
                plan, heard, held = self.lessons(layer, self.clips.train, self.clips.held)
                parameters = matched_gain(layer, heard[:MATCHED], plan)
                start = Layer(layer.written(parameters, layer.grid(parameters)), name, self.student)
                what = f"layer {number} of {len(names)}, '{name}'"
                self.learn(start, heard, held, plan, state, stage, what)
            graph = restored(graph, state.stages[stage])
            before, after, micro = state.stages[stage][FACTS]
            report[name] = {"loss": [round(before, 4), round(after, 4)], "micro_steps": int(micro)}
        return graph, report

    def end_to_end(self, graph: Graph, report: Mapping[str, dict[str, Any]], state: State) -> Graph | None:
        """All layers together, more slowly; None where there is one layer, not one output, a loop or a delay.

        Nor for a chip that works event by event: there micro-steps in every layer double the time, and two
        networks that were tried to the end did no better.
        """
        micro = {name: facts["micro_steps"] for name, facts in report.items()}
        outputs = self.outputs(graph)
        exact = self.backend.runtimes[self.student.runtime].exact
        late = any(way != (0, False) for layer in layers(graph, self.student) for way in layer.ways.values())
        if len(micro) < 2 or len(outputs) != 1 or not exact or late:
            return None
        if WHOLE not in state.stages:
            whole = Whole(graph, outputs[0], self.student, micro)
            plan, heard, held = self.lessons(whole, self.clips.train, self.clips.held)
            plan = replace(
                plan,
                iterations=TOGETHER * self.options.iterations,
                rate=self.options.rate / SLOWER,
                micro=next(iter(micro.values())),
            )
            self.learn(whole, heard, held, plan, state, WHOLE, WHOLE)
        return restored(graph, state.stages[WHOLE])

    def outputs(self, graph: Graph) -> list[str]:
        """Populations that are tuned and that no other hears, loops apart."""
        every = layers(graph, self.student)
        heard = {name for layer in every for name, (_, recurrent) in layer.ways.items() if not recurrent}
        return [layer.name for layer in every if layer.name not in heard]

    def learn(
        self,
        start: Layer,
        heard: Sequence[Lesson],
        held: Sequence[Lesson],
        plan: Plan,
        state: State,
        stage: str,
        what: str,
    ) -> None:
        """Train, and keep what came of it as a stage."""
        tell = partial(self.tell, what, time.monotonic())
        parameters, grid, losses = trained(start, heard, held, plan, tell)
        learnt = parameters_of(start.written(parameters, grid), self.student)
        state.put(stage, learnt | {FACTS: np.array([*losses, plan.micro])})


def parameters_of(graph: Graph, student: Student) -> Stage:
    """Weights and biases of all synapses that are tuned."""
    names = [name for layer in layers(graph, student) for name in layer.synapses]
    keys = [(name, key) for name in names for key in ("weight", "bias")]
    return {f"{name}|{key}": np.asarray(getattr(graph.nodes[name], key)) for name, key in keys}


def restored(graph: Graph, stage: Stage) -> Graph:
    """The graph with the parameters of a stage."""
    nodes = dict(graph.nodes)
    for key, values in stage.items():
        if key == FACTS:
            continue
        name, _, part = key.rpartition("|")
        nodes[name] = copy.copy(nodes[name])
        setattr(nodes[name], part, values)
    return replace(graph, nodes=nodes)
