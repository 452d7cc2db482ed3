"""Event by event: what must not depend on order, and what the chip's arithmetic does at its ends."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nrf.arrays import Int32s
from nrf.backends.border import Spikes
from nrf.backends.lowering.operators import Conv
from nrf.backends.lowering.scatter import Layout
from nrf.backends.speck import asynchronous
from nrf.backends.speck.program import SpeckProgram
from nrf.backends.speck.simulate import Simulator, Trace

from .programs import clip, programs, run, single


def play(program: SpeckProgram, frames: Any, seed: int | None = 0) -> tuple[Trace, Int32s]:
    state = asynchronous.new_state(program)
    rng = None if seed is None else np.random.default_rng(seed)
    return asynchronous.simulate(program, Spikes.from_dense(frames), len(frames), rng, state), state


@settings(max_examples=40)
@given(program=programs(leaks=False), seed=st.integers(0, 99))
def test_one_event_per_step_through_one_core_is_the_synchronous_case(
    program: SpeckProgram, seed: int
) -> None:
    # a weight above the threshold fires again without a further event, only step by step
    first = program.populations[0]
    population = replace(first, weight=np.minimum(first.weight, min(first.threshold, 127)).astype(np.int8))
    program = replace(program, populations=(population,), outputs=(population.node,))
    rng = np.random.default_rng(seed)
    frames = np.zeros((30, *program.input_shape), np.int64)
    for step in frames:
        step[tuple(rng.integers(0, side) for side in step.shape)] = 1
    node = program.outputs[0]
    both = run(program, frames), run(program, frames, runtime="asynchronous")
    assert [one.provenance.runtime for one in both] == ["builtin", "asynchronous"]
    assert np.array_equal(both[0].dense(node), both[1].dense(node))


@settings(max_examples=40)
@given(program=programs(leaks=False, small_weights=True), seed=st.integers(0, 99))
def test_order_does_not_matter_where_nothing_fires(program: SpeckProgram, seed: int) -> None:
    quiet = [replace(each, threshold=2**15 - 1, floor=-(2**15)) for each in program.populations]
    program = replace(program, populations=tuple(quiet))
    frames = clip(program, np.random.default_rng(seed))
    (_, one), (_, other) = play(program, frames, 1), play(program, frames, 2)
    assert np.array_equal(one, other)
    assert np.any(one)


@settings(max_examples=40)
@given(program=programs(leaks=False), seed=st.integers(0, 99))
def test_excitation_alone_gives_the_same_counts_in_every_order(program: SpeckProgram, seed: int) -> None:
    """With weights from 0 to the threshold and reset by subtraction: floor(charge / threshold) spikes."""
    first = program.populations[0]
    weight = np.clip(np.abs(first.weight.astype(int)), 0, min(first.threshold, 127)).astype(np.int8)
    population = replace(first, weight=weight, zero_reset=False)
    program = replace(program, populations=(population,), outputs=(population.node,))
    frames = clip(program, np.random.default_rng(seed))
    result, state = play(program, frames, seed)
    charge = replace(population, threshold=2**30)  # the same network, only adding up
    simulator = Simulator(replace(program, populations=(charge,)))
    charged = simulator.advance(Spikes.from_dense(frames), len(frames), record=[population.node])
    total = charged.membranes[population.node][-1]
    fired = result.spikes[population.node].dense(len(frames), (len(total),)).sum(axis=0)
    assert np.array_equal(fired, total // population.threshold)
    layout = Layout(len(state), population.shape[0])
    assert np.array_equal(layout.outside(state), total % population.threshold)


def test_the_floor_takes_away_inhibition_that_comes_first() -> None:
    """Why order matters: with the floor at 0, -5 then +5 leaves 5, and +5 then -5 leaves 0."""
    program = single(100, 5, floor=0)
    population = replace(
        program.populations[0], input_shape=(2, 1, 1), weight=np.array([[[[5]], [[-5]]]], np.int8)
    )
    program = replace(program, populations=(population,), input_shape=(2, 1, 1))
    ends = {int(play(program, np.ones((1, 2, 1, 1), np.int64), seed)[1][0]) for seed in range(10)}
    assert ends == {0, 5}
    below = replace(program, populations=(replace(population, floor=-100),))
    assert {int(play(below, np.ones((1, 2, 1, 1), np.int64), seed)[1][0]) for seed in range(10)} == {0}


def test_a_neuron_fires_at_most_once_per_event() -> None:
    result, state = play(single(10, 35), np.ones((2, 1, 1, 1), np.int64))
    assert result.spikes["n"].n.tolist() == [1, 1]
    assert state.tolist() == [50]


def test_the_slow_clock_adds_the_bias_once_per_step() -> None:
    result, _ = play(single(10, 1, bias=3), np.zeros((100, 1, 1, 1), np.int64))
    assert int(result.spikes["n"].n.sum()) == 30
    result, state = play(single(10, 9, bias=-2, floor=0), np.ones((5, 1, 1, 1), np.int64))
    assert result.spikes["n"].t.tolist() == [1, 2, 3], "9, 16, 13, 10, then the floor stops the leak"
    assert state.tolist() == [9]


def test_sixteen_bits_saturate_and_are_counted() -> None:
    down, state = play(single(100, -128), np.full((1, 1, 1, 1), 300))
    assert state.tolist() == [-(2**15)]
    assert down.saturated == 300 - 2**15 // 128
    up, state = play(single(1, 127), np.full((1, 1, 1, 1), 300))
    assert state.tolist() == [2**15 - 2], "the highest state, less the threshold"
    assert up.saturated == 300 - (2**15 - 1) // 126


@pytest.mark.parametrize("weight", [-128, 127])
def test_both_simulators_count_overflows_at_both_ends(weight: int) -> None:
    frames = np.full((40, 1, 1, 1), 10)
    for mode in ("builtin", "asynchronous"):
        counted = run(
            single(1 if weight > 0 else 2**15 - 1, weight), frames, runtime=mode
        ).provenance.counters
        assert counted["saturated"] > 0, mode
        stopped = run(single(2**15 - 1, -128, floor=-(2**14)), frames, runtime=mode).provenance.counters
        assert counted["saturated"] > stopped["saturated"] == 0, "the floor stops it first"


def test_a_seed_gives_the_same_order_again() -> None:
    rng = np.random.default_rng(0)
    weight = rng.integers(-60, 60, (1, 1, 3, 3), np.int8)
    population = replace(
        single(80, 1).populations[0],
        input_shape=(1, 9, 9),
        shape=(1, 7, 7),
        node_shape=(1, 7, 7),
        weight=weight,
        floor=0,
    )
    program = replace(single(1, 1), populations=(population,), input_shape=(1, 9, 9))
    frames = (rng.random((20, 1, 9, 9)) < 0.3).astype(int)
    again = [run(program, frames, runtime="asynchronous", seed=seed).dense("n") for seed in (3, 3, 4)]
    assert np.array_equal(again[0], again[1])
    assert not np.array_equal(again[0], again[2])


def test_long_clips_are_whole_across_pieces() -> None:
    program = single(10, 3)
    steps = 3 * asynchronous.CHUNK + 5
    result, _ = play(program, np.ones((steps, 1, 1, 1), np.int64))
    assert int(result.spikes["n"].n.sum()) == 3 * steps // 10
    assert np.all(np.diff(result.spikes["n"].t) > 0)


def test_synaptic_operations_are_counted_per_core() -> None:
    result, _ = play(single(10, 3), np.full((4, 1, 1, 1), 2))
    assert result.operations == {"n": 8}


@settings(max_examples=40)
@given(program=programs(leaks=False), seed=st.integers(0, 99))
def test_an_event_updates_the_neurons_that_its_kernel_reaches_and_no_others(
    program: SpeckProgram, seed: int
) -> None:
    """Where the stride does not divide the kernel, neurons see fewer taps at some places."""
    population = replace(program.populations[0], threshold=2**15 - 1)
    pool, (channels, height, width) = population.sources[0].pool, population.input_shape
    frames = clip(program, np.random.default_rng(seed))
    result, _ = play(replace(program, populations=(population,), outputs=(population.node,)), frames)
    ones = Conv(
        np.ones(population.weight.shape), population.input_shape, population.stride, population.padding
    )
    reached = (ones.matrix() != 0).sum(axis=0).reshape(channels, height, width)
    counts = frames.sum(axis=0)[:, : height * pool, : width * pool]
    pooled = counts.reshape(channels, height, pool, width, pool).sum(axis=(2, 4))
    assert result.operations[population.node] == int((reached * pooled).sum())
