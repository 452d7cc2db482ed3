"""Step by step, the built-in simulator is quantised Sinabs to the bit."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nrf.backends.border import Provenance, Recording, Spikes
from nrf.backends.speck import simulate
from nrf.backends.speck.program import PooledSource, SpeckProgram
from nrf.backends.speck.run import WORKER, input_spikes, session
from nrf.backends.speck.simulate import Simulator, alone, merged
from nrf.backends.vendors.environment import python_of
from nrf.errors import InputError
from nrf.export.contract import Contract

from .programs import BITS, clip, programs, run, single

HERE = Path(__file__).parent


class Sinabs:
    """Quantised Sinabs in its own environment, open as long as the module's tests run."""

    def __init__(self, folder: Path) -> None:
        python = python_of("sinabs")
        assert python is not None
        command = [str(python), "-I", str(HERE / "sinabs_server.py"), str(WORKER.parent)]
        self.folder = folder
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._wait("ready")

    def _wait(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == word, "Sinabs ended; see its traceback above"

    def run(self, program: SpeckProgram, frames: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Spikes (`node/s`) and membranes (`node/v`) of every population, dense."""
        files = [self.folder / name for name in ("program.npz", "frames.npz", "answer.npz")]
        program.save(files[0])
        np.savez(files[1], frames=frames)
        assert self.process.stdin is not None
        print(*files, file=self.process.stdin, flush=True)
        self._wait("done")
        with np.load(files[2]) as answer:
            return {name: answer[name] for name in answer.files}


@pytest.fixture(scope="module")
def sinabs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sinabs]:
    server = Sinabs(tmp_path_factory.mktemp("sinabs"))
    yield server
    assert server.process.stdin is not None
    server.process.stdin.close()
    server.process.wait(20)


@pytest.mark.needs_vendor("sinabs")
@settings(max_examples=320, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=programs(many=True), seed=st.integers(0, 999))
def test_equals_quantised_sinabs_on_random_programs(sinabs: Sinabs, program: SpeckProgram, seed: int) -> None:
    frames = clip(program, np.random.default_rng(seed))
    ours, theirs = run(program, frames), sinabs.run(program, frames)
    for population in program.populations:
        assert np.array_equal(ours.dense(population.node), theirs[f"{population.node}/s"]), population.node
        volts = theirs[f"{population.node}/v"] * population.volts[:, None, None]
        assert np.array_equal(ours.membrane(population.node), volts.astype(np.float32)), population.node


@settings(max_examples=30, deadline=None)
@given(program=programs(many=True), seed=st.integers(0, 999), cut=st.integers(1, 11))
def test_a_stream_in_pieces_gives_the_spikes_of_the_whole(program: SpeckProgram, seed: int, cut: int) -> None:
    frames = clip(program, np.random.default_rng(seed))
    whole, advance = run(program, frames), session(program)
    first, second = advance(frames[:cut]), advance(frames[cut:])
    for population in program.populations:
        parts = first.events(population.node), second.events(population.node).later(cut)
        assert Spikes.joined(parts) == whole.events(population.node)


@settings(max_examples=30, deadline=None)
@given(program=programs(many=True), seed=st.integers(0, 999))
def test_sums_of_16_bits_give_the_spikes_of_32(program: SpeckProgram, seed: int) -> None:
    frames = clip(program, np.random.default_rng(seed))
    wide, narrow = Simulator(program), Simulator(program)
    wide.populations["drive"] = 2**15
    nodes = [each.node for each in program.populations]
    found = [
        each.advance(input_spikes(program, frames), len(frames), record=nodes) for each in (wide, narrow)
    ]
    assert found[0].spikes == found[1].spikes
    assert all(np.array_equal(found[0].membranes[node], found[1].membranes[node]) for node in nodes)
    assert wide.states.widened.all()


@settings(max_examples=30, deadline=None)
@given(program=programs(many=True), seed=st.integers(0, 999), density=st.sampled_from([0.02, 0.3, 1.0]))
def test_sums_of_patterns_and_single_spikes_give_the_same(
    program: SpeckProgram, seed: int, density: float
) -> None:
    """A teacher's spikes come one by one, its own by patterns of channels."""
    rng = np.random.default_rng(seed)
    frames = (rng.random((12, *program.input_shape)) < density).astype(np.float32)
    free = run(program, frames)
    forced = run(program, frames, teacher=free)
    for population in program.populations:
        assert free.events(population.node) == forced.events(population.node)


@settings(max_examples=30, deadline=None)
@given(program=programs(), seed=st.integers(0, 999))
def test_its_own_spikes_as_teacher_change_nothing(program: SpeckProgram, seed: int) -> None:
    frames = clip(program, np.random.default_rng(seed))
    free = run(program, frames)
    forced = run(program, frames, teacher=free)
    for population in program.populations:
        assert np.array_equal(free.dense(population.node), forced.dense(population.node))


@settings(max_examples=10, deadline=None)
@given(program=programs(), seed=st.integers(0, 999))
def test_a_silent_teacher_leaves_only_biases(program: SpeckProgram, seed: int) -> None:
    frames = clip(program, np.random.default_rng(seed))
    free = run(program, frames)
    silent = {node: Spikes.none() for node in free.nodes}
    teacher = type(free)(free.steps, free.shapes, silent, free.provenance)
    forced, idle = run(program, frames, teacher=teacher), run(program, frames * 0, teacher=teacher)
    for population in program.populations:
        if all(source.name != "input" for source in population.sources):
            assert np.array_equal(forced.dense(population.node), idle.dense(population.node))


@settings(max_examples=20, deadline=None)
@given(program=programs(), seed=st.integers(0, 999))
def test_a_session_gives_what_the_host_reads(program: SpeckProgram, seed: int) -> None:
    frames = clip(program, np.random.default_rng(seed))
    volts = replace(program, contract=program.contract.with_(output="membrane"))
    whole, advance = run(volts, frames), session(volts)
    pieces = [advance(frames[:5]), advance(frames[5:])]
    maps = [piece.maps(volts.outputs[0], volts.contract) for piece in pieces]
    assert np.array_equal(np.concatenate(maps), whole.maps(volts.outputs[0], volts.contract))
    assert all(set(piece.membranes) == {volts.outputs[0]} for piece in pieces)


@pytest.mark.parametrize(
    "frames",
    [
        np.full((3, 2, 8, 8), 0.5),
        np.full((3, 2, 8, 8), -1),
        np.zeros((3, 2, 8, 9)),
        np.zeros((3, 2, 8, 8, 3)),
        np.zeros(3),
    ],
)
def test_frames_that_no_spike_can_carry_are_refused(frames: NDArray[Any]) -> None:
    program = SpeckProgram("speck2f", Contract(), BITS, (2, 8, 8), (), ("n",))
    for runtime in ("builtin", "asynchronous", "sinabs"):
        with pytest.raises(InputError, match=r"frames|shape"):
            run(program, frames, runtime)


def test_an_unknown_runtime_is_refused_and_teaching_is_for_builtin_only() -> None:
    program = SpeckProgram("speck2f", Contract(), BITS, (2, 8, 8), (), ("n",))
    frames = np.zeros((3, 2, 8, 8))
    with pytest.raises(InputError, match="no runtime 'lava'"):
        run(program, frames, "lava")
    teacher = Recording(3, {}, {}, Provenance("reference", "simulation"))
    with pytest.raises(InputError, match="cannot be teacher-forced"):
        run(program, frames, "asynchronous", teacher=teacher)


def test_a_clip_without_steps_gives_nothing() -> None:
    program = single(10, 3)
    for runtime in ("builtin", "asynchronous"):
        assert run(program, np.zeros((0, 1, 1, 1)), runtime).events("n").count == 0


def test_a_membrane_at_many_thresholds_fires_on_in_silence() -> None:
    frames = np.array([1, 0, 0, 0, 0, 0, 0]).reshape(-1, 1, 1, 1)
    assert run(single(20, 100), frames).dense("n").ravel().tolist() == [1, 1, 1, 1, 1, 0, 0]


def test_counts_that_would_wrap_32_bits_are_refused_and_those_just_below_are_not() -> None:
    program = single(2**15 - 1, 127)
    assert run(program, np.array([16_000_000]).reshape(1, 1, 1, 1)).dense("n").sum() == 1
    with pytest.raises(InputError, match=r"node 'n', step 1: 17000000 events arrive .* 32 bits may wrap"):
        run(program, np.array([0, 17_000_000]).reshape(2, 1, 1, 1))


def test_a_simulator_that_refused_a_step_goes_on_refusing() -> None:
    simulator = Simulator(single(100, 127))
    for events in (17_000_000, 1):
        with pytest.raises(InputError, match="step 0: 17000000 events arrive"):
            simulator.advance(Spikes.from_dense(np.full((1, 1), events)), 1)


def test_counts_beyond_31_bits_are_refused() -> None:
    with pytest.raises(InputError, match="frames hold 4294967297 events of one pixel in a step"):
        run(single(100, 127), np.full((1, 1, 1, 1), 2**32 + 1))


def test_what_is_pooled_before_it_arrives_gives_the_same_spikes() -> None:
    """Neurons that are pooled are then several events of one in a step, and their sum may need 32 bits."""
    inputs, fires = (144, 2, 2), np.array([[1, 1], [1, 0]])
    population = replace(
        single(1000, 127, floor=0).populations[0],
        input_shape=(144, 1, 1), sources=(PooledSource("input", 2),),
        weight=np.full((1, 144, 1, 1), 127, np.int8),
    )  # fmt: skip
    program = SpeckProgram("speck2f", Contract(), BITS, inputs, (population,), ("n",))
    spikes = Spikes.from_dense(np.broadcast_to(fires, (2, *inputs)))
    arriving = merged([(spikes, 2, inputs)], (144, 1, 1))
    assert Simulator(program).advance(spikes, 2).spikes["n"].count == 2
    assert alone(population, BITS, arriving, 2).count == 2


@settings(max_examples=20, deadline=None)
@given(program=programs(many=True), seed=st.integers(0, 999))
def test_a_log_that_is_full_in_the_middle_of_a_clip_loses_nothing(program: SpeckProgram, seed: int) -> None:
    frames = clip(program, np.random.default_rng(seed))
    whole = run(program, frames)
    with mock.patch.object(simulate, "ROOM", 0):
        assert run(program, frames) == whole


def test_a_teacher_of_another_graph_is_refused_and_what_is_behind_the_clip_is_not_heard() -> None:
    first = single(100, 100).populations[0]
    second = replace(first, node="m", core=1, sources=(PooledSource("n"),))
    program = SpeckProgram("speck2f", Contract(), BITS, (1, 1, 1), (first, second), ("m",))

    def heard(t: int, i: int) -> int:
        taught = Spikes(*(np.array([each]) for each in (t, i, 1)))
        return Simulator(program).advance(Spikes.none(), 1, {"n": taught}).spikes["m"].count

    assert heard(0, 0) == 1 and heard(5, 0) == 0
    with pytest.raises(InputError, match="node 'n': the teacher has spikes of neurons 1 to 1"):
        heard(0, 1)


def test_a_membrane_that_grows_for_long_is_refused_before_it_wraps() -> None:
    """One spike per step takes off less than comes in: 127 times 100,000 fill 32 bits in 170 steps."""
    program = single(100, 127)
    frames = np.full((200, 1, 1, 1), 100_000)
    assert run(program, frames[:160]).dense("n").sum() == 160
    with pytest.raises(
        InputError, match="node 'n', step 169: 100000 events arrive and membranes are at up to"
    ):
        run(program, frames)
