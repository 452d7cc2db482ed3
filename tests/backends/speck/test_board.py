"""The way to the board: the same configuration as Sinabs', and the device code against a FAKE board."""

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import nir
import numpy as np
import pytest

from nrf.backends.speck import BACKEND
from nrf.backends.speck.chip_config import chip_config, write_chip_config
from nrf.backends.speck.program import PooledSource, Population, SpeckProgram
from nrf.errors import InputError
from nrf.events.sensor import Sensor
from nrf.export.contract import Contract

from .fake_board import Ask, differences, fake_board, play_random
from .graphs import CHIP, chain, convolution, integrate_and_fire, lower, pool
from .programs import BITS, run, single

runtime = importlib.import_module("nrf.backends.speck.run")
HERE = Path(__file__).parent


def branched() -> SpeckProgram:
    """input -> a -> b, and a and b -> c: fan-out of two, fan-in of two, pooling on every way."""
    rng = np.random.default_rng(3)

    def population(
        node: str, place: int, sources: tuple[PooledSource, ...], before: int, after: int, kernel: int
    ) -> Population:
        return Population(
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
            population("a", 4, (PooledSource("input", 2),), 8, 8, 3),
            population("b", 0, (PooledSource("a", 1),), 8, 8, 5),
            population("c", 7, (PooledSource("a", 2), PooledSource("b", 2)), 4, 4, 3),
        ),
        ("c",),
    )


@pytest.fixture(scope="module")
def board() -> Iterator[Ask]:
    """A process that holds the fake board."""
    with fake_board() as ask:
        yield ask


def stimulus() -> np.ndarray:  # type: ignore[type-arg]
    rng = np.random.default_rng(0)
    return (rng.random((8, 2, 16, 16)) < 0.1) * rng.integers(1, 3, (8, 2, 16, 16))


def demand_spikes(program: SpeckProgram, frames: np.ndarray, board: Ask) -> dict:  # type: ignore[type-arg]
    """Those of the asynchronous simulator."""
    answer = board(program, frames, seed=5)
    assert not any(differences(program, frames, answer, seed=5).values())
    totals = answer["details"]["totals"][-1]
    assert min(totals.values()) > 20, "the test must see spikes"
    return answer


@pytest.mark.needs_vendor("sinabs")
def test_configuration_is_the_one_that_sinabs_computes(board: Ask) -> None:
    answer = board(branched(), stimulus(), trace=True)
    for ours in chip_config(branched())["cores"]:
        theirs = answer["configs"][str(ours["core"])]
        for key in set(theirs) - {"monitor_enable"}:  # Sinabs sets it later, per deployment
            assert ours[key] == theirs[key], key


@pytest.mark.needs_vendor("sinabs")
@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("flip", ["", "x", "y", "xy"])
def test_the_sensor_stage_is_that_of_sinabs(board: Ask, merge: bool, flip: str) -> None:
    """Polarities merged, pooled by 2, cut out, mirrored: the configuration, and what it does to frames."""
    text = "16x20" + ",merge" * merge + ",crop=2:14:4:20" + f",flip={flip}" * bool(flip)
    shape = Sensor.parse(text).shape
    nodes = {
        "input": nir.Input(np.array(shape)),
        "pool": pool(2),
        "n": integrate_and_fire((shape[0], 6, 8)),
        "output": nir.Output(np.array([shape[0], 6, 8])),
    }
    program = lower(chain(nodes, CHIP.with_(sensor=text)))
    frames = np.random.default_rng(0).integers(0, 3, (4, 2, 16, 20))
    stage = {"input_shape": (16, 20), "pool": (2, 2), "crop": ((1, 7), (2, 10)), "merge_polarities": merge}
    theirs = board(program, frames, stage=stage | {"flip_x": "x" in flip, "flip_y": "y" in flip})
    ours = chip_config(program)["sensor"]
    pooled = {"x": ours.pop("pooling"), "y": 2}
    assert ours | {"pooling": pooled, "pass_sensor_events": False} == theirs["config"] | {"destinations": [7]}
    passed = Sensor.parse(text).applied(frames).reshape(4, shape[0], 6, 2, 8, 2).sum(axis=(3, 5))
    assert np.array_equal(passed, np.array(theirs["frames"]))


@pytest.mark.needs_vendor("sinabs")
def test_device_code_gets_the_spikes_of_the_fake_board(board: Ask) -> None:
    answer = board(branched(), stimulus(), repeats=2)
    assert answer["device"] == "chip"
    assert not any(differences(branched(), stimulus(), answer).values())
    first, second = answer["details"]["totals"]
    assert first == second, "states are reset between repeats"
    assert min(first.values()) > 20


@pytest.mark.needs_vendor("sinabs")
def test_biases_come_with_the_clock_from_the_first_step_to_the_last_and_no_further(board: Ask) -> None:
    """One neuron that its bias alone makes fire every third step, in a clip without a single event."""
    frames = np.zeros((10, 1, 1, 1), int)
    answer = board(single(9, 1, bias=3), frames)
    assert np.array(answer["spikes"]["n"]).ravel().tolist() == [0, 0, 1] * 3 + [0]
    assert answer["details"]["slow_clock_hz"] == 1000
    assert answer["counters"] == {"outside": 0}


@pytest.mark.needs_vendor("sinabs")
def test_steps_follow_a_clock_of_whole_hertz(board: Ask) -> None:
    program, frames = single(10, 4, bias=1), np.ones((50, 1, 1, 1), int)
    answer = board(program, frames, dt=3e-3)
    assert (answer["details"]["slow_clock_hz"], answer["details"]["step_us"]) == (333, 3003)
    assert differences(program, frames, answer) == {"n": 0}


@pytest.mark.needs_vendor("sinabs")
def test_programs_of_random_graphs_run_on_the_fake_board_whatever_is_not_documented(board: Ask) -> None:
    """A slice of what `benchmarks/speck_board.py` runs."""
    seen = [play_random(board, seed) for seed in range(14)]
    accepted = [case for case in seen if case]
    assert not any(case.differences for case in accepted)
    for trait in ("skip", "fan-in", "equal kernels", "biases", "split"):
        assert any(trait in case.traits for case in accepted), trait
    assert min(case.spikes for case in accepted) > 20


@pytest.mark.needs_vendor("sinabs")
def test_device_code_does_not_exchange_layers_of_equal_kernels_and_takes_skips(board: Ask) -> None:
    """The input feeds two populations with the same kernel, and both feed two others."""
    a, b, c = branched().populations
    b = replace(b, sources=(PooledSource("input", 2),), weight=a.weight, padding=a.padding)
    c = replace(c, sources=(PooledSource("a", 2), PooledSource("b", 2)))
    d = replace(b, node="d", core=2, sources=(PooledSource("a"), PooledSource("b")), threshold=90)
    demand_spikes(replace(branched(), populations=(a, b, c, d)), stimulus(), board)


@pytest.mark.needs_vendor("sinabs")
def test_device_code_crops_maps_of_kernels_that_were_padded_to_a_square(board: Ask) -> None:
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
    demand_spikes(program, frames, board)


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
    monkeypatch.setattr("nrf.backends.vendors.environment.PROBE_SECONDS", 0.5)
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
