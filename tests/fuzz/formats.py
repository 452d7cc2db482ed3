"""Every format that a stranger may hand us: seeds, mutations, and all that a command does with a file."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

import nrf
from nrf import api
from nrf.backends.border import Recording, RunOptions, backend_of
from nrf.backends.border.program import checksum, unpack
from nrf.backends.conformance.golden import compare as compare_golden
from nrf.backends.conformance.golden import read_golden
from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.speck.program import SpeckProgram
from nrf.errors import InputError
from nrf.events import load_frames
from nrf.events import read as read_events
from nrf.events.dataset import read_clip, read_description
from nrf.export import read_graph
from nrf.export.trained import from_checkpoint
from nrf.findings import errors
from nrf.training import checkpoint
from nrf.training.config import read_config
from tests.fuzz import mutate
from tests.fuzz.mutate import Rng

SEEDS = Path(__file__).parent / "seeds"
Mutate = Callable[[Rng, bytes], bytes]


@dataclass(frozen=True)
class Format:
    """A kind of file."""

    seeds: tuple[Path, ...]
    structure: Mutate  # a mutation that knows the format
    use: Callable[[Path], object]

    def make(self, rng: Rng) -> tuple[bytes, str]:
        """A mutated file and its ending."""
        seed = mutate.pick(rng, self.seeds)
        data = seed.read_bytes()
        known = rng.random()
        if known < 0.6:
            try:
                data = self.structure(rng, data)
            except Exception:  # a library refuses to write what was asked for
                known = 1.0
        if known > 0.5:
            data = mutate.damaged(rng, data)
        return data, seed.suffix


def _graph(path: Path) -> None:
    """Read under its own contract or with a dt, draw, check, run and lower for both chips."""
    graph = read_graph(path, dt=1e-3)
    repr(graph)
    shape = graph.shapes[graph.input]
    nrf.run(graph, np.ones((3, *shape), np.float32))
    for chip in ("loihi2", "speck2f"):
        if not errors(nrf.check(graph, chip)) and path.stat().st_size % 3 == 0:  # lowering takes its time
            nrf.lower(graph, chip, calibrate=[np.ones((4, *shape), np.float32)])


def _program(path: Path) -> None:
    """Load, run on what is built in, write in the other formats."""
    chip, program = api.load_program(path)
    frames = np.ones((4, *program.input_shape), np.float32)
    backend = backend_of(chip)
    runtimes = [name for name in ("builtin", "asynchronous") if name in backend.runtimes]
    for name in runtimes:
        recording = backend.run(program, frames, name, RunOptions())
        recording.save(path.with_name("out.npz"))
    for write in backend.formats.values():
        try:
            write(program, path.with_name("other"))
        except InputError:
            continue


def _recording(path: Path) -> None:
    recording = nrf.load(path)
    assert isinstance(recording, Recording)
    repr(recording), recording._repr_html_()
    for node in recording.spikes:
        recording.dense(node), recording.latency(node)
    assert recording == recording or recording.membranes  # which may be no numbers
    recording.save(path.with_name("out.npz"))


def _events(path: Path) -> None:
    load_frames(path, 1e-3, (2, *read_events(path).sensor))


def _frames(path: Path) -> None:
    load_frames(path, 1e-3, (2, 8, 8))
    _events(path)


def _chip(path: Path) -> None:
    """Its rules on two graphs, and a program for it."""
    chip = nrf.load_chip(str(path))
    repr(chip)
    for graph in _graphs():
        if not errors(nrf.check(graph, chip)):
            frames = np.ones((4, *graph.shapes[graph.input]), np.float32)
            nrf.run(nrf.lower(graph, chip, calibrate=[frames]), frames, chip=chip)


@cache
def _graphs() -> list[Any]:
    return [read_graph(SEEDS / name) for name in ("maps.nir", "speck.nir")]


def _preset(path: Path) -> None:
    read_config(path)


def _dataset(path: Path) -> None:
    """A folder with this description and a good clip."""
    folder = path.parent / "dataset"
    (folder / "clips").mkdir(parents=True, exist_ok=True)
    shutil.copy(SEEDS / "clip.npz", folder / "clips" / "000000.npz")
    shutil.copy(path, folder / "dataset.json")
    read_clip(folder, read_description(folder), 0).frames()


def _clip(path: Path) -> None:
    """A clip of a good dataset."""
    folder = path.parent / "clips"
    folder.mkdir(exist_ok=True)
    shutil.copy(SEEDS / "dataset.json", path.parent / "dataset.json")
    shutil.copy(path, folder / "000000.npz")
    read_clip(path.parent, read_description(path.parent), 0).frames()


def _golden(path: Path) -> None:
    graph = _graphs()[0]
    compare_golden(graph, read_golden(path, graph))


def _checkpoint(path: Path) -> None:
    from_checkpoint(path)
    checkpoint.read(path).network()


def _checksummed(kind: type, header: Any, arrays: mutate.Arrays) -> Any:
    """A program's header with the checksum of what is in it now, so that only the content can be wrong."""
    try:
        header["checksum"] = checksum(unpack(kind, header["program"], arrays))
    except Exception:  # it is no program any more: the reader's turn to say so
        return header
    return header


def _program_mutation(kind: type) -> Mutate:
    return partial(mutate.mutated_npz, finish=partial(_checksummed, kind))


def _seeds(*names: str) -> tuple[Path, ...]:
    return tuple(SEEDS / name for name in names)


def _data(package: str, *names: str) -> tuple[Path, ...]:
    return tuple(Path(str(resources.files(package) / name)) for name in names)


FORMATS: dict[str, Format] = {
    "nir": Format(_seeds("maps.nir", "loop.nir", "speck.nir", "nested.nir"), mutate.mutated_hdf5, _graph),
    "loihi2": Format(_seeds("maps.loihi2", "loop.loihi2"), _program_mutation(LoihiProgram), _program),
    "speck2f": Format(_seeds("speck.speck2f"), _program_mutation(SpeckProgram), _program),
    "recording": Format(_seeds("recording.npz"), mutate.mutated_npz, _recording),
    "h5": Format(_seeds("events.h5", "compound.h5"), mutate.mutated_hdf5, _events),
    "raw": Format(_seeds("events.raw", "evt3.raw"), mutate.words_swapped, _events),
    "dat": Format(_seeds("events.dat"), mutate.words_swapped, _events),
    "aedat4": Format(_seeds("events.aedat4", "plain.aedat4"), mutate.damaged, _events),
    "npz": Format(_seeds("events.npz"), mutate.mutated_npz, _frames),
    "csv": Format(_seeds("events.csv"), mutate.words_swapped, _events),
    "chip": Format(_data("nrf.hw_configs", "loihi2.toml", "speck2f.toml"), mutate.mutated_toml, _chip),
    "preset": Format(_data("nrf.training.presets", "tiny.toml", "paper.toml"), mutate.mutated_toml, _preset),
    "dataset": Format(_seeds("dataset.json"), mutate.mutated_json, _dataset),
    "clip": Format(_seeds("clip.npz"), mutate.mutated_npz, _clip),
    "golden": Format(_seeds("golden.npz"), mutate.mutated_npz, _golden),
    "nirdata": Format(_seeds("golden.nir"), mutate.mutated_hdf5, _golden),
    "checkpoint": Format(_seeds("tiny.safetensors"), mutate.mutated_safetensors, _checkpoint),
}
