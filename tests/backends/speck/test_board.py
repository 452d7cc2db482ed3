"""The way to the board: the same configuration as Sinabs', and the device code against a FAKE board."""

import importlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from nrf.backends.border import Spikes
from nrf.backends.speck import BACKEND, asynchronous
from nrf.backends.speck.chip_config import chip_config, write_chip_config
from nrf.backends.speck.program import Core, Source, SpeckProgram
from nrf.backends.speck.run import WORKER
from nrf.backends.vendors.environment import python_of
from nrf.errors import InputError
from nrf.export.contract import Contract

from .programs import BITS, run

runtime = importlib.import_module("nrf.backends.speck.run")
HERE = Path(__file__).parent


def branched() -> SpeckProgram:
    """input -> a -> b, and a and b -> c: fan-out of two, fan-in of two, pooling on every way."""
    rng = np.random.default_rng(3)

    def core(
        node: str, place: int, sources: tuple[Source, ...], before: int, after: int, kernel: int
    ) -> Core:
        return Core(
            node=node, core=place, sources=sources, input_shape=(2, before, before), shape=(2, after, after),
            node_shape=(2, after, after), stride=(1, 1), padding=(kernel // 2, kernel // 2),
            threshold=150 + place, floor=-100, zero_reset=node == "b",
            weight=rng.integers(-60, 127, (2, 2, kernel, kernel), np.int8),
            bias=np.zeros(2, np.int8), volts=np.full(2, 0.01),
        )  # fmt: skip

    return SpeckProgram(
        "speck2f",
        Contract(dt=1e-3, reset="subtract", fire="ge"),
        BITS,
        (2, 16, 16),
        (
            core("a", 4, (Source("input", 2),), 8, 8, 3),
            core("b", 0, (Source("a", 1),), 8, 8, 5),
            core("c", 7, (Source("a", 2), Source("b", 2)), 4, 4, 3),
        ),
        "c",
    )


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict:  # type: ignore[type-arg]
    """What Sinabs and the fake board say to the branched program."""
    folder = tmp_path_factory.mktemp("chip")
    branched().save(folder / "program.npz")
    np.savez(folder / "frames.npz", frames=stimulus())
    python = python_of("sinabs")
    files = [folder / "program.npz", folder / "frames.npz", folder / "answer.json"]
    command = [str(python), "-I", str(HERE / "on_fake_chip.py"), str(WORKER.parent), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(files[2].read_text()))


def stimulus() -> np.ndarray:  # type: ignore[type-arg]
    rng = np.random.default_rng(0)
    return (rng.random((8, 2, 16, 16)) < 0.1) * rng.integers(1, 3, (8, 2, 16, 16))


@pytest.mark.needs_vendor("sinabs")
def test_configuration_is_the_one_that_sinabs_computes(answer: dict) -> None:  # type: ignore[type-arg]
    for ours in chip_config(branched())["cores"]:
        theirs = answer["configs"][str(ours["core"])]
        for key in set(theirs) - {"monitor_enable"}:  # Sinabs sets it later, per deployment
            assert ours[key] == theirs[key], key


@pytest.mark.needs_vendor("sinabs")
def test_device_code_gets_the_spikes_of_the_fake_board(answer: dict) -> None:  # type: ignore[type-arg]
    program, frames = branched(), stimulus()
    state = asynchronous.new_state(program)
    ours = asynchronous.simulate(program, Spikes.from_dense(frames), len(frames), None, state)
    assert answer["device"] == "chip"
    for core in program.cores:
        found = ours.spikes[core.node].dense(len(frames), core.shape)
        assert found.sum() > 20, "the test must see spikes"
        assert np.array_equal(found, np.array(answer["spikes"][core.node])), core.node
    first, second = answer["details"]["totals"]
    assert first == second, "states are reset between repeats"


def test_configuration_file_is_plain_json(tmp_path: Path) -> None:
    write_chip_config(branched(), tmp_path / "chip.json")
    config = json.loads((tmp_path / "chip.json").read_text())
    assert config["sensor"] == {"pooling": 2, "destinations": [4]}
    assert config["output"] == {"core": 7, "node": "c"}


def script(folder: Path, text: str) -> str:
    """An executable that stands in for a Python."""
    path = folder / "python"
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    "text",
    ["#!/bin/sh\nexit 1\n", "#!/bin/sh\nexit 0\n", "#!/bin/sh\nexec sleep 20\n", "no program at all\0"],
)
def test_a_python_that_cannot_answer_is_no_sign_of_a_chip(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NRF_SINABS_PYTHON", script(tmp_path, text))
    monkeypatch.setattr(runtime, "PROBE_SECONDS", 0.5)
    runtime.chip_absent.cache_clear()
    try:
        reason = runtime.chip_absent()
    finally:
        runtime.chip_absent.cache_clear()
    assert reason is not None
    assert "could not look for samna" in reason.reason
    assert "\n" not in str(reason)


def test_with_a_real_samna_nothing_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake one is real enough here: it is found, never imported, and has not the words of the stub."""
    monkeypatch.setenv("NRF_SINABS_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(HERE / "fake_samna"))
    runtime.chip_absent.cache_clear()
    try:
        assert runtime.chip_absent() is None
    finally:
        runtime.chip_absent.cache_clear()


@pytest.mark.needs_vendor("sinabs")
def test_without_the_real_samna_one_line_says_so() -> None:
    absent = BACKEND.runtimes["speck"].absent()
    assert absent is None or ("samna" in absent.reason and "\n" not in absent.reason)


def test_the_board_refuses_widths_that_are_not_its_own() -> None:
    narrow = replace(branched(), bits=msgspec.structs.replace(BITS, weight=4))
    with pytest.raises(InputError, match="4-bit weights, 8-bit biases and 16-bit states, the board has 8, 8"):
        run(narrow, stimulus(), "speck")
