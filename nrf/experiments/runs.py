"""Training runs, each kept when it is finished: one line of JSON in a file, found by its configuration.

The file is only ever appended to, by one process. A run that was killed left no line, or half of one at the
end, which is dropped. Copy the file, and the runs come along: the one in the repository is such a copy.
"""

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
from msgspec import structs
from numpy.typing import NDArray

from nrf.config import Section, from_table, to_table
from nrf.errors import InputError
from nrf.events.dataset import DatasetConfig
from nrf.experiments.design import Run, Size, configuration
from nrf.files import atomic_write, cache_folder, make_folder
from nrf.model.network import Network, build
from nrf.training.batches import LabelledClip, centre_error
from nrf.training.config import Config
from nrf.training.evaluation import evaluate
from nrf.training.log import Row
from nrf.training.loop import Machine, train

VERSION = 1
DATA_SEED = 7  # the clips are the same for all runs; seeds decide weights and order


class Result(Section, frozen=True):
    """What is kept of a run."""

    run: Run
    key: str  # of the whole configuration
    centre: float  # pixels: what guessing the centre gets on the validation clips
    curve: tuple[tuple[int, float], ...]  # steps of the optimiser, pixels on the validation clips
    error: float | None  # pixels on the test clips, after the last step; tuning never opens them
    by_condition: tuple[tuple[float, float], ...]  # scale or velocity, pixels on the test clips of it
    # steps, of every channel and the readout: at the start, then as in the curve
    taus: tuple[tuple[float, ...], ...]
    firing: float  # spikes per neuron and step, on the validation clips
    cpu_seconds: float
    seconds: float

    @property
    def validation(self) -> float:
        """Pixels on the validation clips after the last step."""
        return self.curve[-1][1]


def key_of(config: Section) -> str:
    """16 hex digits over all values that are not defaults; a field that is added later leaves results valid.

    Whoever changes a default, or what training computes, counts VERSION up.
    """
    table = {"version": VERSION, "clips": DATA_SEED, **_without_defaults(config), "name": ""}
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:16]


def _without_defaults(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_without_defaults(item) for item in value]
    if not isinstance(value, Section):
        return value
    pairs = [(field, getattr(value, field.name)) for field in structs.fields(value)]
    return {field.name: _without_defaults(given) for field, given in pairs if given != field.default}


class Store:
    """Finished runs on disk, by key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results: dict[str, Result] = {}
        if path.exists():
            lines = path.read_bytes().split(b"\n")
            for number, line in enumerate(lines[:-1], 1):  # what follows the last line break is half a line
                try:
                    table = json.loads(line)
                except ValueError as error:
                    raise InputError(
                        f"{path}: line {number} is not JSON ({error}); delete that line"
                    ) from error
                result = from_table(Result, table, f"{path}: line {number}")
                self.results[result.key] = result
            if lines[-1]:
                with atomic_write(path) as part:
                    part.write_bytes(b"\n".join(lines[:-1]) + b"\n" if len(lines) > 1 else b"")

    def add(self, result: Result) -> None:
        """Keep a run; it is on the disk when this returns."""
        self.results[result.key] = result
        with self.path.open("ab") as file:
            file.write(json.dumps(to_table(result), separators=(",", ":")).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


class Clips(NamedTuple):
    """Labelled clips in two arrays on disk, which processes share."""

    frames: NDArray[np.uint8]  # (clips, T, 2, H, W)
    coordinates: NDArray[np.float32]  # (clips, T, shapes, 2)

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: Any, /) -> LabelledClip:  # type: ignore[override]
        return self.frames[index], self.coordinates[index]


def prepared_clips(config: Config) -> Clips:
    """All clips of a configuration from the cache folder, made if they are not there."""
    count = config.data.clips + config.data.test
    source = DatasetConfig("experiments", count, DATA_SEED, config.data.shapes)
    folder = make_folder(cache_folder() / "experiments")
    paths = [folder / f"{key_of(source)}.{part}.npy" for part in ("frames", "coordinates")]
    if not all(path.exists() for path in paths):
        shapes = config.data.shapes
        side = shapes.resolution
        with atomic_write(paths[0]) as first, atomic_write(paths[1]) as second:  # 18 GB at the paper's size
            frames = np.lib.format.open_memmap(first, "w+", np.uint8, (count, shapes.steps, 2, side, side))
            truth = (count, shapes.steps, len(shapes.shapes), 2)
            coordinates = np.lib.format.open_memmap(second, "w+", np.float32, truth)
            for index in range(count):
                clip = source.clip(index)
                frames[index], coordinates[index] = clip.frames(np.uint8), clip.coordinates
            frames.flush()
            coordinates.flush()
    return Clips(*(np.load(path, mmap_mode="r") for path in paths))


def execute(run: Run, size: Size, device: str = "auto") -> Result:
    """Train and measure; everything that comes out of it is in the result."""
    torch.set_num_threads(1)  # a run per core is faster than all cores on one run
    config = configuration(run, size)
    clips, machine = prepared_clips(config), from_table(Machine, {"device": device}, "nrf reproduce")
    started, cpu = time.monotonic(), time.process_time()
    rows: list[Row] = []
    networks = [build(config.network, config.seed)]
    taus = [_time_constants(networks[0])]

    def watch(step: int, network: Network) -> None:
        networks[0] = network
        taus.append(_time_constants(network))

    with tempfile.TemporaryDirectory() as folder:
        train(config, folder, machine=machine, data=clips, report=rows.append, watch=watch)
    first, by_condition = config.data.clips, []
    if not run.tuning:
        shapes, fabric = config.data.shapes, Fabric(accelerator=device, devices=1)
        values = shapes.scales if run.arm.dataset == "spatial" else shapes.velocities
        for index, value in enumerate(values):  # clips take turns in them
            numbers = [n for n in range(first, len(clips)) if n % len(values) == index]
            error = evaluate(networks[0], clips, numbers, config.training, fabric)[0]
            by_condition.append((value, round(error, 4)))
    held_out = range(first - round(first * config.data.validation), first)
    return Result(
        run,
        key_of(config),
        round(centre_error(clips, held_out, config), 4),
        tuple((row.step, round(row.held_out, 4)) for row in rows if row.held_out is not None),
        round(float(np.mean([error for _, error in by_condition])), 4) if by_condition else None,
        tuple(by_condition),
        tuple(taus),
        round(rows[-1].firing, 5),
        round(time.process_time() - cpu, 1),
        round(time.monotonic() - started, 1),
    )


def run_missing(
    runs: Sequence[Run], size: Size, store: Store, jobs: int = 1, device: str = "auto"
) -> Iterator[tuple[Result, bool]]:
    """The results of some runs: those in the store at once, the others (True) as they are finished.

    Work goes through joblib: `with joblib.parallel_config("dask")` around this takes it to a cluster.
    """
    from joblib import delayed

    from nrf.parallel import parallel

    missing = []
    for run in runs:
        if result := store.results.get(key_of(configuration(run, size))):
            yield result, False
        else:
            missing.append(run)
    work = parallel(jobs, return_as="generator_unordered", pre_dispatch="n_jobs + 1")
    for result in work(delayed(execute)(run, size, device) for run in missing):
        store.add(result)
        yield result, True


@contextmanager
def on_cluster(address: str | None) -> Iterator[None]:
    """Inside, joblib's work goes to the Dask scheduler at this address; stays here if there is none."""
    if address is None:
        yield
        return
    import joblib

    try:
        from distributed import Client
    except ImportError:
        raise InputError("a cluster needs dask; pip install distributed") from None
    try:
        client = Client(address, timeout=10)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise InputError(f"no Dask scheduler answers at '{address}' ({error}); start one first") from error
    with client, joblib.parallel_config("dask"):
        yield


def _time_constants(network: Network) -> tuple[float, ...]:
    """In steps: of block 1 in every channel, then of the readout; empty where nothing is learned."""
    taus = network.body.time_constants()
    channels = [float(tau.mean()) for name, tau in taus.items() if name.startswith(("li1", "lif1"))]
    return tuple(round(tau, 4) for tau in [*channels, float(taus["out"].mean())]) if channels else ()
