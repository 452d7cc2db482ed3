"""The stages of tuning, each from a graph to a better one; what is done is kept, see `state`."""

import copy
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import nir
import numpy as np

from nrf.backends.border import Backend, Chip, LowerOptions, Program, Spikes
from nrf.backends.border.student import Setting, Student
from nrf.backends.tuning.figures import Figures, TaughtClip, compare, play
from nrf.backends.tuning.layers import Layer, Whole, layers
from nrf.backends.tuning.neuron import on_chip_neuron
from nrf.backends.tuning.state import SavedStages, Stage
from nrf.backends.tuning.training import Lesson, Plan, lessons, matched_gain, micro_steps, trained
from nrf.errors import InputError
from nrf.export.graph import Graph

TRAIN, HELD = 512, 128  # clips at most to train on and to hold back
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
class Split:
    """Clips by what they are for."""

    train: list[TaughtClip]
    held: list[TaughtClip]
    test: list[TaughtClip]


def split(clips: Sequence[TaughtClip], seed: int) -> Split:
    """At random, the same for the same seed: up to 512 to train on, up to 128 held back, the rest to test."""
    order = [clips[n] for n in np.random.default_rng(seed).permutation(len(clips))]
    train, held = min(TRAIN, len(clips) // 2), min(HELD, len(clips) // 4)
    return Split(order[:train], order[train : train + held], order[train + held :])


def identity(graph: Graph, chip: Chip, clips: Split, options: Options) -> str:
    """Of everything that the result depends on."""
    digest = hashlib.sha256(f"{graph.checksum}{options}".encode())
    digest.update(msgspec.json.encode(chip))
    for clip in (*clips.train, *clips.held):
        digest.update(np.ascontiguousarray(clip.frames).tobytes())
        for name, spikes in clip.teacher.spikes.items():
            digest.update(name.encode() + spikes.t.tobytes() + spikes.i.tobytes() + spikes.n.tobytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Tuner:
    """What all stages need."""

    graph: Graph
    chip: Chip
    backend: Backend[Chip, Program]
    student: Student
    clips: Split
    options: Options
    state: SavedStages
    progress: Callable[[str], None]

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

    def figures(self, program: Program, clips: Sequence[TaughtClip], runtime: str) -> Figures:
        """The chip against the teacher."""
        runs = [play(self.backend, program, clip.frames, runtime, n) for n, clip in enumerate(clips)]
        return compare(runs, clips, self.graph)

    def held(self, program: Program) -> Figures:
        """On the held-back clips, where it works as the chip does; losses are means over orders of events."""
        runtime = self.student.runtime
        orders = 1 if self.backend.runtimes[runtime].exact else ORDERS
        figures = self.figures(program, self.clips.held * orders, runtime)
        return replace(figures, losses=figures.losses.reshape(orders, -1).mean(axis=0))

    def set_up(self) -> tuple[Graph, Setting]:
        """The best setting without training on the held-back clips, its gains matched."""
        found: list[tuple[float, Graph, Setting]] = []
        leaky = any(isinstance(self.graph.nodes[name], nir.LIF | nir.CubaLIF) for name in self.graph.neurons)
        useless = leaky == (self.student.leak == "exponential")  # LIF has its own decay, IF no leak to fit
        settings = dict.fromkeys(replace(s, leak=0.0) if useless else s for s in self.student.settings)
        for setting in settings:
            graph = on_chip_neuron(self.graph, self.student, setting)
            if str(setting) in self.state.stages:
                graph = restored(graph, self.state.stages[str(setting)])
            else:
                for layer in layers(graph, self.student):
                    now = Layer(graph, layer.name, self.student)
                    plan, heard, _ = self.lessons(now, self.clips.train[:MATCHED], [])
                    parameters = matched_gain(now, heard, plan)
                    graph = now.written(parameters, now.grid(parameters))
                self.state.put(str(setting), parameters_of(graph, self.student))
            figures = self.held(self.lower(graph))
            self.progress(f"untrained, {setting}: {said(figures)}")
            found.append((figures.loss, graph, setting))
        _, graph, setting = min(found, key=lambda entry: entry[0])
        return graph, setting

    def lessons(
        self, layer: Layer, train: Sequence[TaughtClip], held: Sequence[TaughtClip]
    ) -> tuple[Plan, list[Lesson], list[Lesson]]:
        """What a layer hears on the chip in clips to train on and held back, and how to train it."""
        program = self.lower(layer.graph)
        is_output = layer.name in self.outputs(layer.graph)
        parts: list[list[Lesson]] = []
        for clips in (train, held):
            runs = [clip.teacher for clip in clips]
            if layer.sources != [layer.graph.input]:  # in other orders of events than those that decide
                runtime = self.student.runtime
                runs = [play(self.backend, program, x.frames, runtime, 1000 + n) for n, x in enumerate(clips)]
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

    def train(self, graph: Graph) -> tuple[Graph, dict[str, dict[str, Any]]]:
        """Layer by layer; a layer that does no better on held-back clips keeps its start."""
        report: dict[str, dict[str, Any]] = {}
        names = [layer.name for layer in layers(graph, self.student)]
        for number, name in enumerate(names, 1):
            layer, stage = Layer(graph, name, self.student), f"layer {name}"
            if stage not in self.state.stages:
                plan, heard, held = self.lessons(layer, self.clips.train, self.clips.held)
                parameters = matched_gain(layer, heard[:MATCHED], plan)
                start = Layer(layer.written(parameters, layer.grid(parameters)), name, self.student)
                self.learn(start, heard, held, plan, stage, f"layer {number} of {len(names)}, '{name}'")
            graph = restored(graph, self.state.stages[stage])
            before, after, micro = self.state.stages[stage][FACTS]
            report[name] = {"loss": [round(before, 4), round(after, 4)], "micro_steps": int(micro)}
        return graph, report

    def end_to_end(self, graph: Graph, report: Mapping[str, dict[str, Any]]) -> Graph | None:
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
        if WHOLE not in self.state.stages:
            whole = Whole(graph, outputs[0], self.student, micro)
            plan, heard, held = self.lessons(whole, self.clips.train, self.clips.held)
            plan = replace(
                plan,
                iterations=TOGETHER * self.options.iterations,
                rate=self.options.rate / SLOWER,
                micro=next(iter(micro.values())),
            )
            self.learn(whole, heard, held, plan, WHOLE, WHOLE)
        return restored(graph, self.state.stages[WHOLE])

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
        stage: str,
        what: str,
    ) -> None:
        """Train, say how long that will take, and keep what came of it as a stage."""
        began = time.monotonic()

        def tell(share: float) -> None:
            left = (time.monotonic() - began) * (1 - share) / share
            self.progress(f"{what}: {share:.0%}, {left:.0f} s left")

        parameters, grid, losses = trained(start, heard, held, plan, tell)
        learnt = parameters_of(start.written(parameters, grid), self.student)
        self.state.put(stage, learnt | {FACTS: np.array([*losses, plan.micro])})


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


def said(figures: Figures | None) -> str:
    """In a line."""
    if figures is None:
        return "nothing to compare with"
    task = f"{figures.pixels:.3g} px" if figures.pixels is not None else f"agreement {figures.agreement:.3f}"
    return f"held-back {task}, output x{figures.ratio:.2f}, error {figures.error:.2f}"
