"""The way to the board: the same configuration as Sinabs', and the device code against a FAKE board."""

import importlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import nir
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

from .graphs import chain, convolution, integrate_and_fire, lower
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


def on_fake_board(program: SpeckProgram, frames: np.ndarray, folder: Path) -> dict:  # type: ignore[type-arg]
    """What Sinabs and the fake board say to a program."""
    files = [folder / name for name in ("program.npz", "frames.npz", "answer.json", "config.json")]
    program.save(files[0])
    np.savez(files[1], frames=frames)
    write_chip_config(program, files[3])
    script = str(HERE / "on_fake_chip.py")
    command = [str(python_of("sinabs")), "-I", script, str(WORKER.parent), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(files[2].read_text()))


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict:  # type: ignore[type-arg]
    """What Sinabs and the fake board say to the branched program."""
    return on_fake_board(branched(), stimulus(), tmp_path_factory.mktemp("chip"))


def stimulus() -> np.ndarray:  # type: ignore[type-arg]
    rng = np.random.default_rng(0)
    return (rng.random((8, 2, 16, 16)) < 0.1) * rng.integers(1, 3, (8, 2, 16, 16))


@pytest.mark.needs_vendor("sinabs")
def test_configuration_is_the_one_that_sinabs_computes(answer: dict) -> None:  # type: ignore[type-arg]
    for ours in chip_config(branched())["cores"]:
        theirs = answer["configs"][str(ours["core"])]
        for key in set(theirs) - {"monitor_enable"}:  # Sinabs sets it later, per deployment
            assert ours[key] == theirs[key], key


def demand_spikes(program: SpeckProgram, frames: np.ndarray, answer: dict) -> None:  # type: ignore[type-arg]
    """Those of the asynchronous simulator with events in their order."""
    state = asynchronous.new_state(program)
    ours = asynchronous.simulate(program, Spikes.from_dense(frames), len(frames), None, state)
    for core in program.cores:
        found = ours.spikes[core.node].dense(len(frames), core.node_shape)
        assert found.sum() > 20, "the test must see spikes"
        assert np.array_equal(found, np.array(answer["spikes"][core.node])), core.node


@pytest.mark.needs_vendor("sinabs")
def test_device_code_gets_the_spikes_of_the_fake_board(answer: dict) -> None:  # type: ignore[type-arg]
    assert answer["device"] == "chip"
    demand_spikes(branched(), stimulus(), answer)
    first, second = answer["details"]["totals"]
    assert first == second, "states are reset between repeats"


@pytest.mark.needs_vendor("sinabs")
def test_device_code_does_not_exchange_layers_of_equal_kernels_and_takes_skips(tmp_path: Path) -> None:
    """The input feeds two cores with the same kernel, and both feed two others."""
    a, b, c = branched().cores
    b = replace(b, sources=(Source("input", 2),), weight=a.weight, padding=a.padding)
    c = replace(c, sources=(Source("a", 2), Source("b", 2)))
    d = replace(b, node="d", core=2, sources=(Source("a"), Source("b")), threshold=90)
    program = replace(branched(), cores=(a, b, c, d))
    demand_spikes(program, stimulus(), on_fake_board(program, stimulus(), tmp_path))


@pytest.mark.needs_vendor("sinabs")
def test_device_code_crops_maps_of_kernels_that_were_padded_to_a_square(tmp_path: Path) -> None:
    """Kernels of 1x2 and 2x3: the square one would give a line too many, and its neurons would fire."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:  # type: ignore[type-arg]
        return rng.integers(10, 40, shape) / 64

    nodes = {
        "input": nir.Input(np.array([2, 8, 8])),
        "a": convolution(weights(2, 2, 1, 2), (8, 8)),
        "if1": integrate_and_fire((2, 8, 7)),
        "b": convolution(weights(3, 2, 2, 3), (8, 7)),
        "if2": integrate_and_fire((3, 7, 5)),
        "flat": nir.Flatten({"input": np.array([3, 7, 5])}, 0, -1),
        "linear": nir.Affine(weights(4, 105), np.zeros(4)),
        "if3": integrate_and_fire((4,)),
        "output": nir.Output(np.array([4])),
    }
    program = lower(chain(nodes))
    frames = stimulus()[:, :, :8, :8]
    demand_spikes(program, frames, on_fake_board(program, frames, tmp_path))


def test_configuration_file_is_plain_json(tmp_path: Path) -> None:
    write_chip_config(branched(), tmp_path / "chip.json")
    config = json.loads((tmp_path / "chip.json").read_text())
    assert config["sensor"] == {"pooling": 2, "destinations": [4]}
    assert config["outputs"] == [{"core": 7, "node": "c"}]


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
