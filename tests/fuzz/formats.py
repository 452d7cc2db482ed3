"""Every format that a stranger may hand us: seeds, mutations, and all that a command does with a file.

What a format needs is imported where it is used: a process that holds less is forked faster.
"""

import io
import shutil
import sys
import zlib
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import nrf
from nrf.errors import InputError
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
    from nrf.backends.conformance.clips import made_clips
    from nrf.findings import errors

    graph = nrf.read(path, dt=1e-3)
    repr(graph)
    shape = graph.shapes[graph.input]
    nrf.run(graph, np.ones((3, *shape), np.float32))
    lowers = zlib.crc32(path.read_bytes()) % 8 == 0  # which takes its time
    for chip in ("loihi2", "speck2f"):
        if not errors(nrf.check(graph, chip)) and lowers:
            nrf.lower(graph, chip, calibrate=[np.ones((4, *shape), np.float32)])
    made_clips(graph, 1)


def _program(path: Path) -> None:
    """Load, run on what is built in, write in the other formats."""
    from nrf.api.files import load_program
    from nrf.backends.border import RunOptions, backend_of

    chip, program = load_program(path)
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
    from nrf.backends.border.recording import Recording

    recording = Recording.load(path)
    repr(recording), recording._repr_html_()
    for node in recording.spikes:
        recording.latency(node)
        with suppress(InputError):  # too many to be counted out
            recording.dense(node)
    assert recording == recording or recording.membranes  # which may be no numbers
    recording.save(path.with_name("out.npz"))


def _events(path: Path) -> None:
    from nrf import events

    events.load_frames(path, 1e-3, (2, *events.read(path).sensor))


def _frames(path: Path) -> None:
    from nrf.events import load_frames

    load_frames(path, 1e-3, (2, 8, 8))
    _events(path)


def _chip(path: Path) -> None:
    """Its rules on two graphs, and a program for it."""
    from nrf.findings import errors

    chip = nrf.load_chip(str(path))
    repr(chip)
    for graph in _graphs():
        if not errors(nrf.check(graph, chip)):
            frames = np.ones((4, *graph.shapes[graph.input]), np.float32)
            nrf.run(nrf.lower(graph, chip, calibrate=[frames]), frames, chip=chip)


@cache
def _graphs() -> list[Any]:
    return [nrf.read(SEEDS / name) for name in ("maps.nir", "speck.nir")]


def _preset(path: Path) -> None:
    from nrf.training.config import read_config

    read_config(path)


def _dataset(path: Path) -> None:
    """A folder with this description and a good clip."""
    from nrf.events.dataset import read_clip, read_description

    folder = path.parent / "dataset"
    (folder / "clips").mkdir(parents=True, exist_ok=True)
    shutil.copy(SEEDS / "clip.npz", folder / "clips" / "000000.npz")
    shutil.copy(path, folder / "dataset.json")
    read_clip(folder, read_description(folder), 0).frames()


def _clip(path: Path) -> None:
    """A clip of a good dataset."""
    from nrf.events.dataset import read_clip, read_description

    folder = path.parent / "clips"
    folder.mkdir(exist_ok=True)
    shutil.copy(SEEDS / "dataset.json", path.parent / "dataset.json")
    shutil.copy(path, folder / "000000.npz")
    read_clip(path.parent, read_description(path.parent), 0).frames()


def _golden(path: Path) -> None:
    from nrf.backends.conformance import golden

    graph = _graphs()[0]
    golden.compare(graph, golden.read_golden(path, graph))


def _labels(path: Path) -> None:
    from nrf.events.clips import read_labels

    read_labels(path)


def _case(path: Path) -> None:
    """A folder with this description, a good graph and good frames."""
    from nrf.backends.conformance.cases import read_case

    folder = path.parent / "of_a_stranger"
    folder.mkdir()
    shutil.copy(path, folder / "case.json")
    shutil.copy(SEEDS / "maps.nir", folder / "model.nir")
    np.savez(folder / "input.npz", frames=np.ones((3, 2, 8, 8), np.float32))
    read_case(folder)


def _checkpoint(path: Path) -> None:
    from nrf.export.trained import from_checkpoint
    from nrf.training import checkpoint

    from_checkpoint(path)
    checkpoint.read(path).network()


def _call(path: Path) -> None:
    """A command line, or a call of a function of `nrf` by its keywords; a wrong one is refused."""
    from nrf.containers import parse_json
    from nrf.files import read_text

    def meant(value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("SEEDS/", f"{SEEDS}/").replace("HERE/", f"{path.parent}/")
        return [meant(inner) for inner in value] if isinstance(value, list) else value

    try:
        call = parse_json(read_text(path))
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
    try:
        with chdir(path.parent):  # what a wrong call writes goes with the case
            if isinstance(call, list):
                _command([str(meant(word)) for word in call])
            elif isinstance(call, dict) and isinstance(call.get("given"), dict):
                given = {key: meant(value) for key, value in call["given"].items()}
                if given.get("graph") == "READ":
                    given["graph"] = _graphs()[0]
                function = getattr(nrf, str(call.get("call")), None)
                if callable(function):
                    function(**given)
    except InputError as error:
        raise InputError(f"{path.name}: {error}") from error


def _command(words: list[str]) -> None:
    """What `nrf` does with these words: it ends well, or with code 2 and a few lines without a traceback."""
    import nrf.cli

    said = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(said), patch.object(sys, "argv", ["nrf", *words]):
        try:
            nrf.cli.main()
        except SystemExit as end:
            if end.code not in (0, 1, 3, None):  # conform: fail, no verdict
                text = said.getvalue()
                assert end.code == 2 and "Traceback" not in text and text.strip(), (end.code, text[-300:])
                raise InputError(" ".join(text.split())[-400:]) from end


def _checksummed(chip: str, header: Any, arrays: mutate.Arrays) -> Any:
    """A program's header with the checksum of what is in it now, so that only the content can be wrong."""
    from nrf.backends.border.program import checksum, unpack
    from nrf.backends.loihi.program import LoihiProgram
    from nrf.backends.speck.program import SpeckProgram

    kind = {"loihi2": LoihiProgram, "speck2f": SpeckProgram}[chip]
    try:
        header["checksum"] = checksum(unpack(kind, header["program"], arrays))
    except Exception:  # it is no program any more: the reader's turn to say so
        return header
    return header


def _program_mutation(chip: str) -> Mutate:
    return partial(mutate.mutated_npz, finish=partial(_checksummed, chip))


def _seeds(*names: str) -> tuple[Path, ...]:
    return tuple(SEEDS / name for name in names)


def _data(folder: str, *names: str) -> tuple[Path, ...]:
    return tuple(Path(__file__).parents[2] / folder / name for name in names)


FORMATS: dict[str, Format] = {
    "nir": Format(
        _seeds("maps.nir", "loop.nir", "speck.nir", "nested.nir", "trained.nir"), mutate.mutated_hdf5, _graph
    ),
    "loihi2": Format(_seeds("maps.loihi2", "loop.loihi2"), _program_mutation("loihi2"), _program),
    "speck2f": Format(_seeds("speck.speck2f"), _program_mutation("speck2f"), _program),
    "recording": Format(_seeds("recording.npz"), mutate.mutated_npz, _recording),
    "h5": Format(_seeds("events.h5", "compound.h5"), mutate.mutated_hdf5, _events),
    "raw": Format(_seeds("events.raw", "evt3.raw"), mutate.words_swapped, _events),
    "dat": Format(_seeds("events.dat"), mutate.words_swapped, _events),
    "aedat4": Format(_seeds("events.aedat4", "plain.aedat4"), mutate.damaged, _events),
    "npz": Format(_seeds("events.npz"), mutate.mutated_npz, _frames),
    "csv": Format(_seeds("events.csv"), mutate.words_swapped, _events),
    "chip": Format(_data("hw_configs", "loihi2.toml", "speck2f.toml"), mutate.mutated_toml, _chip),
    "preset": Format(_data("nrf/training/presets", "tiny.toml", "paper.toml"), mutate.mutated_toml, _preset),
    "dataset": Format(_seeds("dataset.json"), mutate.mutated_json, _dataset),
    "clip": Format(_seeds("clip.npz"), mutate.mutated_npz, _clip),
    "golden": Format(_seeds("golden.npz"), mutate.mutated_npz, _golden),
    "nirdata": Format(_seeds("golden.nir"), mutate.mutated_hdf5, _golden),
    "labels": Format(_seeds("labels.csv", "labels.npz", "labels.npy"), mutate.mutated_labels, _labels),
    "case": Format(_seeds("case.json"), mutate.mutated_json, _case),
    "call": Format(tuple(sorted((SEEDS / "calls").iterdir())), mutate.mutated_json, _call),
    "checkpoint": Format(_seeds("tiny.safetensors"), mutate.mutated_safetensors, _checkpoint),
}
