"""Frames through a graph in float, the reference, or through a program: one clip, many, or a stream."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nrf.api.calls import PathLike, frames_for, keywords_checked, refuse_unused, samples_for
from nrf.api.files import is_graph, load_program, read
from nrf.backends import reference
from nrf.backends.border import Chip, Program, Recording, RunOptions, backend_of, runtime_of
from nrf.backends.border.pieces import Summary, summary, write_pieces
from nrf.backends.border.program import with_trailing_silence
from nrf.backends.stream import Reading
from nrf.backends.stream import stream as stream_readings
from nrf.errors import InputError
from nrf.events import ClipSource, Events, Sample, Source, frame_pieces
from nrf.events import read as read_events
from nrf.events.clips import Label
from nrf.events.sensor import Sensor
from nrf.export import Graph
from nrf.files import make_folder

PIECE = 2**22  # pixels times steps of a piece


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
    membranes: bool = False,
    bin: float | None = None,
) -> Recording:
    """Frames through a graph in float, the reference, or through a program on one of its chip's runtimes.

    Of a program: `runtime` (builtin unless given), its `options`, and the `chip` if that is not installed.
    Of a graph: `device` (cpu, cuda, cuda:1, mps) and `precision` (float32). Spikes are recorded, and the
    membranes that the host reads; with `membranes` those of every population.

    >>> run("model.loihi2", "clip.npz", runtime="lava")  # doctest: +SKIP
    Recording(60 steps on loihi2 lava, spikes: lif1 512)
    """
    if isinstance(model, str | Path) and is_graph(model):
        model = read(model)
    if isinstance(model, Graph):
        refuse_unused("a graph", runtime=runtime, options=options, chip=chip)
        reference.check_device(device := device or "cpu")
        dtype = reference.dtype_of(precision or "float32")
        ready = frames_for(model, frames, bin)
        return reference.run(model, ready, device=device, dtype=dtype, membranes=membranes)
    refuse_unused("a program", device=device, precision=precision)
    chip, program = load_program(model, chip)
    backend = backend_of(chip)
    asked = options or RunOptions()
    asked = replace(asked, membranes=membranes or asked.membranes)
    name = runtime_of(backend, chip, runtime or "builtin", asked).name
    ready = frames_for(program, frames, bin)
    longer = with_trailing_silence(ready, program)  # so that the class answers to all of the clip
    recording = backend.run(program, longer, name, asked)
    if len(longer) > len(ready):
        recording = recording.read_out(program.outputs, program.contract, len(ready)).cut(len(ready))
    return recording


@keywords_checked
def record(
    model: Graph | Program | PathLike,
    frames: Source,
    out: PathLike,
    *,
    bin: float | None = None,
    chip: str | Chip | None = None,
    **options: Any,
) -> Summary:
    """The same into a file, with the options of `run`; a program on `builtin` piece by piece, in little
    memory however long it is.

    >>> record("model.loihi2", "events.raw", "out.npz").counts  # doctest: +SKIP
    {'lif1': 5120, 'lif2': 803}
    """
    if isinstance(model, str | Path) and is_graph(model):
        model = read(model)
    plain = {key: value for key, value in options.items() if value} in ({}, {"runtime": "builtin"})
    if isinstance(model, Graph) or not plain:
        recording = run(model, frames, bin=bin, chip=chip, **options)
        recording.save(out)
        return summary(recording)
    chip, program = load_program(model, chip)
    contract, shape = program.contract, program.input_shape
    steps = max(1, PIECE // prod(shape))
    pieces = frame_pieces(frames, bin or contract.dt, shape, contract.sensor, steps)
    nothing = np.zeros((0, *shape), np.float32)
    silence = with_trailing_silence(nothing, program)
    session = backend_of(chip).session(program)
    after = (session(silence) for _ in range(len(silence) > 0))
    return write_pieces(out, map(session, pieces), program.outputs, contract, after)


@dataclass(frozen=True)
class ClipResult:
    """What became of one clip of many."""

    clip: str
    label: Label | None
    classes: dict[str, int | None]  # of every output, where the contract reads classes
    steps: int
    spikes: int
    recording: Path | None = None  # where it was kept


def run_many(
    model: Graph | Program | PathLike,
    clips: PathLike | Iterable[ClipSource],
    *,
    out: PathLike | None = None,
    labels: Sequence[Label] | PathLike | None = None,
    jobs: int = 1,
    bin: float | None = None,
    **options: Any,
) -> Iterator[ClipResult]:
    """Clips through a graph or a program one by one, in `jobs` processes; `out` is a folder for recordings.

    `options` are those of `run`.

    >>> [ran.classes for ran in run_many(read("model.nir"), ["clips/"], jobs=2)]  # doctest: +SKIP
    [{'lif2': 3}, {'lif2': 0}, {'lif2': 1}]
    """
    from joblib import delayed  # slow to load

    from nrf.parallel import parallel

    if isinstance(model, str | Path):
        model = read(model) if is_graph(model) else load_program(model, options.get("chip"))[1]
    samples = samples_for(model, clips, bin, labels)
    folder = None if out is None else make_folder(out)
    work = (delayed(_run_one)(model, sample, n, folder, options) for n, sample in enumerate(samples))
    yield from parallel(jobs, return_as="generator")(work)


def _run_one(
    model: Graph | Program, sample: Sample, number: int, folder: Path | None, options: dict[str, Any]
) -> ClipResult:
    recording = run(model, sample.frames, **options)
    path = None if folder is None else folder / f"{number:05}.npz"
    if path is not None:
        recording.save(path)
    spikes = sum(events.count for events in recording.spikes.values())
    return ClipResult(sample.name, sample.label, recording.decisions, recording.steps, spikes, path)


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

    def advance(frames: NDArray[Any]) -> list[NDArray[Any]]:
        piece = session(stage.applied(frames) if stage else frames)
        return [piece.maps(output, contract) for output in loaded.outputs]

    return stream_readings(advance, events, contract.dt, contract.readout, every=every, realtime=realtime)
