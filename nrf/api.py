"""What a notebook needs, each in one call; `import nrf` offers all of it and loads it when it is first used.

    graph = nrf.read("model.nir", dt=1e-3)              a NIR file, validated, with its contract
    nrf.check(graph, "loihi2")                          what the chip's rules say about it
    program = nrf.lower(graph, "loihi2")                integers, placed
    nrf.run(program, "clip.npz", runtime="lava")        a recording; of a graph: the float reference
    nrf.conform(graph, "loihi2", 4)                     a report: does the chip do what the graph does?
    nrf.tune(graph, "speck2f", "clips")                 the graph, trained to do the same on the chip
    nrf.load("recording.npz")                           what was saved: a recording, a program or a graph
    nrf.stream("model.loihi2", "events.raw")            coordinates while events come in

Where a chip is asked for, its name, the path of its TOML file or what `load_chip` gave will do; where frames,
an array (T, *input shape) or the path of a file. `bin` is how many seconds of a recording make one frame; a
step of the graph (dt) unless given. A wrong keyword is refused with the one that was probably meant.
"""

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, get_args

import numpy as np
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray

from nrf.backends import reference
from nrf.backends.border import (
    Chip,
    Program,
    Recording,
    RunOptions,
    WeightBits,
    backend_of,
    chip_names,
    load_chip,
)
from nrf.backends.border.program import target_of
from nrf.backends.conformance import Clip, Report, ladder
from nrf.backends.conformance.classes import outlasting
from nrf.backends.conformance.clips import made_clips, read_clips
from nrf.backends.conformance.diff import Difference, differences
from nrf.backends.conformance.golden import read_golden, read_goldens
from nrf.backends.conformance.page import write_page
from nrf.backends.conformance.work import Load, busy
from nrf.backends.lowering.calibration import lower_options
from nrf.backends.stream import Reading
from nrf.backends.stream import stream as stream_readings
from nrf.backends.tuning import Options, Tuned
from nrf.backends.tuning import tune as run_tune
from nrf.containers import parse_json, read_arrays
from nrf.errors import InputError, did_you_mean
from nrf.events import Events, Given, Sample, Samples, Source, load_frames
from nrf.events import read as read_events
from nrf.events.clips import read_labels
from nrf.events.sensor import Sensor
from nrf.export import Graph, read_graph, write_graph
from nrf.export.describe import remarks
from nrf.files import input_file, make_folder
from nrf.findings import Finding, errors, refuse_errors

__all__ = [
    "check", "conform", "diff", "load", "load_chip", "lower",
    "on_grid", "read", "run", "run_many", "stream", "tune", "work",
]  # fmt: skip

HDF5 = b"\x89HDF\r\n\x1a\n"
PRECISIONS = {"float32": torch.float32, "float64": torch.float64}
PathLike = str | Path
Diffable = Graph | Program | Recording
P = ParamSpec("P")
R = TypeVar("R")


def keywords_checked(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse a keyword that the function does not take, and name the nearest one that it does."""
    known = list(inspect.signature(function).parameters)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for word in kwargs:
            if word not in known:
                hint = did_you_mean(word, known)
                raise InputError(f"nrf.{function.__name__}: unknown option '{word}'; {hint}")
        return function(*args, **kwargs)

    return call


def read(path: PathLike, *, dialect: str | None = None, **contract: Any) -> Graph:
    """A NIR file as a graph. What it leaves open is said by the dialect of the framework that wrote it
    (`nrf.export.dialects`) and by fields of `nrf.export.Contract`, which replace what file and dialect say.

    >>> read("model.nir", rest="zero")
    Traceback (most recent call last):
    nrf.errors.InputError: unknown option 'rest'; did you mean 'reset'? known are dt, ...
    """
    return read_graph(path, dialect, **contract)


@keywords_checked
def load(path: PathLike, chip: str | None = None) -> Graph | Program | Recording:
    """What a file holds. `chip` is the TOML file of a program's chip, if that is not installed."""
    if is_graph(path):
        return read(path)
    what = "graph, program or recording of nrf"
    try:
        header = parse_json(read_arrays(path, what)["header"].tobytes())
        recorded = "provenance" in header
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a {what} ({error})") from error
    return Recording.load(path) if recorded else load_program(path, chip)[1]


@keywords_checked
def check(
    graph: Graph,
    chip: str | Chip | None = None,
    frames: Source | None = None,
    *,
    bin: float | None = None,
) -> list[Finding]:
    """All findings about a graph, and with a chip those of its rules.

    With frames also how busy the cores would be on them, where the chip has a limit; `work` counts exactly.

    >>> [finding.rule for finding in check(graph, "speck2f")]  # doctest: +SKIP
    ['neurons_exist']
    """
    if chip is None:
        if frames is not None:
            raise InputError("an input tells how busy a chip would be on it; name the chip as well")
        return remarks(graph)
    chip = _chip(chip)
    backend = backend_of(chip)
    findings = remarks(graph) + backend.check(graph, chip)
    if frames is not None and not errors(findings):
        findings += busy(chip, work(graph, chip, frames, bin=bin), bin or graph.contract.dt)
    return findings


@keywords_checked
def work(graph: Graph, chip: str | Chip, frames: Source, *, bin: float | None = None) -> list[Load]:
    """What the chip would have to do for these frames, counted on the built-in simulator: spikes, synaptic
    operations, messages, membrane updates and peak, of every population and every core.

    >>> work(read("model.nir"), "speck2f", "clip.npz")[0].synaptic_operations  # doctest: +SKIP
    1048576
    """
    chip = _chip(chip)
    backend = backend_of(chip)
    if backend.reach is None:
        raise InputError(f"{chip.name}: its package cannot count work; leave the input out")
    ready = _frames(frames, graph, bin)
    program = backend.lower(graph, chip, lower_options(graph))
    run = backend.run(program, ready, "builtin", RunOptions())
    return ladder.counted(backend.reach(program), program, run, ready)


@keywords_checked
def on_grid(graph: Graph, chip: str | Chip) -> Graph:
    """The graph with its parameters rounded to the chip's numbers, and metadata that say so.

    The file's float semantics and the chip's integers then agree.

    >>> write_graph("model.nir", on_grid(from_checkpoint("runs/demo"), "loihi2"))  # doctest: +SKIP
    """
    chip = _chip(chip)
    backend = backend_of(chip)
    if backend.to_grid is None:
        raise InputError(f"{chip.name}: its package cannot round a graph to the chip's numbers")
    refuse_errors(backend.check(graph, chip), graph.name)
    rounded = backend.to_grid(graph, chip)
    return replace(rounded, metadata=rounded.metadata | {"grid": chip.name, "checksum": rounded.checksum})


@keywords_checked
def lower(
    graph: Graph,
    chip: str | Chip,
    *,
    calibrate: Sequence[Source] = (),
    approximate: bool = False,
    weights: WeightBits = "auto",
    format: str = "program",
    out: PathLike | None = None,
    bin: float | None = None,
) -> Program:
    """The program of a graph for a chip; refuses a graph that the chip cannot take.

    Scales are chosen on the clips in `calibrate`, else on those that the model was trained on (if it says
    so), else on generated ones: the same program whoever asks. `approximate` also lowers what the chip can
    only approximate. `weights` of 16 bits are two synapses each where a chip has only 8; "auto" takes them
    where 8 bits lose spikes. With `out` it is written there, in our own format or in a vendor's, which may
    allow fewer numbers.

    >>> lower(read("model.nir"), "loihi2", out="model.loihi2").checksum  # doctest: +SKIP
    '9f86d081884c7d65'
    """
    chip = _chip(chip)
    backend = backend_of(chip)
    if approximate and not backend.approximates:
        raise InputError(f"{chip.name} approximates nothing; leave out approximate")
    if format not in (formats := ["program", *backend.formats]):
        raise InputError(f"{chip.name} has no format '{format}'; {did_you_mean(format, formats)}")
    if weights not in get_args(WeightBits):
        raise InputError(f"weights is '{weights}', expected one of {', '.join(get_args(WeightBits))}")
    options = lower_options(
        graph, calibrate, width=bin, approximate=approximate, format=format, weights=weights
    )
    program = backend.lower(graph, chip, options)
    if out is not None:
        program.save(out) if format == "program" else backend.formats[format](program, Path(out))
    return program


@keywords_checked
def run(
    model: Graph | Program | PathLike,
    frames: Source,
    *,
    runtime: str | None = None,
    options: RunOptions | None = None,
    chip: str | Chip | None = None,
    device: str | None = None,
    precision: Literal["float32", "float64"] | None = None,
    membranes: bool | None = None,
    bin: float | None = None,
) -> Recording:
    """Frames through a graph in float, the reference, or through a program on one of its chip's runtimes.

    Of a program: `runtime` (builtin unless given), its `options`, and the `chip` if that is not installed.
    Of a graph: `device` (cpu, cuda, cuda:1, mps), `precision` (float32), whether to record all `membranes`.

    >>> run("model.loihi2", "clip.npz", runtime="lava")  # doctest: +SKIP
    Recording(60 steps on loihi2 lava, spikes: lif1 512)
    """
    if isinstance(model, str | Path) and is_graph(model):
        model = read(model)
    if isinstance(model, Graph):
        refuse_unused("a graph", runtime=runtime, options=options, chip=chip)
        ready = _frames(frames, model, bin)
        return _run_graph(model, ready, device or "cpu", precision or "float32", membranes is not False)
    refuse_unused("a program", device=device, precision=precision, membranes=membranes)
    chip, program = load_program(model, chip)
    backend = backend_of(chip)
    found, asked = ladder.present(backend, chip, runtime or "builtin"), options or RunOptions()
    if asked.choices and not found.choices:
        raise InputError(
            f"runtime '{found.name}' has no choices ({', '.join(asked.choices)}); leave them out"
        )
    contract = program.contract
    ready = load_frames(frames, bin or contract.dt, program.input_shape, contract.sensor)
    late = program.latencies.get(program.output, 0)
    longer = outlasting(ready, program.contract, late)  # so that the class answers to all of the clip
    return backend.run(program, longer, found.name, asked).cut(len(ready))


@dataclass(frozen=True)
class Ran:
    """What became of one clip of many."""

    clip: str
    label: int | None
    decision: int | None  # its class, where the contract reads one
    steps: int
    spikes: int
    recording: Path | None = None  # where it was kept


def run_many(
    model: Graph | Program | PathLike,
    clips: Iterable[Given],
    *,
    out: PathLike | None = None,
    labels: Sequence[int] | PathLike | None = None,
    jobs: int = 1,
    bin: float | None = None,
    **options: Any,
) -> Iterator[Ran]:
    """Clips through a graph or a program one by one, in `jobs` processes; `out` is a folder for recordings.

    `options` are those of `run`.

    >>> [ran.decision for ran in run_many(read("model.nir"), ["clips/"], jobs=2)]  # doctest: +SKIP
    [3, 0, 1]
    """
    if isinstance(model, str | Path):
        model = read(model) if is_graph(model) else load_program(model, options.get("chip"))[1]
    shape = model.shapes[model.input] if isinstance(model, Graph) else model.input_shape
    known = read_labels(Path(labels)) if isinstance(labels, str | Path) else labels
    samples = Samples(clips, bin or model.contract.dt, shape, known, model.contract.sensor)
    folder = None if out is None else make_folder(out)
    work = (delayed(_run_one)(model, sample, n, folder, options) for n, sample in enumerate(samples))
    yield from Parallel(n_jobs=jobs, return_as="generator")(work)


def _run_one(
    model: Graph | Program, sample: Sample, number: int, folder: Path | None, options: dict[str, Any]
) -> Ran:
    recording = run(model, sample.frames, **options)
    path = None if folder is None else folder / f"{number:05}.npz"
    if path is not None:
        recording.save(path)
    spikes = sum(events.count for events in recording.spikes.values())
    return Ran(sample.name, sample.label, recording.decision, recording.steps, spikes, path)


@keywords_checked
def diff(a: Diffable | PathLike, b: Diffable | PathLike) -> list[Difference]:
    """What changed between two graphs, two programs or two recordings; empty where nothing did.

    >>> diff("before.nir", "after.nir")  # doctest: +SKIP
    [Difference(where='conv1', what='weight', a='...', b='...', size='3 of 144 differ, by up to 0.25')]
    """
    one, other = (load(each) if isinstance(each, str | Path) else each for each in (a, b))
    return differences(one, other)


@keywords_checked
def conform(
    graph: Graph | PathLike,
    chip: str | Chip,
    clips: int | Iterable[Given] = 4,
    *,
    runtimes: Sequence[str] | None = None,
    program: Program | PathLike | None = None,
    golden: PathLike | None = None,
    labels: Sequence[int] | PathLike | None = None,
    calibrate: Sequence[Source] = (),
    repeats: int = 3,
    jobs: int = 1,
    out: PathLike | None = None,
    bin: float | None = None,
    progress: Callable[[int, int | None], None] = lambda done, of: None,
) -> Report:
    """Compare a graph on a chip with the reference; with `out`, write report.json and report.html there.

    `clips` are files (of one clip or many), folders, arrays or a dataset (`nrf.events.from_tonic`), or how
    many to make: held out of the training data if the graph names it, else generated. `labels` are their true
    classes, where the files do not state them. `runtimes` are all that are here unless some are named.
    `repeats` is how often an asynchronous runtime plays a clip, `jobs` how many processes share the clips.
    With a `golden` recording, what another software gave, its input is played (before other clips, if some
    are named), and chip, reference and golden are compared three ways; so are chip, tuned graph and original,
    if `tune` left that beside it. `progress` hears how many clips are done, and of how many.

    >>> conform("model.nir", "loihi2", out="report").verdict  # doctest: +SKIP
    'pass'
    """
    graph, chip = graph if isinstance(graph, Graph) else read(graph), _chip(chip)
    played: list[Clip] = []
    if golden is not None:
        name = Path(golden).name
        for n, theirs in enumerate(read_goldens(Path(golden), graph)):
            label, numbered = theirs.label, f"{name} {n}" if n else name
            clip = Clip(numbered, theirs.frames, label=label, golden=theirs.recording)
            played.append(clip)
    count: int | None = len(played)
    given: Iterable[Clip] = ()
    if not isinstance(clips, int):
        known = read_labels(Path(labels)) if isinstance(labels, str | Path) else labels
        shape, contract = graph.shapes[graph.input], graph.contract
        samples = Samples(clips, bin or contract.dt, shape, known, contract.sensor)
        given, count = read_clips(samples), None if samples.count is None else samples.count + len(played)
    elif labels is not None:
        raise InputError("labels belong to clips of your own; give these too")
    elif not played:
        given, count = made_clips(graph, clips), clips
    if (original := _original(graph)) is not None:
        given = (replace(c, golden=reference.run(original, c.frames, membranes=False)) for c in given)
    report = ladder.conform(
        graph,
        chip,
        chain(played, given),
        runtimes=runtimes,
        program=backend_of(chip).load(program) if isinstance(program, str | Path) else program,
        options=lower_options(graph, calibrate, width=bin),
        repeats=repeats,
        jobs=jobs,
        progress=lambda done: progress(done, count),
    )
    if out is not None:
        folder = make_folder(out)
        report.save(folder / "report.json")
        write_page(folder / "report.html", report)
    return report


@keywords_checked
def tune(
    graph: Graph | PathLike,
    chip: str | Chip,
    clips: int | Iterable[Given] = 320,
    *,
    golden: Sequence[PathLike] = (),
    labels: Sequence[int] | PathLike | None = None,
    out: PathLike | None = None,
    iterations: int = Options.iterations,
    seed: int = 0,
    device: str = "cpu",
    bin: float | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> Tuned:
    """A graph that does on a chip's own neuron what the float reference does, learnt without labels.

    `clips` are as for `conform`, or how many to generate; they are split into those to train on, those held
    back to decide on, and those of the table. `golden` recordings (`nrf.conform`) are clips of their own with
    another teacher than the reference. `labels` are only reported. With `out` the result is written there,
    and a run that was killed goes on from `<out>.state`.

    >>> tune("model.nir", "speck2f", ["clips"], out="tuned.nir").gained  # doctest: +SKIP
    True
    """
    graph, chip = graph if isinstance(graph, Graph) else read(graph), _chip(chip)
    _check_device(device)
    if golden:
        if not isinstance(clips, int) or labels is not None:
            raise InputError("golden recordings bring their own clips; leave out the others, and labels")
        theirs = [read_golden(Path(path), graph) for path in golden]
        played = [Sample(Path(path).name, it.frames) for path, it in zip(golden, theirs, strict=True)]
    elif isinstance(clips, int):
        theirs, played = [], list[Sample](made_clips(graph, clips))
    else:
        known = read_labels(Path(labels)) if isinstance(labels, str | Path) else labels
        shape, width = graph.shapes[graph.input], bin or graph.contract.dt
        theirs, played = [], list(Samples(clips, width, shape, known, graph.contract.sensor))
    tuned = run_tune(
        graph,
        chip,
        played,
        Options(iterations=iterations, seed=seed, device=device),
        golden=[it.recording for it in theirs],
        state=None if out is None else Path(f"{out}.state"),
        progress=progress,
    )
    if out is not None:
        if tuned.gained:  # so that `conform` can compare with it
            write_graph(_beside(out), graph)
        write_graph(out, tuned.graph)
        Path(f"{out}.state").unlink(missing_ok=True)
    return tuned


@keywords_checked
def stream(
    program: Program | PathLike,
    events: Events | PathLike,
    *,
    chip: str | Chip | None = None,
    every: float = 0.02,
    realtime: bool = False,
) -> Iterator[Reading]:
    """Coordinates every few seconds of a recording, on the built-in simulator of the program's chip.

    >>> next(stream("model.speck2f", "events.raw")).coordinates  # doctest: +SKIP
    array([[31.2, 17.9], [12.0, 40.4], [50.3, 30.8]])
    """
    if isinstance(program, str | Path) and is_graph(program):
        raise InputError(f"{program}: a graph, not a program; lower it first, or run it in float")
    chip, loaded = load_program(program, chip)
    contract = loaded.contract
    if contract.readout is None or contract.dt is None:
        lacks = "dt" if contract.readout else "readout"
        raise InputError(f"{program}: its contract has no {lacks}, needed for coordinates")
    stage = None if contract.sensor is None else Sensor.parse(contract.sensor)
    if not isinstance(events, Events):
        _, rows, columns = loaded.input_shape
        events = read_events(events, sensor=stage.size if stage else (rows, columns))
    session = backend_of(chip).session(loaded)

    def advance(frames: NDArray[Any]) -> NDArray[Any]:
        return session(stage.applied(frames) if stage else frames).maps(loaded.output, contract)

    return stream_readings(advance, events, contract.dt, contract.readout, every=every, realtime=realtime)


def is_graph(path: PathLike) -> bool:
    """Whether a file is a NIR graph (HDF5), or else a program or a recording."""
    try:
        with input_file(path).open("rb") as file:
            return Path(path).suffix == ".nir" or file.read(len(HDF5)) == HDF5
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def load_program(program: Program | PathLike, chip: str | Chip | None = None) -> tuple[Chip, Program]:
    """A program, read if it is a path, and its chip; `chip` is one that is not installed."""
    if isinstance(program, str | Path):
        name, where = target_of(program), f"{program}:"
    else:
        name, where = program.target, "the program"
    if chip is None and name not in chip_names():
        raise InputError(f"{where} is for '{name}', which is not installed; give its TOML file as the target")
    chip = _chip(chip or name)
    if chip.name != name:
        raise InputError(f"{where} is for '{name}', not for '{chip.name}'")
    return chip, backend_of(chip).load(program) if isinstance(program, str | Path) else program


def refuse_unused(model: str, **options: Any) -> None:
    """Refuse options that would be ignored: another thing would run than was asked for."""
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name} has no effect on {model}; leave it out")


def _chip(chip: str | Chip) -> Chip:
    return chip if isinstance(chip, Chip) else load_chip(chip)


def _frames(source: Source, graph: Graph, bin: float | None) -> NDArray[np.float32]:
    contract = graph.contract
    return load_frames(source, bin or contract.dt, graph.shapes[graph.input], contract.sensor)


def _run_graph(graph: Graph, frames: NDArray[Any], device: str, precision: str, membranes: bool) -> Recording:
    if precision not in PRECISIONS:
        raise InputError(f"precision is '{precision}', expected one of {', '.join(PRECISIONS)}")
    _check_device(device)
    return reference.run(graph, frames, device=device, dtype=PRECISIONS[precision], membranes=membranes)


def _beside(path: PathLike) -> Path:
    """Where `tune` leaves the original of a tuned graph."""
    return Path(path).with_suffix(".original.nir")


def _original(graph: Graph) -> Graph | None:
    """The graph that a tuned one was made from, if it is still beside it."""
    path = _beside(graph.name)
    if "tuned" not in graph.metadata or not path.is_file():
        return None
    original = read(path)
    stated = json.loads(graph.metadata["tuned"])["original"]["checksum"]
    if original.checksum != stated:
        raise InputError(
            f"{path}: checksum {original.checksum}, {graph.name} was tuned from {stated}; move it"
        )
    return original


def _check_device(device: str) -> None:
    """Refuse a device that this torch cannot use."""
    here = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    kind = device.partition(":")[0]
    if kind not in here:
        raise InputError(f"device is '{device}', expected cpu, cuda, cuda:N or mps")
    if not here[kind]:
        raise InputError(f"device '{device}' is not there, or this torch cannot use it; use cpu")
